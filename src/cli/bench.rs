//! `myxtts bench`

use super::bench_setup::BenchSetup;
use super::run_flags::RunFlags;
use super::{print_line, say};
use crate::feed::Roles;
use crate::run::RunContext;
use crate::synth::Synthesizer;
use crate::tools::bench_pipeline::{self, PipelineFigures};
use crate::tools::bench_synth::{self, SpeechFigures};
use anyhow::Result;
use clap::ValueEnum;
use host::config::{Config, Overrides, Size};
use host::simulate::Delays;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the training pipeline, or speaking, on this machine. Nothing is saved.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// How busy the model device is kept, and what stands in the way
    Pipeline(Box<PipelineArgs>),
    /// How fast a voice speaks: real-time factor, first sound, many texts at once
    Synth(SynthArgs),
}

#[derive(clap::Args)]
struct SynthArgs {
    /// A checkpoint, or a folder of them
    #[arg(long, value_name = "DIR", required_unless_present = "model_size")]
    checkpoint: Option<PathBuf>,
    /// A checkpoint of `train-vocoder`
    #[arg(long, value_name = "DIR", requires = "checkpoint")]
    vocoder: Option<PathBuf>,
    /// Without a checkpoint: random weights of this size, vocoder included, that speak ten seconds
    #[arg(long, value_enum, conflicts_with = "checkpoint")]
    model_size: Option<Size>,
    /// Steps along the flow
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
    /// Measurements of each figure; their median is told
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct PipelineArgs {
    #[command(flatten)]
    run: RunFlags,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    num_steps: u64,
    /// Only the step on one batch that stays: the most that any pipeline could give
    #[arg(long)]
    headspace: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Pipeline(args) => pipeline(&args),
        What::Synth(args) => synth(&args),
    }
}

fn synth(args: &SynthArgs) -> Result<ExitCode> {
    let device = Roles::named(&args.device)?;
    let mut synthesizer = match &args.checkpoint {
        Some(checkpoint) => Synthesizer::load(checkpoint, args.vocoder.as_deref(), device)?,
        None => {
            let mut flags = Overrides::default();
            flags.set("model.size", args.model_size);
            let config = Config::resolve(None, flags)?;
            let frames = bench_synth::frames_per_token(config.data.sample_rate, config.model.hop_length);
            Synthesizer::untrained(&config, frames, device)?
        }
    };
    let untrained = args.checkpoint.is_none();
    let report = bench_synth::measure(&mut synthesizer, args.steps as usize, args.rounds as usize, untrained)?;
    report.notes.iter().for_each(|note| say(format!("note: {note}")));
    print_line(if args.json { serde_json::to_string_pretty(&report)? } else { speech_table(&report) })?;
    Ok(ExitCode::SUCCESS)
}

fn speech_table(report: &SpeechFigures) -> String {
    let [factor, first, batch] = bench_synth::goals(report);
    let verdict = |goal: Option<(String, bool)>| {
        goal.map_or("– | –".into(), |(goal, good)| format!("{goal} | {}", if good { "yes" } else { "no" }))
    };
    let rows = [
        (
            format!("real-time factor of {:.1} s of speech", report.seconds),
            format!("{:.4}", report.real_time_factor),
            factor.map(|goal| (format!("≤ {goal}"), report.real_time_factor <= goal)),
        ),
        (
            "first sound of a stream".into(),
            format!("{:.1} ms", report.first_audio_ms),
            first.map(|goal| (format!("≤ {goal} ms"), report.first_audio_ms <= goal)),
        ),
        (
            format!("{} texts at once", report.batch_texts),
            format!("{:.1} × real time", report.batch_times_real_time),
            batch.map(|goal| (format!("≥ {goal} ×"), report.batch_times_real_time >= goal)),
        ),
    ];
    let memory = report.peak_memory_mib.map_or(String::new(), |mib| format!(", {mib} MiB at most"));
    let title = format!(
        "{} model, {:.1} M parameters{}, {} steps, {} ({} threads{memory})\n\n| | measured | goal | reached |\n|---|---|---|---|",
        report.model_size.to_possible_value().expect("every size has a name").get_name(),
        report.parameters as f64 / 1e6,
        if report.untrained { ", untrained" } else { "" },
        report.steps,
        report.device,
        report.threads,
    );
    rows.into_iter()
        .fold(title, |text, (name, value, goal)| format!("{text}\n| {name} | {value} | {} |", verdict(goal)))
}

