//! Flags of `myxtts bench synth`.

use crate::flags::ThreadFlags;
use host::config::Size;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// A checkpoint, or a folder of them
    #[arg(long, value_name = "DIR", required_unless_present = "model_size")]
    pub checkpoint: Option<PathBuf>,
    /// A checkpoint of `train-vocoder`
    #[arg(long, value_name = "DIR", requires = "checkpoint")]
    pub vocoder: Option<PathBuf>,
    /// Without a checkpoint: random weights of this size, vocoder included, that speak ten seconds
    #[arg(long, value_enum, conflicts_with = "checkpoint")]
    pub model_size: Option<Size>,
    /// Steps along the flow
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub steps: u64,
    /// Measurements of each figure; their median is told
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub device: String,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}
