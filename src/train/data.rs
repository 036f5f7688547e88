//! What a run trains on: corpus → split → tokenizer → cache → datasets and the batch budget.

use crate::cache::durations::{self, Durations};
use crate::cache::{self, Cache, Work};
use crate::config::{self, Config, Data};
use crate::corpus::{self, Corpus, Utterance};
use crate::feed::{Batch, Features, MelStats, Purpose, allocate, block_tensor};
use crate::loader::{Budget, Dataset, HostBatch, Length, Limits, plan};
use crate::simulate::Delays;
use crate::text::Tokenizer;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use tch::Device;

/// Batches that mean and deviation of the mel values are measured on.
const STATS_BATCHES: usize = 8;

#[derive(Clone)]
pub struct Prepared {
    pub train: Arc<Dataset>,
    /// Absent when nothing is held out.
    pub validation: Option<Arc<Dataset>>,
    pub tokenizer: Tokenizer,
    pub budget: Budget,
    /// Rows and clips that are damaged and were left out, each with its place.
    pub findings: Vec<String>,
    /// Sound clips that this run's limits leave out.
    pub notes: Vec<String>,
    pub building: Building,
    /// Sound clips that are too long or too short for this run.
    pub refused: usize,
    /// Those that batches hold; otherwise every step searches.
    pub durations: Option<Arc<Durations>>,
    stats: OnceLock<MelStats>,
}

/// What had to be made before the run could start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Building {
    /// Clips whose sound was made, and whose tokens alone were.
    pub built: usize,
    pub encoded: usize,
    /// Of the whole corpus.
    pub audio_seconds: f64,
    pub seconds: Work,
}

impl Prepared {
    /// The same clips in batches of another size.
    pub fn with_budget(&self, budget: Budget) -> Prepared {
        self.with(self.train.clone(), budget)
    }

    /// Other clips for the same voice, to try something with; nothing is held out.
    pub fn with(&self, train: Arc<Dataset>, budget: Budget) -> Prepared {
        Prepared { train, validation: None, budget, ..self.clone() }
    }

    /// Measured once, then part of every checkpoint.
    pub fn mel_stats(&self, config: &Config) -> Result<MelStats> {
        if let Some(stats) = self.stats.get() {
            return Ok(*stats);
        }
        let layout = Arc::new(self.train.layout(&self.budget));
        let features = Features::new(config, layout, MelStats::identity(), Purpose::Voice, Device::Cpu)?;
        let plans = plan(self.train.lengths(), &self.budget, config.training.seed, 0);
        let batches = plans.iter().take(STATS_BATCHES).map(|clips| Ok(batch_on(&features, &self.train, clips, 0)?.1));
        let stats = MelStats::of(&batches.collect::<Result<Vec<_>>>()?);
        Ok(*self.stats.get_or_init(|| stats))
    }
}

