//! `myxtts prepare`: features of a corpus into the cache. What it shares with `train` is here too.

use crate::cache::{self, Cache, Progress, Report};
use crate::config::{Config, Data, Overrides};
use crate::corpus::{self, Corpus, Utterance};
use crate::text::Tokenizer;
use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Turn a corpus into features, once; what is already there is kept
///
/// Exit code 0: every clip has features; 1: some clips failed, no more than `max_failures`; 2: nothing usable came out.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Corpus folder
    dir: PathBuf,
    /// Settings of the run that will use the features
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where features are kept [default: myxtts/features in the user's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Clips worked on at a time [default: one per core]
    #[arg(long, value_name = "N")]
    num_workers: Option<usize>,
    /// Read all audio and all features again instead of trusting sizes and times of files
    #[arg(long)]
    verify: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut flags = Overrides::default();
    flags.set("data.cache_dir", args.cache_dir.as_ref()).set("data.num_workers", args.num_workers);
    let mut data = Config::resolve(args.config.as_deref(), flags)?.data;
    // Features that end with this command would be made for nobody.
    data.enable_caching = true;
    let stop = stop_on_ctrl_c()?;
    let corpus = corpus::read(&args.dir)?;
    let tokenizer = fit_tokenizer(&corpus.utterances, &data);
    if args.verify {
        cache::distrust(&data, &tokenizer)?;
    }
    let (_, report) = open_cache(&corpus.utterances, &tokenizer, &data, &stop)?;
    if args.json {
        print_json(&corpus, &report)?
    } else {
        print(&corpus, &report)
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tokenizer of a corpus. Fit it on the whole corpus, before any split: it is part of every feature's key.
pub(super) fn fit_tokenizer(utterances: &[Utterance], data: &Data) -> Tokenizer {
    let language = |utterance: &Utterance| utterance.language.clone().unwrap_or_else(|| data.language.clone());
    let languages: Vec<String> = utterances.iter().map(language).collect();
    let texts = utterances.iter().zip(&languages);
    Tokenizer::fit(texts.map(|(utterance, language)| (utterance.text.as_str(), language.as_str())))
}

/// Opens the cache of a corpus, building what is missing behind a progress bar.
pub(super) fn open_cache(
    utterances: &[Utterance],
    tokenizer: &Tokenizer,
    data: &Data,
    stop: &AtomicBool,
) -> Result<(Cache, Report), cache::Error> {
    let bar = bar();
    let opened = cache::open(utterances, tokenizer, data, &|progress| show(&bar, progress), stop);
    bar.finish_and_clear();
    opened
}

/// True once Ctrl-C was pressed or the process was asked to end. A second time ends it at once.
pub(super) fn stop_on_ctrl_c() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let pressed = stop.clone();
    ctrlc::set_handler(move || {
        if pressed.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .context("no handler for Ctrl-C")?;
    Ok(stop)
}

fn bar() -> ProgressBar {
    let template = "{msg:>12} [{bar:32}] {pos}/{len}, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

fn show(bar: &ProgressBar, progress: Progress) {
    let (message, done, total) = match progress {
        Progress::Waiting => ("waiting for another process that builds".to_owned(), 0, 0),
        Progress::Verifying { done, total } => ("verifying".to_owned(), done, total),
        Progress::Building { done, total, failed: 0 } => ("preparing".to_owned(), done, total),
        Progress::Building { done, total, failed } => (format!("preparing, {failed} failed"), done, total),
    };
    if bar.message() != message {
        bar.set_message(message);
    }
    bar.set_length(total as u64);
    bar.set_position(done as u64);
}

fn print(corpus: &Corpus, report: &Report) {
    let Report { built, reused, failures, .. } = report;
    println!("features  {}", report.path.display());
    println!("size      {}, {:.2} hours of speech", HumanBytes(report.bytes), report.seconds / 3600.0);
    println!(
        "clips     {built} built, {reused} reused ({:.1} % hits), {} failed",
        100.0 * hit_rate(report),
        failures.len()
    );
    if report.damaged_shards > 0 {
        println!("damaged   {} files of features, built again", report.damaged_shards);
    }
    for failure in failures {
        println!("failed    {}: {}", failure.path.display(), failure.reason);
    }
    for problem in &corpus.problems {
        println!("left out  {problem}");
    }
}

fn print_json(corpus: &Corpus, report: &Report) -> anyhow::Result<()> {
    let left_out: Vec<String> = corpus.problems.iter().map(ToString::to_string).collect();
    let answer = json!({ "cache": report, "hit_rate": hit_rate(report), "left_out": left_out });
    println!("{}", serde_json::to_string_pretty(&answer)?);
    Ok(())
}

fn hit_rate(report: &Report) -> f64 {
    let clips = report.built + report.reused + report.failures.len();
    report.reused as f64 / clips.max(1) as f64
}
