//! Text to waveform: clauses → tokens → durations and content → flow → mel → sound, joined and kept from clipping.

mod backend;
mod join;
mod limiter;
mod network;
mod stages;
#[cfg(test)]
mod tests;
mod utterance;

pub use backend::{VocoderBackend, bundled_vocoder};
pub use join::{FADE_S, Join};
pub use network::{MOST_FRAMES, MOST_FRAMES_PER_TOKEN, speak_tokens};
pub use utterance::Utterance;

use crate::checkpoint::voice::{self, Geometry, Heard, Listener, Prompt, VoiceFile};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::feed::{MelExtractor, MelStats};
use crate::model::{Sampling, Voice};
use crate::vocoder::{self, Vocoder};
use anyhow::{Result, ensure};
use host::audio::Waveform;
use host::config::Config;
use host::config::speaking::{
    DEFAULT_GUIDANCE, DEFAULT_LOUDNESS, DEFAULT_SPEAKER_GUIDANCE, DEFAULT_STEPS, DEFAULT_TEMPERATURE,
};
use host::error::hinted;
use host::text::{Tokenizer, normalize};
use limiter::Limiter;
use network::{Clause, Network};
use std::path::{Path, PathBuf};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Characters of a text that its language is told from.
const LANGUAGE_SAMPLE: usize = 2000;
/// Frames that an untrained voice is prompted with: some five seconds.
const UNTRAINED_PROMPT: i64 = 430;
/// Pitch of an untrained voice.
const UNTRAINED_HZ: f64 = 150.0;

/// How to speak.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub sampling: Sampling,
    pub speed: f64,
    /// LUFS; without it, that of the recordings as they were trained on.
    pub loudness: Option<f64>,
    /// Seed of the noise: with one seed, a text is always spoken alike.
    pub seed: u64,
    /// Whether to begin with the first clause alone, so that sound comes soon; otherwise sentences are whole.
    pub early: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (steps, temperature, guidance) = (DEFAULT_STEPS, DEFAULT_TEMPERATURE, DEFAULT_GUIDANCE);
        let sampling = Sampling { steps, temperature, guidance, speaker_guidance: DEFAULT_SPEAKER_GUIDANCE };
        Options { sampling, speed: 1.0, loudness: Some(DEFAULT_LOUDNESS), seed: 0, early: false }
    }
}

/// What to say and how.
#[derive(Debug, Default)]
pub struct Request {
    pub text: String,
    /// A code or `auto`; without one, as the voice was trained.
    pub language: Option<String>,
    /// Who speaks; without it the checkpoint's own voice does.
    pub prompt: Option<Prompt>,
    pub options: Options,
}

/// A request as it was spoken.
#[derive(Clone, Debug)]
pub struct Spoken {
    pub samples: Vec<f32>,
    /// What the voice could not say as it was asked to.
    pub notes: Vec<String>,
}

/// What the network computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As few bits as its device is fast with: bf16 on a GPU, products of 8-bit integers on a CPU that has them. Listeners do
    /// not tell it from f32: docs/speaking.md.
    Light,
    /// f32 throughout.
    Full,
}

impl Precision {
    pub fn of(full: bool) -> Self {
        if full { Precision::Full } else { Precision::Light }
    }

    /// Kind of the activations.
    fn kind(self, device: Device) -> Result<Kind> {
        let has_bf16 = self == Precision::Light && device.is_cuda() && torchx::cuda::facts(device)?.has_bf16();
        Ok(if has_bf16 { Kind::BFloat16 } else { Kind::Float })
    }

    /// Keeps the weights of products as what they are used as. The name of what products are made in.
    fn lighten(self, voice: &Voice, products: Vec<Tensor>, device: Device, kind: Kind) -> &'static str {
        network::narrow_weights(products, kind);
        match (self, device, kind) {
            (Precision::Light, Device::Cpu, _) if torchx::has_int8() => {
                voice.round();
                "int8"
            }
            (_, _, Kind::BFloat16) => "bf16",
            _ => "f32",
        }
    }
}

