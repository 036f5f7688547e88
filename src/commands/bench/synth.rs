//! `myxtts bench synth`

use crate::commands::speaking;
use crate::synth::{Precision, Synthesizer};
use crate::tools::bench_synth::{self, SpeechFigures};
use anyhow::Result;
use clap::ValueEnum;
use cli::bench::synth::Args;
use cli::{print_line, say};
use host::config::{Config, Overrides};
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut synthesizer = match args.model_size {
        None => speaking::load(&args.voice)?,
        Some(size) => {
            let mut flags = Overrides::default();
            flags.set("model.size", Some(size));
            let config = Config::resolve(None, flags)?;
            let frames = bench_synth::frames_per_token(config.data.sample_rate, config.model.hop_length);
            Synthesizer::untrained(
                &config,
                frames,
                speaking::device(&args.voice)?,
                Precision::of(args.voice.full_precision),
            )?
        }
    };
    let untrained = args.model_size.is_some();
    let report = bench_synth::measure(&mut synthesizer, args.steps as usize, args.rounds as usize, untrained)?;
    report.notes.iter().for_each(|note| say(format!("note: {note}")));
    print_line(if args.json { serde_json::to_string_pretty(&report)? } else { table(&report) })?;
    Ok(ExitCode::SUCCESS)
}

fn table(report: &SpeechFigures) -> String {
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
        "{} model, {:.1} M parameters{}, {} steps, {} ({}, {} threads{memory})\n\n| | measured | goal | reached |\n|---|---|---|---|",
        report.model_size.to_possible_value().expect("every size has a name").get_name(),
        report.parameters as f64 / 1e6,
        if report.untrained { ", untrained" } else { "" },
        report.steps,
        report.device,
        report.products,
        report.threads,
    );
    rows.into_iter()
        .fold(title, |text, (name, value, goal)| format!("{text}\n| {name} | {value} | {} |", verdict(goal)))
}
