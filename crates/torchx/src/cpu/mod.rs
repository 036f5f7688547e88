//! Kernels for a CPU: the small operations of [`crate::fused`] in one pass each, forward and backward, where LibTorch's own
//! take a pass over memory, and new memory, for every multiplication and addition; products where those of LibTorch are
//! slow; and for speaking alone products of 8-bit integers.
//!
//! Each row comes out the same whatever lies beside it and however many threads there are. On x86-64 loops are compiled for
//! wider vectors too, and the processor is asked once which it has; sums run over [`LANES`] lanes everywhere, so results do
//! not depend on it.

pub(crate) mod int8;
mod operation;
pub(crate) mod parallel;
pub(crate) mod product;
pub(crate) mod rows;

use std::ops::Range;

use tch::{Device, Kind, Tensor};

const LANES: usize = 16;

/// Whether these kernels can stand for LibTorch's: f32 on the CPU.
pub(crate) fn serves(x: &Tensor) -> bool {
    x.device() == Device::Cpu && x.kind() == Kind::Float
}

/// Whether the processor has the widest vectors that loops are compiled for.
#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl")
}

/// The values of a tensor in one piece on the CPU.
///
/// # Safety
/// `T` is what its kind says, and nothing writes to it while the slice lives.
unsafe fn values<T>(tensor: &Tensor) -> &[T] {
    assert!(tensor.is_contiguous() && tensor.device() == Device::Cpu);
    match tensor.numel() {
        0 => &[],
        // SAFETY: so many elements in one piece, alive as long as the tensor is.
        len => unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), len) },
    }
}

/// Where rows of a new tensor are written, by several threads at once.
#[derive(Clone, Copy)]
struct Out {
    first: *mut f32,
    rows: usize,
    width: usize,
}

// SAFETY: memory of a tensor that lives on the thread which waits for the others; `row` says who may write where.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Out {
    /// A new tensor of this shape, and its rows: all axes but the first are a row.
    fn new(shape: &[i64]) -> Result<(Tensor, Out), crate::Error> {
        let tensor = Tensor::f_empty(shape, (Kind::Float, Device::Cpu))?;
        let (first, rows) = (tensor.data_ptr().cast(), shape[0] as usize);
        Ok((tensor, Out { first, rows, width: shape[1..].iter().product::<i64>() as usize }))
    }

    /// # Safety
    /// The tensor is alive, and nobody else has this row.
    #[allow(clippy::mut_from_ref)]
    unsafe fn row(&self, row: usize) -> &mut [f32] {
        assert!(row < self.rows);
        // SAFETY: inside the tensor; the caller has the row for himself.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.width), self.width) }
    }

    /// # Safety
    /// The tensor is alive, and nobody else has these columns of the row.
    #[allow(clippy::mut_from_ref)]
    unsafe fn columns(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(row < self.rows && columns.end <= self.width);
        // SAFETY: inside the tensor; the caller has them for himself.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.width + columns.start), columns.len()) }
    }
}

/// `exp`, off by at most 3e-7 of its value; what lies beyond f32's range is held at its ends.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding it leaves a whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let power = x.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E;
    let whole = power + ROUND;
    let part = (power - (whole - ROUND)) * std::f32::consts::LN_2;
    let series = |x: f32| {
        1.0 + x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x * (1.0 / 720.0))))))
    };
    let exponent = whole.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    series(part) * f32::from_bits(exponent)
}

/// GELU by tanh, written with the exponential that it consists of.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let twice = 1.595_769_2 * (x + 0.044_715 * x * x * x);
    x / (1.0 + exp(-twice))
}

/// Its slope.
#[inline(always)]
fn gelu_slope(x: f32) -> f32 {
    let square = x * x;
    let share = 1.0 / (1.0 + exp(-1.595_769_2 * (x + 0.044_715 * x * square)));
    share + x * share * (1.0 - share) * (1.595_769_2 * (1.0 + 0.134_145 * square))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_and_gelu_are_theirs() {
        for i in -8000..8000 {
            let x = i as f64 / 100.0;
            let (ours, truth) = (f64::from(exp(x as f32)), f64::from(x as f32).exp());
            assert!((ours / truth - 1.0).abs() < 3e-7 + x.abs() * 7e-8, "exp({x}): {ours} and not {truth}");
            let truth = 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044715 * x * x * x)).tanh());
            assert!((f64::from(gelu(x as f32)) - truth).abs() < 1e-6 * (1.0 + truth.abs()), "gelu({x})");
            let of = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044715 * x * x * x)).tanh());
            let slope = (of(x + 1e-5) - of(x - 1e-5)) / 2e-5;
            assert!((f64::from(gelu_slope(x as f32)) - slope).abs() < 2e-6, "gelu'({x})");
        }
        assert!(gelu(f32::NAN).is_nan() && exp(-1e30) >= 0.0 && exp(1e30).is_finite());
    }
}
