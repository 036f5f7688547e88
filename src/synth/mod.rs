//! Text to waveform: clauses → tokens → durations and content → flow → mel → sound, joined and kept from clipping.

mod backend;
mod join;
mod limiter;
mod network;
mod stages;
#[cfg(test)]
mod tests;
mod utterance;

pub use network::speak_tokens;
pub use utterance::Utterance;

use crate::checkpoint::voice::{self, Heard, Listener, VoiceFile};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::feed::{MelExtractor, MelStats};
use crate::model::{Sampling, Voice};
use crate::vocoder::Vocoder;
use anyhow::{Context, Result, ensure};
use backend::VocoderBackend;
use host::audio::Waveform;
use host::config::Config;
use host::config::speaking::{DEFAULT_GUIDANCE, DEFAULT_STEPS, DEFAULT_TEMPERATURE};
use host::error::hinted;
use host::text::Tokenizer;
use network::{Clause, Network};
use std::path::{Path, PathBuf};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Characters of a text that its language is told from.
const LANGUAGE_SAMPLE: usize = 2000;

/// How to speak.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub sampling: Sampling,
    pub speed: f64,
    /// Seed of the noise: with one seed, a text is always spoken alike.
    pub seed: u64,
    /// Whether to begin with the first clause alone, so that sound comes soon; otherwise sentences are whole.
    pub early: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (steps, temperature, guidance) = (DEFAULT_STEPS, DEFAULT_TEMPERATURE, DEFAULT_GUIDANCE);
        let sampling = Sampling { steps, temperature, guidance };
        Options { sampling, speed: 1.0, seed: 0, early: false }
    }
}

/// What to say and how.
#[derive(Debug, Default)]
pub struct Request {
    pub text: String,
    /// A code or `auto`; without one, as the voice was trained.
    pub language: Option<String>,
    /// Who speaks; without them the checkpoint's own voice does.
    pub latents: Option<Tensor>,
    pub options: Options,
}

/// A request as it was spoken.
#[derive(Clone, Debug)]
pub struct Spoken {
    pub samples: Vec<f32>,
    /// Highest level; 1 is full scale.
    pub peak: f32,
    /// Decibels by which the loudest moment was turned down to keep it from clipping.
    pub limited_db: f32,
    pub notes: Vec<String>,
}

/// A voice ready to speak, as a checkpoint holds it. One thread owns it.
pub struct Synthesizer {
    network: Network,
    tokenizer: Tokenizer,
    stats: MelStats,
    config: Config,
    /// The checkpoint's own voice, where it clones, and the name of the weights.
    own: Option<VoiceFile>,
    device: Device,
    /// What may sound different here than where the voice was trained.
    note: Option<String>,
    /// Holds the weights.
    store: VarStore,
}

impl Synthesizer {
    /// `vocoder`: a checkpoint of `train-vocoder`; without one, Griffin-Lim makes the sound.
    pub fn load(checkpoint: &Path, vocoder: Option<&Path>, device: Device) -> Result<Self> {
        let checkpoint = Checkpoint::open(checkpoint)?.of_kind(RunKind::Voice)?;
        let note = checkpoint.tokenizer.check()?;
        let config = &checkpoint.config;
        let kind = speech_kind(device)?;
        let (voice, products) = torchx::with_products(|| checkpoint.voice(device, kind));
        let (store, voice) = voice?;
        network::narrow_weights(products, kind);
        let own = || VoiceFile::read(&checkpoint.folder().join(voice::FILE));
        let mut own = config.model.clones().then(own).transpose()?;
        if let Some(own) = &mut own {
            own.latents = own.latents.to_device(device);
        }
        let vocoder_backend = VocoderBackend::open(vocoder, config, kind, device)?;
        let stats = checkpoint.state.mel_stats;
        let network = Network::new(voice, vocoder_backend, stats, config.model.hop_length as usize, device);
        Ok(Synthesizer {
            network,
            stats,
            own,
            tokenizer: checkpoint.tokenizer,
            config: checkpoint.config,
            device,
            note,
            store,
        })
    }

