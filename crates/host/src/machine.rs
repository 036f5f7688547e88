//! What the machine gives to this process: cores, room on disk, time of its threads.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

/// Bytes in MiB, for people.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Cores that this process may use: by its affinity, and by the quota of its control group.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How this machine calls itself.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Threads that share a computation best: one for each core that this process may use. Two hyperthreads are one core, since
/// they share its arithmetic units.
pub fn compute_threads() -> usize {
    let siblings =
        |cpu: u32| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let whole: Option<BTreeSet<String>> = own_cpus().into_iter().map(|cpu| siblings(cpu).ok()).collect();
    whole.filter(|whole| !whole.is_empty()).map_or(cores(), |whole| whole.len().min(cores()))
}

/// Whether others want the cores right now, so that `threads` of this process would not have one each. Takes 2 ms: what
/// runs for a moment only is no neighbour. False where the system does not tell.
pub fn is_contended(threads: usize) -> bool {
    let others = (0..3).filter_map(|turn| {
        std::thread::sleep(Duration::from_millis(u64::from(turn > 0)));
        runnable(&fs::read_to_string("/proc/loadavg").ok()?)
    });
    // The one who reads is among them.
    let others = others.min().unwrap_or(1).saturating_sub(1);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").map_or(0, |text| cpu_list(&text).len());
    others + threads > online.max(cores())
}

/// Tasks that run or want to, of "1.05 0.70 0.63 3/146 31072".
fn runnable(loadavg: &str) -> Option<usize> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Numbers of the processors that this process's affinity allows; none where the system does not tell.
pub fn own_cpus() -> BTreeSet<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(cpu_list).unwrap_or_default()
}

/// Reads the kernel's lists of processors, "0-3,8,10-11".
pub fn cpu_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Bytes that this user may still write where `path` is, which must exist.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stats = rustix::fs::statvfs(path)?;
    Ok(stats.f_bavail * stats.f_frsize)
}

/// Bytes of memory that programs can still have, as Linux tells.
pub fn available_bytes() -> Option<u64> {
    kib_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// The first `name: N kB` of a /proc file, in bytes.
pub fn kib_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?.1;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Time that a thread ran on a core, and that it was ready to and had to wait for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    pub ran: Duration,
    pub queued: Duration,
}

/// The clock of the thread that opened it. A reading costs a microsecond or two.
#[derive(Debug)]
pub struct ThreadClock(Option<File>);

impl ThreadClock {
    pub fn open() -> Self {
        ThreadClock(File::open("/proc/thread-self/schedstat").ok())
    }

    pub fn read(&self) -> Option<Ran> {
        let mut text = [0; 64];
        let len = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        schedstat(str::from_utf8(&text[..len]).ok()?)
    }

    /// Time since an earlier reading.
    pub fn since(&self, earlier: Option<Ran>) -> Option<Ran> {
        let (now, before) = (self.read()?, earlier?);
        Some(Ran { ran: now.ran.saturating_sub(before.ran), queued: now.queued.saturating_sub(before.queued) })
    }
}

/// Time that this thread has run on a core. To the nanosecond, which a [`ThreadClock`] is not while its thread runs.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// "ran_ns queued_ns timeslices"
fn schedstat(text: &str) -> Option<Ran> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().map(Duration::from_nanos);
    Some(Ran { ran: next()?, queued: next()? })
}

/// The program's folder in the user's cache directory: `$XDG_CACHE_HOME/myxtts`, or the same under `~/.cache`.
pub fn cache_home() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map_or_else(std::env::temp_dir, |home| home.join(".cache"));
    set("XDG_CACHE_HOME").unwrap_or_else(home).join("myxtts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn there_is_room_here_and_none_nowhere() {
        assert!(free_bytes(&std::env::temp_dir()).unwrap() > 0);
        assert!(free_bytes(Path::new("/no/such/folder")).is_err());
    }

    #[test]
    fn lists_of_cores() {
        assert_eq!(cpu_list("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11].into());
        assert!(cpu_list("").is_empty());
    }

    #[test]
    fn more_threads_than_cores_have_none_each() {
        assert_eq!(runnable("8.98 9.45 8.92 10/146 31072\n"), Some(10));
        assert_eq!(runnable("8.98 9.45"), None);
        assert!(is_contended(1 << 20));
    }

    #[test]
    fn no_more_threads_compute_than_there_are_cores() {
        assert!((1..=cores()).contains(&compute_threads()));
    }

    #[test]
    fn the_kernels_line_is_read_by_its_form() {
        let ran = schedstat("1500 2500 3\n").unwrap();
        assert_eq!((ran.ran.as_nanos(), ran.queued.as_nanos()), (1500, 2500));
        assert_eq!(schedstat("0"), None);
    }

    /// Truth: what the thread does. It sleeps, then works until its own clock shows it.
    #[test]
    fn a_thread_that_sleeps_did_not_run() {
        let clock = ThreadClock::open();
        let Some(before) = clock.read() else { return crate::skipped("/proc tells nothing of threads here") };
        std::thread::sleep(Duration::from_millis(30));
        assert!(clock.since(Some(before)).unwrap().ran < Duration::from_millis(20));
        let start = Instant::now();
        while clock.since(Some(before)).unwrap().ran < Duration::from_millis(10) {
            assert!(start.elapsed() < Duration::from_secs(20), "it works and its clock stands still");
        }
    }
}
