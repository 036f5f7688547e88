//! Building what is missing: clips in parallel, rows in corpus order, shards as they fill.

use super::clip::Form;
use super::draft::Draft;
use super::folder::{self, Folder, Memory};
use super::roster::{self, Entry, Ready, Text};
use super::settings::Settings;
use super::sound::{Maker, SoundBuf};
use super::stamp::{self, Stamp};
use super::writer::Writer;
use super::{Error, Failure, Progress};
use crate::corpus::Utterance;
use crate::text::Tokenizer;
use blake3::Hash;
use rayon::prelude::*;
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

/// Clips begun per worker before the first is written: enough work to last while a shard is synced.
const AHEAD_PER_WORKER: usize = 16;
/// Finished clips wait in memory up to this size, however long they are.
const WAITING_BYTES: usize = 64 << 20;

/// Everything that decides what is built.
pub(super) struct Job<'a> {
    pub utterances: &'a [Utterance],
    pub tokenizer: &'a Tokenizer,
    pub settings: &'a Settings,
    pub form: Form,
    /// Of utterances that name none.
    pub language: &'a str,
    /// Folder of these settings.
    pub dir: PathBuf,
    /// What relative paths of recordings start from.
    pub base: PathBuf,
    pub workers: usize,
    pub max_failures: usize,
    pub progress: &'a (dyn Fn(Progress) + Sync),
    pub stop: &'a AtomicBool,
}

impl Job<'_> {
    pub(super) fn roster(&self) -> PathBuf {
        let fingerprint = self.tokenizer.fingerprint();
        roster::path(&self.dir, self.utterances.iter(), self.language, &fingerprint, &self.base)
    }
}

/// What was made, in clips.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// With sound.
    pub built: usize,
    /// Whose sound was there.
    pub encoded: usize,
}

/// Makes what is missing and writes the table of the corpus. Whatever ends it, clips that were finished are kept.
pub(super) fn run(job: &Job, folder: &mut Folder) -> Result<Counts, Error> {
    let fingerprint = job.tokenizer.fingerprint();
    let memory = folder.memory(&fingerprint);
    let texts: Vec<Hash> = job.utterances.par_iter().map(|utterance| text_key(job, &fingerprint, utterance)).collect();
    let find = |(utterance, text): (&Utterance, &Hash)| {
        memory.entry(&folder::absolute(&job.base, utterance), text, &folder.places)
    };
    let entries: Vec<Option<Entry>> = job.utterances.par_iter().zip(&texts).map(find).collect();
    let missing: Vec<usize> = (0..entries.len()).filter(|&index| entries[index].is_none()).collect();
    let mut sink = Sink::new(job, entries, missing.len());
    let source = Source { job, maker: Maker::new(job.settings), memory: &memory, texts: &texts, folder };
    let made = produce(&source, &missing, &mut sink);
    let made = made.and(sink.seal());
    let Sink { entries, shards, counts, .. } = sink;
    for path in shards {
        folder.add(&path)?;
    }
    let saved = save(job, folder, &entries, &fingerprint);
    made.and(saved).map(|()| counts)
}

fn text_key(job: &Job, fingerprint: &str, utterance: &Utterance) -> Hash {
    roster::text_key(fingerprint, &utterance.text, roster::language_of(utterance, job.language))
}

/// Writes the table of the utterances that are done: all of them, unless the build was ended early.
fn save(job: &Job, folder: &Folder, entries: &[Option<Entry>], fingerprint: &str) -> Result<(), Error> {
    let is_there =
        |entry: &&Entry| entry.outcome.as_ref().map_or(true, |ready| folder.places.contains_key(&ready.source));
    let done = job.utterances.iter().zip(entries).filter_map(|(u, e)| Some((u, e.as_ref().filter(is_there)?)));
    let (utterances, entries): (Vec<&Utterance>, Vec<&Entry>) = done.unzip();
    if utterances.is_empty() && !job.utterances.is_empty() {
        return Ok(());
    }
    let path = roster::path(&job.dir, utterances.iter().copied(), job.language, fingerprint, &job.base);
    let draft = Draft {
        utterances: &utterances,
        entries: &entries,
        base: &job.base,
        language: job.language,
        tokenizer: fingerprint,
        shards: &folder.shards,
        places: &folder.places,
    };
    draft.write(&path)?;
    let tables = folder::tables(&job.dir)?;
    for old in tables.iter().rev().skip(roster::KEPT) {
        let _ = std::fs::remove_file(old);
    }
    Ok(())
}

/// What workers make clips from.
struct Source<'a> {
    job: &'a Job<'a>,
    maker: Maker<'a>,
    memory: &'a Memory<'a>,
    texts: &'a [Hash],
    folder: &'a Folder,
}

/// What came of one utterance: its entry and, unless the cache has it already, its sound.
struct Made {
    entry: Entry,
    sound: Option<(SoundBuf, u32)>,
    /// The tokens are new.
    encoded: bool,
}

