//! Building what is missing: clips in parallel, rows in corpus order, shards as they fill.

use super::digest::{self, Stamp};
use super::folder::Folder;
use super::settings::Settings;
use super::shard::{Row, Writer};
use super::{Error, Failure, Progress};
use crate::audio;
use crate::corpus::Utterance;
use crate::text::Tokenizer;
use blake3::Hash;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

/// Clips begun per worker before the first is written: enough work to last while a shard is synced.
const AHEAD_PER_WORKER: usize = 16;
/// Finished clips wait in memory up to this size, however long they are.
const WAITING_BYTES: usize = 64 << 20;
/// 13 hours at 22 kHz. Beyond it a single clip would not fit the 32-bit offsets of a shard.
const MAX_SAMPLES: usize = 1 << 30;

pub(super) struct Job<'a> {
    pub utterances: &'a [Utterance],
    pub tokenizer: &'a Tokenizer,
    pub settings: &'a Settings,
    pub workers: usize,
    pub max_failures: usize,
    pub progress: &'a (dyn Fn(Progress) + Sync),
    pub stop: &'a AtomicBool,
}

#[derive(Default)]
pub(super) struct Outcome {
    pub built: usize,
    pub failures: Vec<Failure>,
}

/// Fills in the missing keys. Whatever ends it, clips that were finished are kept.
pub(super) fn run(job: &Job, dir: &Path, folder: &mut Folder, keys: &mut [Option<Hash>]) -> Result<Outcome, Error> {
    let missing: Vec<usize> = (0..keys.len()).filter(|&index| keys[index].is_none()).collect();
    let mut sink = Sink::new(job, dir, missing.len());
    let made = produce(job, folder, &missing, &mut sink);
    let sealed = sink.seal();
    for (path, stamp, hash) in sink.shards {
        folder.accept(&path, stamp, hash)?;
    }
    for (index, source) in sink.clips {
        keys[index] = Some(source.key);
        folder.digests.record(&source.path, source.stamp, source.audio);
    }
    let saved = folder.save();
    made.and(sealed).and(saved).map(|()| sink.outcome)
}

