//! Building what is missing: clips in parallel, rows in corpus order, shards as they fill.

use super::bucket::{self, Bucket};
use super::digest::Digest;
use super::entries::Entries;
use super::features::{Extracted, FeatureExtractor};
use super::folder::{self, Folder, KnownClips};
use super::identity::{Identity, language_of, text_key};
use super::local_store;
use super::make::{BuiltClip, ClipBuilder};
use super::places::Places;
use super::settings::{AudioForm, FeatureSettings};
use super::shard::ShardLocation;
use super::table::{self, TableEntry, TableKind};
use super::table_writer::TableWriter;
use super::writer::{FinishedShard, Writer};
use super::{BuildSeconds, Error, Failure, Progress};
use crate::corpus::Rows;
use crate::simulate::Hook;
use crate::telemetry::queue::{Backlog, Queue};
use crate::text::Tokenizer;
use rayon::prelude::*;
use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, scope};
use std::time::Instant;

/// Clips begun per worker before the first is written: enough work to last while a shard is written.
const AHEAD_PER_WORKER: usize = 16;
/// Finished clips wait in memory up to this size, however long they are.
const WAITING_BYTES: usize = 64 << 20;

/// Everything that decides what is built.
#[derive(Clone)]
pub(super) struct BuildJob<'a> {
    pub utterances: Rows<'a>,
    pub tokenizer: &'a Tokenizer,
    pub settings: &'a FeatureSettings,
    pub form: AudioForm,
    /// Language of utterances that name none.
    pub language: &'a str,
    /// Folder of these settings.
    pub dir: PathBuf,
    /// What relative paths of recordings start from.
    pub base: PathBuf,
    pub workers: usize,
    pub max_failures: usize,
    /// Hash of the utterances of the whole corpus, where these are a part of it that other machines do not work on.
    pub whole: Option<String>,
    /// Number of recordings that are held against their stats before the cache is relied on.
    pub looked_at: usize,
    /// The bucket that the cache lies in, with `dir` in front of it; none where it is that folder.
    pub bucket: Option<Arc<Bucket>>,
    /// Bytes of sound after which a shard is complete.
    pub shard_bytes: usize,
    /// Shards that are mapped when the cache is opened; of more, each is when it is first used.
    pub mapped_at_once: usize,
    pub progress: &'a (dyn Fn(Progress) + Sync),
    pub stop: &'a AtomicBool,
    pub hook: &'a Hook,
}

impl BuildJob<'_> {
    pub(super) fn identity(&self) -> Identity {
        self.named(Identity::of(self.utterances.iter(), self.language, &self.tokenizer.fingerprint(), &self.base))
    }

    /// The identity of utterances of this job, as its tables carry it.
    fn named(&self, identity: Identity) -> Identity {
        if self.whole.is_some() { identity.of_part() } else { identity }
    }
}

/// What was made, in clips.
#[derive(Clone, Copy, Default)]
pub(super) struct BuildCounts {
    /// Clips whose sound was made.
    pub built: usize,
    /// Clips whose tokens were made and whose sound was there.
    pub encoded: usize,
    pub work: BuildSeconds,
}

/// Makes what is missing and writes the table of the corpus. Whatever ends it, clips that were finished are kept.
pub(super) fn run(job: &BuildJob, folder: &mut Folder) -> Result<BuildCounts, Error> {
    let start = Instant::now();
    let fingerprint = job.tokenizer.fingerprint();
    let memory = folder.memory(&fingerprint);
    let (entries, missing) = look_up(job, &memory, folder, &fingerprint);
    let mut output = BuildOutput::new(job, entries, missing.len(), folder.shards.len());
    let (maker, buffers) = (FeatureExtractor::new(job.settings), Default::default());
    let mut source = ClipBuilder {
        job,
        maker,
        memory: &memory,
        fingerprint: &fingerprint,
        folder,
        buffers,
        feed: None,
        spent: Default::default(),
    };
    source.feed(&missing);
    let made = produce(&source, &missing, &mut output);
    let spent = source.spent();
    let made = made.and(output.seal());
    let BuildOutput { entries, shards, places, counts, .. } = output;
    folder.add_sealed(shards, places, job.bucket.is_some())?;
    let saved = save(job, folder, &entries, &fingerprint);
    let work = BuildSeconds { wall: start.elapsed().as_secs_f64(), ..spent };
    made.and(saved).map(|()| BuildCounts { work, ..counts })
}

