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
    /// The first and the last work at the frame rate, those between at half of it.
    pub decoder_layers: i64,
    pub decoder_heads: i64,
    /// Largest share of an utterance's frames that the decoder gets clean, as context for the rest; 0: no cloning, and
    /// the network has no part for it.
    pub context_share: f64,
    pub vocoder_dim: i64,
    pub vocoder_layers: i64,
    pub dropout: f64,
    /// Share of utterances whose decoder gets neither content nor context, which is what guidance compares with.
    pub condition_dropout: f64,
    /// Points on the flow that each loaded utterance trains.
    pub draws_per_item: i64,
    /// Recompute activations in the backward pass: less memory, about a third more time.
    pub enable_gradient_checkpointing: bool,
}

impl Model {
    /// Whether the voice speaks as a reference does.
    pub fn clones(&self) -> bool {
        self.context_share > 0.0
    }
}
