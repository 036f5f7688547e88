//! Samples to bytes of a file, as they come.

use super::flac::FlacEncoder;
use super::mp3::Mp3;
use super::ogg_opus::OggOpus;
use super::wav::{pcm16, wav_header};
use super::{Error, StreamResampler, opus};
use std::path::Path;

/// Formats that speech is written in, all of them mono.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AudioFormat {
    Wav,
    /// Lossless, about two thirds of the size
    Flac,
    /// About 96 kbit/s: a quarter of the size
    Mp3,
    /// Opus in Ogg, about 80 kbit/s
    Opus,
    /// Samples alone: signed, 16 bits, little-endian, no header
    Raw,
}

impl AudioFormat {
    pub fn extension(self) -> &'static str {
        match self {
            AudioFormat::Wav => "wav",
            AudioFormat::Flac => "flac",
            AudioFormat::Mp3 => "mp3",
            AudioFormat::Opus => "opus",
            AudioFormat::Raw => "raw",
        }
    }

    /// The format that the name of a file asks for.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "wav" => Some(AudioFormat::Wav),
            "flac" => Some(AudioFormat::Flac),
            "mp3" => Some(AudioFormat::Mp3),
            "opus" | "ogg" | "oga" => Some(AudioFormat::Opus),
            "raw" | "pcm" => Some(AudioFormat::Raw),
            _ => None,
        }
    }

    /// Whether a file begins with its length, which is known at the end: others lose nothing as streams.
    pub fn tells_length(self) -> bool {
        matches!(self, AudioFormat::Wav | AudioFormat::Flac)
    }

    /// The rate that sound has in this format: some have few.
    fn rate_hz(self, wanted_hz: u32) -> u32 {
        match self {
            AudioFormat::Mp3 => Mp3::rate_hz(wanted_hz),
            AudioFormat::Opus => opus::RATE_HZ,
            AudioFormat::Wav | AudioFormat::Flac | AudioFormat::Raw => wanted_hz,
        }
    }
}

/// Turns samples into bytes of a format. A stream is `start`, what `push` gives and what `finish` gives. A file begins with
/// `header`, which is written again at the end, when it knows the lengths.
pub struct Encoder {
    converter: StreamResampler,
    codec: Codec,
    rate_hz: u32,
    samples: u64,
}

enum Codec {
    Wav,
    Flac(FlacEncoder),
    Mp3(Box<Mp3>),
    Opus(Box<OggOpus>),
    Raw,
}

impl Encoder {
    /// Takes samples at `spoken_hz`; the file has `wanted_hz`, or the format's next rate.
    pub fn new(format: AudioFormat, spoken_hz: u32, wanted_hz: u32) -> Result<Self, Error> {
        let rate_hz = format.rate_hz(wanted_hz);
        let codec = match format {
            AudioFormat::Wav => Codec::Wav,
            AudioFormat::Flac => Codec::Flac(FlacEncoder::new(rate_hz)),
            AudioFormat::Mp3 => Codec::Mp3(Box::new(Mp3::new(rate_hz))),
            AudioFormat::Opus => Codec::Opus(Box::new(OggOpus::new(wanted_hz))),
            AudioFormat::Raw => Codec::Raw,
        };
        Ok(Encoder { converter: StreamResampler::new(spoken_hz, rate_hz)?, codec, rate_hz, samples: 0 })
    }

    /// Rate of what is written.
    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// The header of a stream, whose length nobody knows.
    pub fn start(&self) -> Vec<u8> {
        match &self.codec {
            Codec::Wav => wav_header(None, self.rate_hz),
            Codec::Mp3(_) => Vec::new(),
            _ => self.header(),
        }
    }

    /// The header of a file, as long at its beginning as at its end; its lengths are those of what was pushed.
    pub fn header(&self) -> Vec<u8> {
        match &self.codec {
            Codec::Wav => wav_header(Some(self.samples * 2), self.rate_hz),
            Codec::Flac(flac) => flac.header(),
            Codec::Mp3(mp3) => mp3.tag.clone(),
            Codec::Opus(opus) => opus.header.clone(),
            Codec::Raw => Vec::new(),
        }
    }