/// Entries of all that is there, and the indices of what is missing.
fn look_up(job: &BuildJob, memory: &KnownClips, folder: &Folder, fingerprint: &str) -> (Entries, Vec<u32>) {
    let find = |index: usize| {
        let utterance = job.utterances.get(index);
        let text = text_key(fingerprint, utterance.text, language_of(&utterance, job.language));
        memory.entry((&utterance.audio, &utterance.audio.name(&job.base)), &text, &folder.places)
    };
    let (mut entries, mut missing) = (Entries::new(job.utterances.len()), vec![]);
    for start in (0..job.utterances.len()).step_by(table::PIECE_ROWS) {
        let some = start..(start + table::PIECE_ROWS).min(job.utterances.len());
        let found: Vec<Option<TableEntry>> = some.clone().into_par_iter().map(find).collect();
        for (index, entry) in some.zip(found) {
            match entry {
                Some(entry) => entries.set(index, &entry),
                None => missing.push(index as u32),
            }
        }
    }
    (entries, missing)
}

/// Writes the table of the utterances that are done: all of them, unless the build was ended early.
fn save(job: &BuildJob, folder: &Folder, entries: &Entries, fingerprint: &str) -> Result<(), Error> {
    let is_there = |entry: TableEntry| entry.outcome.map_or(true, |ready| folder.places.contains(&ready.source));
    let is_done = |index: &u32| entries.get(*index as usize).is_some_and(is_there);
    let done: Vec<u32> = (0..job.utterances.len() as u32).filter(is_done).collect();
    if done.is_empty() && !job.utterances.is_empty() {
        return Ok(());
    }
    let writer = TableWriter {
        utterances: job.utterances,
        entries,
        done: &done,
        base: &job.base,
        language: job.language,
        form: job.form,
        whole: job.whole.as_ref(),
        tokenizer: fingerprint,
        shards: &folder.shards,
        places: &folder.places,
    };
    let table = writer.write(&job.dir)?;
    if let Some(bucket) = &job.bucket {
        bucket.push(bucket::TABLES, &table)?;
        let what = |path: &Path| table::claimed(path).map(|(kind, identity, _)| (kind, identity.to_owned()));
        bucket.forget_tables(|path| what(path) == what(&table) && path != table)?;
    }
    let is_corpus = |path: &&PathBuf| table::claimed(path).is_some_and(|(kind, ..)| kind == TableKind::Corpus);
    let tables = folder::tables(&job.dir)?;
    for old in tables.iter().filter(is_corpus).rev().skip(table::KEPT) {
        let _ = std::fs::remove_file(old);
    }
    Ok(())
}

/// Workers make clips; this thread takes them in order and writes. The queue between the two bounds memory.
fn produce(source: &ClipBuilder, missing: &[u32], output: &mut BuildOutput) -> Result<(), Error> {
    let workers = source.job.workers.min(missing.len());
    let queue = &Queue::new(ClipQueue::new(missing.len(), workers * AHEAD_PER_WORKER));
    scope(|scope| {
        // Whatever ends the taking ends the workers, which the scope waits for.
        let _closing = Closing(queue);
        for _ in 0..workers {
            let work = || work(source, missing, queue);
            Builder::new().name("cache".into()).spawn_scoped(scope, work).map_err(Error::Workers)?;
        }
        while let Some((number, made)) = queue.consume(ClipQueue::take) {
            output.take(missing[number] as usize, made.unwrap_or_else(|panic| resume_unwind(panic)))?;
        }
        output.check_stopped()
    })
}

/// A worker thread.
fn work(source: &ClipBuilder, missing: &[u32], queue: &Queue<ClipQueue>) {
    let stop = || source.job.stop.load(Ordering::Relaxed);
    while let Some(number) = queue.produce(|clips| clips.begin(stop())) {
        let made = catch_unwind(AssertUnwindSafe(|| source.make(missing[number] as usize)));
        queue.put(|clips| clips.put(number, made));
    }
    queue.change(|_| ()); // who takes may wait for a clip that nobody begins
}

/// Clips under way, by number: begun in turn, finished in any order, taken in turn.
struct ClipQueue {
    total: usize,
    /// Clips that may be begun before the first of them is taken.
    ahead: usize,
    begun: usize,
    taken: usize,
    made: BTreeMap<usize, Finished>,
    /// Sound that waits to be taken.
    waiting_bytes: usize,
    /// No clip is begun any more.
    closed: bool,
}

/// A clip, or what a worker panicked with.
type Finished = Result<BuiltClip, Box<dyn Any + Send>>;

impl ClipQueue {
    fn new(total: usize, ahead: usize) -> Self {
        let made = BTreeMap::new();
        ClipQueue { total, ahead, begun: 0, taken: 0, made, waiting_bytes: 0, closed: total == 0 }
    }

