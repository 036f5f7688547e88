//! `myxtts train-vocoder`

use super::ranks::in_ranks;
use super::train::{resolve, train};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::train::configure_vocoder;
use anyhow::Result;
use cli::say;
use cli::train_vocoder::Args;
use host::config::{CacheContent, Config, Durations};
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
    for note in without_effect(&config, voice.is_some()) {
        say(format!("note: {note}"));
    }
    Ok(configure_vocoder(config, voice, args.train.run.lr))
}

/// Settings that are a voice's, and say nothing to a vocoder. One file may serve both.
fn without_effect(config: &Config, voice: bool) -> Vec<&'static str> {
    let usual = Config::default();
    let betas = |config: &Config| (config.training.beta1, config.training.beta2);
    let notes = [
        (
            betas(config) != betas(&usual),
            "beta1 and beta2 are a voice's: a vocoder has vocoder_beta1 and vocoder_beta2",
        ),
        (
            *config != config.without_augmentation(),
            "augmentation is for voices: a vocoder learns recordings as they are",
        ),
        (
            config.data.durations == Durations::Frozen && !voice,
            "durations are a voice's: a vocoder has use for them with --voice alone",
        ),
    ];
    notes.into_iter().filter(|(given, _)| *given).map(|(_, note)| note).collect()
}
