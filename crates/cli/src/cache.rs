//! `myxtts cache`: what the feature cache holds, and clearing it up.

use crate::print_line;
use host::cache::{self, FeatureSettings, store};
use host::config::{Config, Overrides};
use indicatif::{HumanBytes, HumanDuration};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use store::{CacheFolder, Pruned, Retention};

const DAY_S: u64 = 24 * 3600;
const GIB: f64 = (1u64 << 30) as f64;

/// List cached features, or remove what is no longer needed
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Settings of the run whose cache is meant
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Where features are kept [default: myxtts/features in the user's cache directory]
    #[arg(long, value_name = "DIR", global = true)]
    cache_dir: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Folders of features: their settings, size, and the corpora that use them (the default)
    List,
    /// Remove features of older versions and those that no corpus uses; with limits, also what they exceed
    Prune(Prune),
}

#[derive(clap::Args, Debug)]
struct Prune {
    /// Also features of corpora that were not opened for so many days
    #[arg(long, value_name = "DAYS")]
    older_than: Option<u64>,
    /// Also the least recently used, until the rest is no larger
    #[arg(long, value_name = "GIB")]
    max_size: Option<f64>,
    /// Also features of corpora outside this folder
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Remove nothing, only say how much it would be
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut flags = Overrides::default();
    flags.set("data.cache_dir", args.cache_dir.as_ref());
    let dir = cache::kept_dir(&Config::resolve(args.config.as_deref(), flags)?.data);
    match args.action.unwrap_or(Action::List) {
        Action::List => list(&dir, args.json)?,
        Action::Prune(prune) => clear(&dir, &prune, args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(dir: &Path, as_json: bool) -> anyhow::Result<()> {
    let folders = store::list(dir)?;
    let bytes = folders.iter().map(|folder| folder.bytes).sum();
    if as_json {
        print_line(serde_json::to_string_pretty(&json!({ "path": dir, "bytes": bytes, "folders": folders }))?)?;
        return Ok(());
    }
    print_line(format!("{}: {}", dir.display(), HumanBytes(bytes)))?;
    for CacheFolder { path, settings, bytes, corpora } in &folders {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        print_line(format!(
            "\n{name}  {}  {}",
            HumanBytes(*bytes),
            settings.as_ref().map_or("of another version".into(), describe)
        ))?;
        for corpus in corpora {
            let age = HumanDuration(Duration::from_secs(corpus.age().as_secs().max(1)));
            print_line(format!("  {} clips of {}, used {age} ago", corpus.clips, corpus.corpus.display()))?;
        }
    }
    Ok(())
}

fn describe(settings: &FeatureSettings) -> String {
    let trimmed = if settings.trim_silence { ", trimmed" } else { "" };
    let level = settings.loudness_lufs.map_or(String::new(), |target| format!(", {target} LUFS"));
    let form = settings.mel.map_or("16-bit samples".into(), |mel| {
        let cache::MelSettings { n_mels, n_fft, hop_samples, f_min_hz, f_max_hz } = mel;
        format!("{n_mels} mel bands from {f_min_hz} to {f_max_hz} Hz, window {n_fft}, hop {hop_samples}")
    });
    format!("{} Hz{trimmed}{level}, {form}", settings.rate_hz)
}

fn clear(dir: &Path, prune: &Prune, as_json: bool) -> anyhow::Result<()> {
    let limits = Retention {
        unused_for: prune.older_than.map(|days| Duration::from_secs(days.saturating_mul(DAY_S))),
        corpus: prune.corpus.clone(),
        bytes: prune.max_size.map(|gib| (gib * GIB) as u64),
    };
    let pruned = store::prune(dir, &limits, prune.dry_run)?;
    if as_json {
        print_line(serde_json::to_string_pretty(&json!({ "path": dir, "dry_run": prune.dry_run, "pruned": pruned }))?)?;
        return Ok(());
    }
    let Pruned { files, bytes, busy } = pruned;
    print_line(format!(
        "{}: {} files, {}",
        if prune.dry_run { "would remove" } else { "removed" },
        files,
        HumanBytes(bytes)
    ))?;
    for folder in busy {
        print_line(format!("left alone, another process builds there: {}", folder.display()))?;
    }
    Ok(())
}
