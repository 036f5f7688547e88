//! Features on disk: tokens and 16-bit PCM of every clip, in memory-mapped Arrow shards.
//!
//! ```text
//! <cache dir>/<settings>/shard-<blake3 of its bytes>.arrow   id, key, tokens, pcm, speaker, language
//!                        digests.arrow                       digests of audio files and shards, by size and times
//!                        lock                                held by the one process that builds
//! ```
//!
//! - A clip is found by its key: a hash over its audio bytes, its text, and every setting. What the corpus no longer
//!   has is not looked for; what is missing is built.
//! - Shards appear complete or not at all: written under a temporary name, synced, renamed.
//! - Opening checks a shard's size and times against those its digest was taken at, and its footer. One that was
//!   written to, cut or copied since is read in full and, if its name is not its digest, deleted and built again.
//!   Reading every shard at every start would find rot on the medium too, but takes seconds to minutes where opening
//!   takes 40 ms (see `digest`); after [`distrust`] the next opening does it.

mod build;
mod digest;
mod error;
mod folder;
mod map;
mod rows;
mod settings;
mod shard;
#[cfg(test)]
mod tests;

pub use error::{Error, Failure};
pub use settings::Settings;

use crate::config::Data;
use crate::corpus::Utterance;
use crate::text::Tokenizer;
use arrow_schema::ArrowError;
use folder::{Folder, Place};
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;

/// The clips of a corpus, in its order.
pub struct Cache {
    batches: Vec<rows::Rows>,
    order: Vec<Place>,
}

/// One clip; its slices point into the mapped shard.
#[derive(Clone, Copy, Debug)]
pub struct Clip<'a> {
    pub id: &'a str,
    pub tokens: &'a [i32],
    pub pcm: &'a [i16],
    pub speaker: &'a str,
    pub language: &'a str,
}

impl Cache {
    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn clip(&self, index: usize) -> Clip<'_> {
        let Place { batch, row } = self.order[index];
        self.batches[batch].clip(row)
    }

    /// Length of a clip, without touching its samples.
    pub fn samples(&self, index: usize) -> usize {
        let Place { batch, row } = self.order[index];
        self.batches[batch].samples(row)
    }

    /// Length of a clip's text, without touching it.
    pub fn tokens(&self, index: usize) -> usize {
        let Place { batch, row } = self.order[index];
        self.batches[batch].tokens(row)
    }
}

/// What `prepare` did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Folder of these settings.
    pub path: PathBuf,
    pub built: usize,
    pub reused: usize,
    pub failures: Vec<Failure>,
    /// Shards that did not match their digest, deleted.
    pub damaged_shards: usize,
    /// Size of the features of this corpus.
    pub bytes: u64,
    /// Length of the speech.
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another process builds in this folder.
    Waiting,
    /// Shards that changed since they were last read are read in full.
    Verifying {
        done: usize,
        total: usize,
    },
    Building {
        done: usize,
        total: usize,
        failed: usize,
    },
}

/// Builds what is missing and opens the rest, as the config says: what `train` and `myxtts prepare` both call.
pub fn open(
    utterances: &[Utterance],
    tokenizer: &Tokenizer,
    data: &Data,
    progress: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Result<(Cache, Report), Error> {
    let settings = Settings::new(data, tokenizer);
    let workers = data.num_workers.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    let dir = if data.enable_caching { kept_dir(data) } else { scratch_dir() };
    let opened = prepare(utterances, tokenizer, &settings, &dir, workers, data.max_failures, progress, stop);
    if !data.enable_caching {
        // The maps hold the shards until the run ends, whether or not they have a name.
        let _ = fs::remove_dir_all(&dir);
    }
    opened
}

/// Builds what is missing in `dir` and opens the rest. The order is that of `utterances`, less those that failed;
/// it does not depend on `workers`.
#[expect(clippy::too_many_arguments, reason = "each is a separate decision of the caller")]
pub fn prepare(
    utterances: &[Utterance],
    tokenizer: &Tokenizer,
    settings: &Settings,
    dir: &Path,
    workers: usize,
    max_failures: usize,
    progress: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Result<(Cache, Report), Error> {
    let dir = &dir.join(settings.folder());
    let folder = Folder::open(dir)?;
    let keys = folder.find(utterances, settings);
    if folder.is_sure() && keys.iter().all(Option::is_some) {
        return Ok(finish(dir, folder, &keys, build::Outcome::default(), 0, settings));
    }
    // From here on this process writes. Whoever held the lock may have built what was missing: look again.
    let _lock = folder::lock(dir, progress, stop)?;
    let mut folder = Folder::open(dir)?;
    let damaged = folder.settle(progress)?;
    let mut keys = folder.find(utterances, settings);
    let job = build::Job { utterances, tokenizer, settings, workers: workers.max(1), max_failures, progress, stop };
    let outcome = build::run(&job, dir, &mut folder, &mut keys)?;
    if !outcome.failures.is_empty() && outcome.failures.len() == utterances.len() {
        return Err(Error::NothingUsable { failures: outcome.failures });
    }
    Ok(finish(dir, folder, &keys, outcome, damaged, settings))
}

/// The next `open` reads every audio file and every shard of these settings in full, whatever their times say.
pub fn distrust(data: &Data, tokenizer: &Tokenizer) -> Result<(), Error> {
    let dir = kept_dir(data).join(Settings::new(data, tokenizer).folder());
    digest::Digests::forget(&dir).map_err(|error| Error::io(&dir, error))
}

/// `$XDG_CACHE_HOME/myxtts/features`, or the same under `~/.cache`.
pub fn default_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map_or_else(std::env::temp_dir, |home| home.join(".cache"));
    set("XDG_CACHE_HOME").unwrap_or_else(home).join("myxtts").join("features")
}

fn kept_dir(data: &Data) -> PathBuf {
    data.cache_dir.clone().unwrap_or_else(default_dir)
}

fn scratch_dir() -> PathBuf {
    std::env::temp_dir().join(format!("myxtts-features-{}", std::process::id()))
}

fn finish(
    dir: &Path,
    folder: Folder,
    keys: &[Option<blake3::Hash>],
    outcome: build::Outcome,
    damaged_shards: usize,
    settings: &Settings,
) -> (Cache, Report) {
    let cache = folder.into_cache(keys);
    let samples: usize = (0..cache.len()).map(|index| cache.samples(index)).sum();
    let tokens: usize = (0..cache.len()).map(|index| cache.tokens(index)).sum();
    let report = Report {
        path: dir.to_owned(),
        built: outcome.built,
        reused: cache.len() - outcome.built,
        failures: outcome.failures,
        damaged_shards,
        bytes: (samples * size_of::<i16>() + tokens * size_of::<i32>()) as u64,
        seconds: samples as f64 / f64::from(settings.rate_hz),
    };
    (cache, report)
}

/// Writes a file under a temporary name, syncs it, and renames it: readers see the old file or the new one.
fn atomic(path: &Path, write: impl FnOnce(&mut File) -> Result<(), ArrowError>) -> Result<(), ArrowError> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    let done = write(&mut file).and_then(|()| Ok(file.sync_all()?)).and_then(|()| Ok(fs::rename(&temporary, path)?));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}
