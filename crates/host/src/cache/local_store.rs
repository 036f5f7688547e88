//! Shards of a bucket on this machine: fetched ahead of their turn, bounded in size, shared by all runs of the machine.
//!
//! - A run says which shards it needs now and soon, in order. Threads fetch them in that order; who asks for one of them
//!   waits until it is here.
//! - What a run needs it holds by a shared lock on the file. Room is made by deleting the least recently used files that
//!   nobody holds, so a run never deletes what another reads.
//! - A shard that is being fetched is locked too, and takes its full size from the start: others that need it wait for it,
//!   and the bound holds.
//! - What arrives is held against the digest that is its name before it gets that name.

use super::bucket::{self, Bucket};
use super::digest::Hasher;
use super::settings::AudioForm;
use super::shard::{self, Shard};
use crate::storage::bounded::{self, KeptFile, is_named, lock_room, make_room};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shards that are fetched at a time; each is read in several ranges.
const FETCHERS: usize = 8;
/// Between two looks at something that another process does.
const POLL: Duration = Duration::from_millis(20);
/// Room that other runs take may come free; after this it is an error.
const PATIENCE: Duration = Duration::from_secs(120);
/// A shard that does not match its digest was spoilt on the way, or is in the bucket.
const ATTEMPTS: usize = 2;

/// The shards of one cache on this machine.
pub(super) struct LocalStore {
    shared: Arc<Shared>,
    /// Threads that were started.
    fetchers: Mutex<usize>,
}

struct Shared {
    bucket: Arc<Bucket>,
    form: AudioForm,
    /// Name and size of each shard.
    shards: Vec<(String, u64)>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Shards that are needed, in the order of their turns.
    wanted: Vec<u32>,
    held: HashMap<u32, Arc<Held>>,
    /// Held and not needed any more. Fetchers unmap them, which takes milliseconds: not who says what is needed, for whom a
    /// training step may wait.
    let_go: Vec<Arc<Held>>,
    under_way: HashSet<u32>,
    /// Why a shard cannot be read. It is not tried again in this run.
    failed: HashMap<u32, String>,
    /// How often those who waited were told to stop.
    stops: usize,
    closed: bool,
}

/// A shard that stays while this does.
pub(super) struct Held {
    pub shard: Shard,
    /// Whoever makes room leaves a file alone that is locked.
    _lock: File,
}

/// Which thread let go of what.
#[cfg(test)]
pub(super) static LET_GO: Mutex<Vec<(PathBuf, Option<String>)>> = Mutex::new(Vec::new());

#[cfg(test)]
impl Drop for Held {
    fn drop(&mut self) {
        let thread = std::thread::current().name().map(str::to_owned);
        LET_GO.lock().unwrap_or_else(PoisonError::into_inner).push((self.shard.path.clone(), thread));
    }
}

impl LocalStore {
    pub(super) fn new(bucket: Arc<Bucket>, form: AudioForm, shards: Vec<(String, u64)>) -> Self {
        let shared = Shared { bucket, form, shards, state: Mutex::default(), changed: Condvar::new() };
        LocalStore { shared: Arc::new(shared), fetchers: Mutex::new(0) }
    }

    pub(super) fn bucket(&self) -> &Bucket {
        &self.shared.bucket
    }

    /// Size of a shard.
    pub(super) fn bytes(&self, number: u32) -> u64 {
        self.shared.shards[number as usize].1
    }

