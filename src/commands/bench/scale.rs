//! `myxtts bench scale`

use crate::commands::bench_setup::BenchSetup;
use crate::commands::ranks::in_ranks;
use crate::ranks::Ranks;
use crate::tools::bench_scale::{self, ScaleFigures};
use anyhow::Result;
use cli::bench::scale::Args;
use cli::print_line;
use host::config::Overrides;
use host::simulate::Delays;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut flags = Overrides::default();
    args.ranks.set(&mut flags);
    in_ranks(args.run.resolve(flags)?, |config, ranks| {
        let timeout = Duration::from_secs_f64(config.training.rank_timeout);
        let ranks = ranks.map_or_else(|| Ranks::alone(timeout).map(Arc::new), |ranks| Ok(ranks.clone()))?;
        let stand = BenchSetup::with_config(config, Delays::default())?;
        let measured = bench_scale::measure(&stand.context(), &ranks, args.num_steps);
        stand.bar.finish_and_clear();
        if let Some(figures) = measured? {
            print_line(if args.json { report(&figures)? } else { table(&figures) })?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn report(figures: &ScaleFigures) -> Result<String> {
    let report = json!({ "measured": figures, "predicted": figures.predictions() });
    Ok(serde_json::to_string_pretty(&report)?)
}

fn table(figures: &ScaleFigures) -> String {
    let title = format!(
        "{:.1} M parameters, {:.1} MB of gradients, {} rank(s) on {} machine(s), {}, {}\n",
        figures.parameters as f64 / 1e6,
        figures.gradient_bytes as f64 / 1e6,
        figures.ranks,
        figures.machines,
        figures.device,
        figures.exchange,
    );
    let measured = |gpus: usize, step_ms: f64, exchange_ms: f64, speed_up: f64, audio: f64, what: &str| {
        format!("\n| {gpus} | {what} | {exchange_ms:.3} ms | {step_ms:.3} ms | {speed_up:.2} | {audio:.0} | measured |")
    };
    let mut text =
        title + "\n| GPUs | over | all-reduce | step | times one | audio-s/s | |\n|---|---|---|---|---|---|---|";
    text += &measured(1, figures.alone_ms, 0.0, 1.0, figures.alone_audio_seconds_per_second, "no exchange");
    let all = figures.audio_seconds_per_second;
    text += &measured(figures.ranks, figures.step_ms, figures.exchange_ms, figures.speed_up(), all, "what is here");
    for predicted in figures.predictions() {
        let over = predicted.network_gbit.map_or("NVLink".into(), |gbit| format!("NVLink and {gbit:.0} Gbit/s"));
        text += &format!(
            "\n| {} | {over} | {:.3} ms | {:.3} ms | {:.2} | {:.0} | predicted |",
            predicted.gpus,
            predicted.all_reduce_ms,
            predicted.step_ms,
            predicted.speed_up,
            predicted.audio_seconds_per_second
        );
    }
    text
}
