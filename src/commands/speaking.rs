//! From flags to a voice that is ready to speak.

use crate::feed::Roles;
use crate::model::Sampling;
use crate::synth::{Options, Synthesizer};
use anyhow::Result;
use cli::flags::{FlowFlags, VoiceFlags};
use tch::Device;

pub fn load(flags: &VoiceFlags) -> Result<Synthesizer> {
    Synthesizer::load(&flags.checkpoint, flags.vocoder.as_deref(), device(flags)?)
}

pub fn device(flags: &VoiceFlags) -> Result<Device> {
    Roles::named(&flags.device)
}

pub fn options(flags: &FlowFlags) -> Options {
    let FlowFlags { temperature, guidance, speaker_guidance, steps, seed } = *flags;
    let sampling = Sampling { steps: steps as usize, temperature, guidance, speaker_guidance };
    Options { sampling, seed, ..Options::default() }
}
