//! Who speaks, and on what device: flags of every command that loads a voice to speak with.

use super::ThreadFlags;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct VoiceFlags {
    /// A checkpoint, or a folder of them (its best one is taken)
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,
    /// A checkpoint of `train-vocoder` [default: Griffin-Lim, which needs no training and sounds hollow]
    #[arg(long, value_name = "DIR")]
    pub vocoder: Option<PathBuf>,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub device: String,
    #[command(flatten)]
    pub threads: ThreadFlags,
}
