//! From packets to samples, by whichever decoder is right for the track.

use super::opus::{self, Opus};
use super::pcm::{self, Unpack};
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Result;
use symphonia::core::packet::Packet;

/// A decoder of packets.
pub enum Codec {
    Pcm { unpack: Unpack, layout: SampleLayout },
    Opus(Box<Opus>),
    Other(Box<dyn AudioDecoder>),
}

/// Rate and channels of a packet's samples.
#[derive(Clone, Copy)]
pub struct SampleLayout {
    pub rate_hz: u32,
    pub channels: usize,
}

impl Codec {
    pub fn new(params: &AudioCodecParameters) -> Result<Self> {
        if params.codec == CODEC_ID_OPUS {
            return Opus::new(params.extra_data.as_deref().unwrap_or_default()).map(|opus| Codec::Opus(Box::new(opus)));
        }
        if let (Some(unpack), Some(rate_hz), Some(channels)) =
            (pcm::unpacker(params), params.sample_rate, &params.channels)
        {
            return Ok(Codec::Pcm { unpack, layout: SampleLayout { rate_hz, channels: channels.count() } });
        }
        symphonia::default::get_codecs().make_audio_decoder(params, &AudioDecoderOptions::default()).map(Codec::Other)
    }

    /// Replaces `out` with the packet's samples, interleaved.
    pub fn decode(&mut self, packet: &Packet, out: &mut Vec<f32>) -> Result<SampleLayout> {
        out.clear();
        match self {
            Codec::Pcm { unpack, layout } => {
                unpack(&packet.data, out);
                Ok(*layout)
            }
            Codec::Opus(opus) => {
                opus.decode(packet, out)?;
                Ok(SampleLayout { rate_hz: opus::RATE_HZ, channels: opus.channels })
            }
            Codec::Other(decoder) => {
                let decoded = decoder.decode(packet)?;
                decoded.copy_to_vec_interleaved(out);
                Ok(SampleLayout { rate_hz: decoded.spec().rate(), channels: decoded.spec().channels().count() })
            }
        }
    }
}
