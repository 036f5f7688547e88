//! What a run trains on: corpus → split → tokenizer → cache → datasets and the batch budget.

use crate::cache::durations::{self, Durations};
use crate::cache::{self, BuildSeconds, Cache};
use crate::config::{self, Config, Data};
use crate::corpus::{self, Corpus, Utterance};
use crate::error::hinted;
use crate::loader::{Budget, ClipLimits, Dataset, FitReport, Length, longest};
use crate::simulate::Hook;
use crate::text::Tokenizer;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Datasets, tokenizer and budget of a run, and what reading its corpus brought to light.
#[derive(Clone)]
pub struct TrainingData {
    pub train: Arc<Dataset>,
    /// Absent when nothing is held out.
    pub validation: Option<Arc<Dataset>>,
    pub tokenizer: Tokenizer,
    pub budget: Budget,
    /// Rows and clips that are damaged and were left out, each with its place.
    pub findings: Vec<String>,
    /// Sound clips that this run's limits leave out.
    pub notes: Vec<String>,
    pub building: CacheBuild,
    /// Folder of the features.
    pub features: PathBuf,
    /// What the limits of the run did to its training clips.
    pub fit: FitReport,
    /// Those that batches hold; otherwise every step searches.
    pub durations: Option<Arc<Durations>>,
    /// Mean and deviation of log-mel values, once somebody with a device has measured them.
    pub mel_stats: OnceLock<[f64; 2]>,
}

/// What had to be made before the run could start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheBuild {
    /// Clips whose sound was made, whose tokens alone were, and that were there.
    pub built: usize,
    pub encoded: usize,
    pub reused: usize,
    /// Seconds until all of them were open, building included.
    pub open_seconds: f64,
    /// Seconds of speech in the whole corpus.
    pub audio_seconds: f64,
    pub seconds: BuildSeconds,
}

impl TrainingData {
    /// These clips in batches of another size.
    pub fn with_budget(&self, budget: Budget) -> TrainingData {
        self.with(self.train.clone(), budget)
    }

    /// Other clips for this voice, to try something with; nothing is held out.
    pub fn with(&self, train: Arc<Dataset>, budget: Budget) -> TrainingData {
        TrainingData { train, validation: None, budget, ..self.clone() }
    }
}

/// What a run knows of its tokenizer beforehand.
pub enum KnownTokenizer<'a> {
    Nothing,
    /// The tokenizer of the run that is resumed.
    Exactly(&'a Tokenizer),
    /// The tokenizer of the voice it starts from: whatever that could read, this one shall.
    AtLeast(&'a Tokenizer),
}

/// Reads the corpus and opens its cache, building what is missing.
pub fn prepare(
    config: &Config,
    known: KnownTokenizer,
    progress: &(dyn Fn(cache::Progress) + Sync),
    stop: &AtomicBool,
    hook: &Hook,
) -> Result<TrainingData> {
    let data = &config.data;
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let path = data.dataset_path.as_deref().ok_or_else(|| {
        hinted("no corpus was named", "`myxtts train --train-data DIR`; `myxtts sample-corpus DIR` makes one to try")
    })?;
    let corpus = read(path, data, &mut findings, &mut notes)?;
    let mut read_held_out = |path| read(path, data, &mut findings, &mut notes);
    let held_out = data.val_data.as_deref().map(&mut read_held_out).transpose()?;
    let tokenizer = match known {
        KnownTokenizer::Exactly(tokenizer) => {
            notes.extend(tokenizer.check()?);
            findings.extend(unknown(&corpus.utterances, tokenizer, &data.language));
            tokenizer.clone()
        }
        _ => {
            let (tokenizer, told) = cache::tokenizer(&corpus.utterances, config)?;
            notes.push(format!("tokens: {told}"));
            match known {
                KnownTokenizer::AtLeast(other) => tokenizer.joined(other).unwrap_or(tokenizer),
                _ => tokenizer,
            }
        }
    };
    let (mut building, mut features) = (CacheBuild::default(), PathBuf::new());
    // One table for the whole corpus, the same that `myxtts prepare` fills; training and validation are views of it.
    let mut open = |utterances: &[Utterance]| -> Result<Cache> {
        let began = Instant::now();
        let (cache, report) = cache::open(utterances, &tokenizer, config, progress, stop, hook)?;
        building.add(&report, began.elapsed());
        features.clone_from(&report.path);
        findings.extend(report.failures.iter().map(ToString::to_string));
        Ok(cache)
    };
    let whole = open(&corpus.utterances)?;
    let (train, validation) = match held_out {
        Some(held_out) => (whole.before(corpus.validation_from), open(&held_out.utterances)?),
        None => whole.parts(corpus.validation_from, data)?,
    };
    let mut fitting = |cache, config, name| fitting(cache, &tokenizer, config, name, &mut notes);
    let (mut train, fit) = fitting(train, config, "training")?;
    let (mut validation, _) = fitting(validation, &config.without_augmentation(), "validation")?;
    if train.lengths().is_empty() {
        let hint = "raise --max-mel-frames and --max-text-length, or see `myxtts check`";
        return Err(hinted(format!("no clip is left to train on: {fit}"), hint));
    }
    let durations = match data.durations {
        config::Durations::Search => None,
        config::Durations::Frozen => Some(freeze(config, &tokenizer, [&mut train, &mut validation])?),
    };
    notes.extend(durations.iter().map(|found| format!("durations: as in {}", found.path().display())));
    let budget = budget(data, &train, &validation, &mut notes);
    let validation = (!validation.lengths().is_empty()).then(|| Arc::new(validation));
    let (train, mel_stats) = (Arc::new(train), OnceLock::new());
    Ok(TrainingData {
        train,
        validation,
        tokenizer,
        budget,
        findings,
        notes,
        building,
        features,
        fit,
        durations,
        mel_stats,
    })
}

/// Part of a corpus that a voice is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Of the corpus that the voice was trained on those that were held out, of any other all
    Auto,
    /// Those that training would hold out
    HeldOut,
    All,
}

