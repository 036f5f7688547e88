//! Clocks of `make bench-frontend` that no command shows: text alone, decoding alone, opening a cache, the first batch.
//! Prints one JSON object.
//!
//! ```text
//! frontend text FILE             a sentence a line: normalise, detect the language, make character tokens
//! frontend decode DIR WORKERS    every file of a folder to samples
//! frontend open CONFIG           a prepared corpus, as `myxtts train` opens it, up to the first batch
//! frontend cache CONFIG          the same, up to the open cache
//! ```

use anyhow::{Context, Result, bail};
use myxtts_host::cache;
use myxtts_host::config::{Config, Overrides, TokenizerKind};
use myxtts_host::corpus::{self, Utterance, Utterances};
use myxtts_host::loader::{Loader, LoaderOptions};
use myxtts_host::simulate::Hook;
use myxtts_host::text::Tokenizer;
use myxtts_host::{audio, dataset};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let figures = match args[..] {
        ["text", file] => text(Path::new(file))?,
        ["decode", dir, workers] => decode(Path::new(dir), workers.parse()?)?,
        ["open", config] => open(Path::new(config))?,
        ["cache", config] => open_cache(&Config::resolve(Some(Path::new(config)), Overrides::default())?)?,
        _ => bail!("usage: frontend text FILE | decode DIR WORKERS | open CONFIG | cache CONFIG"),
    };
    println!("{figures}");
    Ok(())
}

/// What a build does with text: the vocabulary is fitted to all sentences, then each becomes tokens.
fn text(file: &Path) -> Result<Value> {
    let sentences = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let utterances: Utterances = sentences.lines().map(utterance).collect();
    let clock = Instant::now();
    let tokenizer = Tokenizer::of_corpus(&utterances, "auto", TokenizerKind::Characters)?;
    let mut tokens = 0;
    for utterance in utterances.iter() {
        tokens += tokenizer.encode(utterance.text, "auto")?.len();
    }
    Ok(json!({ "seconds": clock.elapsed().as_secs_f64(), "sentences": utterances.len(), "tokens": tokens }))
}

fn utterance(text: &str) -> Utterance {
    Utterance {
        id: String::new(),
        audio: PathBuf::new().into(),
        text: text.into(),
        speaker: String::new(),
        language: None,
    }
}

fn decode(dir: &Path, workers: usize) -> Result<Value> {
    let entries: Vec<_> = fs::read_dir(dir).with_context(|| dir.display().to_string())?.collect::<Result<_, _>>()?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build()?;
    let clock = Instant::now();
    let samples = pool.install(|| {
        entries
            .par_iter()
            .map(|entry| audio::decode(&entry.path()).map(|wave| wave.samples.len()))
            .sum::<Result<usize, _>>()
    })?;
    Ok(json!({ "seconds": clock.elapsed().as_secs_f64(), "clips": entries.len(), "samples": samples }))
}

/// `open_ms`: the cache alone. `first_batch_ms`: metadata, tokenizer, cache, plan of an epoch and its first batch.
fn open(config: &Path) -> Result<Value> {
    let config = Config::resolve(Some(config), Overrides::default())?;
    let stop = AtomicBool::new(false);

    let clock = Instant::now();
    let data = dataset::prepare(&config, dataset::KnownTokenizer::Nothing, &|_| (), &stop, &Hook::NONE)?;
    let options = LoaderOptions { seed: config.training.seed, ..Default::default() };
    let loader = Loader::start(data.train, data.budget, options)?;
    let batch = loader.next().context("no batch came")??;
    let first_batch_ms = milliseconds(clock);

    let mut figures = open_cache(&config)?;
    figures["first_batch_ms"] = json!(first_batch_ms);
    figures["batch_utterances"] = json!(batch.utterances());
    Ok(figures)
}

/// `metadata_ms`: rows of the metadata and names of recordings. `tokenizer_ms`: the tokenizer, remembered.
fn open_cache(config: &Config) -> Result<Value> {
    let path = config.data.dataset_path.as_deref().context("data.dataset_path is not set")?;
    let clock = Instant::now();
    let utterances = corpus::read(path, &corpus::ReadOptions::of(&config.data)?)?.utterances;
    let metadata_ms = milliseconds(clock);
    let clock = Instant::now();
    let (tokenizer, _) = cache::tokenizer(&utterances, config)?;
    let tokenizer_ms = milliseconds(clock);
    let clock = Instant::now();
    let (cache, report) = cache::open(&utterances, &tokenizer, config, &|_| (), &AtomicBool::new(false), &Hook::NONE)?;
    Ok(json!({
        "open_ms": milliseconds(clock),
        "metadata_ms": metadata_ms,
        "tokenizer_ms": tokenizer_ms,
        "clips": cache.len(),
        "built": report.built,
    }))
}

fn milliseconds(clock: Instant) -> f64 {
    clock.elapsed().as_secs_f64() * 1e3
}
