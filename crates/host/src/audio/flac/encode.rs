//! A small FLAC encoder (RFC 9639): 16-bit mono, fixed predictors, partitioned Rice codes. Lossless, about two
//! thirds of a WAV file's size for speech, and it streams.

use super::checksum::{crc8, crc16};

const BLOCK: usize = 4096;
/// Bits of the number of a block's partitions, each of which has a parameter: up to 2⁶ of them.
const MOST_PARTITION_BITS: u32 = 6;
/// The largest Rice parameter; larger ones are an escape code.
const MOST_RICE: u32 = 14;

/// Turns samples into frames. The header's lengths are known at the end: `header` again, then.
pub struct FlacEncoder {
    rate_hz: u32,
    waiting: Vec<i32>,
    frames: u64,
    samples: u64,
    /// Smallest and largest frame, in bytes.
    sizes: (usize, usize),
}

impl FlacEncoder {
    pub fn new(rate_hz: u32) -> Self {
        FlacEncoder { rate_hz, waiting: Vec::with_capacity(BLOCK), frames: 0, samples: 0, sizes: (usize::MAX, 0) }
    }

    /// What a file begins with: marker and STREAMINFO, of a fixed size. Before the end its lengths say "unknown".
    pub fn header(&self) -> Vec<u8> {
        let mut bits = Bits::default();
        b"fLaC".iter().for_each(|byte| bits.put(u64::from(*byte), 8));
        bits.put(0x80, 8); // the last block of metadata, STREAMINFO
        bits.put(34, 24);
        bits.put(BLOCK as u64, 16);
        bits.put(BLOCK as u64, 16);
        let known = self.frames > 0;
        bits.put(if known { self.sizes.0 as u64 } else { 0 }, 24);
        bits.put(if known { self.sizes.1 as u64 } else { 0 }, 24);
        bits.put(u64::from(self.rate_hz), 20);
        bits.put(0, 3); // one channel
        bits.put(15, 5); // 16 bits
        bits.put(if self.samples < 1 << 36 { self.samples } else { 0 }, 36);
        // The digest of the samples: "not computed". Every frame carries a checksum of its own.
        (0..16).for_each(|_| bits.put(0, 8));
        bits.bytes
    }

    /// Appends the frames that are full.
    pub fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        for &sample in samples {
            self.waiting.push(i32::from(sample));
            if self.waiting.len() == BLOCK {
                self.frame(out);
            }
        }
    }

    /// Appends the last frame.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.waiting.is_empty() {
            self.frame(out);
        }
    }

    fn frame(&mut self, out: &mut Vec<u8>) {
        let block = std::mem::take(&mut self.waiting);
        let mut bits = Bits::default();
        bits.put(0b11_1111_1111_1110, 14); // sync
        bits.put(0, 2); // blocks of a fixed size
        bits.put(0b0111, 4); // block size: 16 bits below
        // ffmpeg, and with it Chromium, has no times for frames that leave the rate to STREAMINFO.
        let (rate_code, rate) = rate_fields(self.rate_hz);
        bits.put(rate_code, 4);
        bits.put(0, 4); // mono
        bits.put(0b100, 3); // 16 bits
        bits.put(0, 1);
        bits.put_number(self.frames);
        bits.put(block.len() as u64 - 1, 16);
        bits.put(rate.0, rate.1);
        let check = crc8(&bits.bytes);
        bits.put(u64::from(check), 8);
        subframe(&block, &mut bits);
        bits.align();
        let check = crc16(&bits.bytes);
        bits.put(u64::from(check), 16);
        self.sizes = (self.sizes.0.min(bits.bytes.len()), self.sizes.1.max(bits.bytes.len()));
        self.frames += 1;
        self.samples += block.len() as u64;
        out.append(&mut bits.bytes);
        self.waiting = block;
        self.waiting.clear();
    }
}

