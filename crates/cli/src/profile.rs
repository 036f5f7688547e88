//! Flags of `myxtts profile`.

use crate::flags::{PipelineFlags, SimulateFlags, ThreadFlags};
use std::path::PathBuf;

/// Run the real training pipeline for some steps and say where the time goes. Nothing is saved.
///
/// Exit code 0: nothing to improve was found; 1: warnings; 2: problems, or the pipeline could not be run.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: PipelineFlags,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(8..=100_000))]
    pub num_steps: u64,
    #[command(flatten)]
    pub simulate: SimulateFlags,
    /// Write a trace of all stages, to be opened at ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write a picture of some steps as SVG: which stages overlap, and who waits
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Write every kernel of 30 steps in order, with start, microseconds, stream and name, tabs between them; on a GPU
    #[arg(long, value_name = "FILE")]
    pub kernels: Option<PathBuf>,
    /// Also measure what this very profiling costs: as many steps again, watched and plain ones in turns
    #[arg(long)]
    pub overhead: bool,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
