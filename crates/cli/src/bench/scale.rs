//! Flags of `myxtts bench scale`.

use crate::flags::{PipelineFlags, RankFlags, ThreadFlags};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: PipelineFlags,
    #[command(flatten)]
    pub ranks: RankFlags,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub num_steps: u64,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}
