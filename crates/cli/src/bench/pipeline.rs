//! Flags of `myxtts bench pipeline`.

use crate::flags::{PipelineFlags, ThreadFlags};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: PipelineFlags,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub num_steps: u64,
    /// Only the step on one batch that stays: the most that any pipeline could give
    #[arg(long)]
    pub headspace: bool,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}
