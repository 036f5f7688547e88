//! What a file says of itself before its frames: the marker, STREAMINFO, and other metadata, which is passed over
//! (RFC 9639, section 8).

use super::super::RATES_HZ;
use super::bits::BitReader;

pub struct StreamInfo {
    /// All blocks but the last have as many samples.
    pub fixed_block: bool,
    pub max_block: usize,
    pub rate_hz: u32,
    pub channels: usize,
    pub bits: u32,
    /// Samples of a channel, where they are known.
    pub samples: Option<u64>,
}

impl StreamInfo {
    /// Reads a file up to its first frame, which is what is left of it.
    pub fn split(file: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = file.strip_prefix(b"fLaC")?;
        let mut info = None;
        loop {
            let ([kind, length @ ..], behind) = rest.split_first_chunk::<4>()?;
            let length = usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
            let (block, behind) = behind.split_at_checked(length)?;
            // STREAMINFO is the first block, and no other one is of its kind.
            if info.is_none() != (kind & 0x7f == 0) {
                return None;
            }
            info = info.or_else(|| Self::read(block));
            if kind & 0x80 != 0 {
                return info.map(|info| (info, behind));
            }
            rest = behind;
        }
    }

    fn read(block: &[u8]) -> Option<Self> {
        let mut bits = BitReader::new(<&[u8; 34]>::try_from(block).ok()?);
        let (min_block, max_block) = (bits.read(16)? as usize, bits.read(16)? as usize);
        let (min_frame, max_frame) = (bits.read(24)?, bits.read(24)?);
        let info = StreamInfo {
            fixed_block: min_block == max_block,
            max_block,
            rate_hz: bits.read(20)?,
            channels: bits.read(3)? as usize + 1,
            bits: bits.read(5)? + 1,
            samples: Some(u64::from(bits.read(4)?) << 32 | u64::from(bits.read(32)?)).filter(|&samples| samples > 0),
        };
        let frames_agree = min_frame == 0 || max_frame == 0 || min_frame <= max_frame;
        let possible = (16..=max_block).contains(&min_block) && frames_agree && info.bits >= 4;
        (possible && RATES_HZ.contains(&info.rate_hz)).then_some(info)
    }
}
