//! `myxtts configure`

use super::bench_setup::BenchSetup;
use super::profile::finish;
use super::run_flags::RunFlags;
use super::say;
use crate::tools::configure::{self, HostLimit, Options, Tuned};
use anyhow::{Context, Result, bail};
use host::corpus;
use host::simulate::Delays;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Find settings for this machine and corpus by trying them, and write a config
///
/// Tries sizes of batches until memory is full (running out of it is caught and stepped back from), takes the smallest
/// that is as fast as the fastest, then precision, graphs, what the cache keeps, workers and depths; and says whether a
/// second GPU would help. Exit code 0: done; 1: done, with warnings; 2: nothing fits, or an error.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunFlags,
    #[command(flatten)]
    pub tune: TuneFlags,
    /// Run the settings as they were and as they are now, and compare
    #[arg(long)]
    verify: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// How `configure` and `fix` search, and what they write.
#[derive(clap::Args)]
pub struct TuneFlags {
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "tuned.yaml")]
    pub output: PathBuf,
    /// Overwrite it
    #[arg(long)]
    force: bool,
    /// Seconds for all trials together, about
    #[arg(long, value_name = "S", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Sizes of batches to try
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=40))]
    trials: u8,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.tune.check()?;
    let stand = BenchSetup::prepare(&args.run, Delays::default())?;
    let tuned = args.tune.search(&stand, args.verify)?;
    args.tune.write(&stand, &tuned)?;
    let code = finish(&tuned.report(), args.json);
    say(format!("\nwritten: {}\nnext:    {}", args.tune.output.display(), train_command(&args.tune.output)));
    code
}

/// What to type now.
pub fn train_command(config: &Path) -> String {
    let path = config.display().to_string();
    let plain = path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    let path = if plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
    format!("myxtts train --config {path}")
}

impl TuneFlags {
    /// Before anything slow.
    pub fn check(&self) -> Result<()> {
        if self.output.exists() && !self.force {
            bail!("{}: exists already\nhint: --force overwrites it, -o FILE names another", self.output.display());
        }
        let folder = self.output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            bail!("{}: there is no such folder\nhint: make it first, or name another file with -o", folder.display());
        }
        Ok(())
    }

    pub fn search(&self, stand: &BenchSetup, verify: bool) -> Result<Tuned> {
        let options = Options {
            seconds: self.seconds.into(),
            trial_seconds: (f64::from(self.seconds) / 60.0).clamp(0.2, 3.0),
            trials: self.trials.into(),
            verify,
            host_limit: HostLimit::of_this_machine(),
        };
        let data = &stand.config.data;
        let path = data.dataset_path.as_deref().context("no corpus was named")?;
        let corpus = corpus::read(path, &corpus::ReadOptions::of(data)?)?;
        let tuned = configure::configure(&stand.context(), &corpus.utterances, options);
        stand.bar.finish_and_clear();
        tuned
    }

    /// Appears complete or not at all.
    pub fn write(&self, stand: &BenchSetup, tuned: &Tuned) -> Result<()> {
        let text = configure::yaml(&tuned.config, &tuned.choices, &configure::head(tuned, stand.roles))?;
        let temporary = self.output.with_extension(format!("{}.tmp", std::process::id()));
        let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &self.output));
        written.with_context(|| format!("{}: cannot be written", self.output.display())).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }
}
