//! `myxtts analyze`

use super::bench_setup::{BenchSetup, SimulateFlags};
use super::profile::finish;
use super::run_flags::RunFlags;
use super::say;
use super::within;
use crate::tools::analyze::{self, Options, StepTime};
use anyhow::Result;
use host::corpus;
use std::process::ExitCode;

/// Measure the data path stage by stage, without a model: text, audio, batches, features, transfer
///
/// Says which stage caps the rest, whether a step would wait for it, and what a cache, more workers or features on a GPU
/// would change, each by trying it. Exit code 0: batches are ready when a step wants them; 1: now and then not; 2: much of
/// the time would be lost.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunFlags,
    /// Time of a training step; without it, a step of this run's voice is measured on a batch that stays
    #[arg(long, value_name = "MS", value_parser = within(0.01..=600_000.0))]
    step_ms: Option<f64>,
    /// Seconds of each measurement; there are about ten
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = within(0.05..=600.0))]
    seconds: f64,
    /// Clips that are turned into features again, to see what that takes
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(4..))]
    clips: u16,
    #[command(flatten)]
    simulate: SimulateFlags,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let stand = BenchSetup::prepare(&args.run, args.simulate.delays()?)?;
    let context = stand.context();
    let step = match args.step_ms {
        Some(ms) => StepTime { ms, measured: false },
        None => {
            say("measuring a step; --step-ms MS leaves it out");
            analyze::step_time(&context, args.seconds)?
        }
    };
    let path = stand.config.data.dataset_path.as_deref().expect("it was prepared from there");
    let corpus = corpus::read(path, &corpus::ReadOptions::of(&stand.config.data)?)?;
    let options = Options { seconds: args.seconds, clips: args.clips.into() };
    let analysis = analyze::analyze(&context, &corpus.utterances, step, options)?;
    finish(&analysis.report(), args.json)
}
