//! The `model` section: feature geometry and network size. Sizes are presets; any dimension can be set by hand.

use serde::{Deserialize, Serialize};

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
    pub decoder_layers: i64,
    pub decoder_heads: i64,
    pub dropout: f64,
    /// Recompute activations in the backward pass: less memory, about a third more time.
    pub enable_gradient_checkpointing: bool,
}
