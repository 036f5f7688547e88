//! How speech is drawn from noise: flags of every command that speaks.

use super::within;
use crate::model::Sampling;
use crate::synth::{GUIDANCE, Options, TEMPERATURE};

#[derive(clap::Args, Debug)]
pub struct FlowFlags {
    /// Scale of the noise that speech is made from: lower is flatter
    #[arg(long, default_value_t = Options::default().sampling.temperature, allow_negative_numbers = true, value_parser = within(TEMPERATURE))]
    temperature: f64,
    /// Pull towards text and speaker: more is clearer and less varied; 1 is none, in half the time
    #[arg(long, default_value_t = Options::default().sampling.guidance, allow_negative_numbers = true, value_parser = within(GUIDANCE))]
    guidance: f64,
    /// Pull towards the speaker alone: more is more like the reference; 0 is none, in two thirds of the time
    #[arg(long, default_value_t = Options::default().sampling.speaker_guidance, allow_negative_numbers = true, value_parser = within(GUIDANCE))]
    speaker_guidance: f64,
    /// Steps along the flow: more is finer and slower
    #[arg(long, default_value_t = Options::default().sampling.steps as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
    /// Of the noise: the same seed gives the same speech
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl FlowFlags {
    pub fn options(&self) -> Options {
        let sampling = Sampling {
            steps: self.steps as usize,
            temperature: self.temperature,
            guidance: self.guidance,
            speaker_guidance: self.speaker_guidance,
        };
        Options { sampling, seed: self.seed, ..Options::default() }
    }
}
