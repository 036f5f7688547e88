//! `myxtts fix`

use super::bench_setup::BenchSetup;
use super::configure::{TuneFlags, train_command};
use super::diagnose::examine;
use super::profile::finish;
use super::run_flags::RunFlags;
use super::say;
use crate::tools::fix;
use anyhow::{Context, Result};
use host::config::Overrides;
use host::simulate::Delays;
use std::process::ExitCode;

/// Diagnose a run, find better settings, run them, and print the train command
///
/// The same as `diagnose`, `configure --verify`, and `diagnose` again with the new settings. Exit code 0: nothing is left
/// to improve; 1: warnings are left; 2: problems are left, or an error.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunFlags,
    #[command(flatten)]
    tune: TuneFlags,
    /// Steps of each diagnosis
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(8..=100_000))]
    num_steps: u64,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.tune.check()?;
    let config = args.run.resolve(Overrides::default())?;
    config.data.dataset_path.as_ref().context("no corpus was named\nhint: --train-data DIR, or `dataset_path`")?;
    say("1 of 3: diagnosing the run as it is");
    let before = examine(config.clone(), Delays::default(), args.num_steps)?;
    say("2 of 3: trying other settings");
    let stand = BenchSetup::with_config(config, Delays::default())?;
    let tuned = args.tune.search(&stand, true)?;
    args.tune.write(&stand, &tuned)?;
    drop(stand);
    say("3 of 3: diagnosing the run with them");
    // Features that the new settings lack are made now: the training is not to wait for them.
    drop(BenchSetup::with_config(tuned.config.clone(), Delays::default())?);
    let after = examine(tuned.config.clone(), Delays::default(), args.num_steps)?;
    finish(&fix::report(&before, &tuned, &after, &train_command(&args.tune.output)), args.json)
}
