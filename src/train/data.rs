//! What a run trains on: corpus → split → tokenizer → cache → datasets and the batch budget.

use crate::cache::{self, Cache};
use crate::config::{Config, Data};
use crate::corpus::{self, Corpus, Utterance};
use crate::feed::{MelExtractor, MelStats};
use crate::loader::{Budget, Dataset, LeftOut, Length, plan};
use crate::text::Tokenizer;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
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
    /// Rows and clips that are damaged and were left out, each with its place.
    pub findings: Vec<String>,
    /// Sound clips that this run's limits leave out.
    pub notes: Vec<String>,
}

impl Prepared {
    /// Measured once, then part of every checkpoint.
    pub fn mel_stats(&self, config: &Config) -> Result<MelStats> {
        let extractor = MelExtractor::new(&config.model, config.data.sample_rate, Device::Cpu);
        let plans = plan(self.train.lengths(), &self.budget, config.training.seed, 0);
        let moments = plans.iter().take(STATS_BATCHES).map(|clips| {
            let batch = self.train.batch(clips, &self.budget)?;
            Ok(tch::no_grad(|| extractor.moments(&batch)))
        });
        Ok(MelStats::from_moments(moments.collect::<Result<Vec<_>>>()?))
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
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let path = data.dataset_path.as_deref().context(
        "no corpus was named\nhint: `myxtts train --train-data DIR`; `myxtts sample-corpus DIR` makes one to try",
    )?;
    let corpus = read(path, data, &mut findings, &mut notes)?;
    let mut read_held_out = |path| read(path, data, &mut findings, &mut notes);
    let held_out = data.val_data.as_deref().map(&mut read_held_out).transpose()?;
    let tokenizer = match tokenizer {
        Some(tokenizer) => {
            notes.extend(tokenizer.check()?);
            findings.extend(unknown(&corpus.utterances, &tokenizer, &data.language));
            tokenizer
        }
        None => {
            let (tokenizer, told) = cache::tokenizer(&corpus.utterances, config)?;
            notes.push(format!("tokens: {told}"));
            tokenizer
        }
    };
    // One table for the whole corpus, the same that `myxtts prepare` fills; training and validation are views of it.
    let mut open = |utterances: &[Utterance]| -> Result<Cache> {
        let (cache, report) = cache::open(utterances, &tokenizer, config, progress, stop)?;
        findings.extend(report.failures.iter().map(|f| format!("{}: {}", f.path.display(), f.reason)));
        Ok(cache)
    };
    let whole = open(&corpus.utterances)?;
    let (train, validation) = match (corpus.into_parts(), held_out) {
        ((train, _), Some(held_out)) => (whole.part(&train), open(&held_out.utterances)?),
        ((train, Some(validation)), None) => (whole.part(&train), whole.part(&validation)),
        ((all, None), None) => {
            let (train, validation) = split(all, data);
            (whole.part(&train), whole.part(&validation))
        }
    };
    let (train, validation) =
        (fitting(train, data, "training", &mut notes), fitting(validation, data, "validation", &mut notes));
    ensure!(
        !train.lengths().is_empty(),
        "no clip is left to train on\nhint: raise --max-mel-frames and --max-text-length, or see `myxtts check`"
    );
    let budget = budget(data, &train, &validation);
    let validation = (!validation.lengths().is_empty()).then(|| Arc::new(validation));
    Ok(Prepared { train: Arc::new(train), validation, tokenizer, budget, findings, notes })
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

fn fitting(cache: Cache, data: &Data, name: &str, notes: &mut Vec<String>) -> Dataset {
    let max = Length { frames: data.max_mel_frames, tokens: data.max_text_length };
    let (dataset, left_out) = Dataset::new(cache, max);
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
        return Budget::padded(data.batch_size.min(train.lengths().len()), max);
    }
    let lengths = [train.lengths(), validation.lengths()].concat();
    Budget::packed(&lengths, data.batch_size)
}
