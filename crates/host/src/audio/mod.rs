//! Recordings as numbers: any file to mono samples, the rate and level a voice is trained at, and back to files.

mod codec;
mod decode;
mod flac;
mod lanes;
mod loudness;
pub mod mel;
mod mono;
mod opus;
mod pcm;
mod plain;
mod resample;
mod sample;
#[cfg(test)]
mod tests;
mod trim;
mod wav;
mod writer;

pub use decode::{decode, decode_bytes, decode_start};
pub use loudness::normalize;
pub use plain::Plain;
pub use resample::{Converter, Resampler, resample};
pub use sample::Sample;
pub use trim::{speech, trim_silence};
pub use wav::wav_bytes;
pub use writer::{Encoder, FileWriter, Format, write_wav};

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Rates that a recording may have. Outside them a header is wrong, and the resampler's tables would grow without end.
const RATES_HZ: RangeInclusive<u32> = 1_000..=768_000;

/// Mono samples, -1..1.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    pub samples: Vec<f32>,
    pub rate_hz: u32,
}

/// Split by what one can do about it. Each message is whole, so `cause` is a field and not the `source` of a chain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Mend the path, the permissions or the disk.
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    /// Convert the file.
    #[error("{}: not a recording that can be read: {what}\nhint: WAV, FLAC, MP3, OGG Vorbis and Opus are", path.display())]
    Unsupported { path: PathBuf, what: String },
    /// Get the file again.
    #[error("{}: damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    /// Leave the clip out, or record it again: the file is whole, but no voice can learn from it.
    #[error("{}: unusable: {what}", path.display())]
    Unusable { path: PathBuf, what: String },
    #[error("cannot resample from {from_hz} Hz to {to_hz} Hz: {what}")]
    Resample { from_hz: u32, to_hz: u32, what: String },
}

/// A recording as a voice is trained on it; `loudness_lufs: None` leaves its level alone.
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
