//! The `model` section: feature geometry and network size. Sizes are presets; any dimension can be set by hand.

use super::accept::{Accepts, above};
use super::layer::Layer;
use super::section::{choices, section};

/// Frames or tokens between neighbours in a packed batch. Two frames are what an STFT window reaches beyond a clip (`n_fft / 2` is two
/// hops); three is the reach of the widest convolution, kernel 7. At half the frame rate two are left, for kernel 5.
pub const GAP: usize = 4;

choices! {
    /// Presets of the dimensions.
    pub enum Size {
        Tiny,
        #[default]
        Small,
        /// Also called base
        #[serde(alias = "base")]
        #[value(alias = "base")]
        Normal,
        Big,
    }
}

/// What the size that was asked for chooses of tiny, small, normal and big.
pub(super) fn by_size<T: Copy>(given: &Layer, values: [T; 4]) -> T {
    values[given.get::<Size>("size").unwrap_or_default() as usize]
}

// Heads have 64 channels, which flash attention likes best.
section! {
    /// Feature geometry and network size.
    pub struct Model from given {
        /// tiny, small, normal or big: sets the dimensions below
        size: Size, flag "--model-size";
        /// mel bands
        n_mels: i64 = 80, in 8..=512;
        /// window and transform length in samples, a power of two
        n_fft: i64 = 1024, in Accepts::PowerOfTwo(64..=16_384);
        /// samples between frames, a power of two, from an eighth to half of n_fft
        hop_length: i64 = 256, in 16..=8_192;
        /// lowest mel frequency, Hz
        f_min: f64 = 0.0, in 0.0..96_000.0;
        /// highest mel frequency, Hz; null is half the sample rate
        f_max: Option<f64>, in above(0.0, 96_000.0);
        /// channels of the text encoder; a multiple of 8 per head
        text_dim: i64 = by_size(given, [192, 256, 320, 512]), in 8..=8_192;
        /// layers of the text encoder
        text_layers: i64 = by_size(given, [3, 4, 6, 6]), in 1..=128;
        /// attention heads of the text encoder
        text_heads: i64 = by_size(given, [3, 4, 5, 8]), in 1..=128;
        /// channels of the decoder; a multiple of 8 per head
        decoder_dim: i64 = by_size(given, [256, 320, 512, 640]), in 8..=8_192;
        /// layers of the decoder; the first and the last at the frame rate, those between at half of it
        decoder_layers: i64 = by_size(given, [4, 7, 6, 9]), in 3..=128;
        /// attention heads of the decoder
        decoder_heads: i64 = by_size(given, [4, 5, 8, 10]), in 1..=128;
        /// largest share of an utterance that the decoder gets as context for the rest, to clone; 0 is one voice
        context_share: f64 = 0.7, in 0.0..=0.9;
        /// channels of the vocoder
        vocoder_dim: i64 = by_size(given, [256, 384, 384, 512]), in 8..=8_192;
        /// layers of the vocoder
        vocoder_layers: i64 = by_size(given, [6, 8, 8, 8]), in 1..=128;
        /// channels of the widest layers of the discriminators that a vocoder's training folds the waveform for: more is a
        /// stricter judge, and slower
        discriminator_dim: i64 = 256, in 32..=8_192;
        /// share of activations dropped while training; null: by hours of speech, speakers and start
        dropout: Option<f64>, in 0.0..1.0;
        /// share of utterances whose decoder gets neither text nor context; guidance compares with it
        condition_dropout: f64 = 0.1, in 0.0..1.0;
        /// points on the flow that each loaded utterance trains
        draws_per_item: i64 = 1, in 1..=64;
        /// recompute activations: less memory, about a third more time
        enable_gradient_checkpointing: bool;
    }
}

impl Model {
    /// Share of activations dropped while training; the usual one where no run was planned.
    pub fn dropout_share(&self) -> f64 {
        self.dropout.unwrap_or(0.1)
    }

    /// Whether voices come from reference clips.
    pub fn clones(&self) -> bool {
        self.context_share > 0.0
    }
}