/// A voice ready to speak, as a checkpoint holds it. One thread owns it.
pub struct Synthesizer {
    network: Network,
    tokenizer: Tokenizer,
    stats: MelStats,
    config: Config,
    /// The checkpoint's own voice, where it clones.
    own: Option<Prompt>,
    device: Device,
    /// What may sound different here than where the voice was trained.
    note: Option<String>,
    /// What products are made in.
    products: &'static str,
    /// Holds the weights.
    store: VarStore,
}

impl Synthesizer {
    /// `vocoder`: a checkpoint of `train-vocoder`; without one, Griffin-Lim makes the sound.
    pub fn load(checkpoint: &Path, vocoder: Option<&Path>, device: Device, precision: Precision) -> Result<Self> {
        let checkpoint = Checkpoint::open(checkpoint)?.of_kind(RunKind::Voice)?;
        let note = checkpoint.tokenizer.check()?;
        let config = &checkpoint.config;
        let kind = precision.kind(device)?;
        let (voice, products) = torchx::with_products(|| checkpoint.voice(device, kind));
        let (store, voice) = voice?;
        let products = precision.lighten(&voice, products, device, kind);
        let stats = checkpoint.state.mel_stats;
        let own = || VoiceFile::read(&checkpoint.folder().join(voice::FILE)).map(|own| own.prompt(&stats));
        let own = config.model.clones().then(own).transpose()?;
        let vocoder_backend = VocoderBackend::open(vocoder, config, device)?;
        let network = Network::new(voice, vocoder_backend, stats, config.model.hop_length as usize, device);
        Ok(Synthesizer {
            network,
            stats,
            own,
            tokenizer: checkpoint.tokenizer,
            config: checkpoint.config,
            device,
            note,
            products,
            store,
        })
    }

    /// Random weights, vocoder included, with every token as long as `frames_per_token`: as fast as a trained one, for
    /// measurements and tests. It knows the letters of English.
    pub fn untrained(config: &Config, frames_per_token: f64, device: Device, precision: Precision) -> Result<Self> {
        let tokenizer = Tokenizer::fit([("", "en")].into_iter());
        let kind = precision.kind(device)?;
        let (store, vocoder_store) = (VarStore::new(device), VarStore::new(device));
        let build = || Voice::new(&store.root(), &config.model, tokenizer.vocab_size(), 1, kind);
        let (voice, products) = torchx::with_products(build);
        let vocoder = Box::new(Vocoder::new(&vocoder_store.root(), config));
        vocoder::settle(&vocoder_store, UNTRAINED_HZ);
        let voice = voice?;
        for (_, mut weight) in store.variables().into_iter().filter(|(name, _)| name.ends_with("weight")) {
            // Some start as zero, and would hide what is wrong behind them.
            if weight.abs().max().double_value(&[]) == 0.0 {
                let _ = tch::no_grad(|| weight.normal_(0.0, 0.05));
            }
        }
        let products = precision.lighten(&voice, products, device, kind);
        let speech = || Tensor::randn([UNTRAINED_PROMPT, config.model.n_mels], (Kind::Float, Device::Cpu));
        let own = config.model.clones().then(|| Prompt::of(&speech()));
        let stats = MelStats { mean: -5.0, std: 2.0 };
        let vocoder_backend = VocoderBackend::Trained { vocoder, store: vocoder_store };
        let mut network = Network::new(voice, vocoder_backend, stats, config.model.hop_length as usize, device);
        network.frames_per_token = Some(frames_per_token);
        Ok(Synthesizer { network, tokenizer, stats, config: config.clone(), own, device, note: None, products, store })
    }

    /// On a GPU, captures the sizes that most requests have, so that the first ones need not wait for it.
    pub fn warm_up(&mut self, options: &Options) -> Result<()> {
        if self.device.is_cuda() { self.network.warm_up(self.own.as_ref(), options) } else { Ok(()) }
    }

    /// What may sound different here than where the voice was trained, or is slower than it could be.
    pub fn notes(&self) -> Vec<String> {
        self.note.clone().into_iter().chain(self.network.note()).collect()
    }

    /// What the decoder's products are made in: bf16, int8 or f32.
    pub fn products(&self) -> &'static str {
        self.products
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

    /// The voice of one speaker, from recordings of any words.
    pub fn hear(&self, recordings: &[PathBuf]) -> Result<Heard> {
        self.must_clone()?;
        crate::catch(|| tch::no_grad(|| Listener::new(&self.config).hear(recordings)))?
    }

