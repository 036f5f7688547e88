//! Files with everything that the format has, written here bit by bit, and damage of all kinds. Truth: the samples that a
//! file was made of, and Symphonia, which must find the same wherever our decoder finds something.

use super::checksum::{crc8, crc16};
use super::encode::{Bits, fold};
use super::streaminfo::StreamInfo;
use super::{FlacEncoder, decode};
use crate::audio::decode::by_symphonia;
use crate::audio::{Error, Waveform};
use crate::rng::Rng;
use proptest::prelude::*;
use std::io::Cursor;

const CHIRP: &[u8] = include_bytes!("../../../../../tests/data/chirp.flac");

fn symphonia(file: &[u8]) -> Result<(Waveform, bool), Error> {
    by_symphonia(Box::new(Cursor::new(file.to_vec())), None, f64::INFINITY)
}

/// What a file is made of.
#[derive(Clone, Debug)]
struct Plan {
    bits: u32,
    channels: usize,
    /// The code of the channels: how two are told apart, where there are two.
    stereo: u64,
    variable_block: bool,
    blocks: Vec<usize>,
    length_known: bool,
    /// Kinds and bytes of other metadata.
    metadata: Vec<(u8, usize)>,
    seed: u64,
}

struct Made {
    file: Vec<u8>,
    /// Where frames begin, and the end.
    frames: Vec<usize>,
    /// `[channel][sample]`
    samples: Vec<Vec<i64>>,
}

impl Plan {
    fn make(&self) -> Made {
        let mut rng = Rng::new(&[self.seed]);
        let mut file = self.head();
        let (mut frames, mut samples) = (vec![], vec![vec![]; self.channels]);
        for (number, &block) in self.blocks.iter().enumerate() {
            frames.push(file.len());
            let sound: Vec<Vec<i64>> = (0..self.channels).map(|_| sound(&mut rng, block, self.bits)).collect();
            self.frame(&mut rng, number as u64, samples[0].len() as u64, &sound, &mut file);
            samples.iter_mut().zip(sound).for_each(|(all, block)| all.extend(block));
        }
        frames.push(file.len());
        Made { file, frames, samples }
    }

    fn head(&self) -> Vec<u8> {
        let mut bits = Bits::default();
        let max = *self.blocks.iter().max().unwrap() as u64;
        b"fLaC".iter().for_each(|byte| bits.put(u64::from(*byte), 8));
        bits.put(if self.metadata.is_empty() { 0x80 } else { 0 }, 8);
        bits.put(34, 24);
        bits.put(if self.variable_block { 16 } else { max.max(16) }, 16);
        bits.put(if self.variable_block { 65_535 } else { max.max(16) }, 16);
        bits.put(0, 48); // sizes of frames: unknown
        bits.put(16_000, 20);
        bits.put(self.channels as u64 - 1, 3);
        bits.put(u64::from(self.bits) - 1, 5);
        bits.put(if self.length_known { self.blocks.iter().sum::<usize>() as u64 } else { 0 }, 36);
        (0..16).for_each(|_| bits.put(0, 8));
        for (at, &(kind, length)) in self.metadata.iter().enumerate() {
            bits.put(u64::from(kind) | if at + 1 == self.metadata.len() { 0x80 } else { 0 }, 8);
            bits.put(length as u64, 24);
            (0..length).for_each(|_| bits.put(0xff, 8));
        }
        bits.bytes
    }

