//! `myxtts config`: what a run would use, after presets, file and flags.

use anyhow::Context;
use host::config::{Config, OptimizationLevel, Overrides, Size, defaults, reference};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the config that a run would use
#[derive(Debug, clap::Args)]
pub struct Args {
    /// YAML file; without one, the presets alone
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Preset of dimensions and learning rate
    #[arg(long, value_name = "SIZE")]
    model_size: Option<Size>,
    /// Preset of mixed precision and graph capture
    #[arg(long, value_name = "LEVEL")]
    optimization_level: Option<OptimizationLevel>,
    /// Every key as a page of Markdown: default, accepted values, other names, meaning
    #[arg(long, conflicts_with_all = ["json", "check"])]
    reference: bool,
    /// Every key with its default and its meaning, as a config to start from
    #[arg(long, conflicts_with_all = ["json", "check", "reference"])]
    defaults: bool,
    /// JSON instead of YAML
    #[arg(long)]
    json: bool,
    /// Print nothing; the exit code says whether the config is valid
    #[arg(long, conflicts_with = "json")]
    check: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut flags = Overrides::default();
    flags.set("model.size", args.model_size).set("training.optimization_level", args.optimization_level);
    let config = Config::resolve(args.config.as_deref(), flags)?;
    if args.reference {
        std::io::stdout().write_all(reference().as_bytes()).context("cannot print the reference")?;
    } else if args.defaults {
        std::io::stdout().write_all(defaults().as_bytes()).context("cannot print the defaults")?;
    } else if !args.check {
        let text = if args.json { serde_json::to_string_pretty(&config)? + "\n" } else { config.to_yaml() };
        std::io::stdout().write_all(text.as_bytes()).context("cannot print the config")?;
    }
    Ok(ExitCode::SUCCESS)
}
