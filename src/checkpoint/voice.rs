//! Voices by example: recordings to latents, and files that keep them.

use crate::feed::{MelExtractor, MelStats};
use crate::model::Voice;
use anyhow::{Context, Result, anyhow, ensure};
use host::audio::{self, Waveform};
use host::config::Config;
use host::error::hinted;
use std::fs::File;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};

/// The voice that a checkpoint speaks with where none is asked for.
pub const FILE: &str = "voice.safetensors";
const LATENTS: &str = "latents";
const MODEL: &str = "model";
const SECONDS: &str = "seconds";
/// Seconds of one recording that are listened to: a voice is known long before, and memory is bounded.
const MOST_HEARD_S: f64 = 180.0;
/// No sample of a silent recording is further from 0: -60 dB of full scale.
const SILENCE: f32 = 1e-3;
/// Less speech than this says nothing about a voice; below the second, a voice comes out that is only roughly like it.
const LEAST_HEARD_S: f64 = 0.3;
const ENOUGH_HEARD_S: f64 = 2.0;

/// Latents of one speaker, and which weights they belong to: others would hear noise in them.
pub struct VoiceFile {
    /// `[1, voice_latents, voice_dim]`, f32.
    pub latents: Tensor,
    pub model: blake3::Hash,
    /// Seconds of the recordings that it was made from, where that is known.
    pub seconds: Option<f64>,
}

/// A voice as recordings gave it.
#[derive(Debug)]
pub struct Heard {
    /// `[1, voice_latents, voice_dim]`, f32.
    pub latents: Tensor,
    /// Seconds of recordings that were listened to.
    pub seconds: f64,
    pub notes: Vec<String>,
}

impl VoiceFile {
    /// Fails where it was made with other weights than `model`.
    pub fn belongs_to(&self, model: blake3::Hash, path: &Path) -> Result<()> {
        if self.model == model {
            return Ok(());
        }
        let (path, own, model) = (path.display(), short(self.model), short(model));
        let fact = format!("{path}: a voice of model {own}, and this model is {model}");
        Err(hinted(fact, "make it again from recordings with `myxtts voice make`"))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let damaged = || {
            let fact = format!("{}: not a voice file, or damaged", path.display());
            hinted(fact, "make it again from recordings")
        };
        ensure!(path.exists(), "{}: no such file", path.display());
        let mut tensors = Tensor::read_safetensors(path).map_err(|_| damaged())?;
        let mut take = |name: &str| {
            let at = tensors.iter().position(|(other, _)| other == name).ok_or_else(damaged)?;
            anyhow::Ok(tensors.swap_remove(at).1)
        };
        let (latents, model) = (take(LATENTS)?, take(MODEL)?);
        let seconds =
            take(SECONDS).ok().filter(|seconds| seconds.numel() == 1).map(|seconds| seconds.double_value(&[0]));
        let sound = latents.dim() == 3 && latents.size()[0] == 1 && latents.isfinite().all().int64_value(&[]) == 1;
        if !sound || model.size() != [32] || model.kind() != Kind::Uint8 {
            return Err(damaged());
        }
        let bytes: Vec<u8> = Vec::try_from(model)?;
        Ok(VoiceFile { latents, model: blake3::Hash::from_slice(&bytes)?, seconds })
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let latents = self.latents.to_device(Device::Cpu).to_kind(Kind::Float).contiguous();
        let model = Tensor::from_slice(self.model.as_bytes());
        let seconds = self.seconds.map(|seconds| Tensor::from_slice(&[seconds]));
        let mut tensors = vec![(LATENTS, &latents), (MODEL, &model)];
        tensors.extend(seconds.as_ref().map(|seconds| (SECONDS, seconds)));
        let written = Tensor::write_safetensors(&tensors, path);
        written.map_err(|error| anyhow!("{}: cannot be written: {error}", path.display()))
    }

    /// Between two voices of one model: 0 is this one, 1 the other.
    pub fn mixed(&self, other: &VoiceFile, weight: f64) -> Self {
        let latents = &self.latents * (1.0 - weight) + &other.latents * weight;
        VoiceFile { latents, model: self.model, seconds: None }
    }
}

/// A model's name as people read it.
pub fn short(model: blake3::Hash) -> String {
    model.to_hex()[..12].to_owned()
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
    pub fn hear(&self, recordings: &[PathBuf]) -> Result<Heard> {
        ensure!(!recordings.is_empty(), "no recording to take the voice from");
        let (mut each, mut seconds, mut notes) = (Vec::new(), 0.0, Vec::new());
        for path in recordings {
            let (wave, cut) = audio::decode_start(path, MOST_HEARD_S)?;
            let (latents, heard_s) = self.hear_wave(wave).with_context(|| path.display().to_string())?;
            if cut {
                notes.push(format!(
                    "{}: only its first {} minutes are listened to",
                    path.display(),
                    MOST_HEARD_S / 60.0
                ));
            }
            each.push(latents);
            seconds += heard_s;
        }
        if seconds < ENOUGH_HEARD_S {
            notes.push(format!("{seconds:.1} s of speech say little about a voice; some seconds more would help"));
        }
        Ok(Heard { latents: average(&Tensor::cat(&each, 0)), seconds, notes })
    }

    /// Latents, and seconds of speech.
    pub fn hear_wave(&self, wave: Waveform) -> Result<(Tensor, f64)> {
        let data = &self.config.data;
        let loud = |sample: &f32| sample.abs() > SILENCE;
        ensure!(wave.samples.iter().any(loud), "silence, so there is no voice in it");
        let mut resampler = audio::Resampler::default();
        let wave = audio::prepare(wave, &mut resampler, data.sample_rate, data.trim_silence, data.loudness())?;
        let seconds = wave.samples.len() as f64 / f64::from(wave.rate_hz);
        if seconds < LEAST_HEARD_S {
            let fact = format!("{seconds:.2} s of sound, too short to hear a voice in it");
            return Err(hinted(fact, "some seconds of speech, any words"));
        }
        let mel = self.extractor.log_mel(&Tensor::from_slice(&wave.samples).to_device(self.device));
        let mel = self.stats.apply(&mel);
        let latents = self.voice.latents(&windows(&mel, self.config.model.reference_frames));
        let latents =
            latents.context("this voice was trained without references, so it cannot take another's sound")?;
        Ok((average(&latents), seconds))
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
            seconds: Some(3.5),
        };
        voice.write(&path).unwrap();
        let read = VoiceFile::read(&path).unwrap();
        let other = read.belongs_to(blake3::hash(b"others"), &path).unwrap_err().to_string();
        assert!(read.belongs_to(voice.model, &path).is_ok() && other.contains(&short(voice.model)), "{other}");
        assert_eq!((read.latents, read.model, read.seconds), (voice.latents, voice.model, voice.seconds));
        std::fs::write(&path, b"noise").unwrap();
        assert!(VoiceFile::read(&path).err().unwrap().to_string().contains("not a voice file"));
    }
}
