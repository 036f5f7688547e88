//! The bytes of many clips, in the order in which they will be asked for: shards are read from front to back, several at
//! a time and ahead of who asks.

use super::shards::{is_lasting, why};
use super::{AudioSource, Member};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// Shards that are read at once.
const READERS: usize = 4;
/// What may wait of one shard, beside the clip that is read: little enough to be still in a cache when it is decoded.
const WAITING_BYTES: usize = 4 << 20;

/// Why a clip could not be read, and whether trying again later may help.
#[derive(Clone, Debug)]
pub struct Unread {
    pub reason: String,
    pub may_pass: bool,
}

/// Reads parts of shards ahead of who asks for them. Memory: some megabytes for each of a few shards.
pub struct AudioFeed(Arc<Shared>);

struct Shared {
    /// What lies in shards, with the number that each is asked for by.
    sources: Vec<(usize, Member)>,
    state: Mutex<State>,
    /// For who asks.
    came: Condvar,
    /// For who reads.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Neighbours of one shard that nobody reads yet.
    runs: VecDeque<Range<usize>>,
    here: HashMap<usize, Result<Vec<u8>, Unread>>,
    /// Bytes that wait, by the start of their run.
    waiting: HashMap<usize, usize>,
    /// Start of the run of a number that is here.
    run_of: HashMap<usize, usize>,
    /// Threads that wait for a clip, and for room. Waking nobody would be a system call all the same.
    asking: usize,
    full: usize,
    closed: bool,
}

impl AudioFeed {
    /// `sources` in the order in which they will be asked for, each once, with the number that it is asked for by. Files
    /// that lie by themselves are left to who asks.
    pub fn new<'a>(sources: impl Iterator<Item = (usize, AudioSource<'a>)>) -> Self {
        let sources: Vec<_> = sources.filter_map(|(number, source)| Some((number, source.member()?.clone()))).collect();
        let runs = runs(&sources);
        let readers = READERS.min(runs.len());
        let state = Mutex::new(State { runs, ..State::default() });
        let shared = Arc::new(Shared { sources, state, came: Condvar::new(), room: Condvar::new() });
        for _ in 0..readers {
            let shared = shared.clone();
            // Not waited for: one may hang on a network for as long as that takes to be given up.
            let started = thread::Builder::new().name("shards".into()).spawn(move || shared.read_runs());
            if started.is_err() {
                break;
            }
        }
        AudioFeed(shared)
    }

    /// The bytes of a clip; waits for them.
    pub fn take(&self, number: usize) -> Result<Vec<u8>, Unread> {
        let mut state = self.0.lock();
        loop {
            if let Some(bytes) = state.here.remove(&number) {
                if let (Some(run), Ok(bytes)) = (state.run_of.remove(&number), &bytes) {
                    let waiting = state.waiting.entry(run).or_default();
                    *waiting -= bytes.len();
                    // A reader that goes on for every clip would mostly be woken.
                    if *waiting <= WAITING_BYTES / 2 && state.full > 0 {
                        self.0.room.notify_all();
                    }
                }
                return bytes;
            }
            state.asking += 1;
            state = self.0.came.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            state.asking -= 1;
        }
    }
}

impl Drop for AudioFeed {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.room.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn read_runs(&self) {
        loop {
            let mut state = self.lock();
            let Some(run) = state.runs.pop_front().filter(|_| !state.closed) else { return };
            drop(state);
            if self.read_run(run).is_none() {
                return;
            }
        }
    }

    /// None when nobody asks any more.
    fn read_run(&self, run: Range<usize>) -> Option<()> {
        let start = run.start;
        let mut reader = self.sources[start].1.shard.open(true);
        for at in run {
            let (number, member) = &self.sources[at];
            let bytes = match &mut reader {
                // Whoever waits for a clip must not wait for a reader that is no more.
                Ok(reader) => catch_unwind(AssertUnwindSafe(|| reader.member(member)))
                    .unwrap_or_else(|_| Err(io::Error::other("its reader failed on it")))
                    .map_err(|error| unread(&error)),
                Err(error) => Err(unread(error)),
            };
            // What the network refuses once it refuses for all that follow: they are not waited for one by one.
            if let Err(Unread { may_pass: true, reason }) = &bytes {
                reader = Err(io::Error::new(io::ErrorKind::NotConnected, reason.clone()));
            }
            self.put(start, *number, bytes)?;
        }
        Some(())
    }

    fn put(&self, run: usize, number: usize, bytes: Result<Vec<u8>, Unread>) -> Option<()> {
        let size = bytes.as_ref().map_or(0, Vec::len);
        let mut state = self.lock();
        while !state.closed
            && state.waiting.get(&run).is_some_and(|waiting| *waiting > 0 && waiting + size > WAITING_BYTES)
        {
            state.full += 1;
            state = self.room.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            state.full -= 1;
        }
        if state.closed {
            return None;
        }
        *state.waiting.entry(run).or_default() += size;
        state.run_of.insert(number, run);
        state.here.insert(number, bytes);
        if state.asking > 0 {
            self.came.notify_all();
        }
        Some(())
    }
}

fn unread(error: &io::Error) -> Unread {
    let may_pass = error.kind() == io::ErrorKind::NotConnected || !is_lasting(error);
    Unread { reason: why(error), may_pass }
}

/// Neighbours that lie in one shard.
fn runs(sources: &[(usize, Member)]) -> VecDeque<Range<usize>> {
    let shard = |at: usize| Arc::as_ptr(&sources[at].1.shard);
    let (mut runs, mut start) = (VecDeque::new(), 0);
    for at in 1..=sources.len() {
        if at == sources.len() || shard(at) != shard(start) {
            runs.push_back(start..at);
            start = at;
        }
    }
    runs
}