    /// For a worker; it waits where there is no room. Some(None): there is nothing left to do.
    fn begin(&mut self, stop: bool) -> Option<Option<usize>> {
        self.closed |= stop || self.begun == self.total;
        if self.closed {
            return Some(None);
        }
        let under_way = self.begun - self.taken;
        if under_way > 0 && (under_way >= self.ahead || self.waiting_bytes > WAITING_BYTES) {
            return None;
        }
        self.begun += 1;
        Some(Some(self.begun - 1))
    }

    fn put(&mut self, number: usize, made: Finished) {
        self.waiting_bytes += made.as_ref().map_or(0, BuiltClip::bytes);
        self.made.insert(number, made);
    }

    /// For who writes; it waits for the next clip in turn. Some(None): none is left.
    fn take(&mut self) -> Option<Option<(usize, Finished)>> {
        if self.closed && self.taken == self.begun {
            return Some(None);
        }
        let made = self.made.remove(&self.taken)?;
        self.waiting_bytes -= made.as_ref().map_or(0, BuiltClip::bytes);
        self.taken += 1;
        Some(Some((self.taken - 1, made)))
    }
}

impl Backlog for ClipQueue {
    fn ready(&self) -> usize {
        self.made.len()
    }
}

struct Closing<'a>(&'a Queue<ClipQueue>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.change(|clips| clips.closed = true);
    }
}

/// Where finished clips go, in corpus order.
struct BuildOutput<'a> {
    job: &'a BuildJob<'a>,
    writer: Writer,
    entries: Entries,
    /// Paths and bytes of shards that are complete.
    shards: Vec<(PathBuf, u64)>,
    /// What is in them; the first has the number `first_shard`.
    places: Places,
    first_shard: usize,
    /// What is in the shard at hand.
    written: HashSet<Digest>,
    failures: Vec<Failure>,
    counts: BuildCounts,
    done: usize,
    total: usize,
}

impl<'a> BuildOutput<'a> {
    fn new(job: &'a BuildJob, entries: Entries, total: usize, first_shard: usize) -> Self {
        let writer = Writer::new(&job.dir, job.settings, job.shard_bytes);
        BuildOutput {
            job,
            writer,
            entries,
            shards: vec![],
            places: Places::default(),
            first_shard,
            written: HashSet::new(),
            failures: vec![],
            counts: BuildCounts::default(),
            done: 0,
            total,
        }
    }

    fn take(&mut self, index: usize, made: BuiltClip) -> Result<(), Error> {
        match &made.entry.outcome {
            Ok(ready) => self.keep(&ready.source, made.sound, made.encoded)?,
            Err(reason) => self.fail(index, reason.clone())?,
        }
        self.entries.set(index, &made.entry);
        self.done += 1;
        let (done, total, failed) = (self.done, self.total, self.failures.len());
        (self.job.progress)(Progress::Building { done, total, failed });
        Ok(())
    }

    fn keep(&mut self, source: &Digest, sound: Option<Extracted>, encoded: bool) -> Result<(), Error> {
        let Some(kept) = sound else {
            self.counts.encoded += usize::from(encoded);
            return Ok(());
        };
        // The same recording under two names is kept once.
        if !self.places.contains(source) && self.written.insert(*source) {
            let filled = self.writer.push(source, &kept)?;
            self.publish(filled)?;
        }
        self.counts.built += 1;
        Ok(())
    }

    fn fail(&mut self, index: usize, reason: String) -> Result<(), Error> {
        let utterance = self.job.utterances.get(index);
        let (id, path) = (utterance.id.to_owned(), utterance.audio.to_string().into());
        self.failures.push(Failure { id, path, reason });
        let max_failures = self.job.max_failures;
        if self.failures.len() <= max_failures {
            return Ok(());
        }
        Err(Error::too_many(std::mem::take(&mut self.failures), max_failures))
    }

    fn seal(&mut self) -> Result<(), Error> {
        let last = self.writer.seal()?;
        self.publish(last)
    }

    /// Puts a shard into the bucket, where there is one, before anything relies on it.
    fn publish(&mut self, shard: Option<FinishedShard>) -> Result<(), Error> {
        let Some(FinishedShard { path, bytes, places }) = shard else { return Ok(()) };
        if let Some(bucket) = &self.job.bucket {
            bucket.push(bucket::SHARDS, &path)?;
            local_store::trim(bucket);
        }
        let shard = (self.first_shard + self.shards.len()) as u32;
        places.into_iter().for_each(|(source, place)| self.places.insert(source, ShardLocation { shard, ..place }));
        self.shards.push((path, bytes));
        self.written.clear();
        Ok(())
    }

    fn check_stopped(&self) -> Result<(), Error> {
        if self.done < self.total { Err(Error::Interrupted { built: self.counts.built }) } else { Ok(()) }
    }
}
