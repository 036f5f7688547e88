//! The truth about a corpus: every clip decoded once, measured, and held against what training can use.

mod problems;

pub use problems::{Kind, Problem};

use crate::audio::{self, Waveform};
use crate::config::Config;
use crate::corpus::{Corpus, Utterance};
use crate::text::{self, Tokenizer};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A sample this loud is cut off, unless it is one of few.
const CLIPPED: f32 = 0.999;
/// 60 dB below full scale, over 10 ms.
const SILENT_RMS: f32 = 0.001;
const MAX_BINS: usize = 12;
const BIN_WIDTHS_S: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// Rows of the metadata, usable or not.
    pub rows: usize,
    /// Clips that could be decoded; the figures below are theirs.
    pub clips: usize,
    pub hours: f64,
    pub speakers: BTreeMap<String, usize>,
    pub languages: BTreeMap<String, usize>,
    pub sample_rates_hz: BTreeMap<u32, usize>,
    pub seconds: Spread,
    pub duration_bins: Vec<Bin>,
    /// Median characters per second.
    pub pace: f64,
    /// How often each character occurs, after normalisation.
    pub characters: BTreeMap<char, usize>,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Default, Serialize)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub mean: f64,
    pub max: f64,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Bin {
    pub from_s: f64,
    pub to_s: f64,
    pub clips: usize,
}

/// What is kept of a clip once its samples are gone.
struct Measure {
    rate_hz: u32,
    seconds: f64,
    /// Mel frames after trimming, as training counts them.
    frames: usize,
    tokens: usize,
    characters: usize,
    clipped_share: f64,
    silent_share: f64,
}

/// Decodes every clip, `workers` at a time; none when stopped. Memory: one clip per worker.
pub fn check(
    corpus: &Corpus,
    config: &Config,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
    stop: &AtomicBool,
) -> Result<Option<Summary>, rayon::ThreadPoolBuildError> {
    let texts = corpus.utterances.iter().map(|utterance| (utterance.text.as_str(), language_of(utterance, config)));
    let tokenizer = Tokenizer::fit(texts);
    let done = AtomicUsize::new(0);
    let one = |utterance: &Utterance| {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let measure = measure(utterance, &tokenizer, config);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        Some(measure)
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers.max(1)).build()?;
    let measures: Option<Vec<_>> = pool.install(|| corpus.utterances.par_iter().map(one).collect());
    Ok(measures.map(|measures| summarise(corpus, config, &measures)))
}

fn measure(utterance: &Utterance, tokenizer: &Tokenizer, config: &Config) -> Result<Measure, String> {
    let wave = audio::decode(&utterance.audio).map_err(|error| fact(&utterance.audio, &error.to_string()))?;
    if wave.samples.is_empty() {
        return Err("no samples".into());
    }
    let (rate_hz, count) = (wave.rate_hz, wave.samples.len());
    let clipped = wave.samples.iter().filter(|sample| sample.abs() >= CLIPPED).count();
    let silent_share = silent_share(&wave);
    let heard = if config.data.trim_silence { audio::trim_silence(wave).samples.len() } else { count };
    let resampled = (heard as f64 * f64::from(config.data.sample_rate) / f64::from(rate_hz)).round() as usize;
    Ok(Measure {
        rate_hz,
        seconds: count as f64 / f64::from(rate_hz),
        frames: resampled / config.model.hop_length.max(1) as usize + 1,
        tokens: tokenizer.encode(&utterance.text, language_of(utterance, config)).len(),
        characters: text::normalize(&utterance.text).chars().count(),
        clipped_share: clipped as f64 / count as f64,
        silent_share,
    })
}

fn language_of<'a>(utterance: &'a Utterance, config: &'a Config) -> &'a str {
    utterance.language.as_deref().unwrap_or(&config.data.language)
}

/// The path is told beside it, and the hint is the same for every clip.
fn fact(path: &Path, error: &str) -> String {
    let fact = error.strip_prefix(&format!("{}: ", path.display())).unwrap_or(error);
    fact.lines().next().unwrap_or_default().to_owned()
}

fn silent_share(wave: &Waveform) -> f64 {
    let window_samples = (wave.rate_hz as usize / 100).max(1);
    let windows = wave.samples.chunks(window_samples);
    let (count, limit) = (windows.len(), SILENT_RMS * SILENT_RMS);
    let silent = windows.filter(|w| w.iter().map(|x| x * x).sum::<f32>() < limit * w.len() as f32).count();
    silent as f64 / count as f64
}

fn summarise(corpus: &Corpus, config: &Config, measures: &[Result<Measure, String>]) -> Summary {
    let clips: Vec<_> =
        corpus.utterances.iter().zip(measures).filter_map(|(u, m)| Some((u, m.as_ref().ok()?))).collect();
    let seconds: Vec<f64> = clips.iter().map(|(_, measure)| measure.seconds).collect();
    let mut summary = Summary {
        rows: corpus.utterances.len() + corpus.problems.len(),
        clips: clips.len(),
        hours: seconds.iter().sum::<f64>() / 3600.0,
        duration_bins: bins(&seconds),
        seconds: spread(&seconds),
        pace: median(clips.iter().map(|(_, m)| m.characters as f64 / m.seconds).collect()),
        ..Summary::default()
    };
    for (utterance, measure) in &clips {
        *summary.speakers.entry(utterance.speaker.clone()).or_default() += 1;
        *summary.languages.entry(language_of(utterance, config).to_owned()).or_default() += 1;
        *summary.sample_rates_hz.entry(measure.rate_hz).or_default() += 1;
        for letter in text::normalize(&utterance.text).chars() {
            *summary.characters.entry(letter).or_default() += 1;
        }
    }
    summary.problems = problems::problems(corpus, config, measures);
    summary
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}

