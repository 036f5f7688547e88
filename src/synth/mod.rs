//! Text to waveform: tokens → durations and means → flow → mel → Griffin-Lim.

mod griffin_lim;

pub use griffin_lim::GriffinLim;

use crate::feed::{MelStats, Packed};
use crate::loader::{Axis, GAP, Span};
use crate::model::Voice;
use crate::text::{Tokenizer, normalize};
use crate::train::checkpoint::Checkpoint;
use anyhow::{Result, ensure};
use std::path::Path;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// A token that would last longer than this is a fault of the model, not speech: about 4.6 s.
const MOST_FRAMES_PER_TOKEN: i64 = 400;
/// Highest level of what is spoken.
const PEAK: f32 = 0.95;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Euler steps along the flow.
    pub steps: usize,
    /// Scale of the starting noise: lower is flatter and safer.
    pub temperature: f64,
    pub speed: f64,
    pub seed: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options { steps: 10, temperature: 0.667, speed: 1.0, seed: 0 }
    }
}

/// A voice ready to speak, as a checkpoint holds it.
pub struct Synthesizer {
    voice: Voice,
    vocoder: GriffinLim,
    tokenizer: Tokenizer,
    stats: MelStats,
    language: String,
    rate_hz: u32,
    device: Device,
    /// What may sound different here than where the voice was trained.
    note: Option<String>,
}

impl Synthesizer {
    pub fn load(checkpoint: &Path, device: Device) -> Result<Self> {
        let checkpoint = Checkpoint::open(checkpoint)?;
        let note = checkpoint.tokenizer.check()?;
        let config = &checkpoint.config;
        let mut store = VarStore::new(device);
        let voice = Voice::new(&store.root(), &config.model, checkpoint.tokenizer.vocab_size(), Kind::Float)?;
        checkpoint.load_weights(&mut store)?;
        Ok(Synthesizer {
            voice,
            vocoder: GriffinLim::new(&config.model, config.data.sample_rate, device),
            stats: checkpoint.state.mel_stats,
            language: config.data.language.clone(),
            rate_hz: config.data.sample_rate,
            tokenizer: checkpoint.tokenizer,
            device,
            note,
        })
    }

    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// Characters of `text` that the voice was not trained on and cannot speak.
    pub fn unknown(&self, text: &str, language: Option<&str>) -> Vec<char> {
        self.tokenizer.unknown(text, language.unwrap_or(&self.language))
    }

    pub fn speak(&self, text: &str, language: Option<&str>, options: &Options) -> Result<Vec<f32>> {
        let language = self.tokenizer.language(text, language.unwrap_or(&self.language));
        let spoken = self.tokenizer.languages();
        ensure!(
            spoken.iter().any(|known| known == language),
            "the voice does not speak `{language}`\nhint: it speaks {}",
            spoken.join(", ")
        );
        let unknown = self.tokenizer.unknown(text, language);
        let known = |letter: char| letter.is_alphanumeric() && !unknown.contains(&letter);
        ensure!(
            normalize(text, language).chars().any(known),
            "the text has no letters or digits that the voice knows, so there is nothing to speak"
        );
        let tokens = self.tokenizer.encode(text, language)?;
        tch::manual_seed(options.seed);
        let mel = tch::no_grad(|| speak_tokens(&self.voice, &tokens, options, self.device));
        Ok(limit(tch::no_grad(|| self.vocoder.waveform(&self.stats.restore(&mel)))))
    }
}

/// Turns the whole down where a peak would clip; dynamics stay as they are.
fn limit(mut samples: Vec<f32>) -> Vec<f32> {
    let peak = samples.iter().fold(0f32, |peak, sample| peak.max(sample.abs()));
    if peak > PEAK {
        samples.iter_mut().for_each(|sample| *sample *= PEAK / peak);
    }
    samples
}

/// Normalised mel frames `[frames, n_mels]` of one utterance.
pub fn speak_tokens(voice: &Voice, tokens: &[i32], options: &Options, device: Device) -> Tensor {
    let text = alone(tokens.len(), device);
    let ids = Tensor::from_slice(tokens).to_kind(Kind::Int64).to_device(device);
    let ids = ids.constant_pad_nd([0, GAP as i64]);
    let (durations, mean) = voice.plan(&ids, &text);
    let durations = (durations / options.speed).round().clamp(1, MOST_FRAMES_PER_TOKEN).to_kind(Kind::Int64);
    let durations = durations.narrow(0, 0, tokens.len() as i64);
    let aligned = mean.narrow(0, 0, tokens.len() as i64).repeat_interleave_self_tensor(&durations, 0, None);
    let len = aligned.size()[0];
    let frames = alone(len as usize, device);
    let aligned = aligned.constant_pad_nd([0, 0, 0, GAP as i64]);
    voice.decode(&aligned, &frames, options.steps, options.temperature).narrow(0, 0, len)
}

/// An axis that holds one utterance and the gap behind it.
fn alone(len: usize, device: Device) -> Packed {
    let axis = Axis::new(&[Span { start: 0, len }], len + GAP, 1, len);
    Packed::new(&axis, |tensor| tensor.to_device(device))
}
