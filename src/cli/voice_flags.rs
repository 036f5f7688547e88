//! Who speaks, and on what device: flags of every command that loads a voice to speak with.

use crate::feed::Roles;
use crate::synth::Synthesizer;
use anyhow::Result;
use std::path::{Path, PathBuf};
use tch::Device;

#[derive(clap::Args)]
pub struct VoiceFlags {
    /// A checkpoint, or a folder of them (its best one is taken)
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// A checkpoint of `train-vocoder` [default: Griffin-Lim, which needs no training and sounds hollow]
    #[arg(long, value_name = "DIR")]
    vocoder: Option<PathBuf>,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
}

impl VoiceFlags {
    pub fn load(&self) -> Result<Synthesizer> {
        Synthesizer::load(&self.checkpoint, self.vocoder(), self.device()?)
    }

    pub fn checkpoint(&self) -> &Path {
        &self.checkpoint
    }

    pub fn vocoder(&self) -> Option<&Path> {
        self.vocoder.as_deref()
    }

    pub fn device(&self) -> Result<Device> {
        Roles::named(&self.device)
    }
}