    /// The voice of one recording that is in memory.
    pub fn hear_wave(&self, wave: Waveform) -> Result<Heard> {
        self.must_clone()?;
        crate::catch(|| tch::no_grad(|| Listener::new(&self.config).hear_wave(wave)))?
    }

    /// What a request takes to sound like a voice of [`Self::hear`].
    pub fn prompt(&self, voice: &VoiceFile) -> Prompt {
        voice.prompt(&self.stats)
    }

    fn must_clone(&self) -> Result<()> {
        ensure!(self.clones(), "this voice was trained without `context_share`, so it takes no other's sound");
        Ok(())
    }

    /// A recording (at the voice's rate) made again by the vocoder from its own mel frames.
    pub fn copy(&self, recording: &Waveform) -> Result<Vec<f32>> {
        Ok(crate::catch(|| tch::no_grad(|| self.network.vocode(&self.log_mel(recording))))?)
    }

    /// A request spoken in one piece, each token as long as in a recording (at the voice's rate) of it. `speed` says nothing
    /// here.
    pub fn speak_along(&self, request: &Request, recording: &Waveform) -> Result<Vec<f32>> {
        let (language, number) = self.language(request)?;
        let tokens = self.tokenizer.encode_normalized(&normalize(&request.text, language), language)?;
        let prompt = request.prompt.as_ref().or(self.own.as_ref()).cloned();
        let (options, seed) = (request.options, [request.options.seed, 0]);
        let clause = Clause { tokens, language: number, prompt, options, seed };
        let wave = crate::catch(|| tch::no_grad(|| self.network.speak_along(&clause, &self.log_mel(recording))))??;
        let (mut limiter, mut samples) = (Limiter::new(self.rate_hz()), Vec::new());
        limiter.push(&wave, &mut samples);
        limiter.finish(&mut samples);
        Ok(samples)
    }

    /// How the speaker of a recording (at the voice's rate) sounds to the decoder. Those of one voice can be compared.
    pub fn describe(&self, recording: &Waveform) -> Result<Vec<f32>> {
        self.must_clone()?;
        Ok(crate::catch(|| tch::no_grad(|| self.network.describe(&self.log_mel(recording))))?)
    }

    fn log_mel(&self, recording: &Waveform) -> Tensor {
        let extractor = MelExtractor::new(&self.config.model, self.rate_hz(), self.device);
        extractor.log_mel(&Tensor::from_slice(&recording.samples).to_device(self.device))
    }

    /// The voice of a file, made with any model whose frames are like this one's.
    pub fn voice(&self, path: &Path) -> Result<Prompt> {
        let file = VoiceFile::read(path)?;
        self.must_clone()?;
        file.fits(Geometry::of(&self.config), path)?;
        Ok(self.prompt(&file))
    }

    /// Splits off and encodes the first clause. All errors of input are raised here.
    pub fn begin(&self, request: &Request) -> Result<Utterance> {
        let prompt = request.prompt.as_ref().or(self.own.as_ref()).cloned();
        let mut utterance = Utterance::new(self, &request.text, self.language(request)?, prompt, request.options);
        utterance.prepare(self)?;
        ensure!(
            !utterance.is_done(),
            "the text has no letters or digits that the voice knows, so there is nothing to speak"
        );
        Ok(utterance)
    }

    /// Code and number of the language that a request is in.
    fn language<'a>(&'a self, request: &'a Request) -> Result<(&'a str, usize)> {
        let asked = request.language.as_deref().unwrap_or(&self.config.data.language);
        let sample: String = request.text.chars().take(LANGUAGE_SAMPLE).collect();
        let language = self.tokenizer.language(&sample, asked);
        let spoken = self.tokenizer.languages();
        let number = spoken.iter().position(|known| known == language).ok_or_else(|| {
            hinted(format!("the voice does not speak `{language}`"), format!("it speaks {}", spoken.join(", ")))
        })?;
        Ok((&spoken[number], number))
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
        Ok(Spoken { samples, notes: utterance.notes() })
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
        other.own = self.own.clone();
    }

    /// Characters that one clause may have: no more than clips that the voice learned from.
    fn most_characters(&self) -> usize {
        self.config.data.max_text_length.clamp(40, 200)
    }
}