    fn frame(&self, rng: &mut Rng, number: u64, before: u64, sound: &[Vec<i64>], out: &mut Vec<u8>) {
        let (block, mut bits) = (sound[0].len(), Bits::default());
        bits.put(0b111_1111_1111_1100, 15);
        bits.put(self.variable_block.into(), 1);
        let (block_code, extra) = match block {
            192 => (1, 0),
            576 => (2, 0),
            4096 if rng.unit() < 0.5 => (12, 0),
            1..=256 if rng.unit() < 0.5 => (6, 8),
            _ => (7, 16),
        };
        bits.put(block_code, 4);
        bits.put(if rng.unit() < 0.5 { 5 } else { 0 }, 4); // 16 kHz, or as STREAMINFO has it
        bits.put(if self.channels == 2 { self.stereo } else { self.channels as u64 - 1 }, 4);
        let stated =
            [(8, 1), (12, 2), (16, 4), (20, 5), (24, 6), (32, 7)].into_iter().find(|known| known.0 == self.bits);
        bits.put(stated.filter(|_| rng.unit() < 0.5).map_or(0, |known| known.1), 3);
        bits.put(0, 1);
        bits.put_number(if self.variable_block { before } else { number });
        bits.put(block as u64 - 1, extra);
        let check = crc8(&bits.bytes);
        bits.put(check.into(), 8);
        let pair = |mix: fn(i64, i64) -> i64| -> Vec<i64> {
            sound[0].iter().zip(&sound[1]).map(|(&left, &right)| mix(left, right)).collect()
        };
        let (side, mid): (fn(_, _) -> _, fn(_, _) -> _) =
            (|left, right| left - right, |left, right| (left + right) >> 1);
        match self.stereo {
            8 if self.channels == 2 => {
                subframe(rng, &sound[0], self.bits, &mut bits);
                subframe(rng, &pair(side), self.bits + 1, &mut bits);
            }
            9 if self.channels == 2 => {
                subframe(rng, &pair(side), self.bits + 1, &mut bits);
                subframe(rng, &sound[1], self.bits, &mut bits);
            }
            10 if self.channels == 2 => {
                subframe(rng, &pair(mid), self.bits, &mut bits);
                subframe(rng, &pair(side), self.bits + 1, &mut bits);
            }
            _ => sound.iter().for_each(|channel| subframe(rng, channel, self.bits, &mut bits)),
        }
        bits.align();
        let check = crc16(&bits.bytes);
        bits.put(check.into(), 16);
        out.append(&mut bits.bytes);
    }
}

impl Made {
    /// The mean of the channels as `f32`, as every format is mixed.
    fn mono(&self, bits: u32) -> Vec<f32> {
        let level = |sample: i64| sample as f32 / (1u64 << (bits - 1)) as f32;
        (0..self.samples[0].len())
            .map(|at| match self.samples.as_slice() {
                [mono] => level(mono[at]),
                [left, right] => (level(left[at]) + level(right[at])) * 0.5,
                all => all.iter().map(|channel| level(channel[at])).sum::<f32>() / all.len() as f32,
            })
            .collect()
    }

    /// Makes checksums right again, as far as the frames lie where they did, so that damage reaches the decoder.
    fn mend(&mut self) {
        for frame in self.frames.windows(2) {
            let frame = &mut self.file[frame[0]..frame[1]];
            // The header's checksum lies behind the number and what may follow it.
            if let Some(end) = (5..16.min(frame.len())).find(|&end| frame[4].leading_ones().max(1) as usize + 4 <= end)
                && frame.len() > end + 4
            {
                let extra = match frame[2] >> 4 {
                    6 => 1,
                    7 => 2,
                    _ => 0,
                };
                frame[end + extra] = crc8(&frame[..end + extra]);
            }
            let (body, check) = frame.split_at_mut(frame.len() - 2);
            check.copy_from_slice(&crc16(body).to_be_bytes());
        }
    }
}

/// Sound of a block: silence, a level, noise, or something that can be predicted, with zeros below it at times.
fn sound(rng: &mut Rng, len: usize, bits: u32) -> Vec<i64> {
    let most = (1i64 << (bits - 1)) - 1;
    let mut any = |loud: f64| (((rng.unit() - 0.5) * 2.0 * loud) as i64).clamp(-most - 1, most);
    let (kind, level, pitch, shift) = (any(4.0), any(most as f64 + 2.0), any(1000.0), any(4.0).max(0) as u32);
    let shift = shift.min(bits - 2);
    let wave = |at: usize, noise: i64| {
        let tone = (at as f64 * pitch as f64 * 1e-3).sin() * 0.7 * most as f64;
        (tone as i64 + noise).clamp(-most - 1, most)
    };
    let loud = most as f64 * 0.01 + 1.0;
    (0..len)
        .map(|at| match kind {
            0 => level,
            1 => any(most as f64 + 2.0),
            -1 if at % 2 == 0 => most,
            -1 => -most - 1,
            _ => wave(at, any(loud)),
        })
        .map(|sample| sample >> shift << shift)
        .collect()
}

