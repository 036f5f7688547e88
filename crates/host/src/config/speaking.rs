//! What speech may be asked for: ranges beyond which none can be made out, and defaults.

use std::ops::RangeInclusive;

/// Speaking rate; above 1 is faster.
pub const SPEED: RangeInclusive<f64> = 0.5..=2.0;
/// Scale of the noise that the flow starts from.
pub const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
/// Pull of the flow towards text and speaker; 1 is none.
pub const GUIDANCE: RangeInclusive<f64> = 0.0..=10.0;
/// Pull of the flow towards the speaker alone; 0 is none.
pub const SPEAKER_GUIDANCE: RangeInclusive<f64> = 0.0..=10.0;
/// Loudness of speech, LUFS after EBU R128.
pub const LOUDNESS: RangeInclusive<f64> = -40.0..=-5.0;

/// What EBU R128 asks programmes to have.
pub const DEFAULT_LOUDNESS: f64 = -23.0;
/// Steps along the flow.
pub const DEFAULT_STEPS: usize = 6;
pub const DEFAULT_TEMPERATURE: f64 = 0.667;
/// It takes a tenth to a quarter of the wrong words away for twice the work: docs/results.md.
pub const DEFAULT_GUIDANCE: f64 = 2.0;
/// Without it the decoder makes two passes instead of three.
pub const DEFAULT_SPEAKER_GUIDANCE: f64 = 0.0;
