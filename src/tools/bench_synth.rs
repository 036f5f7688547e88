//! How fast a voice speaks: one text, its first sound, and many texts at once.

use super::peak_host_mib;
use crate::synth::{Options, Request, Synthesizer, Utterance};
use anyhow::Result;
use host::config::Size;
use host::telemetry::median;
use serde::Serialize;
use std::time::Instant;
use tch::Device;

/// About ten seconds of speech, in two sentences.
const TEXT: &str = "The sun had just come up over the hills, and the river lay still in the morning light. \
                    Nobody on the boat had slept very much, but all of them were glad to see the land again.";
/// What an untrained voice speaks it in.
const SECONDS: f64 = 10.0;

/// How fast a voice speaks; real-time factor and first sound are medians over the rounds.
#[derive(Debug, Serialize)]
pub struct SpeechFigures {
    pub model_size: Size,
    pub device: String,
    pub threads: usize,
    /// What the decoder's products are made in.
    pub products: &'static str,
    pub parameters: usize,
    pub steps: usize,
    /// Whether weights are random and durations fixed.
    pub untrained: bool,
    /// Length of the one text as spoken.
    pub seconds: f64,
    /// Seconds of computing for a second of speech.
    pub real_time_factor: f64,
    pub first_audio_ms: f64,
    /// Seconds of speech made a second, and of how many texts at once.
    pub batch_times_real_time: f64,
    pub batch_texts: usize,
    pub peak_memory_mib: Option<u64>,
    pub notes: Vec<String>,
}

/// Frames a token that make the text ten seconds long; its characters and the two language tags are its tokens.
pub fn frames_per_token(rate_hz: u32, hop_length: i64) -> f64 {
    SECONDS * f64::from(rate_hz) / hop_length as f64 / (TEXT.len() as f64 + 1.0)
}

pub fn measure(synthesizer: &mut Synthesizer, steps: usize, rounds: usize, untrained: bool) -> Result<SpeechFigures> {
    let mut options = Options::default();
    options.sampling.steps = steps;
    synthesizer.warm_up(&options)?;
    let gpu = synthesizer.device().is_cuda();
    let request =
        |early: bool| Request { text: TEXT.into(), options: Options { early, ..options }, ..Request::default() };
    let whole = || -> Result<(f64, f64)> {
        let start = Instant::now();
        let samples = synthesizer.speak(&request(false))?.samples.len();
        Ok((samples as f64 / f64::from(synthesizer.rate_hz()), start.elapsed().as_secs_f64()))
    };
    let first = || -> Result<f64> {
        let start = Instant::now();
        let mut utterance = synthesizer.begin(&request(true))?;
        while synthesizer.advance(&mut [&mut utterance])?.remove(0)?.is_empty() {}
        Ok(start.elapsed().as_secs_f64())
    };
    // Once to set libraries up, once more because the second time captures.
    for _ in 0..2 {
        whole()?;
        first()?;
    }
    let wholes: Vec<(f64, f64)> = (0..rounds).map(|_| whole()).collect::<Result<_>>()?;
    let firsts: Vec<f64> = (0..rounds).map(|_| first()).collect::<Result<_>>()?;
    let batch_texts = if gpu { 128 } else { 4 };
    let many = || many(synthesizer, &options, batch_texts);
    for _ in 0..if gpu { 2 } else { 0 } {
        many()?;
    }
    let batches: Vec<f64> = (0..if gpu { rounds } else { 1 }).map(|_| many()).collect::<Result<_>>()?;
    Ok(SpeechFigures {
        model_size: synthesizer.config().model.size,
        device: match synthesizer.device() {
            Device::Cuda(_) => torchx::cuda::facts(synthesizer.device())?.name,
            _ => "CPU".into(),
        },
        threads: tch::get_num_threads() as usize,
        products: synthesizer.products(),
        parameters: synthesizer.parameters(),
        steps,
        untrained,
        seconds: wholes[0].0,
        real_time_factor: median(&wholes.iter().map(|(seconds, taken)| taken / seconds).collect::<Vec<_>>()),
        first_audio_ms: median(&firsts) * 1e3,
        batch_times_real_time: median(&batches),
        batch_texts,
        peak_memory_mib: peak_host_mib().map(|mib| mib as u64),
        notes: synthesizer.notes(),
    })
}

/// Seconds of speech a second, of texts of different lengths spoken together.
fn many(synthesizer: &Synthesizer, options: &Options, texts: usize) -> Result<f64> {
    let start = Instant::now();
    let words: Vec<&str> = TEXT.split(' ').collect();
    let text = |index: usize| words[..words.len() - index % (words.len() / 2)].join(" ");
    let begin =
        |index: usize| synthesizer.begin(&Request { text: text(index), options: *options, ..Request::default() });
    let mut utterances: Vec<Utterance> = (0..texts).map(begin).collect::<Result<_>>()?;
    while utterances.iter().any(|utterance| !utterance.is_done()) {
        let spoken = synthesizer.advance(&mut utterances.iter_mut().collect::<Vec<_>>())?;
        spoken.into_iter().collect::<Result<Vec<_>>>()?;
    }
    Ok(utterances.iter().map(Utterance::seconds).sum::<f64>() / start.elapsed().as_secs_f64())
}

/// What a figure should be on this device, where that is said: real-time factor, first sound, batch.
pub fn goals(report: &SpeechFigures) -> [Option<f64>; 3] {
    match (report.device == "CPU", report.model_size) {
        (false, Size::Tiny | Size::Small | Size::Normal) => [Some(0.01), Some(60.0), Some(500.0)],
        (true, Size::Tiny) => [Some(0.03), Some(150.0), None],
        (true, Size::Normal) => [Some(0.1), None, None],
        _ => [None; 3],
    }
}