    /// From now on these are needed, in this order, and no others. Those that do not fit here beside the ones before them are left
    /// for when those are not needed any more: who asked for one would wait for a step that may wait for him.
    pub(super) fn want(&self, mut shards: Vec<u32>) -> io::Result<()> {
        let (most, mut taken) = (self.shared.bucket.most_bytes, 0);
        let mut fits = |shard: &&u32| {
            taken += self.bytes(**shard);
            taken <= most
        };
        shards.truncate(shards.iter().take_while(&mut fits).count());
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        while *fetchers < FETCHERS {
            let shared = self.shared.clone();
            std::thread::Builder::new().name("fetch".into()).spawn(move || shared.work())?;
            *fetchers += 1;
        }
        let mut state = self.shared.state();
        let wanted: HashSet<u32> = shards.iter().copied().collect();
        let (held, over) = state.held.drain().partition(|(shard, _)| wanted.contains(shard));
        state.held = held;
        state.let_go.extend(HashMap::into_values(over));
        state.wanted = shards;
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Nothing is needed any more, and who waits is told so: a run that ends must not wait for a network that is gone.
    pub(super) fn stop(&self) {
        let mut state = self.shared.state();
        state.wanted.clear();
        state.held.clear();
        state.stops += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// A shard that is wanted, once it is here, or why it does not come; none where it is not wanted.
    pub(super) fn get(&self, number: u32) -> Option<Result<Arc<Held>, String>> {
        let mut state = self.shared.state();
        let stops = state.stops;
        loop {
            if let Some(held) = state.held.get(&number) {
                return Some(Ok(held.clone()));
            }
            if let Some(reason) = state.failed.get(&number) {
                return Some(Err(reason.clone()));
            }
            if state.stops > stops {
                return Some(Err("the run is over".into()));
            }
            if state.closed || !state.wanted.contains(&number) {
                return None;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Threads end after the piece they are at. Nobody waits for them: the network may have gone.
impl Drop for LocalStore {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread that fetches.
    fn work(&self) {
        while let Some(number) = self.next() {
            let fetched = self.hold(number);
            let mut state = self.state();
            state.under_way.remove(&number);
            match fetched {
                Ok(Some(held)) if state.wanted.contains(&number) => drop(state.held.insert(number, Arc::new(held))),
                Ok(_) => {}
                Err(error) => drop(state.failed.insert(number, error.to_string())),
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Unmaps what is not needed any more.
    fn unmap(&self) {
        let over = std::mem::take(&mut self.state().let_go);
        drop(over);
    }

    /// The first that is needed and that nobody fetches; none when all is over.
    fn next(&self) -> Option<u32> {
        loop {
            self.unmap();
            let mut state = self.state();
            if state.closed {
                return None;
            }
            let is_open = |shard: &&u32| {
                !state.held.contains_key(shard) && !state.under_way.contains(shard) && !state.failed.contains_key(shard)
            };
            if let Some(&shard) = state.wanted.iter().find(is_open) {
                state.under_way.insert(shard);
                return Some(shard);
            }
            if state.let_go.is_empty() {
                drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Whether a shard is still to be had.
    fn is_wanted(&self, number: u32) -> bool {
        let state = self.state();
        !state.closed && state.wanted.contains(&number)
    }

    /// A shard, locked and mapped; fetched unless it is here. None when it is not needed any more.
    fn hold(&self, number: u32) -> io::Result<Option<Held>> {
        let (name, bytes) = &self.shards[number as usize];
        let path = self.bucket.dir.join(name);
        let part = path.with_extension("part");
        loop {
            if let Some(held) = self.present(&path, *bytes) {
                return Ok(Some(held));
            }
            if !self.is_wanted(number) {
                return Ok(None);
            }
            let file = File::options().create(true).truncate(false).write(true).open(&part)?;
            // Another process may fetch it just now, and may be done before this one has the lock.
            if file.try_lock().is_ok() && is_named(&file, &part) {
                let fetched = self.fetch(number, &file, &part, &path);
                if fetched.is_err() || matches!(fetched, Ok(false)) {
                    let _ = fs::remove_file(&part);
                }
                if !fetched? {
                    return Ok(None);
                }
            } else {
                std::thread::sleep(POLL);
            }
        }
    }

    /// A file that is complete, held from now on.
    fn present(&self, path: &Path, bytes: u64) -> Option<Held> {
        let lock = bounded::hold(path)?;
        (lock.metadata().ok()?.len() == bytes).then_some(())?;
        Some(Held { shard: Shard::open(path, self.form).ok()?, _lock: lock })
    }

    /// Makes room, reads a shard into a file that is locked, and gives it its name. False when it is not needed any more.
    fn fetch(&self, number: u32, mut file: &File, part: &Path, path: &Path) -> io::Result<bool> {
        let (name, bytes) = &self.shards[number as usize];
        let began = Instant::now();
        while let Some(missing) = make_room(&self.bucket.root, fetched, self.bucket.most_bytes, *bytes, Some(file))? {
            if !self.is_wanted(number) {
                return Ok(false);
            }
            // The others may wait for room too.
            self.unmap();
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("no room for it: runs hold all but {missing} bytes too few")));
            }
            std::thread::sleep(POLL);
        }
        for _ in 0..ATTEMPTS {
            let mut hasher = Hasher::new();
            io::Seek::rewind(&mut file)?;
            let mut reader = self.bucket.store.reader(&bucket::shard_object(name, *bytes))?;
            bucket::copy(&mut reader, *bytes, |piece| {
                if !self.is_wanted(number) {
                    return Err(io::Error::from(io::ErrorKind::Interrupted));
                }
                hasher.update(piece);
                file.write_all(piece)
            })
            .or_else(|error| if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) })?;
            if !self.is_wanted(number) {
                return Ok(false);
            }
            if Some(hasher.finish()) == shard::claimed(path) {
                let _lock = lock_room(&self.bucket.root)?;
                fs::rename(part, path)?;
                return Ok(true);
            }
        }
        Err(io::Error::other("its bytes are not what its name says"))
    }
}

/// Shards and parts of shards below a folder.
pub(super) fn fetched(root: &Path) -> Vec<KeptFile> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let inside = |dirs: Vec<PathBuf>| -> Vec<PathBuf> { dirs.iter().flat_map(|dir| entries(dir)).collect() };
    // Of each bucket, the folders of its settings.
    let files = inside(inside(entries(root).collect())).into_iter().filter(|path| bucket::is_fetched(path));
    files.filter_map(KeptFile::of).collect()
}

/// Keeps to the bound after a build: what it wrote here and put into the bucket counts as fetched.
pub(super) fn trim(bucket: &Bucket) {
    let _ = make_room(&bucket.root, fetched, bucket.most_bytes, 0, None);
}
