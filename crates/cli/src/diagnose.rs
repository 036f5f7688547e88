//! Flags of `myxtts diagnose`.

use crate::flags::{PipelineFlags, SimulateFlags, ThreadFlags};

/// Look at this machine and run the real pipeline for a moment: what costs how much, and what to do about it
///
/// Without a corpus a small one is made. Exit code 0: nothing was found; 1: warnings; 2: problems.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: PipelineFlags,
    /// Steps of the run
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(8..=100_000))]
    pub num_steps: u64,
    #[command(flatten)]
    pub simulate: SimulateFlags,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
