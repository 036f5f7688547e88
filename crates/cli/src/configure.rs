//! Flags of `myxtts configure`.

use crate::flags::{RunFlags, ThreadFlags, TuneFlags};

/// Find settings for this machine and corpus by trying them, and write a config
///
/// Tries sizes of batches until memory is full (running out of it is caught and stepped back from), takes the smallest
/// that is as fast as the fastest, then precision, graphs, what the cache keeps, workers and depths; and says whether a
/// second GPU would help. Exit code 0: done; 1: done, with warnings; 2: nothing fits, or an error.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub tune: TuneFlags,
    /// Run the settings as they were and as they are now, and compare
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
