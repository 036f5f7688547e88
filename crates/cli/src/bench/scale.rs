//! Flags of `myxtts bench scale`.

use crate::flags::RunFlags;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: RunFlags,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub num_steps: u64,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}