/// How a frame's header tells the rate: a code, and a value of so many bits behind the block size (RFC 9639, section 9.1.2).
fn rate_fields(rate_hz: u32) -> (u64, (u64, u32)) {
    const KNOWN: [(u32, u64); 11] = [
        (88_200, 1),
        (176_400, 2),
        (192_000, 3),
        (8_000, 4),
        (16_000, 5),
        (22_050, 6),
        (24_000, 7),
        (32_000, 8),
        (44_100, 9),
        (48_000, 10),
        (96_000, 11),
    ];
    match KNOWN.iter().find(|(known_hz, _)| *known_hz == rate_hz) {
        Some((_, code)) => (*code, (0, 0)),
        None if rate_hz <= u32::from(u16::MAX) => (13, (rate_hz.into(), 16)),
        None if rate_hz.is_multiple_of(10) && rate_hz / 10 <= u32::from(u16::MAX) => (14, ((rate_hz / 10).into(), 16)),
        None => (0, (0, 0)), // STREAMINFO alone can tell it
    }
}

/// Writes a block by the predictor whose residual is smallest; a constant where there is one.
fn subframe(block: &[i32], bits: &mut Bits) {
    bits.put(0, 1);
    if block.iter().all(|sample| *sample == block[0]) {
        bits.put(0, 6);
        bits.put(0, 1);
        return bits.put(block[0] as u16 as u64, 16);
    }
    let orders = 0..=4.min(block.len() - 1);
    let residuals = orders.map(|order| (order, residual(block, order)));
    let cost = |(_, residual): &(usize, Vec<i32>)| residual.iter().map(|r| u64::from(r.unsigned_abs())).sum::<u64>();
    let (order, residual) = residuals.min_by_key(cost).expect("order 0 is always there");
    bits.put(0b001000 | order as u64, 6);
    bits.put(0, 1);
    block[..order].iter().for_each(|sample| bits.put(*sample as u16 as u64, 16));
    rice(&residual, order, block.len(), bits);
}

