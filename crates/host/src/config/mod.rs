//! Settings of a run. Three layers, later ones winning: presets (chosen by `model.size` and
//! `training.optimization_level`), the YAML file, the command line. The result holds a concrete value for every key.

mod accept;
mod byte_size;
mod check;
mod data;
pub mod devices;
mod error;
mod flags;
mod keys;
mod layer;
mod memory_cap;
mod model;
mod recipe;
mod reference;
mod section;
pub mod speaking;
mod training;
mod yaml;

pub use byte_size::ByteSize;
pub(crate) use data::is_language;
pub use data::{CacheContent, CorpusFormat, Data, Durations, LongClips, MaxFailures, TokenizerKind};
pub use error::{Error, Origin, Wrong};
pub use flags::Overrides;
pub use memory_cap::MemoryCap;
pub use model::{GAP, Model, Size};
pub use recipe::{Recipe, RunFacts, Start};
pub use reference::{defaults, reference};
pub use training::{
    AllReducePrecision, Collectives, DataDevice, GpuList, LogEvery, OptimizationLevel, Precision, Schedule, Training,
};

use layer::Layer;
use serde::Serialize;
use std::path::Path;

/// The settings of a run: a value for every key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    pub model: Model,
    pub training: Training,
    pub data: Data,
}

impl Default for Config {
    /// The presets alone.
    fn default() -> Self {
        Self::from(&Layer::default())
    }
}

impl From<&Layer> for Config {
    fn from(given: &Layer) -> Self {
        Config { model: Model::resolve(given), training: Training::resolve(given), data: Data::resolve(given) }
    }
}

impl Config {
    /// Whether both make the same mel frames.
    pub fn has_frames_of(&self, other: &Config) -> bool {
        let frames = |Config { model, data, .. }: &Config| {
            (data.sample_rate, model.n_mels, model.n_fft, model.hop_length, model.f_min, model.f_max)
        };
        frames(self) == frames(other)
    }

    /// Presets, file and flags together, or the first thing that is wrong with them.
    pub fn resolve(file: Option<&Path>, flags: Overrides) -> Result<Self, Error> {
        Self::resolve_or_list(file, flags).map_err(first)
    }

    /// Presets, file and flags together, or everything that is wrong with them: at least one thing.
    pub fn resolve_or_list(file: Option<&Path>, flags: Overrides) -> Result<Self, Vec<Error>> {
        let mut wrong = Vec::new();
        let mut given = file.map(|file| Layer::read(file, &mut wrong)).unwrap_or_default();
        match flags.into_layer() {
            Ok(above) => given.overlay(above),
            Err(error) => wrong.push(error),
        }
        Self::build(&given, wrong)
    }

    /// Reads what `to_yaml` wrote. A key that this version has and the writing one had not gets its preset.
    pub fn load_resolved(path: &Path) -> Result<Self, Error> {
        Self::resolve(Some(path), Overrides::default())
    }

    /// This config without augmentation: held-out speech is taken as it is.
    pub fn without_augmentation(&self) -> Config {
        let mut config = self.clone();
        config.data.without_augmentation();
        config
    }

    /// Every key with its value; loads again to an equal config.
    pub fn to_yaml(&self) -> String {
        // Fails only for paths that are not UTF-8, and those are refused when a config is resolved.
        serde_saphyr::to_string(self).expect("a resolved config is plain text")
    }

    /// Presets and the text of a file; `path` is for messages only.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let mut wrong = Vec::new();
        let given = Layer::parse(text, path, &mut wrong);
        Self::build(&given, wrong).map_err(first)
    }

    /// `wrong`: what was found so far.
    fn build(given: &Layer, mut wrong: Vec<Error>) -> Result<Self, Vec<Error>> {
        let config = Self::from(given);
        wrong.extend(check::contradictions(&config, given));
        if wrong.is_empty() { Ok(config) } else { Err(wrong) }
    }
}

fn first(wrong: Vec<Error>) -> Error {
    wrong.into_iter().next().expect("a list of errors is not empty")
}

#[cfg(test)]
mod tests;
