//! `myxtts align`

use super::stop_flag;
use crate::checkpoint::{Checkpoint, RunKind, require_same_network};
use crate::feed::{Caps, Roles};
use crate::run::RunContext;
use crate::train::align::{self, AlignmentSummary};
use anyhow::Result;
use cli::align::Args;
use cli::{INTERRUPTED, print_line, progress, say};
use host::config::{Config, Durations, Overrides};
use host::dataset::{self, KnownTokenizer};
use host::error::hinted;
use host::simulate::Hook;
use std::process::ExitCode;
use std::time::Instant;

pub fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    let checkpoint = Checkpoint::open(&args.checkpoint)?.of_kind(RunKind::Voice)?;
    let config = resolve(args, &checkpoint)?;
    let stop = stop_flag()?;
    let device = Roles::named(&args.device)?;
    let roles = Roles { data: device, model: device };
    let caps = Caps::apply(&config.training, roles)?;

    let bar = progress::bar(0, "preparing");
    let data = dataset::prepare(
        &config,
        KnownTokenizer::Exactly(&checkpoint.tokenizer),
        &progress::of_cache(&bar),
        &stop,
        &Hook::NONE,
    );
    bar.finish_and_clear();
    let data = data?;
    data.notes.iter().chain(&data.findings).for_each(|note| say(format!("note: {note}")));

    let bar = progress::bar(0, "aligning");
    let context = RunContext::new(&config, &data, (roles, caps), &bar, &stop, began);
    let summary = align::align(&context, &checkpoint);
    bar.finish_and_clear();
    let Some(summary) = summary? else {
        say("interrupted; nothing was written");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    print(&summary, args.json)?;
    let clean = data.findings.is_empty() && summary.failures.is_empty();
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn resolve(args: &Args, checkpoint: &Checkpoint) -> Result<Config> {
    let (saved, mut flags) = (checkpoint.config_file(), Overrides::default());
    args.data.set(&mut flags);
    flags.set("data.dataset_path", args.dir.as_ref());
    let mut config = Config::resolve(args.data.config.as_deref().or(Some(&saved)), flags)?.without_augmentation();
    require_same_network(&config, checkpoint)?;
    if !config.data.enable_caching {
        return Err(hinted("durations are kept in the cache, and `enable_caching` is false", "set it to true"));
    }
    // In the order of the plan, so that it is known which clips a batch holds.
    (config.data.durations, config.data.deterministic) = (Durations::Search, true);
    // The machine that trained it may have had other devices.
    config.training.enable_memory_isolation = false;
    Ok(config)
}

fn print(summary: &AlignmentSummary, json: bool) -> Result<()> {
    if json {
        return Ok(print_line(serde_json::to_string_pretty(summary)?)?);
    }
    let AlignmentSummary { clips, frames_per_token, suspicious, suspicious_share, .. } = summary;
    print_line(format!("clips:       {clips}, {frames_per_token:.1} frames a token"))?;
    print_line(format!("suspicious:  {suspicious} ({:.1} %)", suspicious_share * 100.0))?;
    for suspect in &summary.worst {
        let (id, longest, hurried) = (&suspect.id, suspect.longest_token_s, suspect.hurried_tokens);
        print_line(format!("  {id}: a token of {longest:.2} s, {hurried} tokens in a row of one frame"))?;
    }
    for failure in &summary.failures {
        print_line(format!("left out:    {failure}"))?;
    }
    print_line(format!("checkpoint:  {}", &summary.checkpoint[..16]))?;
    print_line(format!("durations:   {}", summary.file.display()))?;
    Ok(print_line("now: the same training with `--durations frozen`")?)
}
