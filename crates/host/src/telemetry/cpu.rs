//! What the processor's cores did: for this process, and for everybody else.
//!
//! Linux keeps these figures; where it does not (`/proc` is hidden, or another system), they are absent and nobody
//! claims to have measured them.

use crate::machine::cores;
use serde::Serialize;
use std::fs;
use std::time::Instant;

/// Times in `/proc/stat` and `/proc/PID/stat` count in hundredths of a second on every Linux.
const TICK_NS: u64 = 10_000_000;
/// Figures of this process's control group, as a container sees it.
const QUOTA_FILES: [&str; 2] = ["/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"];

/// Core time since the machine started.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    at: Instant,
    busy_ns: u64,
    /// Taken away by the machine that this one is a guest of.
    stolen_ns: u64,
    own_ns: u64,
    /// While some task, of anybody, waited for memory or for a disk; by the kernel's pressure counters.
    memory_stall_ns: Option<u64>,
    io_stall_ns: Option<u64>,
    /// Held back because the quota of this process's group was used up.
    throttled_ns: Option<u64>,
}

/// Shares of all cores' time between two readings, and of wall time for stalls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostLoad {
    pub cores: usize,
    pub own: f64,
    pub others: f64,
    pub stolen: f64,
    pub memory_stall: Option<f64>,
    pub io_stall: Option<f64>,
    pub throttled: Option<f64>,
}

impl HostClock {
    pub fn read() -> Option<Self> {
        let (busy_ns, stolen_ns) = machine(&fs::read_to_string("/proc/stat").ok()?)?;
        let own_ns = process(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let stall = |name: &str| pressure(&fs::read_to_string(format!("/proc/pressure/{name}")).ok()?);
        let (memory_stall_ns, io_stall_ns) = (stall("memory"), stall("io"));
        let throttled_ns = QUOTA_FILES.iter().find_map(|path| throttled(&fs::read_to_string(path).ok()?));
        Some(HostClock { at: Instant::now(), busy_ns, stolen_ns, own_ns, memory_stall_ns, io_stall_ns, throttled_ns })
    }

    pub fn since(&self, earlier: &HostClock) -> HostLoad {
        let cores = cores();
        let wall_ns = (self.at - earlier.at).as_nanos().max(1) as f64;
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / wall_ns / cores as f64;
        let (busy, own) = (share(self.busy_ns, earlier.busy_ns), share(self.own_ns, earlier.own_ns));
        let stall = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?) as f64 / wall_ns);
        HostLoad {
            cores,
            own,
            others: (busy - own).max(0.0),
            stolen: share(self.stolen_ns, earlier.stolen_ns),
            memory_stall: stall(self.memory_stall_ns, earlier.memory_stall_ns),
            io_stall: stall(self.io_stall_ns, earlier.io_stall_ns),
            throttled: stall(self.throttled_ns, earlier.throttled_ns),
        }
    }
}

/// (busy, stolen) of the line "cpu user nice system idle iowait irq softirq steal …"; guests are counted in user.
fn machine(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else { return None };
    Some(((user + nice + system + irq + softirq) * TICK_NS, steal * TICK_NS))
}

/// User and system time. The name in brackets may hold anything, so fields count from its end.
fn process(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<u64>() * TICK_NS)
}

/// "throttled_usec N" of the second version of control groups, "throttled_time N" in ns of the first.
fn throttled(text: &str) -> Option<u64> {
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    number("throttled_usec ").map(|micros| micros * 1000).or_else(|| number("throttled_time "))
}

/// The total of "some avg10=… avg60=… avg300=… total=µs".
fn pressure(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = line.split_once("total=")?;
    total.trim().parse::<u64>().ok().map(|micros| micros * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn files_of_the_kernel_are_read_by_their_form() {
        let stat = "cpu  100 1 20 900 30 4 5 6 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(machine(stat), Some((130 * TICK_NS, 6 * TICK_NS)));
        let stat = "27422 (a) b) R 27412 27412 17112 0 -1 4194304 98 0 0 0 12 30 0 0 20 0 1";
        assert_eq!(process(stat), Some(42 * TICK_NS));
        assert_eq!(pressure("some avg10=0.08 avg60=0.64 avg300=1.16 total=216\nfull total=9\n"), Some(216_000));
        assert_eq!(throttled("usage_usec 9\nthrottled_usec 7\n"), Some(7000));
        assert_eq!(throttled("nr_throttled 2\nthrottled_time 7\n"), Some(7));
    }

    #[test]
    fn the_load_of_this_machine_is_a_share() {
        let Some(before) = HostClock::read() else { return crate::skipped("/proc tells nothing of cores here") };
        std::thread::sleep(Duration::from_millis(50));
        let load = HostClock::read().unwrap().since(&before);
        assert!(load.cores > 0 && load.own >= 0.0 && load.others >= 0.0 && load.others < 1.5, "{load:?}");
    }
}
