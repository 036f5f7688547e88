//! Features on disk: the sound of every recording and the tokens of every text, in memory-mapped Arrow files.
//!
//! ```text
//! <cache dir>/<settings>/shard-<digest of its bytes>.arrow   source, samples, checksum, pcm or mel: one row a recording
//!                        corpus-<its hash>-<digest>.arrow    id, tokens, speaker, language, source, shard, offset, ...
//!                        durations-<what>-<digest>.arrow     frames of every token, as a voice found them
//!                        part-<its hash>-<digest>.arrow      the same for a part that one of several machines made
//!                        settings.json                       what the folder's name is a hash of
//!                        lock                                held by the one process that builds
//!                        outdated                            a run met a recording that has changed: look at all
//! ```
//!
//! - Sound is found by the hash of its recording's bytes, in the folder of the settings it was made with; tokens by
//!   text, language and tokenizer. So a changed clip is one clip's work, and another tokenizer is no work for sound.
//! - Files appear complete or not at all: written under a temporary name, then renamed.
//! - Opening compares sizes and times of shards with those they had when they were last read in full. One that was
//!   written to, cut or copied since is read again and, if its name is not its digest, deleted and built again.
//! - Recordings are told by size and times too, at opening or, in a large corpus, at the first use of their clip.
//! - What sizes and times do not show, rot on the medium, the checksum of each clip does: it is compared when a clip
//!   is first used in a run. A damaged file is deleted then, and the next run builds it again.

mod bucket;
mod build;
mod clip;
mod digest;
pub mod durations;
mod entries;
mod error;
mod features;
mod file_stat;
mod folder;
mod identity;
mod known_corpus;
mod local_store;
mod make;
mod map;
mod output;
mod packed;
mod places;
mod remembered;
mod settings;
mod shard;
pub mod store;
mod table;
mod table_writer;
#[cfg(test)]
mod tests;
mod tokenizer_cache;
mod writer;

pub use clip::{Cache, Clip, ClipLength};
pub(crate) use error::list;
pub use error::{Error, Failure};
pub use features::{ClipAudio, ClipAudioBuf, ClipSound};
pub use known_corpus::{CorpusKey, KnownCorpus};
pub use settings::{FeatureSettings, MelSettings};
pub use tokenizer_cache::tokenizer;

use crate::config::{Config, Data};
use crate::corpus::{Rows, Utterances};
use crate::error::Hint;
use crate::ranks::Part;
use crate::simulate::Hook;
use crate::text::Tokenizer;
use bucket::Bucket;
use build::{BuildCounts, BuildJob};
use folder::Folder;
use identity::Identity;
use serde::Serialize;
use settings::AudioForm;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// What `open` did.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// Folder of these settings.
    pub path: PathBuf,
    /// Clips whose sound was made.
    pub built: usize,
    /// Clips whose text was turned into tokens, and whose sound was there.
    pub encoded: usize,
    /// Clips that were there.
    pub reused: usize,
    pub failures: Vec<Failure>,
    /// Shards that did not match their digest, deleted.
    pub damaged_shards: usize,
    /// Size of the features of this corpus.
    pub bytes: u64,
    /// Length of the speech.
    pub seconds: f64,
    pub work: BuildSeconds,
}

/// Where the time of building went, in seconds; of all workers together but for `wall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BuildSeconds {
    pub wall: f64,
    pub read: f64,
    pub sound: f64,
    pub text: f64,
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

/// Recordings that `open` looks at: all of a corpus of some 30 hours, or as many of a larger one, evenly spread. To look
/// takes 1 to 2 µs each.
const LOOKED_AT: usize = 1 << 14;

/// Shards that are mapped when a cache is opened: 256 GiB of them. A run keeps those whatever becomes of their names; of
/// more, some are looked at and each is mapped when it is first used.
const MAPPED_AT_ONCE: usize = 1 << 12;

/// Builds what is missing and opens the rest. The order is that of `utterances`, less those that failed; it does not
/// depend on the number of workers.
///
/// Takes the same time for a large corpus as for a huge one: recordings that it does not look at are looked at when
/// their clip is first used. One that has changed is an error then, and the next run makes it again.
pub fn open(
    utterances: &Utterances,
    tokenizer: &Tokenizer,
    config: &Config,
    progress: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
    hook: &Hook,
) -> Result<(Cache, CacheReport), Error> {
    with_job(LOOKED_AT, all(utterances), tokenizer, config, (progress, stop, hook), build_missing)?
}

