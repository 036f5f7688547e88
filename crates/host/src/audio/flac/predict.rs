//! Linear prediction (RFC 9639, sections 9.2.5 and 9.2.6). A sample waits for the one before it, so a block alone is a
//! chain of latencies; blocks that do not depend on each other are restored side by side, one in each lane of a vector.

use pulp::{Arch, Simd, WithSimd};
use std::array::from_fn;

/// Subframes that are restored together.
pub const LANES: usize = 16;
pub const MAX_ORDER: usize = 32;
/// Samples of each lane that are turned into rows of lanes at a time: all of it stays in the nearest cache.
const TILE: usize = 64;

/// A sample is the residual and a weighted sum of those before it.
#[derive(Clone)]
pub struct Predictor {
    pub order: usize,
    /// Of the latest sample first; zero from the order on.
    pub coefficients: [i32; MAX_ORDER],
    pub shift: u32,
    /// Sums of products may need more than 32 bits.
    pub wide: bool,
}

impl Predictor {
    /// A predictor of samples of so many bits.
    pub fn new(coefficients: &[i32], shift: u32, bits: u32) -> Self {
        let mut padded = [0; MAX_ORDER];
        padded[..coefficients.len()].copy_from_slice(coefficients);
        let sum: u64 = coefficients.iter().map(|coefficient| u64::from(coefficient.unsigned_abs())).sum();
        let wide = sum << (bits - 1) > i32::MAX as u64;
        Predictor { order: coefficients.len(), coefficients: padded, shift, wide }
    }

    /// Restores the samples from the order up to `end`, one by one.
    fn restore_start(&self, block: &mut [i32], end: usize) {
        for at in self.order..end.min(block.len()) {
            let latest_first = block[..at].iter().rev();
            let products = latest_first.zip(&self.coefficients).map(|(&s, &c)| i64::from(s) * i64::from(c));
            let prediction = products.take(self.order).sum::<i64>() >> self.shift;
            block[at] = block[at].wrapping_add(prediction as i32);
        }
    }
}

/// Blocks of samples, or of residuals behind as many samples as their predictors start from.
pub struct Blocks {
    samples: Vec<i32>,
    stride: usize,
    predictors: Vec<Predictor>,
    longest: usize,
}

impl Blocks {
    pub fn new(max_block: usize) -> Self {
        // Whole tiles behind the longest start. An odd number of cache lines, so that lanes do not evict each other.
        let stride = MAX_ORDER + max_block.next_multiple_of(TILE) + TILE + 16;
        Blocks { samples: vec![0; LANES * stride], stride, predictors: Vec::with_capacity(LANES), longest: 0 }
    }

    /// A block that `fill` fills and says the predictor of.
    pub fn push(&mut self, samples: usize, fill: impl FnOnce(&mut [i32]) -> Option<Predictor>) -> Option<()> {
        let start = self.predictors.len() * self.stride;
        self.predictors.push(fill(&mut self.samples[start..start + samples])?);
        self.longest = self.longest.max(samples);
        Some(())
    }

    pub fn len(&self) -> usize {
        self.predictors.len()
    }

    /// The blocks, each with what lies behind its end.
    pub fn rows(&mut self) -> std::slice::ChunksExactMut<'_, i32> {
        self.samples.chunks_exact_mut(self.stride)
    }

    pub fn clear(&mut self) {
        self.predictors.clear();
        self.longest = 0;
    }

    /// Turns residuals into samples.
    pub fn restore(&mut self) {
        let order = self.predictors.iter().map(|predictor| predictor.order).max().unwrap_or(0);
        let rows = self.samples.chunks_exact_mut(self.stride);
        for (predictor, row) in self.predictors.iter().zip(rows) {
            predictor.restore_start(row, order);
        }
        if (1..self.longest).contains(&order) {
            Arch::new().dispatch(Lanes { blocks: self, order });
        }
    }
}

/// All blocks from the longest order on.
struct Lanes<'a> {
    blocks: &'a mut Blocks,
    order: usize,
}

/// A number of each block.
type Row = [i32; LANES];

