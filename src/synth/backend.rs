//! Vocoder backends: a trained vocoder, or Griffin-Lim where there is none.

use crate::checkpoint::{Checkpoint, RunKind};
use crate::vocoder::{GriffinLim, Vocoder};
use anyhow::Result;
use host::bundled;
use host::config::Config;
use host::error::hinted;
use host::loader::Span;
use std::path::{Path, PathBuf};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Turns mel frames into samples.
pub enum VocoderBackend {
    GriffinLim(GriffinLim),
    Trained {
        vocoder: Box<Vocoder>,
        /// Holds the vocoder's weights.
        store: VarStore,
    },
}

/// The bundled vocoder, if there is one that takes the frames of `voice`.
pub fn bundled_vocoder(voice: &Config) -> Option<PathBuf> {
    let path = bundled::find()?.vocoder();
    let checkpoint = Checkpoint::open(&path).ok()?;
    checkpoint.config.has_frames_of(voice).then_some(path)
}

impl VocoderBackend {
    /// Opens a checkpoint of `train-vocoder` for the frames of `voice`; without a path, Griffin-Lim.
    pub fn open(path: Option<&Path>, voice: &Config, device: Device) -> Result<Self> {
        let Some(path) = path else {
            return Ok(VocoderBackend::GriffinLim(GriffinLim::new(&voice.model, voice.data.sample_rate, device)));
        };
        let checkpoint = Checkpoint::open(path)?.of_kind(RunKind::Vocoder)?;
        if !checkpoint.config.has_frames_of(voice) {
            let fact = format!("{}: a vocoder for other mel frames than the voice makes", path.display());
            return Err(hinted(fact, "sample rate, n_mels, n_fft, hop_length, f_min and f_max must be alike"));
        }
        let store = VarStore::new(device);
        let vocoder = Box::new(Vocoder::new(&store.root(), &checkpoint.config));
        checkpoint.load_weights("model", &store)?;
        Ok(VocoderBackend::Trained { vocoder, store })
    }

    pub fn parameters(&self) -> usize {
        match self {
            VocoderBackend::GriffinLim(_) => 0,
            VocoderBackend::Trained { store, .. } => store.variables().values().map(Tensor::numel).sum(),
        }
    }

    /// Samples of one utterance's log-mel frames, `[frames, n_mels]`.
    pub fn waveform(&self, log_mel: &Tensor, hop_samples: usize) -> Vec<f32> {
        let frames = log_mel.size()[0];
        let mask = Tensor::ones([frames, 1], (Kind::Float, log_mel.device()));
        let whole = Span { start: 0, len: frames as usize };
        self.cut(&self.packed(log_mel, &mask), &[whole], hop_samples).remove(0)
    }

    /// Samples of packed log-mel frames (`[frames, n_mels]`); for Griffin-Lim, which takes utterances one by one and waits
    /// for the device, the frames themselves.
    pub fn packed(&self, log_mel: &Tensor, mask: &Tensor) -> Tensor {
        match self {
            VocoderBackend::GriffinLim(_) => log_mel.shallow_clone(),
            VocoderBackend::Trained { vocoder, .. } => vocoder.packed(log_mel, mask),
        }
    }

    /// Samples of each span, from what `packed` returned.
    pub fn cut(&self, made: &Tensor, spans: &[Span], hop_samples: usize) -> Vec<Vec<f32>> {
        match self {
            VocoderBackend::GriffinLim(griffin_lim) => {
                let frames = |span: &Span| made.narrow(0, span.start as i64, span.len as i64);
                spans.iter().map(|span| griffin_lim.waveform(&frames(span))).collect()
            }
            VocoderBackend::Trained { .. } => {
                let all: Vec<f32> = Vec::try_from(made.to_device(Device::Cpu).contiguous()).expect("f32 samples");
                spans.iter().map(|span| all[span.start * hop_samples..span.end() * hop_samples].to_vec()).collect()
            }
        }
    }
}