/// Writes a channel in one of the ways that can hold it.
fn subframe(rng: &mut Rng, sound: &[i64], bits: u32, out: &mut Bits) {
    let zeros = sound.iter().map(|sample| sample.trailing_zeros()).min().unwrap_or(0);
    let wasted = if zeros < bits && rng.unit() < 0.7 { zeros } else { 0 };
    let (sound, bits): (Vec<i64>, u32) = (sound.iter().map(|sample| sample >> wasted).collect(), bits - wasted);
    let header = |kind: u64, out: &mut Bits| {
        out.put(kind, 7);
        out.put((wasted > 0).into(), 1);
        if wasted > 0 {
            out.put_unary(u64::from(wasted) - 1);
        }
    };
    let constant = sound.iter().all(|sample| *sample == sound[0]);
    if constant && rng.unit() < 0.7 {
        header(0, out);
        return put_signed(sound[0], bits, out);
    }
    let predictor = predictor(rng, sound.len());
    if let Some((kind, precision, shift, coefficients)) = predictor {
        let order = coefficients.len();
        let predicted = |at: usize| {
            let products = coefficients.iter().enumerate().map(|(back, c)| c * sound[at - 1 - back]);
            products.sum::<i64>() >> shift
        };
        let residual: Vec<i64> = (order..sound.len()).map(|at| sound[at] - predicted(at)).collect();
        if residual.iter().all(|value| i32::try_from(*value).is_ok_and(|value| value.unsigned_abs() < 1 << 30)) {
            header(kind, out);
            sound[..order].iter().for_each(|sample| put_signed(*sample, bits, out));
            if let Some(precision) = precision {
                out.put(u64::from(precision) - 1, 4);
                out.put(shift, 5);
                coefficients.iter().for_each(|coefficient| put_signed(*coefficient, precision, out));
            }
            let residual: Vec<i32> = residual.into_iter().map(|value| value as i32).collect();
            return coded_residual(rng, &residual, order, out);
        }
    }
    header(1, out);
    sound.iter().for_each(|sample| put_signed(*sample, bits, out));
}

/// Kind, precision where there is one, shift, and coefficients.
fn predictor(rng: &mut Rng, samples: usize) -> Option<(u64, Option<u32>, u64, Vec<i64>)> {
    let order = (rng.unit() * 33.0) as usize;
    let choice = rng.unit();
    if choice < 0.1 || order > samples {
        return None;
    }
    if choice < 0.4 || order == 0 {
        let order = (order % 5).min(samples);
        let fixed = [&[][..], &[1], &[2, -1], &[3, -3, 1], &[4, -6, 4, -1]][order].to_vec();
        return Some((8 + order as u64, None, 0, fixed));
    }
    let precision = 1 + (rng.unit() * 15.0) as u32;
    let shift = (rng.unit() * 16.0) as u64;
    let loud = (1 << (precision - 1)) as f64;
    let mut coefficient = || ((rng.unit() * 2.0 - 1.0) * loud) as i64;
    Some((31 + order as u64, Some(precision), shift, (0..order).map(|_| coefficient()).collect()))
}

