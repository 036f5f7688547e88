//! The truth about a corpus: every clip decoded once, measured, and held against what training can use.

mod distribution;
mod fix;
mod measure;
mod problems;
#[cfg(test)]
mod tests;

pub use distribution::{Distribution, HistogramBin};
pub use fix::{CleanedMetadata, fix};
pub use problems::{CorpusProblem, ProblemKind};

use crate::audio;
use crate::config::{Config, CorpusFormat};
use crate::corpus::{AudioFeed, Corpus};
use crate::telemetry::median;
use crate::text::Tokenizer;
use measure::Measure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The `data.language` that detects.
const AUTO: &str = "auto";

/// What a corpus holds, and what is wrong with it.
#[derive(Debug, Default, Serialize)]
pub struct CorpusSummary {
    /// Layout of the metadata, and what it was told by.
    pub format: CorpusFormat,
    pub why: String,
    /// Rows of the metadata, usable or not.
    pub rows: usize,
    /// Clips that could be decoded; the figures below are theirs.
    pub clips: usize,
    pub hours: f64,
    /// The symbols that texts become, and those of each language: phonemes or characters.
    pub tokenizer: String,
    pub symbols: BTreeMap<String, &'static str>,
    pub speakers: BTreeMap<String, usize>,
    pub languages: BTreeMap<String, usize>,
    /// How many of the languages were detected, because the metadata name none.
    pub detected_languages: usize,
    pub sample_rates_hz: BTreeMap<u32, usize>,
    pub seconds: Distribution,
    /// Characters of a text, after normalisation.
    pub text_length: Distribution,
    /// Median of the clips' characters per second, by language.
    pub pace: BTreeMap<String, f64>,
    /// How often each character occurs, after normalisation.
    pub characters: BTreeMap<char, usize>,
    /// How many problems of each kind there are.
    pub problem_counts: BTreeMap<ProblemKind, usize>,
    pub problems: Vec<CorpusProblem>,
}

/// Decodes every clip, `workers` at a time; none when stopped. Memory: one clip per worker, and of each clip its text
/// and some 300 bytes.
pub fn check(
    corpus: &Corpus,
    config: &Config,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
    stop: &AtomicBool,
) -> anyhow::Result<Option<CorpusSummary>> {
    let tokenizer = Tokenizer::of_corpus(&corpus.utterances, &config.data.language, config.data.tokenizer)?;
    let (done, utterances) = (AtomicUsize::new(0), &corpus.utterances);
    let feed = AudioFeed::new(utterances.iter().enumerate().map(|(index, utterance)| (index, utterance.audio)));
    let one = |index: usize| {
        let utterance = utterances.get(index);
        let wave = match utterance.audio.file() {
            Some(path) => audio::decode(path).map_err(|failed| failed.error.to_string()),
            None => feed.take(index).map_err(|unread| unread.reason).and_then(|bytes| {
                let decoded = audio::decode_bytes(bytes, f64::INFINITY);
                decoded.map(|(wave, _)| wave).map_err(|error| error.to_string())
            }),
        };
        let measure = wave.and_then(|wave| Measure::of(&utterance, wave, &tokenizer, config));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        measure
    };
    // In their order, which is that of shards on their way.
    let (next, measures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= utterances.len() || stop.load(Ordering::Relaxed) {
                return;
            }
            let measure = one(index);
            measures.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((index, measure));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers.clamp(1, utterances.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut measures = measures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    measures.sort_by_key(|(index, _)| *index);
    let measures: Vec<_> = measures.into_iter().map(|(_, measure)| measure).collect();
    Ok((measures.len() == utterances.len()).then(|| summarise(corpus, config, &tokenizer, &measures)))
}

fn summarise(
    corpus: &Corpus,
    config: &Config,
    tokenizer: &Tokenizer,
    measures: &[Result<Measure, String>],
) -> CorpusSummary {
    let clips: Vec<_> =
        corpus.utterances.iter().zip(measures).filter_map(|(u, m)| Some((u, m.as_ref().ok()?))).collect();
    let of_all = |value: fn(&Measure) -> f64| clips.iter().map(|(_, measure)| value(measure)).collect::<Vec<f64>>();
    let seconds = of_all(|clip| clip.seconds);
    let mut paces: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (_, clip) in &clips {
        paces.entry(&clip.language).or_default().push(clip.characters() as f64 / clip.seconds);
    }
    let problems = problems::problems(corpus, config, measures);
    let mut summary = CorpusSummary {
        format: corpus.format,
        why: corpus.why.clone(),
        rows: corpus.utterances.len() + corpus.problems.len(),
        clips: clips.len(),
        hours: seconds.iter().sum::<f64>() / 3600.0,
        tokenizer: tokenizer.describe(),
        seconds: Distribution::of(&seconds),
        text_length: Distribution::of(&of_all(|clip| clip.characters() as f64)),
        pace: paces.iter().map(|(language, paces)| (language.to_string(), median(paces))).collect(),
        symbols: paces.keys().map(|language| (language.to_string(), tokenizer.symbols_of(language))).collect(),
        ..CorpusSummary::default()
    };
    for (utterance, clip) in &clips {
        count(&mut summary.speakers, utterance.speaker.to_owned());
        count(&mut summary.languages, clip.language.clone());
        count(&mut summary.sample_rates_hz, clip.rate_hz);
        summary.detected_languages += usize::from(utterance.language.is_none() && config.data.language == AUTO);
        clip.text.chars().for_each(|c| count(&mut summary.characters, c));
    }
    problems.iter().for_each(|problem| count(&mut summary.problem_counts, problem.kind));
    CorpusSummary { problems, ..summary }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    *counts.entry(key).or_default() += 1;
}
