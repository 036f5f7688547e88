//! The training pipeline made ready to be measured: what every command needs that runs it and saves nothing.

use super::stop_flag;
use crate::feed::{Caps, Roles};
use crate::run::RunContext;
use anyhow::Result;
use cli::flags::RunFlags;
use cli::{progress, say};
use host::config::{Config, Overrides};
use host::dataset::{self, Known, Prepared};
use host::simulate::Delays;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub struct BenchSetup {
    pub config: Config,
    pub data: Prepared,
    pub roles: Roles,
    pub caps: Caps,
    pub bar: ProgressBar,
    pub stop: Arc<AtomicBool>,
    began: Instant,
    delays: Delays,
}

impl BenchSetup {
    /// Reads the corpus and opens its cache, building what is missing.
    pub fn prepare(run: &RunFlags, delays: Delays) -> Result<Self> {
        Self::with_config(run.resolve(Overrides::default())?, delays)
    }

    pub fn with_config(config: Config, delays: Delays) -> Result<Self> {
        let began = Instant::now();
        let stop = stop_flag()?;
        let roles = Roles::resolve(&config.training)?;
        let caps = Caps::apply(&config.training, roles)?;
        let bar = progress::bar(0, "preparing");
        let data = dataset::prepare_slowed(&config, Known::Nothing, &progress::of_cache(&bar), &stop, delays);
        bar.finish_and_clear();
        let data = data?;
        data.notes.iter().for_each(|note| say(format!("note: {note}")));
        if delays != Delays::default() {
            say(format!("note: slowed down on purpose: {delays}"));
        }
        Ok(BenchSetup { config, data, roles, caps, bar: progress::bar(0, "measuring"), stop, began, delays })
    }

    pub fn context(&self) -> RunContext<'_> {
        let BenchSetup { config, data, roles, caps, bar, stop, began, delays } = self;
        RunContext { config, data, roles: *roles, caps: *caps, bar, stop, began: *began, delays: *delays }
    }
}