impl WithSimd for Lanes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Lanes { blocks: Blocks { samples, stride, predictors, longest }, order } = self;
        let (mut coefficients, mut shifts) = ([[0; LANES]; MAX_ORDER], [0; LANES]);
        for (lane, predictor) in predictors.iter().enumerate() {
            shifts[lane] = predictor.shift;
            // The oldest first, as the samples lie.
            (0..order).for_each(|at| coefficients[order - 1 - at][lane] = predictor.coefficients[at]);
        }
        let coefficients = &coefficients[..order];
        let wide = predictors.iter().any(|predictor| predictor.wide);
        let mut rows = [[0; LANES]; MAX_ORDER + TILE];
        let rows = &mut rows[..order + TILE];
        for (lane, row) in samples.chunks_exact(*stride).enumerate() {
            (0..order).for_each(|at| rows[at][lane] = row[at]);
        }
        let mut quarters = [[[0; 4]; TILE]; LANES / 4];
        let quarters = &mut quarters[..predictors.len().div_ceil(4)];
        for start in (order..*longest).step_by(TILE) {
            for (quarter, lanes) in quarters.iter_mut().zip(samples.chunks_exact(4 * *stride)) {
                weave(from_fn(|lane| lanes[lane * *stride + start..].first_chunk().expect("whole tiles")), quarter);
            }
            for (at, row) in rows[order..].iter_mut().enumerate() {
                let parts = row.as_chunks_mut::<4>().0;
                parts.iter_mut().zip(&*quarters).for_each(|(part, quarter)| *part = quarter[at]);
            }
            match wide {
                true => restore_wide(coefficients, &shifts, rows),
                false => restore_narrow(coefficients, &shifts, rows),
            }
            for (at, row) in rows[order..].iter().enumerate() {
                let parts = row.as_chunks::<4>().0;
                parts.iter().zip(&mut *quarters).for_each(|(part, quarter)| quarter[at] = *part);
            }
            for (quarter, lanes) in quarters.iter().zip(samples.chunks_exact_mut(4 * *stride)) {
                let mut lanes =
                    lanes.chunks_exact_mut(*stride).map(|lane| lane[start..].first_chunk_mut().expect("whole tiles"));
                unweave(quarter, from_fn(|_| lanes.next().expect("four")));
            }
            rows.copy_within(TILE.., 0);
        }
    }
}

#[inline(always)]
fn weave(lanes: [&[i32; TILE]; 4], woven: &mut [[i32; 4]; TILE]) {
    for at in 0..TILE {
        woven[at] = [lanes[0][at], lanes[1][at], lanes[2][at], lanes[3][at]];
    }
}

#[inline(always)]
fn unweave(woven: &[[i32; 4]; TILE], lanes: [&mut [i32; TILE]; 4]) {
    for at in 0..TILE {
        let [a, b, c, d] = woven[at];
        lanes[0][at] = a;
        lanes[1][at] = b;
        lanes[2][at] = c;
        lanes[3][at] = d;
    }
}

/// Restores the rows behind as many as there are coefficients.
#[inline(always)]
fn restore_narrow(coefficients: &[Row], shifts: &[u32; LANES], rows: &mut [Row]) {
    let Some((last, older)) = coefficients.split_last() else { return };
    let mut latest = rows[older.len()];
    for at in coefficients.len()..rows.len() {
        let mut sums = [0i32; LANES];
        for (samples, coefficients) in rows[at - coefficients.len()..].iter().zip(older) {
            for lane in 0..LANES {
                sums[lane] = sums[lane].wrapping_add(samples[lane].wrapping_mul(coefficients[lane]));
            }
        }
        // The one that is waited for comes last, and out of a register.
        for lane in 0..LANES {
            let prediction = sums[lane].wrapping_add(latest[lane].wrapping_mul(last[lane])) >> shifts[lane];
            latest[lane] = rows[at][lane].wrapping_add(prediction);
        }
        rows[at] = latest;
    }
}

#[inline(always)]
fn restore_wide(coefficients: &[Row], shifts: &[u32; LANES], rows: &mut [Row]) {
    for at in coefficients.len()..rows.len() {
        let mut sums = [0i64; LANES];
        for (samples, coefficients) in rows[at - coefficients.len()..].iter().zip(coefficients) {
            for lane in 0..LANES {
                sums[lane] += i64::from(samples[lane]) * i64::from(coefficients[lane]);
            }
        }
        for lane in 0..LANES {
            rows[at][lane] = rows[at][lane].wrapping_add((sums[lane] >> shifts[lane]) as i32);
        }
    }
}
