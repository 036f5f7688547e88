//! The training pipeline made ready to be measured: what every command needs that runs it and saves nothing.

use super::stop_flag;
use crate::feed::{Caps, Roles};
use crate::run::{RunContext, choose_kernels, delaying};
use anyhow::Result;
use cli::flags::RunFlags;
use cli::{progress, say};
use host::config::{Config, Overrides};
use host::dataset::{self, KnownTokenizer, TrainingData};
use host::simulate::{Delays, Hook};
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
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
    pub fn prepare(run: &RunFlags, delays: Delays) -> Result<Self> {
        Self::with_config(run.resolve(Overrides::default())?, delays)
    }

    pub fn with_config(config: Config, delays: Delays) -> Result<Self> {
        let began = Instant::now();
        choose_kernels(&config.training)?;
        let stop = stop_flag()?;
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
