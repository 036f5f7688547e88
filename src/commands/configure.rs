//! `myxtts configure`

use super::bench_setup::BenchSetup;
use crate::tools::configure::{self, HostLimit, TuneOptions, Tuned};
use anyhow::{Context, Result};
use cli::configure::Args;
use cli::flags::{ThreadFlags, TuneFlags};
use cli::{finish, say};
use host::config::Overrides;
use host::corpus;
use host::error::hinted;
use host::simulate::Delays;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    check(&args.tune)?;
    let config = args.run.resolve(Overrides::default())?;
    let named = config.data.dataset_path.is_some();
    let stand = BenchSetup::with_config(config, Delays::default())?;
    let tuned = search(&args.tune, &stand, args.verify)?;
    write(&args.tune, &stand, &tuned, named)?;
    let code = finish(&tuned.report(), args.json);
    let next = train_command(&args.tune.output, named, args.threads);
    say(format!("\nwritten: {}\nnext:    {next}", args.tune.output.display()));
    code
}

/// What to type now: with as many threads as the settings were found with, where that was given. `named`: the config has a
/// corpus, and not the small one that it was tuned with.
pub fn train_command(config: &Path, named: bool, threads: ThreadFlags) -> String {
    let path = config.display().to_string();
    let plain = path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    let path = if plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
    let corpus = if named { "" } else { " --train-data DIR" };
    let threads = threads.threads.map_or_else(String::new, |threads| format!(" --threads {threads}"));
    format!("myxtts train --config {path}{corpus}{threads}")
}

/// Refuses a file that cannot be written, before anything slow.
pub fn check(tune: &TuneFlags) -> Result<()> {
    let output = &tune.output;
    if output.exists() && !tune.force {
        let exists = format!("{}: exists already", output.display());
        return Err(hinted(exists, "--force overwrites it, -o FILE names another"));
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let absent = format!("{}: there is no such folder", folder.display());
        return Err(hinted(absent, "make it first, or name another file with -o"));
    }
    Ok(())
}

pub fn search(tune: &TuneFlags, stand: &BenchSetup, verify: bool) -> Result<Tuned> {
    let options = TuneOptions {
        seconds: tune.seconds.into(),
        trial_seconds: (f64::from(tune.seconds) / 60.0).clamp(0.2, 3.0),
        trials: tune.trials.into(),
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

/// Writes the settings that were found; the file appears complete or not at all.
pub fn write(tune: &TuneFlags, stand: &BenchSetup, tuned: &Tuned, named: bool) -> Result<()> {
    let mut config = tuned.config.clone();
    config.data.dataset_path = config.data.dataset_path.filter(|_| named);
    let text = configure::yaml(&config, &tuned.choices, &configure::head(tuned, stand.roles))?;
    let temporary = tune.output.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &tune.output));
    written.with_context(|| format!("{}: cannot be written", tune.output.display())).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
