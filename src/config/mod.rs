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
mod training;
mod yaml;

pub(crate) use accept::is_language;
pub use data::{CacheContent, CorpusFormat, Data, Durations, LongClips, MaxFailures, TokenizerKind};
pub use error::{Error, Origin};
pub use flags::Overrides;
pub use model::{Model, Size, VOICE_HEAD_CHANNELS};
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
        let mut given = file.map(Layer::read).transpose()?.unwrap_or_default();
        given.overlay(flags.into_layer()?);
        Self::build(&given)
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
        Self::build(&Layer::parse(text, path)?)
    }

    fn build(given: &Layer) -> Result<Self, Error> {
        let mut tree = serde_json::to_value(preset::choose(given))?;
        for (section, table) in keys::SECTIONS {
            for key in table {
                if let Some(value) = given.value(key.name) {
                    tree[section][key.name] = value.clone();
                }
            }
        }
        let config = serde_json::from_value(tree)?;
        check::consistent(&config, given)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
