//! What commands stand on that run the pipeline without training: devices, caps, and a corpus with its cache.

use super::{progress, say};
use crate::config::Config;
use crate::feed::{Caps, Roles};
use crate::simulate::Delays;
use crate::train::{self, Known, Prepared, Surroundings};
use anyhow::Result;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub struct Ground {
    pub config: Config,
    pub data: Prepared,
    roles: Roles,
    caps: Caps,
    delays: Delays,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    began: Instant,
}

impl Ground {
    /// Builds what the cache lacks.
    pub fn prepare(config: Config, delays: Delays) -> Result<Self> {
        let began = Instant::now();
        let stop = progress::stop_flag()?;
        let roles = Roles::resolve(&config.training)?;
        let caps = Caps::apply(&config.training, roles)?;
        let bar = progress::bar(0, "preparing");
        let data = train::prepare_slowed(&config, Known::Nothing, &progress::of_cache(&bar), &stop, delays);
        bar.finish_and_clear();
        let data = data?;
        data.notes.iter().for_each(|note| say(format!("note: {note}")));
        let bar = ProgressBar::hidden();
        Ok(Ground { config, data, roles, caps, delays, bar, stop, began })
    }

    pub fn around(&self) -> Surroundings<'_> {
        let Ground { config, data, roles, caps, delays, bar, stop, began } = self;
        Surroundings { config, data, roles: *roles, caps: *caps, bar, stop, began: *began, delays: *delays }
    }
}
