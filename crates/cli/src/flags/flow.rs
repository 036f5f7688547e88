//! How speech is drawn from noise: flags of every command that speaks.

use super::within;
use host::config::speaking::{
    DEFAULT_GUIDANCE, DEFAULT_SPEAKER_GUIDANCE, DEFAULT_STEPS, DEFAULT_TEMPERATURE, GUIDANCE, SPEAKER_GUIDANCE,
    TEMPERATURE,
};

#[derive(clap::Args, Debug)]
pub struct FlowFlags {
    #[command(flatten)]
    pub sampling: SamplingFlags,
    /// Of the noise: the same seed gives the same speech
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// The same without the noise itself.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct SamplingFlags {
    /// Scale of the noise that speech is made from: lower is flatter
    #[arg(long, default_value_t = DEFAULT_TEMPERATURE, allow_negative_numbers = true, value_parser = within(TEMPERATURE))]
    pub temperature: f64,
    /// Pull towards text and speaker: more is clearer and less varied; 1 is none, in half the time
    #[arg(long, default_value_t = DEFAULT_GUIDANCE, allow_negative_numbers = true, value_parser = within(GUIDANCE))]
    pub guidance: f64,
    /// Pull towards the speaker alone: more is more like the reference; 0 is none, in two thirds of the time
    #[arg(long, default_value_t = DEFAULT_SPEAKER_GUIDANCE, allow_negative_numbers = true, value_parser = within(SPEAKER_GUIDANCE))]
    pub speaker_guidance: f64,
    /// Steps along the flow: more is finer and slower
    #[arg(long, default_value_t = DEFAULT_STEPS as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub steps: u64,
}
