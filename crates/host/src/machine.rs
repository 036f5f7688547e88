//! What the machine gives to this process: cores, room on disk, time of its threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

/// Bytes in MiB, for people.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// "ran_ns queued_ns timeslices"
fn schedstat(text: &str) -> Option<Ran> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().map(Duration::from_nanos);
    Some(Ran { ran: next()?, queued: next()? })
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
