//! What a run trains on: corpus → split → tokenizer → cache → datasets and the batch budget.

use crate::cache::{self, Cache};
use crate::config::{Config, Data};
use crate::corpus::{self, Corpus, Utterance};
use crate::feed::{MelExtractor, MelStats};
use crate::loader::{Budget, Dataset, LeftOut, Length, plan};
use crate::text::Tokenizer;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tch::Device;

/// Batches that mean and deviation of the mel values are measured on.
const STATS_BATCHES: usize = 8;

pub struct Prepared {
    pub train: Arc<Dataset>,
    /// Absent when nothing is held out.
    pub validation: Option<Arc<Dataset>>,
    pub tokenizer: Tokenizer,
    pub budget: Budget,
    /// What a person should know: rows and clips that were left out, and why.
    pub notes: Vec<String>,
}

impl Prepared {
    /// Measured once, then part of every checkpoint.
    pub fn mel_stats(&self, config: &Config) -> MelStats {
        let extractor = MelExtractor::new(&config.model, config.data.sample_rate, Device::Cpu);
        let plans = plan(self.train.lengths(), &self.budget, config.training.seed, 0);
        let batches = plans.iter().take(STATS_BATCHES).map(|clips| self.train.batch(clips, &self.budget));
        tch::no_grad(|| MelStats::from_moments(batches.map(|batch| extractor.moments(&batch))))
    }
}

/// Reads the corpus and opens its cache, building what is missing. A resumed run brings its tokenizer.
pub fn prepare(
    config: &Config,
    tokenizer: Option<Tokenizer>,
    progress: &(dyn Fn(cache::Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Prepared> {
    let data = &config.data;
    let mut notes = Vec::new();
    let path = data.dataset_path.as_deref().context(
        "no corpus was named\nhint: `myxtts train --train-data DIR`; `myxtts sample-corpus DIR` makes one to try",
    )?;
    let corpus = read(path, data, &mut notes)?;
    let fit = || Tokenizer::of_corpus(&corpus.utterances, &data.language, data.tokenizer);
    let tokenizer = tokenizer.map_or_else(fit, Ok)?;
    notes.extend(tokenizer.check()?);
    notes.push(format!("tokens: {}", tokenizer.describe()));
    let (train, validation) = match (corpus.into_parts(), &data.val_data) {
        ((train, _), Some(path)) => (train, read(path, data, &mut notes)?.utterances),
        ((train, Some(validation)), None) => (train, validation),
        ((all, None), None) => split(all, data),
    };
    let hop = config.model.hop_length as usize;
    let mut dataset = |utterances: &[Utterance], name: &str| -> Result<Dataset> {
        let (cache, report) = cache::open(utterances, &tokenizer, data, progress, stop)?;
        notes.extend(report.failures.iter().map(|f| format!("{}: {}", f.path.display(), f.reason)));
        Ok(fitting(cache, hop, data, name, &mut notes))
    };
    let (train, validation) = (dataset(&train, "training")?, dataset(&validation, "validation")?);
    ensure!(
        !train.lengths().is_empty(),
        "no clip is left to train on\nhint: raise --max-mel-frames and --max-text-length, or see `myxtts check`"
    );
    let budget = budget(data, &train, &validation);
    let validation = (!validation.lengths().is_empty()).then(|| Arc::new(validation));
    Ok(Prepared { train: Arc::new(train), validation, tokenizer, budget, notes })
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

fn read(path: &Path, data: &Data, notes: &mut Vec<String>) -> Result<Corpus> {
    let corpus = corpus::read(path, &corpus::Options::of(data)?)?;
    notes.push(format!("{}: read as {}: {}", path.display(), corpus.format, corpus.why));
    notes.extend(corpus.problems.iter().map(|problem| problem.to_string()));
    Ok(corpus)
}

fn fitting(cache: Cache, hop: usize, data: &Data, name: &str, notes: &mut Vec<String>) -> Dataset {
    let max = Length { frames: data.max_mel_frames, tokens: data.max_text_length };
    let (dataset, left_out) = Dataset::new(cache, hop, max);
    if left_out.total() > 0 {
        let LeftOut { too_many_frames, too_many_tokens, fewer_frames_than_tokens } = left_out;
        notes.push(format!(
            "{name}: {} clips left out: {too_many_frames} above max_mel_frames {}, {too_many_tokens} above \
             max_text_length {}, {fewer_frames_than_tokens} with less sound than text",
            left_out.total(),
            max.frames,
            max.tokens
        ));
    }
    dataset
}

/// One budget for training and validation, so that shapes never change.
fn budget(data: &Data, train: &Dataset, validation: &Dataset) -> Budget {
    if data.pad_to_fixed_length {
        let max = Length { frames: data.max_mel_frames, tokens: data.max_text_length };
        return Budget::padded(data.batch_size, max);
    }
    let lengths = [train.lengths(), validation.lengths()].concat();
    Budget::packed(&lengths, data.batch_size)
}