fn pipeline(args: &PipelineArgs) -> Result<ExitCode> {
    let stand = BenchSetup::prepare(&args.run, Delays::default())?;
    let (context, bar) = (stand.context(), &stand.bar);
    bar.set_length(args.num_steps * 2);
    let mut slow = stand.config.clone();
    (slow.data.use_native_loading, slow.data.prefetch_to_gpu) = (false, false);
    if args.headspace {
        let ms = bench_pipeline::headspace(&context, args.num_steps);
        bar.finish_and_clear();
        print_line(if args.json {
            json!({ "headspace_ms": ms? }).to_string()
        } else {
            format!("{:.3} ms a step", ms?)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = bench_pipeline::measure(&context, &RunContext { config: &slow, ..context }, args.num_steps);
    bar.finish_and_clear();
    let report = report?;
    match args.json {
        true => print_line(serde_json::to_string_pretty(&report)?)?,
        false => print_line(table(&report))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Figures beside what a pipeline should reach; on a machine without a GPU the goals are the same.
fn table(report: &PipelineFigures) -> String {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let ms = |ms: f64| format!("{ms:.3} ms");
    let optional = |share: Option<f64>| share.map_or("–".into(), percent);
    let mark = |good: bool| if good { "yes" } else { "no" };
    let reached = |goal: &str, good: bool| format!("{goal} | {}", mark(good));
    let none = || "– | –".to_owned();
    let overlap = match report.feature_share_of_step >= 0.3 {
        true => reached("≥ 1.3", report.overlap_gain >= 1.3),
        false => none(),
    };
    let busy = report.kernel_busy.map_or_else(none, |share| reached("≥ 95 %", share >= 0.95));
    let rows = [
        ("data readiness", percent(report.data_readiness), reached("≥ 99.5 %", report.data_readiness >= 0.995)),
        (
            "step ÷ headspace",
            format!("{:.3}", report.step_over_headspace),
            reached("≤ 1.02", report.step_over_headspace <= 1.02),
        ),
        ("model device busy (kernel time ÷ wall)", optional(report.kernel_busy), busy),
        ("model device busy by the driver (NVML)", optional(report.nvml_busy), none()),
        ("step time", ms(report.step_ms), none()),
        ("headspace step time", ms(report.headspace_ms), none()),
        ("step-time CV", percent(report.step_cv), reached("≤ 3 %", report.step_cv <= 0.03)),
        ("99th percentile of step time", ms(report.step_p99_ms), none()),
        ("overlap gain over synchronous", format!("{:.2}", report.overlap_gain), overlap),
        ("features, share of the step time", percent(report.feature_share_of_step), none()),
        ("producer ceiling", format!("{:.1}", report.producer_ceiling), reached("≥ 3", report.producer_ceiling >= 3.0)),
        ("start to first step", format!("{:.1} s", report.first_step_s), reached("< 5 s", report.first_step_s < 5.0)),
        ("audio-seconds a second", format!("{:.0}", report.audio_seconds_per_second), none()),
        ("padding share", percent(report.padding_share), reached("≤ 3 %", report.padding_share <= 0.03)),
    ];
    let title = format!(
        "{} model, {:.1} M parameters, {:.1} h of speech, {} frames a batch, {} steps\n\n| | measured | goal | reached |\n|---|---|---|---|",
        report.model_size,
        report.parameters as f64 / 1e6,
        report.corpus_hours,
        report.frames_per_batch,
        report.steps
    );
    rows.iter().fold(title, |text, (name, value, goal)| format!("{text}\n| {name} | {value} | {goal} |"))
}