fn spread(seconds: &[f64]) -> Spread {
    if seconds.is_empty() {
        return Spread::default();
    }
    Spread {
        min: seconds.iter().copied().fold(f64::INFINITY, f64::min),
        median: median(seconds.to_vec()),
        mean: seconds.iter().sum::<f64>() / seconds.len() as f64,
        max: seconds.iter().copied().fold(0.0, f64::max),
    }
}

/// Equal bins of a round width, from the first that holds a clip to the last.
fn bins(seconds: &[f64]) -> Vec<Bin> {
    let Spread { min, max, .. } = spread(seconds);
    let fits = |width: &&f64| ((max / **width).floor() - (min / **width).floor()) < MAX_BINS as f64;
    let width_s = BIN_WIDTHS_S.iter().find(fits).copied().unwrap_or(max.max(1.0));
    let place = |value: f64| (value / width_s).floor() as usize;
    let mut counts = BTreeMap::new();
    seconds.iter().for_each(|&value| *counts.entry(place(value)).or_insert(0) += 1);
    let all = if seconds.is_empty() { 0..0 } else { place(min)..place(max) + 1 };
    let edge = |index: usize| index as f64 * width_s;
    all.map(|bin| Bin { from_s: edge(bin), to_s: edge(bin + 1), clips: counts.get(&bin).copied().unwrap_or(0) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::TAU;

    const RATE_HZ: u32 = 16_000;

    fn tone(seconds: f32, gain: f32) -> Vec<f32> {
        let samples = (seconds * RATE_HZ as f32) as usize;
        (0..samples).map(|n| (gain * (TAU * 220.0 * n as f32 / RATE_HZ as f32).sin()).clamp(-1.0, 1.0)).collect()
    }

    /// 24 good clips of one second and 15 characters, then the given ones.
    fn corpus(dir: &Path, odd: &[(&str, Vec<f32>, &str)]) -> Corpus {
        let good = (0..24).map(|index| (format!("good{index}"), tone(1.0, 0.5), "fifteen letters"));
        let odd = odd.iter().map(|(id, samples, text)| ((*id).to_owned(), samples.clone(), *text));
        let utterance = |(id, samples, text): (String, Vec<f32>, &str)| {
            let audio = dir.join(format!("{id}.wav"));
            audio::write_wav(&audio, &samples, RATE_HZ).unwrap();
            Utterance { id, audio, text: text.to_owned(), speaker: "anna".into(), language: None }
        };
        Corpus { utterances: good.chain(odd).map(utterance).collect(), problems: vec![] }
    }

    fn found(corpus: &Corpus) -> Summary {
        let mut config = Config::default();
        (config.data.sample_rate, config.data.trim_silence) = (RATE_HZ, false);
        (config.data.max_mel_frames, config.data.max_text_length) = (400, 60);
        check(corpus, &config, 2, &|_| (), &AtomicBool::new(false)).unwrap().unwrap()
    }

    #[test]
    fn a_good_corpus_has_no_problem() {
        let dir = tempfile::tempdir().unwrap();
        let summary = found(&corpus(dir.path(), &[]));
        assert_eq!(summary.problems, []);
        assert_eq!((summary.rows, summary.clips, summary.sample_rates_hz[&RATE_HZ]), (24, 24, 24));
        assert_eq!((summary.speakers["anna"], summary.languages["en"], summary.characters[&'f']), (24, 24, 48));
        assert!((summary.hours - 24.0 / 3600.0).abs() < 1e-9 && (summary.pace - 15.0).abs() < 1e-9);
        assert_eq!(summary.duration_bins, [Bin { from_s: 1.0, to_s: 1.25, clips: 24 }]);
    }

    #[test]
    fn every_kind_of_problem_is_found_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let silence = [tone(0.2, 0.5), vec![0.0; 12_800]].concat();
        let fifty = "x".repeat(50);
        let odd = [
            ("long", tone(20.0, 0.5), "twenty seconds"),
            ("short", tone(0.1, 0.5), "too many letters"),
            ("text", tone(3.0, 0.5), &*"sixty letters and more ".repeat(3)),
            ("clipped", tone(1.0, 3.0), "fifteen letters"),
            ("silent", silence, "fifteen letters"),
            ("wrong", tone(1.0, 0.5), &*fifty),
            ("broken", tone(1.0, 0.5), "fifteen letters"),
        ];
        let corpus = corpus(dir.path(), &odd);
        std::fs::write(dir.path().join("broken.wav"), b"RIFF").unwrap();
        let summary = found(&corpus);
        let has = |id: &str, kind| {
            let path = dir.path().join(format!("{id}.wav"));
            assert!(summary.problems.iter().any(|p| p.path == path && p.kind == kind), "{id}: {:?}", summary.problems);
        };
        has("long", Kind::TooLong);
        has("short", Kind::TooShort);
        has("text", Kind::TextTooLong);
        has("clipped", Kind::Clipping);
        has("silent", Kind::Silence);
        has("wrong", Kind::Pace);
        has("broken", Kind::Unreadable);
        assert!(!summary.problems.iter().any(|p| p.path.to_string_lossy().contains("good")), "{:?}", summary.problems);
        assert_eq!((summary.rows, summary.clips), (31, 30));
    }

    #[test]
    fn bins_are_round_and_few() {
        let spans = |bins: Vec<Bin>| bins.iter().map(|bin| (bin.from_s, bin.clips)).collect::<Vec<_>>();
        assert_eq!(spans(bins(&[1.1, 1.2, 1.9])), [(1.0, 2), (1.25, 0), (1.5, 0), (1.75, 1)]);
        assert!(bins(&[0.5, 3000.0]).len() <= MAX_BINS);
        assert_eq!(bins(&[]), []);
    }
}
