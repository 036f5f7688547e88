//! Flags of `myxtts train`.

use crate::flags::{LiveFlags, RankFlags, RunFlags, SimulateFlags, ThreadFlags};
use host::config::LogEvery;
use std::path::PathBuf;

/// Train a voice from a corpus. Flags win over the config file, and that over the presets.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub ranks: RankFlags,
    /// Where checkpoints go
    #[arg(long, value_name = "DIR")]
    pub checkpoint_dir: Option<PathBuf>,
    /// Go on from the newest checkpoint; where there is none, start
    #[arg(long, conflicts_with = "reset_training")]
    pub resume: bool,
    /// Start over; earlier checkpoints are moved aside, not deleted
    #[arg(long)]
    pub reset_training: bool,
    /// Start with the weights of another run, by name: a checkpoint, a folder of them, or a safetensors file
    /// [default for a voice: the bundled one, if it is of this size]
    #[arg(long, value_name = "PATH")]
    pub init_from: Option<PathBuf>,
    /// Start with random weights, though the bundled voice would fit
    #[arg(long, conflicts_with = "init_from")]
    pub from_scratch: bool,

    /// Where TensorBoard logs go [default: `logs` in the checkpoint directory]
    #[arg(long, value_name = "DIR")]
    pub tensorboard_log_dir: Option<PathBuf>,
    #[command(flatten)]
    pub live: LiveFlags,
    #[command(flatten)]
    pub simulate: SimulateFlags,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Say how the run goes every so many steps (100) or so often (30s, 5m, 1h) [default: 30s where stderr is no terminal]
    #[arg(long, value_name = "INTERVAL")]
    pub log_every: Option<LogEvery>,
    /// Write all that is said to this file too, at its end
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}
