//! `myxtts check`: what a corpus holds, and what is wrong with it.

use crate::flags::{CorpusFlags, Layout};
use crate::{INTERRUPTED, print_line, progress, say};
use anyhow::Context;
use host::config::{Config, Overrides};
use host::corpus;
use host::error::hinted;
use host::tools::check::{self, CleanedMetadata, CorpusSummary, Distribution, HistogramBin};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const BAR_WIDTH: usize = 40;
/// Speakers, languages, rates or characters that are listed; a Chinese corpus has thousands of the last.
const SHOWN: usize = 60;

/// Decode every clip of a corpus once and report what it holds and what is wrong
///
/// Exit code 0: no problem found; 1: problems found, each is listed with its path; 2: the corpus cannot be read at all.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    corpus: CorpusFlags,
    #[command(flatten)]
    layout: Layout,
    /// Settings of the run that will use it: limits, sample rate, language
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Clips decoded at a time [default: one per core]
    #[arg(long, value_name = "N")]
    num_workers: Option<usize>,
    /// Write a cleaned copy of the metadata beside the original, without the rows that are better left out
    #[arg(long)]
    fix: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut flags = Overrides::default();
    flags.set("data.num_workers", args.num_workers);
    args.layout.set(&mut flags);
    let config = Config::resolve(args.config.as_deref(), flags)?;
    let workers = config.data.reading_workers();
    let stop = progress::stop_flag(progress::exit)?;
    let path = args.corpus.path(&config)?;
    let corpus = corpus::read(&path, &corpus::ReadOptions::of(&config.data)?)?;
    if args.fix && corpus.has_shards() {
        let hint = "name what to leave out where the shards are made; training passes over clips that cannot be read";
        return Err(hinted("--fix writes a cleaned copy of the metadata, and a corpus in shards has none", hint));
    }
    let bar = progress::bar(corpus.utterances.len() as u64, "checking");
    let summary = check::check(&corpus, &config, workers, &|done| bar.set_position(done as u64), &stop)?;
    bar.finish_and_clear();
    let Some(summary) = summary else {
        say("interrupted");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&summary)? + "\n",
        false => format!("corpus      {}: {}\n{}", corpus.format, corpus.why, page(&summary)),
    };
    print_line(text.trim_end())?;
    if args.fix {
        for CleanedMetadata { path, dropped } in
            check::fix(&corpus, &summary, &path).context("cannot write cleaned metadata")?
        {
            say(format!("cleaned metadata without {dropped} rows: {}", path.display()));
        }
    }
    Ok(if summary.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn page(summary: &CorpusSummary) -> String {
    let CorpusSummary { rows, clips, hours, seconds, tokenizer, .. } = summary;
    let detected = match summary.detected_languages {
        0 => String::new(),
        number => format!(" ({number} detected)"),
    };
    let mut text = format!(
        "clips       {clips} readable of {rows} rows\n\
         speech      {hours:.2} hours; a clip has {:.1} to {:.1} s, median {:.1}, mean {:.1}\n\
         pace        {}\ntokens      {tokenizer}\n\
         speakers    {}\nlanguages   {}{detected}\nrates (Hz)  {}\ncharacters  {}\n",
        seconds.min,
        seconds.max,
        seconds.median,
        seconds.mean,
        pace(&summary.pace),
        counts(&summary.speakers),
        counts(&summary.languages),
        counts(&summary.sample_rates_hz),
        counts(&summary.characters),
    );
    text += &histogram("seconds", &summary.seconds);
    text += &histogram("characters of text", &summary.text_length);
    let _ = writeln!(text, "problems    {}", summary.problems.len());
    for problem in &summary.problems {
        let _ = writeln!(text, "  {problem}");
    }
    text
}

/// Of each language.
fn pace(pace: &BTreeMap<String, f64>) -> String {
    let each: Vec<String> = pace.iter().take(SHOWN).map(|(language, pace)| format!("{language} {pace:.1}")).collect();
    let more = if pace.len() > SHOWN { ", …" } else { "" };
    format!("{}{more} characters a second", each.join(", "))
}

/// The most frequent first.
fn counts<K: Display + Clone>(counts: &BTreeMap<K, usize>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = sorted.iter().map(|(name, count)| match name.to_string().as_str() {
        " " => format!("space {count}"),
        name => format!("{name} {count}"),
    });
    let more = if counts.len() > SHOWN { ", …" } else { "" };
    format!("{}: {}{more}", counts.len(), shown.take(SHOWN).collect::<Vec<_>>().join(", "))
}

fn histogram(name: &str, Distribution { bins, .. }: &Distribution) -> String {
    let most = bins.iter().map(|bin| bin.clips).max().unwrap_or(0).max(1);
    let mut text = format!("{name}\n");
    for HistogramBin { from, to, clips } in bins {
        let bar = "█".repeat((clips * BAR_WIDTH).div_ceil(most));
        let _ = writeln!(text, "  {:>11}  {bar} {clips}", format!("{from} – {to}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_none_vanishes() {
        let bin = |from: f64, clips| HistogramBin { from, to: from + 0.5, clips };
        let bins = vec![bin(1.0, 80), bin(1.5, 0), bin(2.0, 1)];
        let text = histogram("seconds", &Distribution { bins, ..Distribution::default() });
        let bars: Vec<usize> = text.lines().skip(1).map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [BAR_WIDTH, 0, 1]);
        assert!(text.contains("1.5 – 2   0\n"), "{text}");
    }
}
