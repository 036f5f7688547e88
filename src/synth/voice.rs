//! Voices by example: recordings to latents, and files that keep them.

use crate::audio;
use crate::config::Config;
use crate::feed::{MelExtractor, MelStats};
use crate::model::Voice;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};

/// The voice that a checkpoint speaks with where none is asked for.
pub const FILE: &str = "voice.safetensors";
const LATENTS: &str = "latents";
const MODEL: &str = "model";

/// Latents of one speaker, and which weights they belong to: others would hear noise in them.
pub struct VoiceFile {
    /// `[1, voice_latents, voice_dim]`, f32.
    pub latents: Tensor,
    pub model: blake3::Hash,
}

impl VoiceFile {
    pub fn read(path: &Path) -> Result<Self> {
        let damaged =
            || format!("{}: not a voice file, or damaged\nhint: make it again from recordings", path.display());
        ensure!(path.exists(), "{}: no such file", path.display());
        let mut tensors = Tensor::read_safetensors(path).map_err(|_| anyhow!(damaged()))?;
        let mut take = |name: &str| {
            let at = tensors.iter().position(|(other, _)| other == name).with_context(damaged)?;
            anyhow::Ok(tensors.swap_remove(at).1)
        };
        let (latents, model) = (take(LATENTS)?, take(MODEL)?);
        let sound = latents.dim() == 3 && latents.isfinite().all().int64_value(&[]) == 1 && model.size() == [32];
        ensure!(sound, damaged());
        let bytes: Vec<u8> = Vec::try_from(model)?;
        Ok(VoiceFile { latents, model: blake3::Hash::from_slice(&bytes)? })
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let latents = self.latents.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
        let model = Tensor::from_slice(self.model.as_bytes());
        let written = Tensor::write_safetensors(&[(LATENTS, &latents), (MODEL, &model)], path);
        written.map_err(|error| anyhow!("{}: cannot be written: {error}", path.display()))
    }
}

/// What a voice file names its model by.
pub fn fingerprint(weights: &Path) -> Result<blake3::Hash> {
    let unread = || format!("{}: cannot be read", weights.display());
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(weights).with_context(unread)?).with_context(unread)?;
    Ok(hasher.finalize())
}

/// The mean of several latents, `[n, voice_latents, voice_dim]` → `[1, …]`.
pub fn average(latents: &Tensor) -> Tensor {
    latents.mean_dim([0i64].as_slice(), true, Kind::Float)
}

/// Makes latents of recordings as the corpus was made: the same rate, trimming, loudness and mel frames.
pub struct Listener<'a> {
    voice: &'a Voice,
    config: &'a Config,
    stats: MelStats,
    extractor: MelExtractor,
    device: Device,
}

impl<'a> Listener<'a> {
    pub fn new(voice: &'a Voice, config: &'a Config, stats: MelStats, device: Device) -> Self {
        let extractor = MelExtractor::new(&config.model, config.data.sample_rate, device);
        Listener { voice, config, stats, extractor, device }
    }

    /// One voice from all recordings, each counting the same.
    pub fn hear(&self, recordings: &[PathBuf]) -> Result<Tensor> {
        let each: Vec<Tensor> = recordings.iter().map(|path| self.hear_one(path)).collect::<Result<_>>()?;
        ensure!(!each.is_empty(), "no recording to take the voice from");
        Ok(average(&Tensor::cat(&each, 0)))
    }

    fn hear_one(&self, recording: &Path) -> Result<Tensor> {
        let data = &self.config.data;
        let loudness = data.normalize_audio.then_some(data.loudness_lufs);
        let (wave, mut resampler) = (audio::decode(recording)?, audio::Resampler::default());
        let wave = audio::prepare(wave, &mut resampler, data.sample_rate, data.trim_silence, loudness)?;
        let hop = self.config.model.hop_length as usize;
        ensure!(wave.samples.len() >= hop, "{}: too short to hear a voice in it", recording.display());
        let mel = self.extractor.log_mel(&Tensor::from_slice(&wave.samples).to_device(self.device));
        let mel = self.stats.apply(&mel);
        let latents = self.voice.latents(&windows(&mel, self.config.model.reference_frames));
        Ok(average(&latents.context("this voice was trained without references, so it cannot take another's sound")?))
    }
}

/// Slices of `width` frames that cover the recording, `[n, width, n_mels]`; a short one is repeated.
fn windows(mel: &Tensor, width: i64) -> Tensor {
    let frames = mel.size()[0];
    let count = (frames + width - 1) / width;
    let first = |window: i64| if count > 1 { window * (frames - width) / (count - 1) } else { 0 };
    let index: Vec<i64> =
        (0..count).flat_map(|window| (0..width).map(move |at| (first(window) + at) % frames)).collect();
    mel.index_select(0, &Tensor::from_slice(&index).to_device(mel.device())).view([count, width, -1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_a_recording_and_repeat_a_short_one() {
        let ramp = |frames: i64| Tensor::arange(frames, (Kind::Float, Device::Cpu)).unsqueeze(1);
        let rows = |mel: &Tensor| -> Vec<Vec<f32>> { Vec::try_from(windows(mel, 4).squeeze_dim(2)).unwrap() };
        assert_eq!(rows(&ramp(3)), [[0.0, 1.0, 2.0, 0.0]]);
        assert_eq!(rows(&ramp(4)), [[0.0, 1.0, 2.0, 3.0]]);
        assert_eq!(rows(&ramp(9)), [[0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0], [5.0, 6.0, 7.0, 8.0]]);
    }

    #[test]
    fn a_voice_file_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let voice = VoiceFile {
            latents: Tensor::randn([1, 3, 4], (Kind::Float, Device::Cpu)),
            model: blake3::hash(b"weights"),
        };
        voice.write(&path).unwrap();
        let read = VoiceFile::read(&path).unwrap();
        assert_eq!((read.latents, read.model), (voice.latents, voice.model));
        std::fs::write(&path, b"noise").unwrap();
        assert!(VoiceFile::read(&path).err().unwrap().to_string().contains("not a voice file"));
    }
}
