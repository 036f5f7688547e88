//! Matrix products of 8-bit integers, for a network that speaks on a CPU: four times as many multiplications an instruction as
//! in f32. Weights are rounded once, by output channel; rows as they come, each by its own lowest and highest value. Sums
//! are exact.

use tch::{Device, Kind, Tensor};

use super::{Out, values};
use crate::error::Error;

/// Output channels that are computed together: two registers of 16.
const PANEL: usize = 32;

/// One register of weights: 16 output channels, four inputs of each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Lane([i8; 64]);

/// A weight that is rounded and laid out for products.
pub struct Int8Weight {
    /// `[panels, ceil(inputs / 4), 2]`
    lanes: Vec<Lane>,
    /// `[outputs]`, what one step of a channel's weights is worth.
    steps: Vec<f32>,
    /// `[outputs]`, the sum of a channel's weights, in steps.
    sums: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

/// What follows a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Nothing,
    Gelu,
}

impl Int8Weight {
    /// None where the processor lacks the instructions ([`has_int8`]).
    ///
    /// # Shapes
    /// - weight: `[outputs, inputs]`, f32 on the CPU
    pub fn new(weight: &Tensor) -> Option<Int8Weight> {
        if !has_int8() {
            return None;
        }
        let (outputs, inputs) = weight.size2().ok().map(|(to, from)| (to as usize, from as usize))?;
        let weight = weight.to_kind(Kind::Float).contiguous();
        // SAFETY: f32 by the line above, in one piece, and only read.
        let weight = unsafe { values::<f32>(&weight) };
        let fours = inputs.div_ceil(4);
        let mut made = Int8Weight {
            lanes: vec![Lane([0; 64]); outputs.div_ceil(PANEL) * fours * 2],
            steps: vec![0.0; outputs],
            sums: vec![0.0; outputs],
            inputs,
            outputs,
        };
        for (output, row) in weight.chunks_exact(inputs).enumerate() {
            let step = row.iter().fold(0.0f32, |most, value| most.max(value.abs())) / 127.0;
            let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
            let mut sum = 0i32;
            for (input, value) in row.iter().enumerate() {
                let rounded = (value * inverse).round().clamp(-127.0, 127.0) as i8;
                let (panel, place) = (output / PANEL, output % PANEL);
                let lane = (panel * fours + input / 4) * 2 + place / 16;
                made.lanes[lane].0[place % 16 * 4 + input % 4] = rounded;
                sum += i32::from(rounded);
            }
            (made.steps[output], made.sums[output]) = (step, sum as f32);
        }
        Some(made)
    }