/// What a run trains on, and what it holds out: the corpus's own parts, or shares of it.
pub fn parts(corpus: Corpus, data: &Data) -> (Vec<Utterance>, Vec<Utterance>) {
    match corpus.into_parts() {
        (train, Some(validation)) => (train, validation),
        (all, None) => split(all, data),
    }
}

fn split(all: Vec<Utterance>, data: &Data) -> (Vec<Utterance>, Vec<Utterance>) {
    if data.val_split == 0.0 {
        return (all, Vec::new());
    }
    let (train, validation) = corpus::split(all, data.val_split);
    if data.train_split + data.val_split > 1.0 - 1e-9 {
        return (train, validation);
    }
    // The same hash decides, so what lies between the two shares is left out of both.
    (corpus::split(train, 1.0 - data.train_split).0, validation)
}

fn read(path: &Path, data: &Data, findings: &mut Vec<String>, notes: &mut Vec<String>) -> Result<Corpus> {
    let corpus = corpus::read(path, &corpus::ReadOptions::of(data)?)?;
    notes.push(format!("{}: read as {}: {}", path.display(), corpus.format, corpus.why));
    findings.extend(corpus.problems.iter().map(|problem| problem.to_string()));
    Ok(corpus)
}

/// What a resumed run's voice cannot read in this corpus.
fn unknown(utterances: &[Utterance], tokenizer: &Tokenizer, language: &str) -> Option<String> {
    let of =
        |utterance: &Utterance| tokenizer.unknown(&utterance.text, utterance.language.as_deref().unwrap_or(language));
    let unknown: BTreeSet<char> = utterances.iter().flat_map(of).collect();
    (!unknown.is_empty()).then(|| format!("the voice does not know these characters: {}", String::from_iter(unknown)))
}

fn fitting(
    cache: Cache,
    tokenizer: &Tokenizer,
    config: &Config,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<(Dataset, FitReport)> {
    let (dataset, fitting) = Dataset::new(cache, tokenizer, &ClipLimits::of(config))?;
    if !fitting.is_plain() {
        notes.push(format!("{name}: {fitting}"));
    }
    Ok((dataset, fitting))
}

impl TrainingData {
    /// Whether features were built or opened, how many, where, and how long it took.
    pub fn features_told(&self) -> String {
        let CacheBuild { built, encoded, reused, open_seconds, .. } = self.building;
        let parts = [(built, "built"), (encoded, "opened with new tokens"), (reused, "opened")];
        let parts: Vec<String> =
            parts.iter().filter(|(clips, _)| *clips > 0).map(|(clips, what)| format!("{clips} {what}")).collect();
        format!("features: {} in {open_seconds:.2} s: {}", parts.join(", "), self.features.display())
    }
}

impl CacheBuild {
    fn add(&mut self, report: &cache::CacheReport, open: Duration) {
        let cache::BuildSeconds { wall, read, sound, text } = report.work;
        self.built += report.built;
        self.encoded += report.encoded;
        self.reused += report.reused;
        self.open_seconds += open.as_secs_f64();
        self.audio_seconds += report.seconds;
        let total = &mut self.seconds;
        *total = BuildSeconds {
            wall: total.wall + wall,
            read: total.read + read,
            sound: total.sound + sound,
            text: total.text + text,
        };
    }
}

/// Lets batches hold the token of every frame.
fn freeze(config: &Config, tokenizer: &Tokenizer, sets: [&mut Dataset; 2]) -> Result<Arc<Durations>> {
    let wanted: Vec<_> = sets.iter().flat_map(|set| set.segments()).collect();
    let found = Arc::new(durations::find(config, tokenizer, &wanted)?);
    sets.into_iter().for_each(|set| set.freeze(found.clone()));
    Ok(found)
}

/// One budget for training and validation, so that shapes never change.
fn budget(data: &Data, train: &Dataset, validation: &Dataset, notes: &mut Vec<String>) -> Budget {
    let lengths = [train.lengths(), validation.lengths()];
    if data.pad_to_fixed_length {
        // A limit of characters says nothing of tokens: a slot has as many as the longest text. Clips that may be spoken
        // slower need more frames than the limit.
        let Length { frames, tokens } = longest(&lengths);
        let max = Length { frames: frames.max(data.max_mel_frames), tokens };
        return Budget::padded(data.batch_size.min(train.lengths().len()), max);
    }
    let Some(frames) = data.frame_budget else { return Budget::packed_for(&lengths, data.batch_size) };
    let budget = Budget::of_frames_for(&lengths, frames);
    if budget.frames != frames {
        notes.push(format!("frame_budget {frames}: {}", budget.why_not(frames)));
    }
    budget
}