fn coded_residual(rng: &mut Rng, residual: &[i32], order: usize, out: &mut Bits) {
    let block = residual.len() + order;
    let orders: Vec<u32> = (0..=15).filter(|bits| block.is_multiple_of(1 << bits) && block >> bits >= order).collect();
    let partition_order = orders[(rng.unit() * orders.len() as f64) as usize];
    let largest = residual.iter().map(|value| fold(*value)).max().unwrap_or(0);
    let five_bits = rng.unit() < 0.5 || largest > 1 << 20;
    let parameter_bits = if five_bits { 5 } else { 4 };
    out.put(five_bits.into(), 2);
    out.put(partition_order.into(), 4);
    let share = block >> partition_order;
    let (first, others) = residual.split_at(share - order);
    for part in std::iter::once(first).chain(others.chunks(share)) {
        let largest = part.iter().map(|value| fold(*value)).max().unwrap_or(0);
        if rng.unit() < 0.2 {
            let width = (65 - largest.leading_zeros()).min(31) * u32::from(largest > 0);
            out.put((1 << parameter_bits) - 1, parameter_bits);
            out.put(width.into(), 5);
            part.iter().for_each(|value| put_signed((*value).into(), width, out));
            continue;
        }
        let mean = part.iter().map(|value| fold(*value)).sum::<u64>() / part.len().max(1) as u64;
        let best = i64::from(64 - mean.leading_zeros()) + (rng.unit() * 6.0) as i64 - 3;
        let parameter = best.clamp(0, (1 << parameter_bits) - 2) as u32;
        out.put(parameter.into(), parameter_bits);
        for value in part {
            out.put_unary(fold(*value) >> parameter);
            out.put(fold(*value) & ((1 << parameter) - 1), parameter);
        }
    }
}

fn put_signed(value: i64, width: u32, out: &mut Bits) {
    out.put(value as u64 & ((1 << width) - 1), width);
}

fn plans() -> impl Strategy<Value = Plan> {
    let bits = prop_oneof![prop::sample::select(&[8u32, 12, 16, 20, 24, 32][..]), Just(16u32), 4u32..=32];
    let channels = prop_oneof![Just(1usize), Just(2), 1usize..=8];
    let size = prop_oneof![Just(192usize), Just(576), Just(4096), 16usize..300, Just(1024), Just(4608)];
    let metadata = prop::collection::vec((prop::sample::select(&[1u8, 9, 126][..]), 0usize..90), 0..3);
    let flags = (any::<bool>(), any::<bool>(), any::<u64>());
    (bits, channels, 7u64..=10, (size, 0usize..40, 1usize..300), metadata, flags).prop_map(
        |(bits, channels, stereo, (size, many, last), metadata, (variable_block, length_known, seed))| {
            // Differences of 32 bits have 33, which neither decoder reads.
            let stereo = if stereo == 7 || bits == 32 { 1 } else { stereo };
            let many = many.min(40_000 / size / channels);
            let mut blocks: Vec<usize> = vec![size; many];
            if variable_block {
                blocks.iter_mut().enumerate().for_each(|(at, block)| *block = (*block + 7 * at) % 4000 + 16);
            }
            blocks.push(if variable_block { last } else { last.min(size) });
            Plan { bits, channels, stereo, variable_block, blocks, length_known, metadata, seed }
        },
    )
}

/// Where our decoder finds something, Symphonia must find the same. It may also lose frames, of noise above all: bytes that
/// look like the start of another one cut them in two.
fn agrees(file: &[u8], sound_from: usize, damaged_at: usize) -> Result<(), TestCaseError> {
    let Some((ours, _)) = decode(file, f64::INFINITY) else { return Ok(()) };
    match symphonia(file) {
        Ok((theirs, _)) => prop_assert!(ours == theirs || theirs.samples.len() < ours.samples.len()),
        // Damage to metadata that nothing is read from is passed over.
        Err(error) => prop_assert!(damaged_at < sound_from || error.to_string().contains("truncated"), "{error}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_kind_of_file_is_read(plan in plans()) {
        let made = plan.make();
        let (wave, more) = decode(&made.file, f64::INFINITY).expect("nothing is odd about it");
        prop_assert!(!more && wave.rate_hz == 16_000);
        prop_assert!(wave.samples == made.mono(plan.bits));
        agrees(&made.file, 0, 0)?;
    }

    #[test]
    fn the_start_of_a_file_is_cut_behind_a_frame(plan in plans(), seconds in 0.0f64..1.0) {
        let made = plan.make();
        let mut ends = plan.blocks.iter().scan(0, |end, block| {
            *end += block;
            Some(*end)
        });
        let cut = ends.find(|&end| end as f64 / 16_000.0 >= seconds);
        let samples = made.mono(plan.bits)[..cut.unwrap_or(made.samples[0].len())].to_vec();
        let truth = (Waveform { samples, rate_hz: 16_000 }, cut.is_some());
        prop_assert!(decode(&made.file, seconds).unwrap() == truth);
    }

    #[test]
    fn damage_is_seen_as_symphonia_sees_it(
        plan in plans(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        mend in any::<bool>(),
    ) {
        let mut made = plan.make();
        let first = changes.iter().map(|(at, _)| at.index(made.file.len())).min().unwrap();
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut made.file) = *byte);
        if mend {
            made.mend();
        }
        if let Some(cut) = cut {
            made.file.truncate(cut.index(made.file.len()));
        }
        agrees(&made.file, made.frames[0], first)?;
    }
}

