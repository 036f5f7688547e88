//! Settings of a run. Three layers, later ones winning: presets (chosen by `model.size` and
//! `training.optimization_level`), the YAML file, the command line. The result holds a concrete value for every key.

mod accept;
mod check;
mod data;
mod error;
mod flags;
mod keys;
mod layer;
mod model;
mod preset;
mod reference;
mod training;
mod yaml;

pub(crate) use accept::is_language;
pub use data::{CacheContent, CorpusFormat, Data, Durations, LongClips, MaxFailures, TokenizerKind, cores};
pub use error::{Error, Origin};
pub use flags::Overrides;
pub use model::{Model, Size};
pub use reference::reference;
pub use training::{DataDevice, OptimizationLevel, Precision, Schedule, Training};

use layer::Layer;
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub model: Model,
    pub training: Training,
    pub data: Data,
}

impl Default for Config {
    /// The presets alone.
    fn default() -> Self {
        preset::choose(&Layer::default())
    }
}

impl Config {
    pub fn resolve(file: Option<&Path>, flags: Overrides) -> Result<Self, Error> {
        Self::resolve_or_list(file, flags).map_err(first)
    }

    /// The same, with everything that is wrong in the error: at least one thing.
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

    /// The same without augmentation: held-out speech is taken as it is.
    pub fn unchanged(&self) -> Config {
        let mut config = self.clone();
        let data = &mut config.data;
        (data.augment_noise_snr_db, data.augment_speed, data.augment_pitch_semitones) = (None, 0.0, 0.0);
        config
    }

    /// Every key with its value; loads again to an equal config.
    pub fn to_yaml(&self) -> String {
        // Fails only for paths that are not UTF-8, and those are refused when a config is resolved.
        serde_saphyr::to_string(self).expect("a resolved config is plain text")
    }

    #[cfg(test)]
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let mut wrong = Vec::new();
        let given = Layer::parse(text, path, &mut wrong);
        Self::build(&given, wrong).map_err(first)
    }

    /// `wrong`: what was found so far.
    fn build(given: &Layer, mut wrong: Vec<Error>) -> Result<Self, Vec<Error>> {
        let config = Self::tree(given).map_err(|error| vec![error])?;
        wrong.extend(check::contradictions(&config, given));
        if wrong.is_empty() { Ok(config) } else { Err(wrong) }
    }

    fn tree(given: &Layer) -> Result<Self, Error> {
        let mut tree = serde_json::to_value(preset::choose(given))?;
        for (section, table) in keys::SECTIONS {
            for key in table {
                if let Some(value) = given.value(key.name) {
                    tree[section][key.name] = value.clone();
                }
            }
        }
        Ok(serde_json::from_value(tree)?)
    }
}

fn first(wrong: Vec<Error>) -> Error {
    wrong.into_iter().next().expect("a list of errors is not empty")
}

#[cfg(test)]
mod tests;
