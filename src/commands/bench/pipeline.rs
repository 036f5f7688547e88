//! `myxtts bench pipeline`

use crate::commands::bench_setup::BenchSetup;
use crate::run::RunContext;
use crate::tools::bench_pipeline::{self, PipelineFigures};
use anyhow::Result;
use cli::bench::pipeline::Args;
use cli::print_line;
use host::simulate::Delays;
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
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
