//! Text to waveform: tokens → durations and content → flow → mel → Griffin-Lim.

mod griffin_lim;
pub mod voice;

pub use griffin_lim::GriffinLim;

use crate::config::Config;
use crate::feed::{MelStats, Packed};
use crate::loader::{Axis, GAP, Span};
use crate::model::{Sampling, Voice};
use crate::text::{Tokenizer, normalize};
use crate::train::checkpoint::{Checkpoint, RunKind};
use crate::vocoder::Vocoder;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use voice::{Listener, VoiceFile};

/// A token that would last longer than this is a fault of the model, not speech: about 4.6 s.
const MOST_FRAMES_PER_TOKEN: f64 = 400.0;
/// Highest level of what is spoken.
const PEAK: f32 = 0.95;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub sampling: Sampling,
    pub speed: f64,
    pub seed: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options { sampling: Sampling { steps: 10, temperature: 0.667, guidance: 1.0 }, speed: 1.0, seed: 0 }
    }
}

/// A voice ready to speak, as a checkpoint holds it.
pub struct Synthesizer {
    voice: Voice,
    vocoder: Sounder,
    tokenizer: Tokenizer,
    stats: MelStats,
    config: Config,
    /// The checkpoint's own voice, where it clones.
    latents: Option<Tensor>,
    device: Device,
    /// What may sound different here than where the voice was trained.
    note: Option<String>,
}

impl Synthesizer {
    /// `vocoder`: a checkpoint of `train-vocoder`; without one, Griffin-Lim makes the sound.
    pub fn load(checkpoint: &Path, vocoder: Option<&Path>, device: Device) -> Result<Self> {
        let checkpoint = Checkpoint::open(checkpoint)?.of_kind(RunKind::Voice)?;
        let note = checkpoint.tokenizer.check()?;
        let config = &checkpoint.config;
        let tokenizer = &checkpoint.tokenizer;
        let (vocab_size, languages) = (tokenizer.vocab_size(), tokenizer.languages().len());
        let store = VarStore::new(device);
        let voice = Voice::new(&store.root(), &config.model, vocab_size, languages, Kind::Float)?;
        checkpoint.load_weights("model", &store)?;
        let own = || VoiceFile::read(&checkpoint.folder().join(voice::FILE));
        let latents = config.model.clones().then(own).transpose()?;
        Ok(Synthesizer {
            voice,
            vocoder: Sounder::open(vocoder, config, device)?,
            stats: checkpoint.state.mel_stats,
            latents: latents.map(|file| file.latents.to_device(device)),
            tokenizer: checkpoint.tokenizer,
            config: checkpoint.config,
            device,
            note,
        })
    }

    /// The voice of one speaker, from recordings of any words: what `speak` takes as `latents`.
    pub fn hear(&self, recordings: &[PathBuf]) -> Result<Tensor> {
        let listener = Listener::new(&self.voice, &self.config, self.stats, self.device);
        tch::no_grad(|| listener.hear(recordings))
    }

    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub fn rate_hz(&self) -> u32 {
        self.config.data.sample_rate
    }

    /// Characters of `text` that the voice was not trained on and cannot speak.
    pub fn unknown(&self, text: &str, language: Option<&str>) -> Vec<char> {
        self.tokenizer.unknown(text, language.unwrap_or(&self.config.data.language))
    }

    /// `latents`: who speaks; without them the checkpoint's own voice does.
    pub fn speak(
        &self,
        text: &str,
        language: Option<&str>,
        latents: Option<&Tensor>,
        options: &Options,
    ) -> Result<Vec<f32>> {
        let language = self.tokenizer.language(text, language.unwrap_or(&self.config.data.language));
        let spoken = self.tokenizer.languages();
        let number = spoken
            .iter()
            .position(|known| known == language)
            .with_context(|| format!("the voice does not speak `{language}`\nhint: it speaks {}", spoken.join(", ")))?;
        let unknown = self.tokenizer.unknown(text, language);
        let known = |letter: char| letter.is_alphanumeric() && !unknown.contains(&letter);
        ensure!(
            normalize(text, language).chars().any(known),
            "the text has no letters or digits that the voice knows, so there is nothing to speak"
        );
        let tokens = self.tokenizer.encode(text, language)?;
        tch::manual_seed(options.seed);
        let latents = latents.or(self.latents.as_ref());
        let mel = tch::no_grad(|| speak_tokens(&self.voice, &tokens, number, latents, options, self.device));
        Ok(limit(tch::no_grad(|| self.vocoder.waveform(&self.stats.restore(&mel)))))
    }
}

