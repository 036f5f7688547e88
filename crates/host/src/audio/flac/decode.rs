//! A whole FLAC file in memory to mono samples. Anything odd about it is `None`: it is for Symphonia, which reads what can
//! be read and knows what to say of the rest.

use super::super::Waveform;
use super::super::mono::MAX_SAMPLES;
use super::bits::BitReader;
use super::checksum::crc16;
use super::frame::{FrameHeader, Stereo};
use super::predict::{Blocks, LANES, MAX_ORDER, Predictor};
use super::residual::read_residual;
use super::streaminfo::StreamInfo;

/// Decodes no more than the first seconds of a file, and says whether there are more.
pub fn decode(file: &[u8], seconds: f64) -> Option<(Waveform, bool)> {
    let (info, mut rest) = StreamInfo::split(file)?;
    let mut decoder = Decoder::new(info, rest.len())?;
    let mut more = false;
    while !rest.is_empty() && !more {
        let bytes = decoder.read_frame(rest)?;
        rest = &rest[bytes..];
        more = decoder.counted as f64 / f64::from(decoder.info.rate_hz) >= seconds;
    }
    decoder.flush()?;
    let promised = decoder.info.samples.filter(|_| !more).unwrap_or(1);
    (decoder.counted >= promised)
        .then_some((Waveform { samples: decoder.samples, rate_hz: decoder.info.rate_hz }, more))
}

struct Decoder {
    info: StreamInfo,
    frames: u64,
    /// Samples of each channel so far, with those that wait in `blocks`.
    counted: u64,
    /// Subframes that are not restored yet.
    blocks: Blocks,
    waiting: Vec<Frame>,
    samples: Vec<f32>,
}

/// A frame whose subframes wait.
struct Frame {
    block: usize,
    stereo: Stereo,
    /// Zeros below every sample of a channel.
    wasted: [u32; 8],
}

impl Decoder {
    fn new(info: StreamInfo, bytes: usize) -> Option<Self> {
        // Sound has more than a bit a sample, so that what is allocated follows what is there.
        let likely = info.samples.unwrap_or(0).min(8 * bytes as u64).min(MAX_SAMPLES as u64);
        Some(Decoder {
            frames: 0,
            counted: 0,
            blocks: Blocks::new(info.max_block),
            waiting: Vec::new(),
            samples: Vec::with_capacity(likely as usize),
            info,
        })
    }

    /// Reads the frame that bytes begin with, and says how many of them it has.
    fn read_frame(&mut self, bytes: &[u8]) -> Option<usize> {
        let header = FrameHeader::read(bytes, &self.info, self.frames, self.counted)?;
        if self.blocks.len() + self.info.channels > LANES {
            self.flush()?;
        }
        let mut bits = BitReader::new(&bytes[header.bytes..]);
        let mut frame = Frame { block: header.block, stereo: header.stereo, wasted: [0; 8] };
        for channel in 0..self.info.channels {
            let sample_bits = self.info.bits + u32::from(header.stereo.is_side(channel));
            let wasted = &mut frame.wasted[channel];
            self.blocks.push(header.block, |block| read_subframe(&mut bits, sample_bits, wasted, block))?;
        }
        let end = header.bytes + bits.align() + 2;
        if crc16(bytes.get(..end)?) != 0 {
            return None;
        }
        self.waiting.push(frame);
        self.frames += 1;
        self.counted += header.block as u64;
        (self.counted <= MAX_SAMPLES as u64).then_some(end)
    }

    /// Restores the subframes that wait, and mixes their channels.
    fn flush(&mut self) -> Option<()> {
        self.blocks.restore();
        let mut rows = self.blocks.rows();
        for frame in self.waiting.drain(..) {
            let mut channels: [&mut [i32]; 8] = Default::default();
            let channels = &mut channels[..self.info.channels];
            for (channel, block) in channels.iter_mut().enumerate() {
                *block = &mut rows.next()?[..frame.block];
                let bits = self.info.bits + u32::from(frame.stereo.is_side(channel)) - frame.wasted[channel];
                fits(block, bits).then_some(())?;
                if frame.wasted[channel] > 0 {
                    block.iter_mut().for_each(|sample| *sample <<= frame.wasted[channel]);
                }
            }
            if let [first, second] = channels
                && frame.stereo != Stereo::Independent
            {
                decorrelate(frame.stereo, first, second);
                (fits(first, self.info.bits) && fits(second, self.info.bits)).then_some(())?;
            }
            mix(channels, self.info.bits, &mut self.samples);
        }
        self.blocks.clear();
        Some(())
    }
}