/// Builds what is missing and opens the rest, as [`open`] does, after a look at every recording.
pub fn prepare(
    utterances: &Utterances,
    tokenizer: &Tokenizer,
    config: &Config,
    progress: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Result<(Cache, CacheReport), Error> {
    with_job(usize::MAX, all(utterances), tokenizer, config, (progress, stop, &Hook::NONE), build_missing)?
}

/// Builds one of several parts of a corpus, whatever other machines do with the others, and says what it built. `prepare`
/// then makes one table of all, without reading a recording. What is done twice, by whomever, comes out the same.
pub fn prepare_part(
    utterances: &Utterances,
    part: Part,
    tokenizer: &Tokenizer,
    config: &Config,
    progress: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Result<CacheReport, Error> {
    let own = utterances.rows(part.range(utterances.len()));
    let build = |job: &BuildJob| {
        let whole = BuildJob { utterances: all(utterances), ..job.clone() }.identity().hex().to_owned();
        build_missing(&BuildJob { whole: Some(whole), ..job.clone() }).map(|(_, report)| report)
    };
    with_job(usize::MAX, own, tokenizer, config, (progress, stop, &Hook::NONE), build)?
}

/// What there is already, where all of it is there. Builds nothing.
pub fn find(utterances: &Utterances, tokenizer: &Tokenizer, config: &Config) -> Option<CacheReport> {
    let (progress, stop) = (|_| (), AtomicBool::new(false));
    let look = |job: &BuildJob| {
        let cache = Cache::open(job, &job.identity()).filter(|cache| cache.is_current(job.looked_at))?;
        report(job, cache, BuildCounts::default(), 0).ok()
    };
    let (_, report) =
        with_job(LOOKED_AT, all(utterances), tokenizer, config, (&progress, &stop, &Hook::NONE), look).ok()??;
    Some(report)
}

/// The cache of a corpus that was opened before and has not changed, where all of it is there. Builds nothing, and reads
/// nothing of the corpus but some stats of recordings.
pub fn open_known(known: &KnownCorpus, config: &Config) -> Result<Option<(Cache, CacheReport)>, Error> {
    let (progress, stop) = (|_| (), AtomicBool::new(false));
    let look = |job: &BuildJob| {
        let is_current = |cache: &Cache| !job.dir.join(clip::OUTDATED).exists() && cache.is_current(job.looked_at);
        let cache = Cache::open(job, &Identity::known(&known.identity)).filter(is_current);
        let job = BuildJob { max_failures: config.data.max_failures.of(known.utterances), ..job.clone() };
        cache.map(|cache| report(&job, cache, BuildCounts::default(), 0)).transpose()
    };
    with_job(LOOKED_AT, all(&Utterances::default()), &known.tokenizer, config, (&progress, &stop, &Hook::NONE), look)?
}

/// Who watches a build, who ends it, and what is called at its moments.
type Watcher<'a> = (&'a (dyn Fn(Progress) + Sync), &'a AtomicBool, &'a Hook);

fn all(utterances: &Utterances) -> Rows<'_> {
    utterances.rows(0..utterances.len())
}

fn with_job<T>(
    looked_at: usize,
    utterances: Rows,
    tokenizer: &Tokenizer,
    config: &Config,
    (progress, stop, hook): Watcher,
    work: impl FnOnce(&BuildJob) -> T,
) -> Result<T, Error> {
    let (data, settings) = (&config.data, FeatureSettings::new(config));
    let kept = folder_of(data);
    let bucket = Bucket::open(data, &settings)?;
    let job = BuildJob {
        utterances,
        tokenizer,
        settings: &settings,
        form: AudioForm::new(config),
        language: &data.language,
        dir: kept.join(settings.folder()),
        base: std::env::current_dir().map_err(|error| Error::io(Path::new("."), error))?,
        workers: data.reading_workers(),
        max_failures: data.max_failures.of(utterances.len()),
        whole: None,
        bucket,
        shard_bytes: usize::try_from(data.shard_size.0).unwrap_or(usize::MAX),
        looked_at,
        mapped_at_once: if data.enable_caching { MAPPED_AT_ONCE } else { usize::MAX },
        progress,
        stop,
        hook,
    };
    let done = work(&job);
    if !data.enable_caching {
        // The maps hold the shards until the run ends, whether or not they have a name.
        let _ = fs::remove_dir_all(&kept);
    }
    Ok(done)
}