fn encoded(samples: &[i16]) -> Vec<u8> {
    let (mut encoder, mut frames) = (FlacEncoder::new(16_000), Vec::new());
    encoder.push(samples, &mut frames);
    encoder.finish(&mut frames);
    [encoder.header(), frames].concat()
}

#[test]
fn other_programs_files_are_read() {
    let ours = decode(CHIRP, f64::INFINITY).expect("by libsndfile");
    assert!(ours == symphonia(CHIRP).unwrap());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let samples: Vec<i16> =
        (0..5_000).map(|at| (f64::from(at) * 0.05).sin() as i16 * 900 + (at * at % 17) as i16).collect();
    for whole in [CHIRP.to_vec(), encoded(&samples)] {
        let truth = symphonia(&whole).unwrap();
        let (_, frames) = StreamInfo::split(&whole).unwrap();
        let sound_from = whole.len() - frames.len();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut file = whole.clone();
                file[at] ^= 1 << bit;
                let ours = decode(&file, f64::INFINITY);
                assert!(at < sound_from || ours.is_none() || ours.as_ref() == Some(&truth), "byte {at}, bit {bit}");
                agrees(&file, sound_from, at).unwrap();
            }
        }
    }
}

#[test]
fn a_file_that_stops_early_is_left_to_symphonia() {
    let whole = encoded(&[3, -5, 900].repeat(3_000));
    for end in 0..whole.len() {
        assert!(decode(&whole[..end], f64::INFINITY).is_none(), "{end} bytes");
    }
    assert!(decode(&[&whole[..], b"TAG"].concat(), f64::INFINITY).is_none(), "what lies behind the last frame");
}

#[test]
fn lengths_that_lie_cost_nothing() {
    let mut file = encoded(&[3, -5, 900].repeat(3_000));
    let promised = |file: &mut [u8], samples: u64| {
        file[21] = file[21] & 0xf0 | (samples >> 32) as u8;
        file[22..26].copy_from_slice(&(samples as u32).to_be_bytes());
    };
    promised(&mut file, (1 << 36) - 1);
    assert!(decode(&file, f64::INFINITY).is_none());
    let message = symphonia(&file).unwrap_err().to_string();
    assert!(message.contains("truncated: its header promises 68719476735 samples"), "{message}");
    promised(&mut file, 9_000);
    file[5..8].copy_from_slice(&[0xff; 3]);
    assert!(decode(&file, f64::INFINITY).is_none(), "16 MiB of metadata that are not there");
}

#[test]
fn a_tag_before_the_file_is_left_to_symphonia() {
    let file = encoded(&[3, -5, 900].repeat(3_000));
    let tagged = [b"ID3\x04\0\0\0\0\0\x0a0123456789", &file[..]].concat();
    assert!(decode(&tagged, f64::INFINITY).is_none());
    let there = crate::audio::decode_bytes(tagged, f64::INFINITY).unwrap();
    assert!(there == decode(&file, f64::INFINITY).unwrap());
}
