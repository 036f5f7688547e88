//! The vocoder: log-mel frames to waveform. Vocos (Siuzdak 2023, arXiv 2306.00814): the network works at the rate of
//! frames and an inverse STFT does the rest, so speaking costs little even on a CPU. Unlike Vocos it tells the pitch, and adds
//! its phases to those of the pitch's harmonics.
//!
//! Training is adversarial: the generator turns mel frames into waveforms, the discriminators learn to tell generated from
//! real ones, and the generator learns from their logits and feature maps.

mod adversarial;
mod discriminators;
mod generator;
mod griffin_lim;
mod harmonics;
mod istft;
mod loss;
mod pitch;
mod pulses;
#[cfg(test)]
mod tests;

pub use adversarial::AdversarialStep;
pub use generator::Vocoder;
pub use griffin_lim::GriffinLim;
pub use pitch::settle;
