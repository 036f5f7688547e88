//! `myxtts profile`

use super::bench_setup::BenchSetup;
use crate::run::timeline::Timeline;
use crate::tools::measure::{self, RunMeasurement};
use crate::tools::profile;
use crate::tools::verdict::of_error;
use anyhow::{Context, Result};
use cli::profile::Args;
use cli::{finish, say};
use host::tools::report::{FindingsReport, Section};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use torchx::activity::KernelRun;

pub fn run(args: &Args) -> Result<ExitCode> {
    let stand = BenchSetup::prepare(&args.run, args.simulate.delays()?)?;
    let context = stand.context();
    stand.bar.set_length(args.num_steps * 3 / 2);
    let measured = measure::run(&context, args.num_steps);
    stand.bar.finish_and_clear();
    let mut report = match measured {
        Ok(measured) => {
            write_pictures(args, &measured)?;
            profile::report(&measured)
        }
        Err(error) => failed(error)?,
    };
    if args.overhead && !report.figures.is_null() {
        report = profile::with_overhead(report, measure::overhead(&context, args.num_steps)?);
    }
    finish(&report, args.json)
}

/// A run that ended for want of memory is an answer; any other error is one.
fn failed(error: anyhow::Error) -> Result<FindingsReport> {
    let Some(finding) = of_error(&error) else { return Err(error) };
    let section = Section { findings: vec![finding], ..Section::new("The run ended") };
    Ok(FindingsReport { sections: vec![section], ..FindingsReport::new("no step was measured") })
}

/// Writes the trace, the picture and the list of kernels that were asked for.
fn write_pictures(args: &Args, measured: &RunMeasurement) -> Result<()> {
    let RunMeasurement { timeline, .. } = measured;
    if let Some(path) = &args.trace {
        write(path, serde_json::to_string(&timeline.trace())?)?;
        say(format!("trace: {} (open it at https://ui.perfetto.dev)", path.display()));
    }
    if let Some(path) = &args.picture {
        write(path, picture(timeline, measured).context("no step was measured")?)?;
        say(format!("picture: {}", path.display()));
    }
    if let Some(path) = &args.kernels {
        write(path, listed(&measured.kernel_runs))?;
        say(format!("kernels: {} ({} runs)", path.display(), measured.kernel_runs.len()));
    }
    Ok(())
}

fn listed(runs: &[KernelRun]) -> String {
    let line = |run: &KernelRun| format!("{:.2}\t{:.2}\t{}\t{}\n", run.start_us, run.us, run.stream, run.name);
    ["start µs\tµs\tstream\tkernel\n".to_owned()].into_iter().chain(runs.iter().map(line)).collect()
}

fn picture(timeline: &Timeline, measured: &RunMeasurement) -> Option<String> {
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
