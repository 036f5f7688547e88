//! The sound of a clip as it is kept: samples or mel frames, in a shard or in memory.

use super::settings::Settings;
use crate::audio::{self, Waveform, mel::Extractor};
use arrow_buffer::ToByteSlice;
use half::f16;
use std::path::Path;

/// 13 hours at 22 kHz. Beyond it a single clip would not fit the 32-bit offsets of a shard.
const MAX_SAMPLES: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sound<'a> {
    /// 16-bit samples at the training rate.
    Pcm(&'a [i16]),
    /// Log-mel frames, `[1 + samples / hop, n_mels]`.
    Mel(&'a [f16]),
}

#[derive(Clone, Debug, PartialEq)]
pub enum SoundBuf {
    Pcm(Vec<i16>),
    Mel(Vec<f16>),
}

impl<'a> Sound<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        match *self {
            Sound::Pcm(samples) => samples.to_byte_slice(),
            Sound::Mel(frames) => frames.to_byte_slice(),
        }
    }

    /// Finds every accident; it need not resist an attacker, who could write the checksum too.
    pub(super) fn checksum(&self) -> u64 {
        let digest = blake3::hash(self.bytes());
        digest.as_bytes().first_chunk().copied().map_or(0, u64::from_le_bytes)
    }
}

impl SoundBuf {
    pub fn as_sound(&self) -> Sound<'_> {
        match self {
            SoundBuf::Pcm(samples) => Sound::Pcm(samples),
            SoundBuf::Mel(frames) => Sound::Mel(frames),
        }
    }
}

/// From a recording to what is kept of it; knows nothing of threads.
pub(super) struct Maker<'a> {
    settings: &'a Settings,
    extractor: Option<Extractor>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let extractor = settings.mel.map(|mel| {
            Extractor::new(settings.rate_hz, mel.n_fft, mel.hop_samples, mel.n_mels, mel.f_min_hz, mel.f_max_hz)
        });
        Maker { settings, extractor }
    }

    /// The sound and its length in samples, or why there is none.
    pub(super) fn make(&self, path: &Path) -> Result<(SoundBuf, u32), String> {
        let Settings { rate_hz, trim_silence, loudness_lufs, .. } = *self.settings;
        let wave = audio::prepare(path, rate_hz, trim_silence, loudness_lufs).map_err(|error| reason(path, &error))?;
        match wave.samples.len() {
            0 => Err("no samples".into()),
            count @ 1..=MAX_SAMPLES => Ok((self.keep(&wave), count as u32)),
            many => Err(format!("{many} samples, more than the {MAX_SAMPLES} a clip may have")),
        }
    }

    fn keep(&self, wave: &Waveform) -> SoundBuf {
        match &self.extractor {
            None => SoundBuf::Pcm(wave.samples.iter().map(|x| (x.clamp(-1.0, 1.0) * 32767.0).round() as i16).collect()),
            Some(extractor) => {
                SoundBuf::Mel(extractor.log_mel(&wave.samples).iter().map(|&value| f16::from_f32(value)).collect())
            }
        }
    }
}

/// The fact alone: a failure names the file already, and its hint would be repeated for every clip.
fn reason(path: &Path, error: &audio::Error) -> String {
    let text = error.to_string();
    let fact = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text);
    fact.lines().next().unwrap_or_default().to_owned()
}
