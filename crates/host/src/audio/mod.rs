//! Recordings as numbers: any file to mono samples, the rate and level a voice is trained at, and back to files.

pub mod cepstra;
mod codec;
mod decode;
mod encoder;
mod error;
mod flac;
mod loudness;
pub mod mel;
mod mono;
mod mp3;
mod ogg_opus;
mod opus;
mod pcm;
pub mod pitch;
pub mod reference;
mod resample;
mod sample;
mod simd_fft;
#[cfg(test)]
mod tests;
mod trim;
mod wav;
mod wav_view;
mod writer;

pub use decode::{decode, decode_bytes, decode_start};
pub use encoder::{AudioFormat, Encoder};
pub use error::{Error, FileError};
pub(crate) use loudness::normalize;
pub use resample::Resampler;
use resample::StreamResampler;
pub(crate) use resample::resample;
pub use sample::Sample;
pub(crate) use trim::speech;
pub use trim::trim_silence;
pub use wav::wav_bytes;
pub(crate) use wav_view::WavView;
pub use writer::{AudioFileWriter, write_wav};

use std::ops::RangeInclusive;

/// Rates that a recording may have. Outside them a header is wrong, and the resampler's tables would grow without end.
const RATES_HZ: RangeInclusive<u32> = 1_000..=768_000;

/// Mono samples in -1..1, and their rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    pub samples: Vec<f32>,
    pub rate_hz: u32,
}

/// Makes a recording what a voice is trained on: its rate, its silent edges and its loudness; `loudness_lufs: None`
/// leaves its level alone.
pub fn prepare(
    wave: Waveform,
    resampler: &mut Resampler,
    rate_hz: u32,
    trim: bool,
    loudness_lufs: Option<f64>,
) -> Result<Waveform, Error> {
    let wave = resampler.resample(wave, rate_hz)?;
    let wave = if trim { trim_silence(wave) } else { wave };
    Ok(match loudness_lufs {
        Some(target) => normalize(wave, target),
        None => wave,
    })
}

/// The largest sample, of either sign.
fn peak(samples: &[f32]) -> f32 {
    samples.iter().fold(0.0, |peak: f32, sample| peak.max(sample.abs()))
}