/// Where a run's features go: the cache, or a folder of this process that goes when it is over.
pub fn folder_of(data: &Data) -> PathBuf {
    if data.enable_caching { kept_dir(data) } else { scratch_dir() }
}

/// The next `open` reads every recording and every shard of these settings in full, whatever their times say.
pub fn distrust(config: &Config) -> Result<(), Error> {
    if let Some(url) = bucket::url(&config.data) {
        let what = "what is fetched from a bucket is held against its digest each time";
        return Err(Error::Place(url.into(), what.into(), Hint::new("leave --verify away")));
    }
    let dir = kept_dir(&config.data).join(FeatureSettings::new(config).folder());
    let tables = if dir.exists() { folder::tables(&dir)? } else { vec![] };
    tables.iter().try_for_each(|path| fs::remove_file(path).map_err(|error| Error::io(path, error)))
}

/// `$XDG_CACHE_HOME/myxtts/features`, or the same under `~/.cache`.
pub fn default_dir() -> PathBuf {
    crate::machine::cache_home().join("features")
}

fn build_missing(job: &BuildJob) -> Result<(Cache, CacheReport), Error> {
    let corpus = job.identity();
    let open = || Cache::open(job, &corpus);
    let outdated = job.dir.join(clip::OUTDATED);
    let looked_at = if outdated.exists() { usize::MAX } else { job.looked_at };
    let is_current = |cache: &Cache| cache.is_current(looked_at);
    if let Some(cache) = open().filter(is_current) {
        return report(job, cache, BuildCounts::default(), 0);
    }
    // From here on this process writes. Whoever held the lock may have built what was missing: look again.
    let is_part = job.whole.is_some();
    let _lock = match is_part {
        true => folder::lock_part(&job.dir, &corpus, job.progress, job.stop)?.into(),
        false => vec![folder::lock(&job.dir, job.progress, job.stop)?],
    };
    if let Some(cache) = open().filter(is_current) {
        return report(job, cache, BuildCounts::default(), 0);
    }
    store::describe(&job.dir, job.settings)?;
    let mut folder = match &job.bucket {
        Some(bucket) => {
            bucket.describe(job.settings)?;
            Folder::of_bucket(bucket, job.form)?
        }
        None => Folder::scan(&job.dir, job.form, is_part, job.progress)?,
    };
    let counts = build::run(job, &mut folder)?;
    // Every recording was looked at.
    let _ = fs::remove_file(outdated);
    let cache = open().ok_or_else(|| Error::Unreadable { path: job.dir.clone() })?;
    cache.trust();
    if !is_part {
        folder::remove_parts(&job.dir, job.bucket.as_deref(), &corpus)?;
    }
    report(job, cache, counts, folder.damaged)
}

fn report(
    job: &BuildJob,
    cache: Cache,
    counts: BuildCounts,
    damaged_shards: usize,
) -> Result<(Cache, CacheReport), Error> {
    let BuildCounts { built, encoded, work } = counts;
    let (failures, max_failures) = (cache.failures(), job.max_failures);
    if !failures.is_empty() && cache.is_empty() {
        return Err(Error::nothing_usable(failures));
    }
    if failures.len() > max_failures {
        return Err(Error::too_many(failures, max_failures));
    }
    let (samples, values, tokens) = cache.totals();
    let report = CacheReport {
        path: job.bucket.as_ref().map_or_else(|| job.dir.clone(), |bucket| bucket.name()),
        built,
        encoded,
        reused: cache.len() - (built + encoded).min(cache.len()),
        failures,
        damaged_shards,
        bytes: (values * size_of::<i16>() + tokens * size_of::<i32>()) as u64,
        seconds: samples as f64 / f64::from(job.settings.rate_hz),
        work,
    };
    Ok((cache, report))
}

/// The folder of this machine that features are kept in, or that lies in front of their bucket.
pub fn kept_dir(data: &Data) -> PathBuf {
    match bucket::url(data) {
        Some(url) => bucket::front(url, data),
        None => data.cache_dir.clone().unwrap_or_else(default_dir),
    }
}

fn scratch_dir() -> PathBuf {
    std::env::temp_dir().join(format!("myxtts-features-{}", std::process::id()))
}
