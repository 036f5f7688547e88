//! Cores, memory and the disk that holds the recordings.

use host::telemetry::cpu::{HostClock, HostLoad};
use host::tools::devices::Cpu;
use host::tools::report::{Finding, Section};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the cores are watched before this program uses them.
const LOOK: Duration = Duration::from_millis(800);
/// Share of core time that other programs may use.
const OTHERS: f64 = 0.25;
/// Share of the time that tasks may wait for memory.
const MEMORY_STALL: f64 = 0.02;
/// Share of the memory that should be available.
const MEMORY_LEFT: f64 = 0.05;
/// As much is read as tells the speed of a disk: enough files, bytes or time.
const MOST_FILES: usize = 256;
const MOST_BYTES: u64 = 64 << 20;
const MOST_TIME: Duration = Duration::from_secs(2);
/// From a disk that is this much slower than memory, the bytes really came from it.
const COLD: f64 = 0.7;

/// Watches the cores for a while, which must have nothing to do with this program.
pub fn look_at_host(cpu: &Cpu) -> Section {
    let before = HostClock::read();
    sleep(LOOK);
    let load = before.and_then(|before| Some(HostClock::read()?.since(&before)));
    let mut section = Section::new("Cores and memory");
    let cores = cpu.cores.map_or("–".into(), |cores| cores.to_string());
    section.row("cores", format!("{cores} for this process ({})", cpu.name.as_deref().unwrap_or("unknown")));
    section.row("load", fs::read_to_string("/proc/loadavg").map_or("not measured".into(), |text| loads(&text)));
    section.row("other programs", load.map_or("not measured".into(), shares));
    section.row("memory", memory(cpu));
    section.findings.extend(judge(load, cpu));
    section
}

fn loads(text: &str) -> String {
    format!(
        "{} tasks on average over 1, 5 and 15 minutes",
        text.split_whitespace().take(3).collect::<Vec<_>>().join(", ")
    )
}

fn shares(load: HostLoad) -> String {
    let stall = load.memory_stall.map_or("not told".into(), |share| format!("{:.1} %", share * 100.0));
    format!(
        "{:.0} % of the cores, {:.0} % taken by the host of a virtual machine; some task waits for memory {stall} of the time",
        load.others * 100.0,
        load.stolen * 100.0
    )
}

fn memory(cpu: &Cpu) -> String {
    let gib =
        |bytes: Option<u64>| bytes.map_or("–".into(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 30)));
    format!("{} of {} GiB available", gib(cpu.memory_available_bytes), gib(cpu.memory_total_bytes))
}

/// Judged before the run, so that nothing of it is the run's own. What it costs, the run will show.
fn judge(load: Option<HostLoad>, cpu: &Cpu) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(load) = load else { return found };
    if load.others > OTHERS {
        let fact = format!("before the run, other programs used {:.0} % of the cores", load.others * 100.0);
        found.push(Finding::warning(
            "cores-in-use",
            0.0,
            fact,
            "stop or move them (`top` shows them), then measure again",
        ));
    }
    if load.stolen > OTHERS / 2.0 {
        let fact = format!("the host of this virtual machine took {:.0} % of the core time", load.stolen * 100.0);
        found.push(Finding::warning("cpu-stolen", 0.0, fact, "ask for cores that are not shared"));
    }
    let left =
        cpu.memory_available_bytes.zip(cpu.memory_total_bytes).map(|(left, total)| left as f64 / total.max(1) as f64);
    if left.is_some_and(|left| left < MEMORY_LEFT) || load.memory_stall.is_some_and(|share| share > MEMORY_STALL) {
        let fact = format!("memory is short: {}", memory(cpu));
        found.push(Finding::warning(
            "memory-pressure",
            0.0,
            fact,
            "stop other programs, or lower --prefetch-buffer-size",
        ));
    }
    if found.is_empty() {
        found.push(Finding::good("host", "cores and memory are free"));
    }
    found
}

/// Speed of reading recordings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiskSpeed {
    /// After the system was asked to forget them; absent where it did not.
    pub cold_mb_per_second: Option<f64>,
    pub warm_mb_per_second: f64,
    pub files: usize,
    pub bytes: u64,
}

/// Reads some recordings, spread over the list, twice. `None` where nothing can be read.
pub fn look_at_disk(recordings: &[PathBuf]) -> Option<DiskSpeed> {
    let every = recordings.len().div_ceil(MOST_FILES).max(1);
    let chosen: Vec<&PathBuf> = recordings.iter().step_by(every).collect();
    for path in &chosen {
        // Pages that were not written to disk yet stay; they are few in a corpus.
        let _ = File::open(path).map(|file| fadvise(&file, 0, None, Advice::DontNeed));
    }
    let (cold, files, bytes) = speed(&chosen)?;
    let (warm, ..) = speed(&chosen[..files])?;
    Some(DiskSpeed { cold_mb_per_second: (cold < COLD * warm).then_some(cold), warm_mb_per_second: warm, files, bytes })
}

/// (MB a second, files, bytes)
fn speed(paths: &[&PathBuf]) -> Option<(f64, usize, u64)> {
    let (start, mut buffer, mut files, mut bytes) = (Instant::now(), Vec::new(), 0, 0);
    for path in paths {
        if bytes >= MOST_BYTES || (files > 0 && start.elapsed() >= MOST_TIME) {
            break;
        }
        buffer.clear();
        bytes += File::open(path).and_then(|mut file| file.read_to_end(&mut buffer)).unwrap_or(0) as u64;
        files += 1;
    }
    (bytes > 0).then(|| (bytes as f64 / 1e6 / start.elapsed().as_secs_f64().max(1e-9), files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(others: f64, stolen: f64) -> Option<HostLoad> {
        Some(HostLoad { cores: 8, own: 0.0, others, stolen, memory_stall: Some(0.0), io_stall: None, throttled: None })
    }

    fn codes(load: Option<HostLoad>, available: u64) -> Vec<&'static str> {
        let cpu = Cpu { memory_total_bytes: Some(100), memory_available_bytes: Some(available), ..Cpu::default() };
        judge(load, &cpu).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_busy_machine_is_told_before_the_run() {
        assert_eq!(codes(load(0.05, 0.0), 50), ["host"]);
        assert_eq!(codes(load(0.60, 0.0), 50), ["cores-in-use"]);
        assert_eq!(codes(load(0.05, 0.2), 50), ["cpu-stolen"]);
        assert_eq!(codes(load(0.05, 0.0), 2), ["memory-pressure"]);
        assert!(codes(None, 50).is_empty(), "what was not measured is not judged");
    }

    #[test]
    fn files_are_read_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..3).map(|number| dir.path().join(number.to_string())).collect();
        paths.iter().for_each(|path| fs::write(path, vec![7; 1 << 20]).unwrap());
        let disk = look_at_disk(&paths).unwrap();
        assert_eq!((disk.files, disk.bytes), (3, 3 << 20));
        assert!(disk.warm_mb_per_second > 0.0);
        assert_eq!(look_at_disk(&[dir.path().join("none")]), None);
    }
}
