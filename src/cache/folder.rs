//! The folder of one set of settings: its shards, the lock of its builder, and which clip is where.

use super::digest::{self, Digests, Stamp};
use super::rows::Rows;
use super::settings::Settings;
use super::{Cache, Error, Progress, shard};
use crate::corpus::Utterance;
use blake3::Hash;
use rayon::prelude::*;
use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const LOCK: &str = "lock";
const LOCK_POLL: Duration = Duration::from_millis(100);

/// Where a clip lies: which record batch, which row of it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub batch: usize,
    pub row: usize,
}

pub(super) struct Folder {
    dir: PathBuf,
    /// What relative paths of audio start from, asked for once instead of once a clip.
    current_dir: PathBuf,
    pub digests: Digests,
    batches: Vec<Rows>,
    places: HashMap<Hash, Place>,
    /// Shards that were written or touched since their digest was last taken.
    doubtful: Vec<PathBuf>,
}

impl Folder {
    /// Maps the shards whose digest is vouched for. Touches no sample.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|error| Error::io(dir, error))?;
        let digests = Digests::load(dir);
        let current_dir = std::env::current_dir().map_err(|error| Error::io(Path::new("."), error))?;
        let (dir, places) = (dir.to_owned(), HashMap::new());
        let mut folder = Folder { dir, current_dir, digests, batches: vec![], places, doubtful: vec![] };
        for (path, claimed) in folder.shards()? {
            if folder.digests.get(&path) != Some(claimed) || folder.add(&path).is_err() {
                folder.doubtful.push(path);
            }
        }
        Ok(folder)
    }

    pub(super) fn is_sure(&self) -> bool {
        self.doubtful.is_empty()
    }

    /// Reads every doubtful shard in full: one that keeps its promise is used, another is deleted. Under the lock only.
    /// Returns how many were deleted.
    pub(super) fn settle(&mut self, progress: &(dyn Fn(Progress) + Sync)) -> Result<usize, Error> {
        let (doubtful, done) = (std::mem::take(&mut self.doubtful), AtomicUsize::new(0));
        let read = |path: &PathBuf| {
            let read = digest::of_file(path).map_err(|error| Error::io(path, error));
            progress(Progress::Verifying { done: done.fetch_add(1, Ordering::Relaxed) + 1, total: doubtful.len() });
            read
        };
        let digests = doubtful.par_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut damaged = 0;
        for (path, (stamp, hash)) in doubtful.iter().zip(digests) {
            if Some(hash) == shard::claimed(path) {
                self.accept(path, stamp, hash)?;
            } else {
                fs::remove_file(path).map_err(|error| Error::io(path, error))?;
                damaged += 1;
            }
        }
        Ok(damaged)
    }

    /// Takes in a shard whose digest was just made.
    pub(super) fn accept(&mut self, path: &Path, stamp: Stamp, hash: Hash) -> Result<(), Error> {
        self.digests.vouch(path, stamp, hash);
        self.add(path)
    }

    /// The key of every utterance whose audio is known and whose features are here.
    pub(super) fn find(&self, utterances: &[Utterance], settings: &Settings) -> Vec<Option<Hash>> {
        let find = |utterance: &Utterance| {
            let audio = self.digests.get(&self.audio(utterance))?;
            Some(settings.key(utterance, &audio)).filter(|key| self.has(key))
        };
        utterances.par_iter().map(find).collect()
    }

    /// Under which name the digest of a clip's audio is kept.
    pub(super) fn audio(&self, utterance: &Utterance) -> PathBuf {
        self.current_dir.join(&utterance.audio)
    }

    pub(super) fn has(&self, key: &Hash) -> bool {
        self.places.contains_key(key)
    }

    /// The clips with these keys, in their order.
    pub(super) fn into_cache(self, keys: &[Option<Hash>]) -> Cache {
        let order = keys.iter().flatten().filter_map(|key| self.places.get(key).copied()).collect();
        Cache { batches: self.batches, order }
    }

    pub(super) fn save(&self) -> Result<(), Error> {
        self.digests.save(&self.dir)
    }

    fn add(&mut self, path: &Path) -> Result<(), Error> {
        for rows in Rows::read(path)? {
            let batch = self.batches.len();
            self.places.extend(rows.keys().enumerate().map(|(row, key)| (key, Place { batch, row })));
            self.batches.push(rows);
        }
        Ok(())
    }

    /// Shards by name, so that a clip held twice is always taken from the same one.
    fn shards(&self) -> Result<Vec<(PathBuf, Hash)>, Error> {
        let entries = fs::read_dir(&self.dir).map_err(|error| Error::io(&self.dir, error))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut shards: Vec<_> = paths.filter_map(|path| Some((shard::claimed(&path)?, path))).collect();
        shards.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(shards.into_iter().map(|(hash, path)| (path, hash)).collect())
    }
}

/// Waits until no other process builds in this folder. The lock ends with the returned file, or with the process.
pub(super) fn lock(dir: &Path, progress: &dyn Fn(Progress), stop: &AtomicBool) -> Result<File, Error> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(|error| Error::io(&path, error))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(Error::io(&path, error)),
            Err(TryLockError::WouldBlock) if stop.load(Ordering::Relaxed) => {
                return Err(Error::Interrupted { built: 0 });
            }
            Err(TryLockError::WouldBlock) => progress(Progress::Waiting),
        }
        std::thread::sleep(LOCK_POLL);
    }
}
