//! Opus packets to samples at 48 kHz. After RFC 7845, sections 4.2 to 5.1: the decoder needs a moment to settle, which
//! the header counts and listeners never hear; the end is cut by the last page's position.

use ruopus::OpusDecoder;
use symphonia::core::errors::{Error as Fault, Result};
use symphonia::core::packet::Packet;

pub const RATE_HZ: u32 = 48_000;

/// Decodes the packets of one track.
pub struct Opus {
    decoder: OpusDecoder,
    pub channels: usize,
    gain: f32,
    /// Frames still to be dropped from the start.
    skip_frames: usize,
}

impl Opus {
    /// Takes the identification header, which begins with `OpusHead`.
    pub fn new(head: &[u8]) -> Result<Self> {
        let fields = head.get(9..).and_then(<[u8]>::first_chunk);
        let Some(&[channels, skip_0, skip_1, _, _, _, _, gain_0, gain_1, mapping]) = fields else {
            return Err(Fault::DecodeError("its Opus header is cut short"));
        };
        if mapping != 0 || !(1..=2).contains(&channels) {
            return Err(Fault::Unsupported("Opus with more than two channels"));
        }
        // Decibels in 1/256.
        let gain_db = f32::from(i16::from_le_bytes([gain_0, gain_1])) / 256.0;
        Ok(Opus {
            decoder: OpusDecoder::new(channels.into()),
            channels: channels.into(),
            gain: 10f32.powf(gain_db / 20.0),
            skip_frames: u16::from_le_bytes([skip_0, skip_1]).into(),
        })
    }

    /// Appends the packet's samples, interleaved.
    pub fn decode(&mut self, packet: &Packet, out: &mut Vec<f32>) -> Result<()> {
        let refuse = |_| Fault::DecodeError("an Opus packet breaks the format's rules");
        let samples = self.decoder.decode_packet(&packet.data).map_err(refuse)?;
        let frames = samples.len() / self.channels;
        let end = frames.saturating_sub(usize::try_from(packet.trim_end.get()).unwrap_or(usize::MAX));
        let start = self.skip_frames.min(end);
        self.skip_frames -= self.skip_frames.min(frames);
        out.extend(samples[start * self.channels..end * self.channels].iter().map(|sample| sample * self.gain));
        Ok(())
    }
}