    pub fn push(&mut self, samples: &[f32]) -> Vec<u8> {
        // One value that is no number would stay in filters for good.
        let numbers: Vec<f32> = samples.iter().map(|&it| if it.is_finite() { it } else { 0.0 }).collect();
        let samples = self.converter.push(&numbers);
        self.encode(&samples)
    }

    pub fn finish(&mut self) -> Vec<u8> {
        let samples = self.converter.finish();
        let mut bytes = self.encode(&samples);
        match &mut self.codec {
            Codec::Flac(flac) => flac.finish(&mut bytes),
            Codec::Mp3(mp3) => mp3.finish(&mut bytes),
            Codec::Opus(opus) => opus.finish(&mut bytes),
            Codec::Wav | Codec::Raw => {}
        }
        bytes
    }

    fn encode(&mut self, samples: &[f32]) -> Vec<u8> {
        self.samples += samples.len() as u64;
        let mut bytes = Vec::new();
        match &mut self.codec {
            Codec::Wav | Codec::Raw => bytes.extend(pcm16(samples).flat_map(i16::to_le_bytes)),
            Codec::Flac(flac) => flac.push(&pcm16(samples).collect::<Vec<_>>(), &mut bytes),
            Codec::Mp3(mp3) => mp3.push(samples, &mut bytes),
            Codec::Opus(opus) => opus.push(samples, &mut bytes),
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode_bytes;
    use super::*;
    use clap::ValueEnum;

    fn tone(seconds: f32) -> Vec<f32> {
        (0..(seconds * 22_050.0) as usize).map(|i| (i as f32 * 0.05).sin() * 0.5).collect()
    }

    #[test]
    fn a_stream_of_unknown_length_can_be_read() {
        let samples = tone(1.5);
        for &format in AudioFormat::value_variants().iter().filter(|&&format| format != AudioFormat::Raw) {
            let mut encoder = Encoder::new(format, 22_050, 22_050).unwrap();
            let mut bytes = encoder.start();
            bytes.extend(encoder.push(&samples));
            // What is there before the end is nearly all: no more than a block of the resampler and a page wait.
            let soon = decode_bytes(bytes.clone(), f64::INFINITY).unwrap().0;
            let seconds = soon.samples.len() as f64 / f64::from(soon.rate_hz);
            assert!(seconds > 1.2, "{format:?}: {seconds} s came early");
            bytes.extend(encoder.finish());
            let all = decode_bytes(bytes, f64::INFINITY).unwrap().0;
            let seconds = all.samples.len() as f64 / f64::from(all.rate_hz);
            // Without lengths MP3's own silence counts as sound.
            let most_s = if format == AudioFormat::Mp3 { 1.6 } else { 1.501 };
            assert!((1.499..most_s).contains(&seconds), "{format:?}: {seconds} s");
        }
    }

    #[test]
    fn formats_with_few_rates_take_their_next() {
        for (format, wanted_hz, rate_hz) in [
            (AudioFormat::Mp3, 20_000, 22_050),
            (AudioFormat::Mp3, 44_100, 44_100),
            (AudioFormat::Mp3, 96_000, 48_000),
            (AudioFormat::Opus, 16_000, 48_000),
            (AudioFormat::Flac, 20_000, 20_000),
        ] {
            let mut encoder = Encoder::new(format, 22_050, wanted_hz).unwrap();
            let mut bytes = encoder.header();
            bytes.extend(tone(0.5).chunks(900).flat_map(|some| encoder.push(some)));
            bytes.extend(encoder.finish());
            let header = encoder.header();
            bytes[..header.len()].copy_from_slice(&header);
            let wave = decode_bytes(bytes, f64::INFINITY).unwrap().0;
            assert_eq!((encoder.rate_hz(), wave.rate_hz), (rate_hz, rate_hz), "{format:?}");
            assert!(wave.samples.len().abs_diff(rate_hz as usize / 2) <= 2, "{format:?}: {}", wave.samples.len());
        }
    }

    #[test]
    fn nothing_and_no_numbers_are_files_too() {
        for &format in AudioFormat::value_variants() {
            for samples in [&[][..], &[f32::NAN, f32::INFINITY, 9.0], &[0.5; 1]] {
                let mut encoder = Encoder::new(format, 22_050, 22_050).unwrap();
                let before = encoder.header().len();
                encoder.push(samples);
                encoder.finish();
                assert_eq!(encoder.header().len(), before, "{format:?}");
            }
        }
    }
}
