//! `myxtts prepare`: features of a corpus into the cache.

use crate::flags::{CacheFlags, CorpusFlags, Layout};
use crate::{print_line, progress};
use host::cache::{self, CacheReport};
use host::config::{CacheContent, Config, MaxFailures, Overrides};
use host::corpus::{self, Corpus};
use host::ranks::Part;
use indicatif::HumanBytes;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Turn a corpus into features, once; what is already there is kept
///
/// Exit code 0: every row of the metadata has features; 1: some clips failed, no more than `max_failures`, or rows were
/// left out; 2: nothing usable came out.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    corpus: CorpusFlags,
    #[command(flatten)]
    layout: Layout,
    /// Settings of the run that will use the features
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheFlags,
    /// What is kept of the sound [default: pcm]
    #[arg(long, value_name = "CONTENT")]
    cache_content: Option<CacheContent>,
    /// Clips that may fail: a number, or a share such as 1% [default: 20]
    #[arg(long, value_name = "N")]
    max_failures: Option<MaxFailures>,
    /// Clips worked on at a time [default: one per core]
    #[arg(long, value_name = "N")]
    num_workers: Option<usize>,
    /// Build one of several parts, each on a machine of its own: 3/16 is the third of sixteen, `auto` is what a SLURM array
    /// or another launcher says. `prepare` without it then makes one index of all parts
    #[arg(long, value_name = "I/N")]
    shard: Option<String>,
    /// Read all audio and all features again instead of trusting sizes and times of files
    #[arg(long)]
    verify: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut flags = Overrides::default();
    args.cache.set(&mut flags);
    flags.set("data.num_workers", args.num_workers);
    args.layout.set(&mut flags);
    flags.set("data.cache_content", args.cache_content).set("data.max_failures", args.max_failures);
    let mut config = Config::resolve(args.config.as_deref(), flags)?;
    // Features that end with this command would be made for nobody.
    config.data.enable_caching = true;
    let part = args.shard.as_deref().map(Part::named).transpose()?;
    let stop = progress::stop_flag(progress::exit)?;
    let corpus = corpus::read(&args.corpus.path(&config)?, &corpus::ReadOptions::of(&config.data)?)?;
    let (tokenizer, tokens) = cache::tokenizer(&corpus.utterances, &config)?;
    if args.verify {
        cache::distrust(&config)?;
    }
    let (utterances, progress) = (&corpus.utterances, progress::of_cache);
    let own = part.map_or(0..utterances.len(), |part| part.range(utterances.len()));
    let bar = progress::bar(own.len() as u64, "preparing");
    let done = match part {
        Some(part) => cache::prepare_part(utterances, part, &tokenizer, &config, &progress(&bar), &stop),
        None => cache::prepare(utterances, &tokenizer, &config, &progress(&bar), &stop).map(|(_, report)| report),
    };
    bar.finish_and_clear();
    let report = done?;
    if args.json {
        print_json(&corpus, &tokens, &report, part)?
    } else {
        print(&corpus, &tokens, &report, part)?
    }
    let complete = report.failures.is_empty() && corpus.problems.is_empty();
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(corpus: &Corpus, tokens: &str, report: &CacheReport, part: Option<Part>) -> anyhow::Result<()> {
    let CacheReport { built, encoded, reused, failures, .. } = report;
    print_line(format!("corpus    {}: {}", corpus.format, corpus.why))?;
    print_line(format!("tokens    {tokens}"))?;
    if let Some(Part { number, of }) = part {
        let clips = Part { number, of }.range(corpus.utterances.len()).len();
        print_line(format!("part      {} of {of}: {clips} of {} clips", number + 1, corpus.utterances.len()))?;
    }
    print_line(format!("features  {}", report.path.display()))?;
    print_line(format!("size      {}, {:.2} hours of speech", HumanBytes(report.bytes), report.seconds / 3600.0))?;
    let (hits, share) = (encoded + reused, 100.0 * hit_rate(report));
    print_line(format!("clips     {built} built, {hits} reused ({share:.1} % hits), {} failed", failures.len()))?;
    if *encoded > 0 {
        print_line(format!("texts     {encoded} of the reused clips have new tokens"))?;
    }
    if report.damaged_shards > 0 {
        print_line(format!("damaged   {} files of features, built again", report.damaged_shards))?;
    }
    for failure in failures {
        print_line(format!("failed    {failure}"))?;
    }
    for problem in &corpus.problems {
        print_line(format!("left out  {problem}"))?;
    }
    Ok(())
}

fn print_json(corpus: &Corpus, tokens: &str, report: &CacheReport, part: Option<Part>) -> anyhow::Result<()> {
    let left_out: Vec<String> = corpus.problems.iter().map(ToString::to_string).collect();
    let answer = json!({
        "format": corpus.format,
        "why": corpus.why,
        "cache": report,
        "part": part.map(|part| [part.number + 1, part.of]),
        "tokens": tokens,
        "hit_rate": hit_rate(report),
        "left_out": left_out,
    });
    print_line(serde_json::to_string_pretty(&answer)?)?;
    Ok(())
}

/// Of sound, which is what takes time.
fn hit_rate(report: &CacheReport) -> f64 {
    let hits = report.encoded + report.reused;
    hits as f64 / (hits + report.built + report.failures.len()).max(1) as f64
}
