//! Samples to bytes, piece by piece.

use crate::audio::wav_bytes;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Wav,
    Flac,
    /// 16-bit little-endian samples and nothing else.
    Pcm,
}

impl Format {
    pub fn mime(self) -> &'static str {
        match self {
            Format::Wav => "audio/wav",
            Format::Flac => "audio/flac",
            Format::Pcm => "audio/pcm",
        }
    }
}

pub struct Encoder {
    format: Format,
    rate_hz: u32,
}

impl Encoder {
    pub fn new(format: Format, rate_hz: u32) -> Self {
        Encoder { format, rate_hz }
    }

    pub fn head(&mut self) -> Vec<u8> {
        let mut head = if self.format == Format::Pcm { Vec::new() } else { wav_bytes(&[], self.rate_hz) };
        if !head.is_empty() {
            head[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
            head[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        }
        head
    }

    pub fn push(&mut self, samples: &[f32]) -> Vec<u8> {
        wav_bytes(samples, self.rate_hz).split_off(44)
    }

    pub fn finish(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Writes into a whole file's head what was not known when it was made.
    pub fn tell_length(&self, file: &mut [u8]) {
        if self.format == Format::Wav {
            let bytes = (file.len() - 44) as u32;
            file[4..8].copy_from_slice(&(bytes + 36).to_le_bytes());
            file[40..44].copy_from_slice(&bytes.to_le_bytes());
        }
    }
}
