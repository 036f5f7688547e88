//! Whether the other ranks are alive. Each rank shows a beat; each looks at the beat of the one before it. Who finds one
//! missing writes down which, and all read that and end: a process that hangs in a collective cannot be asked to.

use anyhow::Result;
use host::ranks::Membership;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use torchx::collectives::Store;

/// Beats that a rank which is alive may miss on a busy machine.
const BEATS: u32 = 5;
/// Exit code of a rank that another one's end ends; as that of any error.
const FAILED: u8 = 2;

pub struct Watch {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    store: Store,
    prefix: String,
    me: usize,
    /// How messages call each rank.
    names: Vec<String>,
    /// Less than what users give: by then all others shall have ended.
    timeout: Duration,
    start: Instant,
    /// When the store last answered, in ms since the start.
    answered_ms: AtomicU64,
    /// This rank's work is done: what others do no longer matters.
    is_over: AtomicBool,
    closed: AtomicBool,
    /// What served the store, for its end.
    keeper: String,
}

/// What the store says.
struct Seen {
    /// Why all are to end.
    failed: Option<Vec<u8>>,
    /// The last beat of the rank before this one, and whether that one's work is done.
    beat: Option<Vec<u8>>,
    is_over: bool,
}

impl Watch {
    /// Begins to watch. The store is reached by a connection of its own: the run's may be waiting.
    pub fn start(me: &Membership, prefix: &str, names: Vec<String>, timeout: Duration) -> Result<Watch> {
        let store = Store::connect(&me.host, me.port, timeout)?;
        let keeper = if me.is_served { "the launcher".into() } else { names[0].clone() };
        let shared = Arc::new(Shared {
            store,
            prefix: prefix.into(),
            me: me.rank,
            names,
            timeout: timeout.mul_f64(0.8),
            start: Instant::now(),
            answered_ms: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            keeper,
        });
        let spawn = |name: &str, work: fn(&Shared)| {
            let shared = shared.clone();
            std::thread::Builder::new().name(name.into()).spawn(move || work(&shared))
        };
        let threads = vec![spawn("rank-beat", Shared::beat)?, spawn("rank-watch", Shared::watch_store)?];
        Ok(Watch { shared, threads: Mutex::new(threads) })
    }

    /// After a connection broke: finds out which rank is gone, by whose heart does not beat, and ends this process with that.
    /// Returns where all are alive.
    pub fn find_gone(&self) {
        let shared = &self.shared;
        let beats = || -> Result<Vec<Option<Vec<u8>>>, torchx::Error> {
            (0..shared.names.len()).map(|rank| shared.store.get(&shared.key("beat", rank))).collect()
        };
        let Ok(before) = beats() else { return };
        std::thread::sleep(BEATS * shared.period());
        let Ok(after) = beats() else { return };
        if let Some(gone) = (0..after.len()).find(|&rank| rank != shared.me && before[rank] == after[rank]) {
            let reason = format!("{} is gone: its connections broke, and it shows no sign of life", shared.names[gone]);
            shared.report(&reason);
            shared.end(&reason);
        }
    }

    /// Writes down why this rank ends, for the others.
    pub fn fail(&self, reason: &str) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.report(reason);
    }

    /// From here on this rank's end is no failure, and another's is none to it.
    pub fn done(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }

    pub fn stop(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.closed.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn period(&self) -> Duration {
        (self.timeout / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// Shows this rank's beat, looks at that of the one before it and at what was written down.
    fn beat(&self) {
        let before = (self.me + self.names.len() - 1) % self.names.len();
        let (mut last, mut since) = (None, Instant::now());
        let mut number = 0u64;
        while !self.closed.load(Ordering::Relaxed) {
            number += 1;
            match self.look(number, before) {
                Err(_) if self.is_over.load(Ordering::Relaxed) => return,
                Err(_) => self.end(&format!("{} is gone, and with it the store of all ranks", self.keeper)),
                Ok(seen) => {
                    self.answered_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
                    if let Some(reason) = seen.failed {
                        self.end(&String::from_utf8_lossy(&reason));
                    }
                    if seen.beat != last || seen.is_over {
                        (last, since) = (seen.beat, Instant::now());
                    } else if since.elapsed() > self.timeout {
                        let reason = format!(
                            "{} has not answered for {:.0} s: it has ended, it is stopped, or its network is down",
                            self.names[before],
                            since.elapsed().as_secs_f64()
                        );
                        self.report(&reason);
                        self.end(&reason);
                    }
                }
            }
            std::thread::park_timeout(self.period());
        }
    }

    fn look(&self, number: u64, before: usize) -> Result<Seen, torchx::Error> {
        self.store.set(&self.key("beat", self.me), &number.to_le_bytes())?;
        Ok(Seen {
            failed: self.store.get(&self.failed())?,
            beat: self.store.get(&self.key("beat", before))?,
            is_over: self.store.get(&self.key("end", before))?.is_some(),
        })
    }

    /// A store that does not answer blocks whoever asks it: this one only looks at the clock.
    fn watch_store(&self) {
        while !self.closed.load(Ordering::Relaxed) {
            std::thread::park_timeout(self.period());
            let silent =
                self.start.elapsed().saturating_sub(Duration::from_millis(self.answered_ms.load(Ordering::Relaxed)));
            if silent > self.timeout && !self.is_over.load(Ordering::Relaxed) {
                let seconds = silent.as_secs_f64();
                self.end(&format!(
                    "{} has not answered for {seconds:.0} s: it is stopped, or its network is down",
                    self.keeper
                ));
            }
        }
    }

    /// The first reason counts.
    fn report(&self, reason: &str) {
        if matches!(self.store.get(&self.failed()), Ok(None)) {
            let _ = self.store.set(&self.failed(), reason.as_bytes());
        }
    }

    /// Ends this process, whatever it hangs in, once a checkpoint that is being written is whole; others are at any time.
    fn end(&self, reason: &str) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let hint = if reason.contains("\nhint: ") {
                ""
            } else {
                "\nhint: the last checkpoint is intact; go on from it with --resume"
            };
            torchx::finish(self.timeout / 8);
            cli::complain(format!("error: {reason}{hint}"));
            torchx::exit_now(FAILED);
        }
    }

    fn failed(&self) -> String {
        format!("{}/failed", self.prefix)
    }

    fn key(&self, name: &str, rank: usize) -> String {
        format!("{}/{name}/{rank}", self.prefix)
    }
}
