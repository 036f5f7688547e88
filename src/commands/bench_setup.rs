//! The training pipeline made ready to be measured: what every command needs that runs it and saves nothing.

use super::stop_flag;
use crate::feed::{Caps, Roles};
use crate::run::{RunContext, choose_kernels, delaying};
use anyhow::Result;
use cli::flags::PipelineFlags;
use cli::{progress, say};
use host::cache;
use host::config::{Config, Overrides};
use host::dataset::{self, KnownTokenizer, TrainingData};
use host::simulate::{Delays, Hook};
use host::telemetry::gpu_processes::remember_processes;
use host::tools::sample_corpus::{self, SampleCorpusOptions};
use indicatif::ProgressBar;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub struct BenchSetup {
    pub config: Config,
    pub data: TrainingData,
    pub roles: Roles,
    pub caps: Caps,
    pub bar: ProgressBar,
    pub stop: Arc<AtomicBool>,
    began: Instant,
    hook: Hook,
}

impl BenchSetup {
    /// Reads the corpus and opens its cache, building what is missing.
    pub fn prepare(run: &PipelineFlags, delays: Delays) -> Result<Self> {
        Self::with_config(run.resolve(Overrides::default())?, delays)
    }

    pub fn with_config(config: Config, delays: Delays) -> Result<Self> {
        let began = Instant::now();
        choose_kernels(&config.training)?;
        let config = with_some_corpus(config)?;
        let stop = stop_flag()?;
        remember_processes();
        let roles = Roles::resolve(&config.training)?;
        let caps = Caps::apply(&config.training, roles)?;
        let hook = delaying(delays, roles.model)?;
        let bar = progress::bar(0, "preparing");
        let data = dataset::prepare(&config, KnownTokenizer::Nothing, &progress::of_cache(&bar), &stop, &hook);
        bar.finish_and_clear();
        let data = data?;
        data.notes.iter().for_each(|note| say(format!("note: {note}")));
        if config.training.local_ranks() > 1 {
            say("note: one rank is measured, alone; `myxtts bench scale` measures them together");
        }
        if delays != Delays::default() {
            say(format!("note: slowed down on purpose: {delays}"));
        }
        Ok(BenchSetup { config, data, roles, caps, bar: progress::bar(0, "measuring"), stop, began, hook })
    }

    pub fn context(&self) -> RunContext<'_> {
        let BenchSetup { config, data, roles, caps, bar, stop, began, hook } = self;
        RunContext { hook, ..RunContext::new(config, data, (*roles, *caps), bar, stop, *began) }
    }
}

/// The config, with a small corpus where it names none: what is measured on it is this machine.
pub fn with_some_corpus(mut config: Config) -> Result<Config> {
    if config.data.dataset_path.is_some() {
        return Ok(config);
    }
    let dir = cache::default_dir().with_file_name("sample-corpus");
    let options = SampleCorpusOptions { rate_hz: config.data.sample_rate.min(48_000), ..Default::default() };
    let SampleCorpusOptions { clips, .. } = options;
    let what = if sample_corpus::is_written(&dir, &options)? { "taking" } else { "making" };
    let (path, stop) = (dir.display(), stop_flag()?);
    say(format!(
        "note: no corpus was named: {what} a small one of {clips} clips, {path}; --train-data DIR names yours"
    ));
    sample_corpus::write(&dir, &options, &|_| match stop.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    config.data.dataset_path = Some(dir);
    Ok(config)
}