    /// Random weights, vocoder included, with every token as long as `frames_per_token`: as fast as a trained one, for
    /// measurements and tests. It knows the letters of English.
    pub fn untrained(config: &Config, frames_per_token: f64, device: Device) -> Result<Self> {
        let tokenizer = Tokenizer::fit([("", "en")].into_iter());
        let kind = speech_kind(device)?;
        let (store, vocoder_store) = (VarStore::new(device), VarStore::new(device));
        let ((voice, vocoder), products) = torchx::with_products(|| {
            let voice = Voice::new(&store.root(), &config.model, tokenizer.vocab_size(), 1, kind);
            (voice, Vocoder::new(&vocoder_store.root(), &config.model, kind))
        });
        let voice = voice?;
        for (_, mut weight) in store.variables().into_iter().filter(|(name, _)| name.ends_with("weight")) {
            // Some start as zero, and would hide what is wrong behind them.
            if weight.abs().max().double_value(&[]) == 0.0 {
                let _ = tch::no_grad(|| weight.normal_(0.0, 0.05));
            }
        }
        network::narrow_weights(products, kind);
        let latents = |clones: bool| {
            clones
                .then(|| Tensor::randn([1, config.model.voice_latents, config.model.voice_dim], (Kind::Float, device)))
        };
        let own = latents(config.model.clones()).map(|latents| VoiceFile {
            latents,
            model: blake3::hash(b"untrained"),
            seconds: None,
        });
        let stats = MelStats { mean: -5.0, std: 2.0 };
        let vocoder_backend = VocoderBackend::Trained { vocoder, store: vocoder_store };
        let mut network = Network::new(voice, vocoder_backend, stats, config.model.hop_length as usize, device);
        network.frames_per_token = Some(frames_per_token);
        Ok(Synthesizer { network, tokenizer, stats, config: config.clone(), own, device, note: None, store })
    }

    /// On a GPU, captures the sizes that most requests have, so that the first ones need not wait for it.
    pub fn warm_up(&mut self, options: &Options) -> Result<()> {
        match (self.device.is_cuda(), &self.own) {
            (true, own) => self.network.warm_up(own.as_ref().map(|own| own.latents.shallow_clone()), options),
            (false, _) => Ok(()),
        }
    }

    /// What may sound different here than where the voice was trained, or is slower than it could be.
    pub fn notes(&self) -> Vec<String> {
        self.note.clone().into_iter().chain(self.network.note()).collect()
    }

