//! Frame headers (RFC 9639, section 9.1).

use super::bits::BitReader;
use super::checksum::crc8;
use super::streaminfo::StreamInfo;

pub struct FrameHeader {
    /// Samples of each channel.
    pub block: usize,
    pub stereo: Stereo,
    /// Bytes of the header.
    pub bytes: usize,
}

/// How two channels are told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stereo {
    /// Not at all: any number of channels, each by itself.
    Independent,
    LeftSide,
    SideRight,
    MidSide,
}

impl Stereo {
    /// Whether a channel is a difference, which takes a bit more than a sample.
    pub fn is_side(self, channel: usize) -> bool {
        match self {
            Stereo::Independent => false,
            Stereo::LeftSide | Stereo::MidSide => channel == 1,
            Stereo::SideRight => channel == 0,
        }
    }
}

impl FrameHeader {
    /// Reads the header of the frame that so many frames and samples are before; none if it does not agree with them and
    /// with STREAMINFO.
    pub fn read(frame: &[u8], info: &StreamInfo, frames: u64, samples: u64) -> Option<Self> {
        let mut bits = BitReader::new(frame);
        let (sync, variable_block) = (bits.read(15)?, bits.read(1)? == 1);
        let (block_code, rate_code) = (bits.read(4)?, bits.read(4)?);
        let (channels_code, bits_code) = (bits.read(4)?, bits.read(3)?);
        let reserved = bits.read(1)?;
        let number = read_coded_number(&mut bits)?;
        let block = read_block(&mut bits, block_code)?;
        let rate_hz = read_rate(&mut bits, rate_code)?.unwrap_or(info.rate_hz);
        let bytes = bits.align();
        let checksum = bits.read(8)?;
        let (channels, stereo) = channels(channels_code)?;
        let agrees = (sync, reserved) == (0b111_1111_1111_1100, 0)
            && u32::from(crc8(&frame[..bytes])) == checksum
            && variable_block != info.fixed_block
            && number == if variable_block { samples } else { frames }
            && block <= info.max_block
            && rate_hz == info.rate_hz
            && channels == info.channels
            // A difference of samples of 32 bits has 33.
            && (stereo == Stereo::Independent || info.bits < 32)
            && sample_bits(bits_code)?.is_none_or(|bits| bits == info.bits);
        agrees.then_some(FrameHeader { block, stereo, bytes: bytes + 1 })
    }
}

/// A number as UTF-8 writes code points, of up to seven bytes.
fn read_coded_number(bits: &mut BitReader) -> Option<u64> {
    let first = bits.read(8)? as u8;
    let more = match first.leading_ones() {
        0 => return Some(first.into()),
        ones @ 2..=7 => ones - 1,
        _ => return None,
    };
    let start = u64::from(first) & (0x3f >> more);
    (0..more).try_fold(start, |number, _| match bits.read(8)? {
        byte @ 0x80..=0xbf => Some(number << 6 | u64::from(byte & 0x3f)),
        _ => None,
    })
}

fn read_block(bits: &mut BitReader, code: u32) -> Option<usize> {
    Some(match code {
        1 => 192,
        2..=5 => 144 << code,
        6 => bits.read(8)? as usize + 1,
        7 => bits.read(16)? as usize + 1,
        8..=15 => 1 << code,
        _ => return None,
    })
}

/// The rate that a header states; none inside where it leaves that to STREAMINFO.
fn read_rate(bits: &mut BitReader, code: u32) -> Option<Option<u32>> {
    const KNOWN: [u32; 11] = [88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];
    Some(match code {
        0 => None,
        1..=11 => Some(KNOWN[code as usize - 1]),
        12 => Some(bits.read(8)? * 1_000),
        13 => Some(bits.read(16)?),
        14 => Some(bits.read(16)? * 10),
        _ => return None,
    })
}

/// The bits of a sample; none inside where the header leaves that to STREAMINFO.
fn sample_bits(code: u32) -> Option<Option<u32>> {
    const KNOWN: [Option<u32>; 8] = [None, Some(8), Some(12), Some(0), Some(16), Some(20), Some(24), Some(32)];
    (code != 3).then_some(KNOWN[code as usize])
}

fn channels(code: u32) -> Option<(usize, Stereo)> {
    match code {
        0..=7 => Some((code as usize + 1, Stereo::Independent)),
        8 => Some((2, Stereo::LeftSide)),
        9 => Some((2, Stereo::SideRight)),
        10 => Some((2, Stereo::MidSide)),
        _ => None,
    }
}