/// What a run knows of its tokenizer beforehand.
pub enum Known<'a> {
    Nothing,
    /// A resumed run's.
    Exactly(&'a Tokenizer),
    /// That of the voice it starts from: whatever that could read, this one shall.
    AtLeast(&'a Tokenizer),
}

/// Reads the corpus and opens its cache, building what is missing.
pub fn prepare(
    config: &Config,
    known: Known,
    progress: &(dyn Fn(cache::Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Prepared> {
    prepare_slowed(config, known, progress, stop, Delays::default())
}

/// The same, with stages slowed down on purpose.
pub fn prepare_slowed(
    config: &Config,
    known: Known,
    progress: &(dyn Fn(cache::Progress) + Sync),
    stop: &AtomicBool,
    delays: Delays,
) -> Result<Prepared> {
    let data = &config.data;
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let path = data.dataset_path.as_deref().context(
        "no corpus was named\nhint: `myxtts train --train-data DIR`; `myxtts sample-corpus DIR` makes one to try",
    )?;
    let corpus = read(path, data, &mut findings, &mut notes)?;
    let mut read_held_out = |path| read(path, data, &mut findings, &mut notes);
    let held_out = data.val_data.as_deref().map(&mut read_held_out).transpose()?;
    let tokenizer = match known {
        Known::Exactly(tokenizer) => {
            notes.extend(tokenizer.check()?);
            findings.extend(unknown(&corpus.utterances, tokenizer, &data.language));
            tokenizer.clone()
        }
        _ => {
            let (tokenizer, told) = cache::tokenizer(&corpus.utterances, config)?;
            notes.push(format!("tokens: {told}"));
            match known {
                Known::AtLeast(other) => tokenizer.joined(other).unwrap_or(tokenizer),
                _ => tokenizer,
            }
        }
    };
    let mut building = Building::default();
    // One table for the whole corpus, the same that `myxtts prepare` fills; training and validation are views of it.
    let mut open = |utterances: &[Utterance]| -> Result<Cache> {
        let (cache, report) = cache::open(utterances, &tokenizer, config, progress, stop, delays)?;
        building.add(&report);
        findings.extend(report.failures.iter().map(ToString::to_string));
        Ok(cache)
    };
    let whole = open(&corpus.utterances)?;
    let (train, validation) = match held_out {
        Some(held_out) => (whole.part(&corpus.into_parts().0), open(&held_out.utterances)?),
        None => {
            let (train, validation) = parts(corpus, data);
            (whole.part(&train), whole.part(&validation))
        }
    };
    let mut fitting = |cache, config, name| fitting(cache, &tokenizer, config, name, &mut notes);
    let (mut train, refused) = fitting(train, config, "training")?;
    let (mut validation, _) = fitting(validation, &config.unchanged(), "validation")?;
    ensure!(
        !train.lengths().is_empty(),
        "no clip is left to train on\nhint: raise --max-mel-frames and --max-text-length, or see `myxtts check`"
    );
    let durations = match data.durations {
        config::Durations::Search => None,
        config::Durations::Frozen => Some(freeze(config, &tokenizer, [&mut train, &mut validation])?),
    };
    notes.extend(durations.iter().map(|found| format!("durations: as in {}", found.path().display())));
    let budget = budget(data, &train, &validation, &mut notes);
    let validation = (!validation.lengths().is_empty()).then(|| Arc::new(validation));
    let (train, stats) = (Arc::new(train), OnceLock::new());
    Ok(Prepared { train, validation, tokenizer, budget, findings, notes, building, refused, durations, stats })
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
    let corpus = corpus::read(path, &corpus::Options::of(data)?)?;
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
) -> Result<(Dataset, usize)> {
    let (dataset, fitting) = Dataset::new(cache, tokenizer, &Limits::of(config))?;
    if !fitting.is_plain() {
        notes.push(format!("{name}: {fitting}"));
    }
    Ok((dataset, fitting.refused()))
}

impl Building {
    fn add(&mut self, report: &cache::Report) {
        let cache::Work { wall, read, sound, text } = report.work;
        self.built += report.built;
        self.encoded += report.encoded;
        self.audio_seconds += report.seconds;
        let total = &mut self.seconds;
        *total = Work {
            wall: total.wall + wall,
            read: total.read + read,
            sound: total.sound + sound,
            text: total.text + text,
        };
    }
}

/// Lets batches hold the token of every frame.
fn freeze(config: &Config, tokenizer: &Tokenizer, sets: [&mut Dataset; 2]) -> Result<Arc<Durations>> {
    let wanted: Vec<_> = sets.iter().flat_map(|set| set.stretches()).collect();
    let found = Arc::new(durations::find(config, tokenizer, &wanted)?);
    sets.into_iter().for_each(|set| set.freeze(found.clone()));
    Ok(found)
}

/// One budget for training and validation, so that shapes never change.
fn budget(data: &Data, train: &Dataset, validation: &Dataset, notes: &mut Vec<String>) -> Budget {
    if data.pad_to_fixed_length {
        let max = Length { frames: data.max_mel_frames, tokens: data.max_text_length };
        return Budget::padded(data.batch_size.min(train.lengths().len()), max);
    }
    let lengths = [train.lengths(), validation.lengths()].concat();
    let Some(frames) = data.frame_budget else { return Budget::packed(&lengths, data.batch_size) };
    let budget = Budget::of_frames(&lengths, frames);
    if budget.frames != frames {
        notes.push(format!("frame_budget {frames}: {}", budget.why_not(frames)));
    }
    budget
}

/// One batch made here and now, for what needs no pipeline. `number` decides on the speeds of its utterances.
pub fn batch_on(features: &Features, dataset: &Dataset, clips: &[usize], number: u64) -> Result<(HostBatch, Batch)> {
    let device = features.device();
    let layout = features.layout();
    let block = allocate(Device::Cpu)(layout.bytes).map_err(anyhow::Error::msg)?;
    let host = dataset.batch(clips, layout, block, [0, 0, number])?;
    let staged = block_tensor(&*host.block).to_device(device);
    let batch = tch::no_grad(|| features.batch(&staged, &host.position));
    // On the CPU the batch's tables are views of the block, which goes back to the caller: take a copy.
    Ok((host, batch.copy_to(device)))
}

/// Means of what `of` finds in the batches of a whole set, each counting by its frames of speech.
pub fn means_over<const N: usize>(
    features: &Features,
    dataset: &Dataset,
    of: impl Fn(&Batch) -> [f64; N],
) -> Result<[f64; N]> {
    let (mut sums, mut frames) = ([0.0; N], 0.0);
    for (number, clips) in plan(dataset.lengths(), &features.layout().budget, 0, 0).iter().enumerate() {
        let (host, batch) = batch_on(features, dataset, clips, number as u64)?;
        let weight = host.speech_frames() as f64;
        sums.iter_mut().zip(of(&batch)).for_each(|(sum, value)| *sum += value * weight);
        frames += weight;
    }
    Ok(sums.map(|sum| sum / frames))
}
