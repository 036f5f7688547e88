//! `myxtts analyze`

use super::bench_setup::BenchSetup;
use crate::tools::analyze::{self, AnalyzeOptions, StepTime};
use anyhow::Result;
use cli::analyze::Args;
use cli::{finish, say};
use host::corpus;
use std::process::ExitCode;

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
    let options = AnalyzeOptions { seconds: args.seconds, clips: args.clips.into() };
    let analysis = analyze::analyze(&context, &corpus.utterances, step, options)?;
    finish(&analysis.report(), args.json)
}
