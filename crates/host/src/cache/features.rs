//! The sound of a clip as it is kept: samples or mel frames, in a shard or in memory.

use super::digest;
use super::settings::FeatureSettings;
use crate::audio::mel::{Extractor, MelScratch};
use crate::audio::{self, Resampler, Sample, WavView};
use arrow_buffer::{ScalarBuffer, ToByteSlice};
use half::f16;
use half::vec::HalfFloatVecExt;
use pulp::{Arch, Simd, WithSimd};
use std::path::Path;

/// 13 hours at 22 kHz. Beyond it a single clip would not fit the 32-bit offsets of a shard.
const MAX_SAMPLES: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClipAudio<'a> {
    /// 16-bit samples at the training rate.
    Pcm(&'a [i16]),
    /// Log-mel frames, `[1 + samples / hop, n_mels]`.
    Mel(&'a [f16]),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClipAudioBuf {
    Pcm(Vec<i16>),
    Mel(Vec<f16>),
}

impl<'a> ClipAudio<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        match *self {
            ClipAudio::Pcm(samples) => samples.to_byte_slice(),
            ClipAudio::Mel(frames) => frames.to_byte_slice(),
        }
    }

    pub(super) fn checksum(&self) -> u64 {
        digest::checksum(self.bytes())
    }
}

impl ClipAudioBuf {
    pub fn as_audio(&self) -> ClipAudio<'_> {
        match self {
            ClipAudioBuf::Pcm(samples) => ClipAudio::Pcm(samples),
            ClipAudioBuf::Mel(frames) => ClipAudio::Mel(frames),
        }
    }
}

/// The sound of a clip, which stays while this is held: a stretch of a mapped shard.
#[derive(Clone, Debug, PartialEq)]
pub enum ClipSound {
    Pcm(ScalarBuffer<i16>),
    Mel(ScalarBuffer<f16>),
}

impl ClipSound {
    pub fn as_audio(&self) -> ClipAudio<'_> {
        match self {
            ClipSound::Pcm(samples) => ClipAudio::Pcm(samples),
            ClipSound::Mel(frames) => ClipAudio::Mel(frames),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.as_audio().bytes()
    }
}

/// What is kept of a recording.
pub(super) struct Extracted {
    pub sound: ClipAudioBuf,
    /// Its length.
    pub samples: u32,
    pub checksum: u64,
}

/// What one clip leaves to the next.
#[derive(Default)]
pub(super) struct ExtractorBuffers {
    work: MelScratch,
    resampler: Resampler,
}

/// From a recording to what is kept of it; knows nothing of threads.
pub(super) struct FeatureExtractor<'a> {
    settings: &'a FeatureSettings,
    extractor: Option<Extractor>,
}

impl<'a> FeatureExtractor<'a> {
    pub(super) fn new(settings: &'a FeatureSettings) -> Self {
        let extractor = settings.mel.map(|mel| {
            Extractor::new(settings.rate_hz, mel.n_fft, mel.hop_samples, mel.n_mels, mel.f_min_hz, mel.f_max_hz)
        });
        FeatureExtractor { settings, extractor }
    }

    /// What is kept, or why there is nothing. `file` is what `path` holds, or nothing where that is too long to hold; a clip
    /// without a path lies in `file` alone, which may be gone afterwards.
    pub(super) fn make(
        &self,
        path: Option<&Path>,
        file: &mut Vec<u8>,
        tools: &mut ExtractorBuffers,
    ) -> Result<Extracted, String> {
        let (view, settings) = (WavView::of(file), self.settings);
        if let Some(WavView { rate_hz, samples }) = view
            && (rate_hz, None) == (settings.rate_hz, settings.loudness_lufs)
        {
            let heard = if settings.trim_silence { audio::speech(samples, rate_hz) } else { 0..samples.len() };
            return self.keep(&samples[heard], &mut tools.work);
        }
        // The fact alone: a failure names the file already, and its hint would be repeated for every clip.
        let wave = match (view, path) {
            (Some(view), _) => Ok(view.to_waveform()),
            (None, Some(path)) => audio::decode(path).map_err(|failed| failed.error),
            (None, None) => audio::decode_bytes(std::mem::take(file), f64::INFINITY).map(|(wave, _)| wave),
        };
        let FeatureSettings { rate_hz, trim_silence, loudness_lufs, .. } = *settings;
        let prepare = |wave| audio::prepare(wave, &mut tools.resampler, rate_hz, trim_silence, loudness_lufs);
        let wave = wave.and_then(prepare).map_err(|error| error.to_string())?;
        self.keep(&wave.samples, &mut tools.work)
    }

    fn keep<T: Sample>(&self, samples: &[T], work: &mut MelScratch) -> Result<Extracted, String> {
        let count = match samples.len() {
            0 => return Err("no samples".into()),
            count @ 1..=MAX_SAMPLES => count as u32,
            many => return Err(format!("{many} samples, more than the {MAX_SAMPLES} a clip may have")),
        };
        let sound = match &self.extractor {
            None => ClipAudioBuf::Pcm(Arch::new().dispatch(Quantise(samples))),
            Some(extractor) => ClipAudioBuf::Mel(Vec::from_f32_slice(extractor.log_mel(samples, work))),
        };
        let checksum = sound.as_audio().checksum();
        Ok(Extracted { sound, samples: count, checksum })
    }
}

struct Quantise<'a, T>(&'a [T]);

impl<T: Sample> WithSimd for Quantise<'_, T> {
    type Output = Vec<i16>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<i16> {
        let mut quantised = vec![0; self.0.len()];
        for (out, sample) in quantised.iter_mut().zip(self.0) {
            *out = sample.to_i16();
        }
        quantised
    }
}
