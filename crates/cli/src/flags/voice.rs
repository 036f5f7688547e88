//! Who speaks, and on what device: flags of every command that loads a voice to speak with.

use super::ThreadFlags;
use anyhow::Result;
use host::bundled;
use std::path::{Path, PathBuf};

/// What `--vocoder` takes in place of a checkpoint.
const GRIFFIN_LIM: &str = "griffin-lim";

#[derive(clap::Args)]
pub struct VoiceFlags {
    /// A checkpoint, or a folder of them (its newest one is taken) [default: the bundled voice]
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// A checkpoint of `train-vocoder`; or griffin-lim, which needs no training and sounds hollow [default: the bundled
    /// vocoder, if it takes the voice's frames]
    #[arg(long, value_name = "DIR")]
    vocoder: Option<PathBuf>,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Compute in f32 throughout, and not in bf16 on a GPU or in 8-bit integers on a CPU that can. No listener tells them
    /// apart
    #[arg(long)]
    pub full_precision: bool,
    #[command(flatten)]
    pub threads: ThreadFlags,
}

/// Which vocoder shall make the sound.
#[derive(Clone, Debug, PartialEq)]
pub enum VocoderChoice {
    /// The bundled one, if it takes the voice's frames.
    Bundled,
    Checkpoint(PathBuf),
    GriffinLim,
}

impl VoiceFlags {
    pub fn checkpoint(&self) -> Result<PathBuf> {
        checkpoint_or_bundled(self.checkpoint.as_deref())
    }

    /// Whether the bundled voice speaks.
    pub fn is_bundled(&self) -> bool {
        self.checkpoint.is_none()
    }

    pub fn vocoder(&self) -> VocoderChoice {
        match &self.vocoder {
            None => VocoderChoice::Bundled,
            Some(path) if path.as_os_str() == GRIFFIN_LIM => VocoderChoice::GriffinLim,
            Some(path) => VocoderChoice::Checkpoint(path.clone()),
        }
    }
}

/// A checkpoint that was named, or that of the bundled voice.
pub fn checkpoint_or_bundled(named: Option<&Path>) -> Result<PathBuf> {
    named.map_or_else(|| Ok(bundled::require()?.voice()), |path| Ok(path.into()))
}
