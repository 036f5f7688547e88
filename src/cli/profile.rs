//! `myxtts profile`

use super::bench_setup::{BenchSetup, SimulateFlags};
use super::run_flags::RunFlags;
use super::{print_line, say};
use crate::tools::measure::{self, Measured};
use crate::tools::verdict::{Thresholds, of_error};
use crate::tools::{profile, timeline::Timeline};
use anyhow::{Context, Result};
use host::tools::report::{FindingsReport, Section};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run the real training pipeline for some steps and say where the time goes. Nothing is saved.
///
/// Exit code 0: nothing to improve was found; 1: warnings; 2: problems, or the pipeline could not be run.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunFlags,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(8..=100_000))]
    num_steps: u64,
    #[command(flatten)]
    simulate: SimulateFlags,
    /// Write a trace of all stages, to be opened at ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a picture of some steps as SVG: which stages overlap, and who waits
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Also measure what this very profiling costs: as many steps again, watched and plain ones in turns
    #[arg(long)]
    overhead: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let stand = BenchSetup::prepare(&args.run, args.simulate.delays()?)?;
    let context = stand.context();
    stand.bar.set_length(args.num_steps * 3 / 2);
    let measured = measure::run(&context, args.num_steps);
    stand.bar.finish_and_clear();
    let mut report = match measured {
        Ok(measured) => {
            args.write(&measured)?;
            profile::report(&measured, &Thresholds::default())
        }
        Err(error) => failed(error, stand.config.training.enable_memory_isolation)?,
    };
    if args.overhead && !report.figures.is_null() {
        report = profile::with_overhead(report, measure::overhead(&context, args.num_steps)?);
    }
    finish(&report, args.json)
}

/// A run that ended for want of memory is an answer; any other error is one.
fn failed(error: anyhow::Error, caps: bool) -> Result<FindingsReport> {
    let Some(finding) = of_error(&error, caps) else { return Err(error) };
    let section = Section { findings: vec![finding], ..Section::new("The run ended") };
    Ok(FindingsReport { sections: vec![section], ..FindingsReport::new("no step was measured") })
}

/// Prints, and says by the exit code how bad it is.
pub fn finish(report: &FindingsReport, json: bool) -> Result<ExitCode> {
    match json {
        true => print_line(serde_json::to_string_pretty(&report.to_json())?)?,
        false => print_line(report)?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

impl Args {
    fn write(&self, measured: &Measured) -> Result<()> {
        let Measured { timeline, .. } = measured;
        if let Some(path) = &self.trace {
            write(path, serde_json::to_string(&timeline.trace())?)?;
            say(format!("trace: {} (open it at https://ui.perfetto.dev)", path.display()));
        }
        if let Some(path) = &self.picture {
            write(path, picture(timeline, measured).context("no step was measured")?)?;
            say(format!("picture: {}", path.display()));
        }
        Ok(())
    }
}

fn picture(timeline: &Timeline, measured: &Measured) -> Option<String> {
    let setup = &measured.setup;
    timeline.svg(&format!(
        "{} model, {} frames a batch: {:.1} ms a step, readiness {:.1} %, {} workers, ring of {}",
        setup.model_size,
        setup.frames_per_batch,
        measured.step_ms.mean,
        measured.readiness * 100.0,
        setup.workers,
        setup.slots
    ))
}

fn write(path: &Path, text: String) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))
}