impl Source<'_> {
    fn make(&self, index: usize) -> Made {
        let path = folder::absolute(&self.job.base, &self.job.utterances[index]);
        let failed = |stamp, reason| Made { entry: Entry { stamp, outcome: Err(reason) }, sound: None, encoded: false };
        match (self.sound(&path), self.text(index)) {
            (Err(reason), _) => failed(Stamp::of(&path).settled(), reason),
            // Text may fail for reasons that no file tells of, so it is tried again next time.
            (_, Err(reason)) => failed(Stamp::NEVER, reason),
            (Ok((stamp, source, sound)), Ok((text, encoded))) => {
                Made { entry: Entry { stamp: stamp.settled(), outcome: Ok(Ready { source, text }) }, sound, encoded }
            }
        }
    }

    /// Stamp and digest of the recording, and its sound unless the cache has it.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn sound(&self, path: &Path) -> Result<(Stamp, Hash, Option<(SoundBuf, u32)>), String> {
        let known = self.memory.recording(path).map_or_else(|| stamp::digest(path), Ok);
        let (stamp, source) = known.map_err(|error| error.to_string())?;
        if self.folder.places.contains_key(&source) {
            return Ok((stamp, source, None));
        }
        let sound = self.maker.make(path)?;
        if Stamp::of(path) != stamp {
            return Err("changed while it was read".into());
        }
        Ok((stamp, source, Some(sound)))
    }

    /// The text, and whether its tokens are new.
    fn text(&self, index: usize) -> Result<(Text, bool), String> {
        if let Some(text) = self.memory.text(&self.texts[index]) {
            return Ok((text, false));
        }
        let (utterance, tokenizer) = (&self.job.utterances[index], self.job.tokenizer);
        let language = tokenizer.language(&utterance.text, roster::language_of(utterance, self.job.language));
        let tokens = tokenizer.encode(&utterance.text, language).map_err(|error| format!("its text: {error}"))?;
        Ok((Text { language: language.to_owned(), tokens }, true))
    }
}

/// Workers make clips; this thread takes them in order and writes. The window between the two bounds memory.
fn produce(source: &Source, missing: &[usize], sink: &mut Sink) -> Result<(), Error> {
    let job = source.job;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.workers).build()?;
    let waiting_bytes = &AtomicUsize::new(0);
    pool.in_place_scope(|scope| {
        let mut window: VecDeque<(usize, Receiver<Made>)> = VecDeque::new();
        let waiting = || waiting_bytes.load(Ordering::Relaxed);
        let full = |begun: usize| begun >= job.workers * AHEAD_PER_WORKER || waiting() > WAITING_BYTES;
        for &index in missing {
            while !window.is_empty() && full(window.len()) {
                sink.take(window.pop_front(), waiting_bytes)?;
            }
            if job.stop.load(Ordering::Relaxed) {
                break;
            }
            let (send, receive) = sync_channel(1);
            scope.spawn(move |_| {
                let made = source.make(index);
                waiting_bytes.fetch_add(size(&made), Ordering::Relaxed);
                // Nobody receives after an error; the clip is then lost, as it should be.
                let _ = send.send(made);
            });
            window.push_back((index, receive));
        }
        while !window.is_empty() {
            sink.take(window.pop_front(), waiting_bytes)?;
        }
        sink.check_stopped()
    })
}

fn size(made: &Made) -> usize {
    made.sound.as_ref().map_or(0, |(sound, _)| sound.as_sound().bytes().len())
}

/// Where finished clips go, in corpus order.
struct Sink<'a> {
    job: &'a Job<'a>,
    writer: Writer,
    entries: Vec<Option<Entry>>,
    shards: Vec<PathBuf>,
    written: HashSet<Hash>,
    failures: Vec<Failure>,
    counts: Counts,
    done: usize,
    total: usize,
}

impl<'a> Sink<'a> {
    fn new(job: &'a Job, entries: Vec<Option<Entry>>, total: usize) -> Self {
        let writer = Writer::new(&job.dir, job.settings);
        let (shards, written, failures) = (vec![], HashSet::new(), vec![]);
        Sink { job, writer, entries, shards, written, failures, counts: Counts::default(), done: 0, total }
    }

    fn take(&mut self, next: Option<(usize, Receiver<Made>)>, waiting_bytes: &AtomicUsize) -> Result<(), Error> {
        // A worker that panicked sends nothing; the pool passes its panic on.
        let Some((index, Ok(made))) = next.map(|(index, receive)| (index, receive.recv())) else { return Ok(()) };
        waiting_bytes.fetch_sub(size(&made), Ordering::Relaxed);
        match &made.entry.outcome {
            Ok(ready) => self.keep(&ready.source, made.sound, made.encoded)?,
            Err(reason) => self.fail(index, reason.clone())?,
        }
        self.entries[index] = Some(made.entry);
        self.done += 1;
        let (done, total, failed) = (self.done, self.total, self.failures.len());
        (self.job.progress)(Progress::Building { done, total, failed });
        Ok(())
    }

    fn keep(&mut self, source: &Hash, sound: Option<(SoundBuf, u32)>, encoded: bool) -> Result<(), Error> {
        let Some((sound, samples)) = sound else {
            self.counts.encoded += usize::from(encoded);
            return Ok(());
        };
        // The same recording under two names is kept once.
        if self.written.insert(*source) {
            self.shards.extend(self.writer.push(source, samples, &sound)?);
        }
        self.counts.built += 1;
        Ok(())
    }

    fn fail(&mut self, index: usize, reason: String) -> Result<(), Error> {
        let Utterance { id, audio, .. } = &self.job.utterances[index];
        self.failures.push(Failure { id: id.clone(), path: audio.clone(), reason });
        let max_failures = self.job.max_failures;
        if self.failures.len() <= max_failures {
            return Ok(());
        }
        Err(Error::TooManyFailures { failures: std::mem::take(&mut self.failures), max_failures })
    }

    fn seal(&mut self) -> Result<(), Error> {
        self.shards.extend(self.writer.seal()?);
        Ok(())
    }

    fn check_stopped(&self) -> Result<(), Error> {
        if self.done < self.total { Err(Error::Interrupted { built: self.counts.built }) } else { Ok(()) }
    }
}
