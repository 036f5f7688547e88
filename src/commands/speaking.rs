//! From flags to a voice that is ready to speak.

use crate::checkpoint::{Checkpoint, RunKind};
use crate::feed::Roles;
use crate::model::Sampling;
use crate::synth::{Options, Precision, Synthesizer, bundled_vocoder};
use anyhow::Result;
use cli::flags::{FlowFlags, SamplingFlags, VocoderChoice, VoiceFlags};
use host::config::Config;
use std::path::PathBuf;
use tch::Device;

/// A voice to speak with, by the checkpoints that hold it.
pub struct ChosenVoice {
    pub checkpoint: PathBuf,
    /// As the voice was trained.
    pub config: Config,
    /// None is Griffin-Lim.
    pub vocoder: Option<PathBuf>,
    pub device: Device,
    pub precision: Precision,
}

impl ChosenVoice {
    pub fn of(flags: &VoiceFlags) -> Result<Self> {
        let checkpoint = flags.checkpoint()?;
        let config = Checkpoint::open(&checkpoint)?.of_kind(RunKind::Voice)?.config;
        let vocoder = match flags.vocoder() {
            VocoderChoice::Bundled => bundled_vocoder(&config),
            VocoderChoice::Checkpoint(path) => Some(path),
            VocoderChoice::GriffinLim => None,
        };
        Ok(ChosenVoice {
            checkpoint,
            config,
            vocoder,
            device: device(flags)?,
            precision: Precision::of(flags.full_precision),
        })
    }

    pub fn load(&self) -> Result<Synthesizer> {
        Synthesizer::load(&self.checkpoint, self.vocoder.as_deref(), self.device, self.precision)
    }
}

pub fn load(flags: &VoiceFlags) -> Result<Synthesizer> {
    ChosenVoice::of(flags)?.load()
}

pub fn device(flags: &VoiceFlags) -> Result<Device> {
    Roles::named(&flags.device)
}

pub fn options(flags: &FlowFlags) -> Options {
    Options { sampling: sampling(&flags.sampling), seed: flags.seed, ..Options::default() }
}

pub fn sampling(flags: &SamplingFlags) -> Sampling {
    let SamplingFlags { temperature, guidance, speaker_guidance, steps } = *flags;
    Sampling { steps: steps as usize, temperature, guidance, speaker_guidance }
}
