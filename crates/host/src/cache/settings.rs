//! What cached sound depends on besides the recording: the folder it lies in is named after it.

use super::digest::Digest;
use crate::config::{CacheContent, Config};
use serde::{Deserialize, Serialize};

/// Raised whenever the same inputs would give other bytes: a new column, a better resampler.
pub(super) const FORMAT: u32 = 3;

/// Every setting that changes the sound. Hashed as the JSON that it serialises to, so a new field cannot be forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureSettings {
    pub format: u32,
    pub rate_hz: u32,
    pub trim_silence: bool,
    /// None leaves the level as recorded.
    pub loudness_lufs: Option<f64>,
    /// None keeps 16-bit samples.
    pub mel: Option<MelSettings>,
}

/// How mel frames are made of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MelSettings {
    pub n_fft: usize,
    pub hop_samples: usize,
    pub n_mels: usize,
    pub f_min_hz: f64,
    pub f_max_hz: f64,
}

/// How long sound is, in samples, frames and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct AudioForm {
    pub hop_samples: usize,
    /// None keeps samples.
    pub n_mels: Option<usize>,
}

impl AudioForm {
    pub fn new(config: &Config) -> Self {
        let n_mels = FeatureSettings::new(config).mel.map(|mel| mel.n_mels);
        AudioForm { hop_samples: config.model.hop_length as usize, n_mels }
    }

    /// One at each hop from the first sample to the last (`librosa` with `center=True`).
    pub fn frames(&self, samples: usize) -> usize {
        samples / self.hop_samples + 1
    }

    /// What is kept of so many samples.
    pub fn values(&self, samples: usize) -> usize {
        self.n_mels.map_or(samples, |n_mels| n_mels * self.frames(samples))
    }
}

impl FeatureSettings {
    pub fn new(config: &Config) -> Self {
        let (data, model) = (&config.data, &config.model);
        let mel = MelSettings {
            n_fft: model.n_fft as usize,
            hop_samples: model.hop_length as usize,
            n_mels: model.n_mels as usize,
            f_min_hz: model.f_min,
            f_max_hz: model.f_max.unwrap_or(f64::from(data.sample_rate) / 2.0),
        };
        FeatureSettings {
            format: FORMAT,
            rate_hz: data.sample_rate,
            trim_silence: data.trim_silence,
            loudness_lufs: data.loudness(),
            mel: (data.cache_content == CacheContent::Mel).then_some(mel),
        }
    }

    /// Name of the folder that holds sound made with these settings.
    pub(super) fn folder(&self) -> String {
        Digest::of(self.json().as_bytes()).hex()[..16].to_owned()
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and switches")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_changes_the_sound_changes_the_folder() {
        let changes: [fn(&mut Config); 11] = [
            |_| (),
            |c| c.data.sample_rate = 24_000,
            |c| c.data.trim_silence = false,
            |c| c.data.normalize_audio = false,
            |c| c.data.loudness_lufs = -16.0,
            |c| c.data.cache_content = CacheContent::Mel,
            |c| (c.data.cache_content, c.model.n_fft) = (CacheContent::Mel, 2048),
            |c| (c.data.cache_content, c.model.hop_length) = (CacheContent::Mel, 128),
            |c| (c.data.cache_content, c.model.n_mels) = (CacheContent::Mel, 100),
            |c| (c.data.cache_content, c.model.f_min) = (CacheContent::Mel, 50.0),
            |c| (c.data.cache_content, c.model.f_max) = (CacheContent::Mel, Some(8_000.0)),
        ];
        let folder = |change: &fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            FeatureSettings::new(&config).folder()
        };
        let folders: std::collections::BTreeSet<_> = changes.iter().map(folder).collect();
        assert_eq!(folders.len(), changes.len());
        let mel_only: fn(&mut Config) = |c| c.model.n_mels = 100;
        assert_eq!(folder(&mel_only), folder(&changes[0]), "samples do not depend on the mel geometry");
    }
}