/// Differences of the order: what a polynomial through the last samples does not foresee.
fn residual(block: &[i32], order: usize) -> Vec<i32> {
    (0..order).fold(block.to_vec(), |from, _| from.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// Writes a residual in as many partitions as make it shortest.
fn rice(residual: &[i32], order: usize, block: usize, bits: &mut Bits) {
    let plan = |partition_bits: u32| {
        let parts = partitions(residual, order, block, partition_bits);
        let each: Vec<(u32, u64)> = parts.iter().map(|part| best_rice(part)).collect();
        (each.iter().map(|(_, cost)| cost + 4).sum::<u64>(), partition_bits, each)
    };
    let possible = (0..=MOST_PARTITION_BITS).filter(|bits| block.is_multiple_of(1 << bits) && (block >> bits) > order);
    let (_, partition_bits, each) = possible.map(plan).min_by_key(|plan| plan.0).expect("one partition always fits");
    bits.put(0, 2);
    bits.put(u64::from(partition_bits), 4);
    for (part, (parameter, _)) in partitions(residual, order, block, partition_bits).iter().zip(each) {
        bits.put(u64::from(parameter), 4);
        for value in *part {
            let folded = fold(*value);
            bits.put_unary(folded >> parameter);
            bits.put(folded & ((1 << parameter) - 1), parameter);
        }
    }
}

/// Equal shares of the block; the first lacks the samples that the predictor starts from.
fn partitions(residual: &[i32], order: usize, block: usize, partition_bits: u32) -> Vec<&[i32]> {
    let share = block >> partition_bits;
    let (first, rest) = residual.split_at(share - order);
    std::iter::once(first).chain(rest.chunks(share)).collect()
}

/// The parameter that makes a partition shortest, and its bits.
fn best_rice(part: &[i32]) -> (u32, u64) {
    let cost =
        |parameter: u32| part.iter().map(|value| (fold(*value) >> parameter) + 1 + u64::from(parameter)).sum::<u64>();
    (0..=MOST_RICE).map(|parameter| (parameter, cost(parameter))).min_by_key(|(_, cost)| *cost).expect("not empty")
}

/// Maps 0, -1, 1, -2, 2 … to 0, 1, 2, 3, 4 …
pub(super) fn fold(value: i32) -> u64 {
    let value = i64::from(value);
    ((value << 1) ^ (value >> 63)) as u64
}

/// A writer of bits in network order.
#[derive(Default)]
pub(super) struct Bits {
    pub(super) bytes: Vec<u8>,
    /// Bits that do not fill a byte yet.
    partial: u64,
    held: u32,
}

impl Bits {
    /// Writes the lowest `count` bits of a value, at most 56.
    pub(super) fn put(&mut self, value: u64, count: u32) {
        self.partial = (self.partial << count) | value;
        self.held += count;
        while self.held >= 8 {
            self.held -= 8;
            self.bytes.push((self.partial >> self.held) as u8);
        }
        self.partial &= (1 << self.held) - 1;
    }

    /// Writes so many zeros, then a one.
    pub(super) fn put_unary(&mut self, zeros: u64) {
        (0..zeros / 32).for_each(|_| self.put(0, 32));
        self.put(1, (zeros % 32) as u32 + 1);
    }

    /// Writes a number as UTF-8 writes code points, up to 36 bits.
    pub(super) fn put_number(&mut self, number: u64) {
        if number < 0x80 {
            return self.put(number, 8);
        }
        let more = (1..=6u32).find(|more| number < 1 << (5 * more + 6)).unwrap_or(6);
        let mark = (0xffu64 << (7 - more)) & 0xff;
        self.put(mark | (number >> (6 * more)), 8);
        (0..more).rev().for_each(|at| self.put(0x80 | (number >> (6 * at)) & 0x3f, 8));
    }

    pub(super) fn align(&mut self) {
        if self.held > 0 {
            self.put(0, 8 - self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::decode::by_symphonia;
    use std::io::Cursor;

    /// Symphonia's samples of an encoded file are the ones that went in, bit for bit.
    fn comes_back(samples: &[i16]) -> usize {
        comes_back_at(22_050, samples)
    }

    fn comes_back_at(rate_hz: u32, samples: &[i16]) -> usize {
        let (mut encoder, mut frames) = (FlacEncoder::new(rate_hz), Vec::new());
        samples.chunks(1000).for_each(|some| encoder.push(some, &mut frames));
        encoder.finish(&mut frames);
        let file = [encoder.header(), frames].concat();
        let (back, _) = by_symphonia(Box::new(Cursor::new(file.clone())), None, f64::INFINITY).unwrap();
        assert_eq!(back.rate_hz, rate_hz);
        let back: Vec<i16> = back.samples.iter().map(|sample| (sample * 32_768.0).round() as i16).collect();
        assert!(back == samples, "{} samples", samples.len());
        file.len()
    }

    #[test]
    fn another_decoder_reads_every_sample() {
        let mut rng = crate::rng::Rng::new(&[3]);
        let mut noise = |len: usize, loud: f64| -> Vec<i16> {
            (0..len).map(|_| ((rng.unit() - 0.5) * 2.0 * loud) as i16).collect()
        };
        for len in [1, 2, 3, 4, 5, 4095, 4096, 4097, 10_000] {
            comes_back(&noise(len, 32_767.0));
            comes_back(&noise(len, 3.0));
        }
        comes_back(&[i16::MIN, i16::MAX].repeat(5000));
        comes_back(&[vec![-7; 9000], noise(300, 100.0)].concat());
        let tone: Vec<i16> = (0..40_000).map(|i| ((i as f64 * 0.05).sin() * 12_000.0) as i16).collect();
        let size = comes_back(&tone);
        assert!(size < tone.len(), "a tone is at least halved: {size} bytes for {} samples", tone.len());
    }

    #[test]
    fn every_way_to_tell_the_rate_is_read() {
        for (rate_hz, code) in [(22_050, 6), (48_000, 10), (20_000, 13), (70_000, 14), (131_071, 0)] {
            assert_eq!(rate_fields(rate_hz).0, code);
            comes_back_at(rate_hz, &[5, -7, 300].repeat(3000));
        }
    }

    #[test]
    fn long_files_number_their_frames_as_the_format_wants() {
        let coded = |number: u64| {
            let mut bits = Bits::default();
            bits.put_number(number);
            bits.bytes
        };
        // Up to 21 bits these are UTF-8.
        for number in [0, 0x7f, 0x80, 0x7ff, 0x800, 0xffff, 0x1_0000, 0x10_ffff] {
            if let Some(letter) = char::from_u32(number as u32) {
                assert_eq!(coded(number), letter.to_string().as_bytes());
            }
        }
        assert_eq!(coded((1 << 36) - 1), [0xfe, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf, 0xbf]);
        comes_back(&vec![5; 4096 * 130]);
    }
}
