//! Coded residuals (RFC 9639, section 9.2.7). Most of a decoder's time is in the Rice codes: here several are taken from
//! a word before it is filled again, and the words behind it are loaded while they are.

use super::bits::BitReader;
use pulp::{Arch, Simd, WithSimd};

/// Reads the residual of a block behind the samples that its predictor starts from.
pub fn read_residual(bits: &mut BitReader, order: usize, block: &mut [i32]) -> Option<()> {
    Arch::new().dispatch(Residual { bits, order, block })
}

struct Residual<'a, 'b> {
    bits: &'a mut BitReader<'b>,
    order: usize,
    block: &'a mut [i32],
}

impl WithSimd for Residual<'_, '_> {
    type Output = Option<()>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Option<()> {
        let Residual { bits, order, block } = self;
        let parameter_bits = match bits.read(2)? {
            0 => 4,
            1 => 5,
            _ => return None,
        };
        let partition_order = bits.read(4)?;
        let share = block.len() >> partition_order;
        if share << partition_order != block.len() {
            return None;
        }
        let (first, others) = block.split_at_mut(share);
        read_partition(bits, parameter_bits, first.get_mut(order..)?)?;
        others.chunks_exact_mut(share).try_for_each(|partition| read_partition(bits, parameter_bits, partition))
    }
}

#[inline(always)]
fn read_partition(bits: &mut BitReader, parameter_bits: u32, partition: &mut [i32]) -> Option<()> {
    let parameter = bits.read(parameter_bits)?;
    if parameter == (1 << parameter_bits) - 1 {
        let width = bits.read(5)?;
        for value in partition {
            *value = bits.read_signed(width)?;
        }
        return Some(());
    }
    let mut rest = &mut *partition;
    while !rest.is_empty() {
        let read = read_groups(bits, parameter, rest);
        // A long run of zeros, the end of the partition, or that of the file.
        let (singles, behind) = std::mem::take(&mut rest)[read..].split_at_mut_checked(1).unwrap_or_default();
        for value in singles {
            *value = read_single(bits, parameter)?;
        }
        rest = behind;
    }
    // By itself, because this is many at a time.
    partition.iter_mut().for_each(|value| *value = unfold(*value as u32));
    Some(())
}

/// A code of any length, still folded.
#[inline(always)]
fn read_single(bits: &mut BitReader, parameter: u32) -> Option<i32> {
    let quotient = u64::from(bits.read_unary()?);
    let value = quotient << parameter | u64::from(bits.read(parameter)?);
    u32::try_from(value).ok().map(|folded| folded as i32)
}

/// Bits of a group of codes at most: with those before it in its first byte, fewer than a word.
const GROUP_BITS: u32 = 56;
/// With a larger one, the quotient of a code that fits a group may not fit a number.
const MAX_GROUP_PARAMETER: u32 = 25;

/// Reads groups of codes, still folded, as long as each fits a word, and says how many codes that were.
#[inline(always)]
fn read_groups(bits: &mut BitReader, parameter: u32, out: &mut [i32]) -> usize {
    // Few enough that a group seldom does not fit.
    let group_codes = (GROUP_BITS / (parameter + 4)) as usize;
    let mut at = bits.position();
    let mut read = 0;
    if parameter <= MAX_GROUP_PARAMETER
        && let Some(mut words) = bits.words(at / 8)
    {
        let mut window = words[0] << (at % 8);
        for group in out.chunks_exact_mut(group_codes) {
            let mut left = window;
            let mut used = 0;
            for value in group {
                let zeros = left.leading_zeros();
                // 64 zeros are more than a group may have.
                left = left.wrapping_shl(zeros);
                let mark_and_rest = (left >> (63 - parameter)) as u32;
                left <<= parameter + 1;
                used += zeros + parameter + 1;
                *value = ((zeros << parameter) + mark_and_rest - (1 << parameter)) as i32;
            }
            if used > GROUP_BITS {
                break;
            }
            // What the next group begins with is in the words that are there: it need not wait for those behind them.
            let shift = (at % 8) as u32 + used;
            window = words[0] << shift | words[1] >> (64 - shift);
            at += used as usize;
            read += group_codes;
            let Some(next) = bits.words(at / 8) else { break };
            words = next;
        }
    }
    bits.set_position(at);
    read
}

/// 0, 1, 2, 3, 4 … to 0, -1, 1, -2, 2 …
#[inline(always)]
fn unfold(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}
