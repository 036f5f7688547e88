//! `myxtts train-vocoder`

use super::ranks::in_ranks;
use super::train::{resolve, train};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::train::configure_vocoder;
use anyhow::Result;
use cli::train_vocoder::Args;
use host::config::{CacheContent, Config};
use host::error::hinted;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Where checkpoints go unless something else is said.
const FOLDER: &str = "./vocoder";

pub fn run(args: &Args) -> Result<ExitCode> {
    let open = |path: &PathBuf| Checkpoint::open(path)?.of_kind(RunKind::Voice);
    let voice = args.voice.as_ref().map(open).transpose()?;
    let began = Instant::now();
    let voice = voice.as_ref();
    in_ranks(settings(args, voice)?, |config, ranks| train(&args.train, config, RunKind::Vocoder, voice, ranks, began))
}

fn settings(args: &Args, voice: Option<&Checkpoint>) -> Result<Config> {
    let mut config = resolve(&args.train)?;
    if config.training.checkpoint_dir == Config::default().training.checkpoint_dir {
        config.training.checkpoint_dir = FOLDER.into();
    }
    if config.data.cache_content != CacheContent::Pcm {
        return Err(hinted("a vocoder learns from samples, and `cache_content` is mel", "set it to pcm"));
    }
    Ok(configure_vocoder(config, voice, args.train.run.lr))
}
