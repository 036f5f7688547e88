//! Flags of `myxtts fix`.

use crate::flags::{RunFlags, ThreadFlags, TuneFlags};

/// Diagnose a run, find better settings, run them, and print the train command
///
/// The same as `diagnose`, `configure --verify`, and `diagnose` again with the new settings. Exit code 0: nothing is left
/// to improve; 1: warnings are left; 2: problems are left, or an error.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub tune: TuneFlags,
    /// Steps of each diagnosis
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(8..=100_000))]
    pub num_steps: u64,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
