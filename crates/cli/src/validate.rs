//! `myxtts validate`

use crate::finish;
use crate::flags::RunFlags;
use anyhow::Result;
use host::tools::validate::{self, Facts};
use std::process::ExitCode;

/// Check a configuration against this machine and corpus, without running anything
///
/// Everything that is wrong is listed at once: unknown keys, types and ranges, then what the settings mean for the cores,
/// GPUs, disk and corpus that are here. Exit code 0: nothing to improve; 1: warnings; 2: a run would not start.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunFlags,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let report = match args.run.resolve_or_list() {
        Ok(config) => validate::validate(&config, &Facts::gather(&config)),
        Err(wrong) => validate::refused(&wrong),
    };
    finish(&report, args.json)
}