    /// Number of trained weights, vocoder included.
    pub fn parameters(&self) -> usize {
        self.store.variables().values().map(Tensor::numel).sum::<usize>() + self.network.vocoder_parameters()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn rate_hz(&self) -> u32 {
        self.config.data.sample_rate
    }

    /// Codes of the languages that the voice speaks.
    pub fn languages(&self) -> &[String] {
        self.tokenizer.languages()
    }

    /// Whether it can take another's sound.
    pub fn clones(&self) -> bool {
        self.network.voice.clones()
    }

    /// The voice of one speaker, from recordings of any words: what a request takes as `latents`.
    pub fn hear(&self, recordings: &[PathBuf]) -> Result<Heard> {
        let listener = Listener::new(&self.network.voice, &self.config, self.stats, self.device);
        crate::catch(|| tch::no_grad(|| listener.hear(recordings)))?
    }

    /// Latents of one recording that is in memory.
    pub fn hear_wave(&self, wave: Waveform) -> Result<Tensor> {
        let listener = Listener::new(&self.network.voice, &self.config, self.stats, self.device);
        crate::catch(|| tch::no_grad(|| listener.hear_wave(wave)))?.map(|(latents, _)| latents)
    }

    /// A recording (at the voice's rate) made again by the vocoder from its own mel frames.
    pub fn copy(&self, recording: &Waveform) -> Result<Vec<f32>> {
        let extractor = MelExtractor::new(&self.config.model, self.rate_hz(), self.device);
        let samples = Tensor::from_slice(&recording.samples).to_device(self.device);
        Ok(crate::catch(|| tch::no_grad(|| self.network.vocode(&extractor.log_mel(&samples))))?)
    }

    /// The voice of a file that was made with this model.
    pub fn voice(&self, path: &Path) -> Result<Tensor> {
        let file = VoiceFile::read(path)?;
        let own =
            self.own.as_ref().context("this voice was trained without references, so it takes no other's sound")?;
        file.belongs_to(own.model, path)?;
        Ok(file.latents.to_device(self.device))
    }

    /// Fingerprint of the weights, which voice files of this model carry.
    pub fn model(&self) -> Option<blake3::Hash> {
        self.own.as_ref().map(|own| own.model)
    }

    /// Splits off and encodes the first clause. All errors of input are raised here.
    pub fn begin(&self, request: &Request) -> Result<Utterance> {
        let asked = request.language.as_deref().unwrap_or(&self.config.data.language);
        let sample: String = request.text.chars().take(LANGUAGE_SAMPLE).collect();
        let language = self.tokenizer.language(&sample, asked);
        let spoken = self.tokenizer.languages();
        let number = spoken.iter().position(|known| known == language).ok_or_else(|| {
            hinted(format!("the voice does not speak `{language}`"), format!("it speaks {}", spoken.join(", ")))
        })?;
        let own = || self.own.as_ref().map(|own| own.latents.shallow_clone());
        let latents = request.latents.as_ref().map(Tensor::shallow_clone).or_else(own);
        let mut utterance = Utterance::new(self, &request.text, (language, number), latents, request.options);
        utterance.prepare(self)?;
        ensure!(
            !utterance.is_done(),
            "the text has no letters or digits that the voice knows, so there is nothing to speak"
        );
        Ok(utterance)
    }

    /// Speaks the next clause of each, all in one packed forward pass; each one's samples that are final now (may be
    /// empty). One whose text cannot be read any further ends with an error of its own, and the others go on.
    pub fn advance(&self, utterances: &mut [&mut Utterance]) -> Result<Vec<Result<Vec<f32>>>> {
        let clauses: Vec<&Clause> = utterances.iter().filter_map(|utterance| utterance.next()).collect();
        let mut waves = self.network.speak(&clauses)?.into_iter();
        let speak = |utterance: &mut &mut Utterance| match utterance.is_done() {
            true => Ok(Vec::new()),
            false => utterance.take(waves.next().expect("one for each clause"), self),
        };
        Ok(utterances.iter_mut().map(speak).collect())
    }

    pub fn speak(&self, request: &Request) -> Result<Spoken> {
        let mut utterance = self.begin(request)?;
        let mut samples = Vec::new();
        while !utterance.is_done() {
            samples.extend(self.advance(&mut [&mut utterance])?.remove(0)?);
        }
        let (peak, limited_db) = (utterance.peak(), utterance.limited_db());
        Ok(Spoken { samples, peak, limited_db, notes: utterance.notes() })
    }

    #[cfg(test)]
    fn copy_weights_to(&self, other: &mut Synthesizer) {
        let copy = |from: &VarStore, to: &VarStore| {
            let mut to = to.variables();
            for (name, weight) in from.variables() {
                tch::no_grad(|| to.get_mut(&name).expect("the same network").copy_(&weight));
            }
        };
        copy(&self.store, &other.store);
        let (VocoderBackend::Trained { store: from, .. }, VocoderBackend::Trained { store: to, .. }) =
            (&self.network.vocoder_backend, &other.network.vocoder_backend)
        else {
            return;
        };
        copy(from, to);
        let own = self.own.as_ref().map(|own| own.latents.to_device(other.device));
        other.own.iter_mut().zip(own).for_each(|(into, latents)| into.latents = latents);
    }

    /// Characters that one clause may have: no more than clips that the voice learned from. A letter is about a phoneme.
    fn most_characters(&self) -> usize {
        (self.config.data.max_text_length / self.tokenizer.states()).clamp(40, 240)
    }
}

/// Kind of the activations: bf16 where a GPU has units for it, f32 elsewhere.
fn speech_kind(device: Device) -> Result<Kind> {
    if device == Device::Cpu && std::env::var_os("OMP_NUM_THREADS").is_none() {
        // LibTorch counts the machine's cores; those that a container may use can be fewer, and then threads would wait
        // for each other.
        tch::set_num_threads(host::machine::cores() as i32);
    }
    let has_bf16 = device.is_cuda() && torchx::cuda::facts(device)?.has_bf16();
    Ok(if has_bf16 { Kind::BFloat16 } else { Kind::Float })
}