/// Workers make clips; this thread takes them in order and writes. The window between the two bounds memory.
fn produce(job: &Job, folder: &Folder, missing: &[usize], sink: &mut Sink) -> Result<(), Error> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.workers).build()?;
    let waiting_bytes = &AtomicUsize::new(0);
    pool.in_place_scope(|scope| {
        let mut window: VecDeque<(usize, Receiver<Made>)> = VecDeque::new();
        let full = |begun: usize| begun >= job.workers * AHEAD_PER_WORKER || waiting(waiting_bytes) > WAITING_BYTES;
        for &index in missing {
            while !window.is_empty() && full(window.len()) {
                sink.take(window.pop_front(), waiting_bytes)?;
            }
            if job.stop.load(Ordering::Relaxed) {
                break;
            }
            let (send, receive) = sync_channel(1);
            scope.spawn(move |_| {
                let made = make(job, folder, index);
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

/// What came of one utterance: its source and, unless the cache has it already, its row; or why there is none.
type Made = Result<(Source, Option<Row>), String>;

struct Source {
    path: PathBuf,
    stamp: Stamp,
    audio: Hash,
    key: Hash,
}

fn make(job: &Job, folder: &Folder, index: usize) -> Made {
    let utterance = &job.utterances[index];
    let read = |error: std::io::Error| error.to_string();
    let path = folder.audio(utterance);
    let (stamp, audio) = digest::of_file(&path).map_err(read)?;
    let key = job.settings.key(utterance, &audio);
    let row = if folder.has(&key) { None } else { Some(row(job, utterance, key)?) };
    if row.is_some() && Stamp::of(&path).map_err(read)? != stamp {
        return Err("changed while it was read".into());
    }
    Ok((Source { path, stamp, audio, key }, row))
}

fn row(job: &Job, utterance: &Utterance, key: Hash) -> Result<Row, String> {
    let language = job.settings.language_of(utterance);
    Ok(Row {
        key,
        id: utterance.id.clone(),
        speaker: utterance.speaker.clone(),
        language: language.clone(),
        tokens: job.tokenizer.encode(&utterance.text, language),
        pcm: pcm(&utterance.audio, job.settings)?,
    })
}

fn pcm(path: &Path, settings: &Settings) -> Result<Vec<i16>, String> {
    let said = |error: audio::Error| reason(path, &error);
    let wave = audio::decode(path).map_err(said)?;
    let wave = audio::resample(wave, settings.rate_hz).map_err(said)?;
    let wave = if settings.trim_silence { audio::trim_silence(wave) } else { wave };
    let wave = if settings.normalize { audio::normalize(wave) } else { wave };
    match wave.samples.len() {
        0 => Err("no samples".into()),
        1..=MAX_SAMPLES => Ok(wave.samples.iter().map(|x| (x.clamp(-1.0, 1.0) * 32767.0).round() as i16).collect()),
        many => Err(format!("{many} samples, more than the {MAX_SAMPLES} a clip may have")),
    }
}

/// The fact alone: a failure names the file already, and its hint would be repeated for every clip.
fn reason(path: &Path, error: &audio::Error) -> String {
    let text = error.to_string();
    let fact = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text);
    fact.lines().next().unwrap_or_default().to_owned()
}

fn size(made: &Made) -> usize {
    made.as_ref().ok().and_then(|(_, row)| row.as_ref()).map_or(0, |row| row.pcm.len() * 2)
}

fn waiting(bytes: &AtomicUsize) -> usize {
    bytes.load(Ordering::Relaxed)
}

/// Where finished clips go, in corpus order.
struct Sink<'a> {
    job: &'a Job<'a>,
    writer: Writer,
    shards: Vec<(PathBuf, Stamp, Hash)>,
    clips: Vec<(usize, Source)>,
    outcome: Outcome,
    done: usize,
    total: usize,
}

impl<'a> Sink<'a> {
    fn new(job: &'a Job, dir: &Path, total: usize) -> Self {
        let writer = Writer::new(dir, job.settings.rate_hz);
        Sink { job, writer, shards: vec![], clips: vec![], outcome: Outcome::default(), done: 0, total }
    }

    fn take(&mut self, next: Option<(usize, Receiver<Made>)>, waiting_bytes: &AtomicUsize) -> Result<(), Error> {
        // A worker that panicked sends nothing; the pool passes its panic on.
        let Some((index, Ok(made))) = next.map(|(index, receive)| (index, receive.recv())) else { return Ok(()) };
        waiting_bytes.fetch_sub(size(&made), Ordering::Relaxed);
        match made {
            Ok((source, row)) => self.keep(index, source, row)?,
            Err(reason) => self.fail(index, reason)?,
        }
        self.done += 1;
        (self.job.progress)(Progress::Building {
            done: self.done,
            total: self.total,
            failed: self.outcome.failures.len(),
        });
        Ok(())
    }

    fn keep(&mut self, index: usize, source: Source, row: Option<Row>) -> Result<(), Error> {
        if let Some(row) = row {
            let filled = self.writer.push(&row)?;
            self.add_shard(filled)?;
            self.outcome.built += 1;
        }
        self.clips.push((index, source));
        Ok(())
    }

    fn fail(&mut self, index: usize, reason: String) -> Result<(), Error> {
        let Utterance { id, audio, .. } = &self.job.utterances[index];
        self.outcome.failures.push(Failure { id: id.clone(), path: audio.clone(), reason });
        if self.outcome.failures.len() <= self.job.max_failures {
            return Ok(());
        }
        Err(Error::TooManyFailures { failures: self.outcome.failures.clone(), max_failures: self.job.max_failures })
    }

    fn seal(&mut self) -> Result<(), Error> {
        let last = self.writer.seal()?;
        self.add_shard(last)
    }

    fn add_shard(&mut self, shard: Option<(PathBuf, Hash)>) -> Result<(), Error> {
        if let Some((path, hash)) = shard {
            let stamp = Stamp::of(&path).map_err(|error| Error::io(&path, error))?;
            self.shards.push((path, stamp, hash));
        }
        Ok(())
    }

    fn check_stopped(&self) -> Result<(), Error> {
        if self.done < self.total { Err(Error::Interrupted { built: self.outcome.built }) } else { Ok(()) }
    }
}
