//! Flags of `myxtts analyze`.

use crate::flags::{PipelineFlags, SimulateFlags, ThreadFlags, within};

/// Measure the data path stage by stage, without a model: text, audio, batches, features, transfer
///
/// Says which stage caps the rest, whether a step would wait for it, and what a cache, more workers or features on a GPU
/// would change, each by trying it. Exit code 0: batches are ready when a step wants them; 1: now and then not; 2: much of
/// the time would be lost.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: PipelineFlags,
    /// Time of a training step; without it, a step of this run's voice is measured on a batch that stays
    #[arg(long, value_name = "MS", value_parser = within(0.01..=600_000.0))]
    pub step_ms: Option<f64>,
    /// Seconds of each measurement; there are about ten
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = within(0.05..=600.0))]
    pub seconds: f64,
    /// Clips that are turned into features again, to see what that takes
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(4..))]
    pub clips: u16,
    #[command(flatten)]
    pub simulate: SimulateFlags,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