/// Reads a subframe (RFC 9639, section 9.2) up to its prediction.
fn read_subframe(bits: &mut BitReader, sample_bits: u32, wasted: &mut u32, block: &mut [i32]) -> Option<Predictor> {
    let (padding, kind) = (bits.read(1)?, bits.read(6)?);
    if bits.read(1)? == 1 {
        *wasted = bits.read_unary()? + 1;
    }
    let sample_bits = sample_bits.checked_sub(*wasted).filter(|bits| (1..=32).contains(bits) && padding == 0)?;
    match kind {
        0 => {
            block.fill(bits.read_signed(sample_bits)?);
            Some(Predictor::new(&[], 0, sample_bits))
        }
        1 => {
            read_samples(bits, sample_bits, block)?;
            Some(Predictor::new(&[], 0, sample_bits))
        }
        8..=12 => {
            let order = kind as usize - 8;
            read_samples(bits, sample_bits, block.get_mut(..order)?)?;
            read_residual(bits, order, block)?;
            Some(Predictor::new(FIXED[order], 0, sample_bits))
        }
        32.. => {
            let order = kind as usize - 31;
            read_samples(bits, sample_bits, block.get_mut(..order)?)?;
            let precision = bits.read(4)? + 1;
            let shift = u32::try_from(bits.read_signed(5)?).ok().filter(|_| precision < 16)?;
            let mut coefficients = [0; MAX_ORDER];
            read_samples(bits, precision, &mut coefficients[..order])?;
            read_residual(bits, order, block)?;
            Some(Predictor::new(&coefficients[..order], shift, sample_bits))
        }
        _ => None,
    }
}

const FIXED: [&[i32]; 5] = [&[], &[1], &[2, -1], &[3, -3, 1], &[4, -6, 4, -1]];

fn read_samples(bits: &mut BitReader, width: u32, out: &mut [i32]) -> Option<()> {
    out.iter_mut().try_for_each(|value| bits.read_signed(width).map(|read| *value = read))
}

/// Whether all samples have no more bits. Damage that makes a predictor run away would make its sums overflow next.
fn fits(samples: &[i32], bits: u32) -> bool {
    let magnitudes = samples.iter().fold(0, |all, &sample| all | (sample ^ (sample >> 31)));
    magnitudes >> (bits - 1) == 0
}

/// Makes left and right of what a frame has of two channels.
fn decorrelate(stereo: Stereo, first: &mut [i32], second: &mut [i32]) {
    for (first, second) in first.iter_mut().zip(second) {
        (*first, *second) = match stereo {
            Stereo::Independent => (*first, *second),
            Stereo::LeftSide => (*first, first.wrapping_sub(*second)),
            Stereo::SideRight => (first.wrapping_add(*second), *second),
            Stereo::MidSide => {
                let mid = *first << 1 | *second & 1;
                (mid.wrapping_add(*second) >> 1, mid.wrapping_sub(*second) >> 1)
            }
        };
    }
}

/// Appends the mean of the channels.
fn mix(channels: &[&mut [i32]], bits: u32, out: &mut Vec<f32>) {
    let scale = 1.0 / (1u64 << (bits - 1)) as f32;
    let level = move |sample: i32| sample as f32 * scale;
    match channels {
        [mono] => out.extend(mono.iter().map(|&sample| level(sample))),
        [left, right] => out.extend(left.iter().zip(&**right).map(|(&l, &r)| (level(l) + level(r)) * 0.5)),
        _ => out.extend(
            (0..channels[0].len())
                .map(|at| channels.iter().map(|channel| level(channel[at])).sum::<f32>() / channels.len() as f32),
        ),
    }
}