/// What makes sound of mel frames.
enum Sounder {
    GriffinLim(GriffinLim),
    Trained {
        vocoder: Vocoder,
        /// Holds its weights.
        _store: VarStore,
    },
}

impl Sounder {
    fn open(path: Option<&Path>, voice: &Config, device: Device) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Sounder::GriffinLim(GriffinLim::new(&voice.model, voice.data.sample_rate, device)));
        };
        let checkpoint = Checkpoint::open(path)?.of_kind(RunKind::Vocoder)?;
        let heard = |config: &Config| {
            let model = &config.model;
            (config.data.sample_rate, model.n_mels, model.n_fft, model.hop_length, model.f_min, model.f_max)
        };
        ensure!(
            heard(&checkpoint.config) == heard(voice),
            "{}: a vocoder for other mel frames than the voice makes\nhint: sample rate, n_mels, n_fft, hop_length, \
             f_min and f_max must be alike",
            path.display()
        );
        let store = VarStore::new(device);
        let vocoder = Vocoder::new(&store.root(), &checkpoint.config.model, Kind::Float);
        checkpoint.load_weights("model", &store)?;
        Ok(Sounder::Trained { vocoder, _store: store })
    }

    fn waveform(&self, log_mel: &Tensor) -> Vec<f32> {
        match self {
            Sounder::GriffinLim(griffin_lim) => griffin_lim.waveform(log_mel),
            Sounder::Trained { vocoder, .. } => vocoder.waveform(log_mel),
        }
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

/// Normalised mel frames `[frames, n_mels]` of one utterance. `language` is a number of the tokenizer's.
pub fn speak_tokens(
    voice: &Voice,
    tokens: &[i32],
    language: usize,
    latents: Option<&Tensor>,
    options: &Options,
    device: Device,
) -> Tensor {
    let text = alone(tokens.len(), device);
    let ids = Tensor::from_slice(tokens).to_device(device).constant_pad_nd([0, text.len() - tokens.len() as i64]);
    let languages = Tensor::full([1], language as i64, (Kind::Int, device));
    let (expected, content) = voice.plan(&ids, &languages, latents, &text);
    let expected: Vec<f64> = Vec::try_from(expected / options.speed).expect("one number a token");
    let lasting = Tensor::from_slice(&whole_frames(&expected[..tokens.len()])).to_device(device);
    let content = content.narrow(0, 0, tokens.len() as i64).repeat_interleave_self_tensor(&lasting, 0, None);
    let len = content.size()[0];
    let frames = alone(len as usize, device);
    let content = content.constant_pad_nd([0, 0, 0, frames.len() - len]);
    voice.decode(&content, latents, &frames, &options.sampling).narrow(0, 0, len)
}

/// Whole numbers of frames that keep step with the expected ones: what rounding takes from a token, the next one gets.
fn whole_frames(expected: &[f64]) -> Vec<i64> {
    let mut owed = 0.0;
    let mut whole = |frames: &f64| {
        let due = frames.min(MOST_FRAMES_PER_TOKEN) + owed;
        let given = due.round().max(1.0);
        owed = due - given;
        given as i64
    };
    expected.iter().map(&mut whole).collect()
}

/// An axis that holds one utterance and the gap behind it; even, because the decoder pairs frames.
fn alone(len: usize, device: Device) -> Packed {
    let total = (len + GAP).next_multiple_of(2);
    let axis = Axis::new(&[Span { start: 0, len }], total, 1, len);
    Packed::new(&axis, |tensor| tensor.to_device(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_loses_no_time() {
        assert_eq!(whole_frames(&[2.4, 2.4, 2.4, 2.4, 2.4]), [2, 3, 2, 3, 2]);
        assert_eq!(whole_frames(&[0.2, 0.2, 5.6]), [1, 1, 4]);
        let expected: Vec<f64> = (0..1000).map(|i| 1.0 + f64::from(i % 17) * 0.37).collect();
        let total: i64 = whole_frames(&expected).iter().sum();
        assert!((total as f64 - expected.iter().sum::<f64>()).abs() < 1.0);
    }
}
