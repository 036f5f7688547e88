//! Flags of `myxtts align`.

use crate::flags::{DataFlags, ThreadFlags};
use std::path::PathBuf;

/// Find which frames belong to each token, once and for all clips, so that training need not search any more
/// (`train --durations frozen`). Settings are those that the checkpoint was trained with, unless others are given.
#[derive(clap::Args)]
pub struct Args {
    /// A voice that was trained for a while: a checkpoint, or a folder of them
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,
    /// Corpus, as --train-data [default: the one that the voice was trained on]
    #[arg(value_name = "DIR", conflicts_with = "train_data")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub data: DataFlags,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub device: String,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}