    /// The product of rows and weights, and what follows it.
    ///
    /// # Shapes
    /// - x: `[…, inputs]`, f32 on the CPU; bias: `[outputs]`, f32
    /// - output: `[…, outputs]`
    pub fn forward(&self, x: &Tensor, bias: Option<&Tensor>, then: Then) -> Result<Tensor, Error> {
        let mut size = x.size();
        let given = (x.kind(), x.device(), size.pop());
        if given != (Kind::Float, Device::Cpu, Some(self.inputs as i64)) {
            let wanted = format!("int8 product: x must be […, {}] f32 on the CPU, not {given:?}", self.inputs);
            return Err(Error::Argument(wanted));
        }
        let rows = size.iter().product::<i64>();
        let x = x.f_contiguous()?;
        let bias = bias.map(|bias| bias.f_contiguous()).transpose()?;
        let (made, out) = Out::new(&[rows, self.outputs as i64])?;
        // SAFETY: f32 on the CPU in one piece, as was checked, and only read.
        let (x, bias) = unsafe { (values::<f32>(&x), bias.as_ref().map(|bias| values::<f32>(bias))) };
        self.multiply(x, bias, then, out);
        size.push(self.outputs as i64);
        Ok(made.f_view(size.as_slice())?)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn multiply(&self, _: &[f32], _: Option<&[f32]>, _: Then, _: Out) {
        unreachable!("there are no weights where there are no instructions");
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn has_int8() -> bool {
    false
}

/// Whether this processor has the instructions.
#[cfg(target_arch = "x86_64")]
pub fn has_int8() -> bool {
    is_x86_feature_detected!("avx512vnni") && super::has_avx512()
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::super::parallel::each_part;
    use super::super::{LANES, Out, gelu};
    use super::{Int8Weight, Lane, PANEL, Then};
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// Rows that are computed together: with two registers each, their sums fill most of the 32 that there are.
    const TILE: usize = 12;
    /// Tiles that a thread takes at a time: a panel stays in its nearest cache meanwhile.
    const TILES: usize = 4;

    impl Int8Weight {
        pub(super) fn multiply(&self, x: &[f32], bias: Option<&[f32]>, then: Then, out: Out) {
            let some = TILE * TILES;
            each_part(out.rows.div_ceil(some), |part| {
                let rows = part * some..((part + 1) * some).min(out.rows);
                // SAFETY: the processor has the instructions, or there were no weights; the rows are this part's alone.
                unsafe { self.some_rows(x, rows, bias, then, out) }
            });
        }

        /// # Safety
        /// The processor has the instructions, and nobody else writes these rows.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        unsafe fn some_rows(&self, x: &[f32], rows: Range<usize>, bias: Option<&[f32]>, then: Then, out: Out) {
            let fours = self.inputs.div_ceil(4);
            let mut rounded = vec![0u8; TILE * TILES * fours * 4];
            let mut scales = [(0.0f32, 0.0f32); TILE * TILES];
            let laid = rounded.chunks_exact_mut(fours * 4).zip(&mut scales).zip(rows.clone());
            for ((rounded, scale), row) in laid {
                *scale = round_row(&x[row * self.inputs..][..self.inputs], rounded);
            }
            let tiles = rows.len().div_ceil(TILE);
            for (panel, lanes) in self.lanes.chunks_exact(fours * 2).enumerate() {
                let first = panel * PANEL;
                let channels = PANEL.min(self.outputs - first);
                let mut known = [[0.0f32; PANEL]; 3];
                known[0][..channels].copy_from_slice(&self.steps[first..][..channels]);
                known[1][..channels].copy_from_slice(&self.sums[first..][..channels]);
                if let Some(bias) = bias {
                    known[2][..channels].copy_from_slice(&bias[first..][..channels]);
                }
                for tile in 0..tiles {
                    let sums = tile_sums(&rounded[tile * TILE * fours * 4..][..TILE * fours * 4], lanes, fours);
                    let last = TILE.min(rows.len() - tile * TILE);
                    for (i, sums) in sums[..last].iter().enumerate() {
                        let (lowest, step) = scales[tile * TILE + i];
                        let mut made = [0.0f32; PANEL];
                        for (c, made) in made.iter_mut().enumerate() {
                            *made = (sums[c] as f32 * step + lowest * known[1][c]) * known[0][c] + known[2][c];
                        }
                        if then == Then::Gelu {
                            made.iter_mut().for_each(|made| *made = gelu(*made));
                        }
                        // SAFETY: the caller has these rows.
                        let row = unsafe { out.row(rows.start + tile * TILE + i) };
                        row[first..][..channels].copy_from_slice(&made[..channels]);
                    }
                }
            }
        }
    }

    /// Rounds a row to 0..=255 from its lowest to its highest value: the lowest, and what one step is worth.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn round_row(row: &[f32], rounded: &mut [u8]) -> (f32, f32) {
        assert!(rounded.len() >= row.len());
        let some = |at: usize| -> __mmask16 { if row.len() - at < LANES { (1 << (row.len() - at)) - 1 } else { !0 } };
        // SAFETY: what lies beyond the row is masked, and so is not read.
        let load = |at: usize| unsafe { _mm512_maskz_loadu_ps(some(at), row.as_ptr().add(at)) };
        let (mut low, mut high) = (_mm512_set1_ps(f32::INFINITY), _mm512_set1_ps(f32::NEG_INFINITY));
        for at in (0..row.len()).step_by(LANES) {
            (low, high) =
                (_mm512_mask_min_ps(low, some(at), low, load(at)), _mm512_mask_max_ps(high, some(at), high, load(at)));
        }
        let (lowest, highest) = (_mm512_reduce_min_ps(low), _mm512_reduce_max_ps(high));
        let step = (highest - lowest) / 255.0;
        let (from, inverse) = (_mm512_set1_ps(lowest), _mm512_set1_ps(if step > 0.0 { 1.0 / step } else { 0.0 }));
        for at in (0..row.len()).step_by(LANES) {
            let steps = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_sub_ps(load(at), from), inverse));
            // SAFETY: as many bytes as the row has values, of which the mask lets no more through.
            unsafe { _mm512_mask_cvtusepi32_storeu_epi8(rounded.as_mut_ptr().add(at).cast(), some(at), steps) };
        }
        (lowest, step)
    }

    /// Sums of a tile's rows with a panel's channels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn tile_sums(rows: &[u8], lanes: &[Lane], fours: usize) -> [[i32; PANEL]; TILE] {
        assert!(rows.len() == TILE * fours * 4 && lanes.len() == fours * 2);
        let mut sums = [[_mm512_setzero_si512(); 2]; TILE];
        let (row, lane) = (rows.as_ptr(), lanes.as_ptr().cast::<__m512i>());
        for four in 0..fours {
            // SAFETY: two lanes for every four inputs, as was asserted, aligned as `Lane` says.
            let weights = unsafe { [_mm512_load_si512(lane.add(four * 2)), _mm512_load_si512(lane.add(four * 2 + 1))] };
            for (i, sums) in sums.iter_mut().enumerate() {
                // SAFETY: so many rows of so many bytes, as was asserted.
                let inputs = unsafe { row.add((i * fours + four) * 4).cast::<i32>().read_unaligned() };
                let inputs = _mm512_set1_epi32(inputs);
                sums[0] = _mm512_dpbusd_epi32(sums[0], inputs, weights[0]);
                sums[1] = _mm512_dpbusd_epi32(sums[1], inputs, weights[1]);
            }
        }
        // SAFETY: two registers of 16 numbers are 32 numbers.
        unsafe { std::mem::transmute::<[[__m512i; 2]; TILE], [[i32; PANEL]; TILE]>(sums) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(shape: &[i64]) -> Tensor {
        Tensor::randn(shape, (Kind::Float, Device::Cpu))
    }

    /// What rounding leaves: the product in f64 of the rounded values, by their definition.
    fn expected(x: &Tensor, weight: &Tensor) -> Tensor {
        let (x, weight) = (x.to_kind(Kind::Double), weight.to_kind(Kind::Double));
        let step = weight.abs().amax([1], true) / 127.0;
        let weight = (&weight / &step).round() * &step;
        let (low, high) = (x.amin([1], true), x.amax([1], true));
        let step = (high - &low) / 255.0;
        let x = ((x - &low) / &step).round() * &step + &low;
        x.matmul(&weight.transpose(0, 1))
    }

    #[test]
    fn products_are_those_of_the_rounded_values() {
        tch::manual_seed(3);
        for (rows, inputs, outputs) in [(1, 4, 1), (5, 7, 33), (12, 64, 32), (49, 192, 100), (200, 513, 64)] {
            let (x, weight, bias) = (random(&[rows, inputs]), random(&[outputs, inputs]), random(&[outputs]));
            let Some(packed) = Int8Weight::new(&weight) else {
                return eprintln!("skipped: this processor has no AVX-512 VNNI");
            };
            let expected = expected(&x, &weight) + &bias;
            let made = packed.forward(&x, Some(&bias), Then::Nothing).unwrap();
            // A value in the middle of two steps may go either way.
            let far = (&made - &expected).abs().max().double_value(&[]) / expected.abs().max().double_value(&[]);
            assert!(far < 2e-3, "{rows}×{inputs}×{outputs}: {far}");
            let truth = x.matmul(&weight.transpose(0, 1)) + &bias;
            let off = (&made - &truth).square().mean(Kind::Double).double_value(&[]).sqrt()
                / truth.square().mean(Kind::Double).double_value(&[]).sqrt();
            assert!(off < 0.02, "{rows}×{inputs}×{outputs}: {off}");
            let with_gelu = packed.forward(&x.view([1, rows, inputs]), Some(&bias), Then::Gelu).unwrap();
            assert_eq!(with_gelu.size(), [1, rows, outputs]);
            assert!(with_gelu.squeeze_dim(0).allclose(&made.gelu("tanh"), 1e-5, 1e-5, false));
            // A row alone is the same to the bit.
            let alone = packed.forward(&x.narrow(0, rows - 1, 1), Some(&bias), Then::Nothing).unwrap();
            assert_eq!(alone, made.narrow(0, rows - 1, 1));
        }
    }

    #[test]
    fn rows_without_a_span_and_weights_of_zero_are_exact() {
        let Some(packed) = Int8Weight::new(&Tensor::zeros([3, 8], (Kind::Float, Device::Cpu))) else { return };
        let made = packed.forward(&random(&[2, 8]), None, Then::Nothing).unwrap();
        assert_eq!(made.abs().max().double_value(&[]), 0.0);
        let weight = Tensor::from_slice(&[127.0f32, -127.0, 64.0, 1.0]).view([1, 4]);
        let packed = Int8Weight::new(&weight).unwrap();
        let even = Tensor::full([1, 4], 0.5, (Kind::Float, Device::Cpu));
        assert_eq!(packed.forward(&even, None, Then::Nothing).unwrap().double_value(&[0, 0]), 32.5);
        assert!(packed.forward(&random(&[2, 5]), None, Then::Nothing).is_err());
    }
}
