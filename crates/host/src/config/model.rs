//! The `model` section: feature geometry and network size. Sizes are presets; any dimension can be set by hand.

use serde::{Deserialize, Serialize};

/// Channels of an attention head in the part that listens to references.
pub const VOICE_HEAD_CHANNELS: i64 = 32;

/// Frames or tokens between neighbours in a packed batch. Two frames are what an STFT window reaches beyond a clip (`n_fft / 2` is two
/// hops); three is the reach of the widest convolution, kernel 7. At half the frame rate two are left, for kernel 5.
pub const GAP: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    Tiny,
    Small,
    #[default]
    Normal,
    Big,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub size: Size,
    /// Mel bands.
    pub n_mels: i64,
    /// Window and transform length of the STFT, in samples.
    pub n_fft: i64,
    /// Samples between frames.
    pub hop_length: i64,
    /// Lowest and highest mel frequency in Hz; `f_max: null` is half the sample rate.
    pub f_min: f64,
    pub f_max: Option<f64>,
    pub text_dim: i64,
    pub text_layers: i64,
    pub text_heads: i64,
    pub decoder_dim: i64,
    /// The first and the last work at the frame rate, those between at half of it.
    pub decoder_layers: i64,
    pub decoder_heads: i64,
    /// Frames of another clip that say how a voice sounds; 0: no cloning, and the network has no part for it.
    pub reference_frames: i64,
    pub voice_dim: i64,
    pub voice_layers: i64,
    pub voice_latents: i64,
    pub vocoder_dim: i64,
    pub vocoder_layers: i64,
    pub dropout: f64,
    /// Share of utterances whose decoder is told nothing, which is what guidance compares with.
    pub condition_dropout: f64,
    /// Points on the flow that each loaded utterance trains.
    pub draws_per_item: i64,
    pub contrastive_weight: f64,
    /// Recompute activations in the backward pass: less memory, about a third more time.
    pub enable_gradient_checkpointing: bool,
}

impl Model {
    pub fn clones(&self) -> bool {
        self.reference_frames > 0
    }
}
