//! Convolutions over time and frequency, to 32 channels, with bias and leaky rectifier: what the spectral discriminators of a
//! vocoder are made of. Tensors are channels last, `[batch, time, frequency, channels]`.
//!
//! On CUDA in bf16: `plane.cu` and `plane_weight.cu`, one kernel forward and two to four backward, the same to the bit in every
//! run. Everywhere else: [`plain`], in LibTorch's operations.

use tch::{Kind, Tensor};

use super::program::{Plane, Program, Source, program};
use super::{Weights, check_like, plain};
use crate::error::Error;
use crate::ffi::{make, make_all, raw, torchx_conv_leaky};
use crate::narrow::narrowed;

/// Channels that come out.
const TO: i64 = 32;

/// Mirror of the C++ struct of the same name.
#[repr(C)]
pub(crate) struct PlaneLayer {
    plane: *const Program,
    weight: *const Program,
    leaky: *const Program,
    leaky_matched: *const Program,
    stride: [i64; 2],
}

/// Whether there are kernels for this: bf16 on CUDA, a kernel of 3 by 9 or 3 by 3, strides of 1 or 2, 32 channels in each place,
/// or 8 of which the first few count.
pub fn convolves_planes(x: &Tensor, weight: &Tensor, stride: [i64; 2]) -> bool {
    let (&[_, _, _, lies], &[TO, from, 3, 3 | 9]) = (x.size().as_slice(), weight.size().as_slice()) else {
        return false;
    };
    let channels = (lies == 32 && from == 32) || (lies == 8 && from <= 8);
    let strides = stride.iter().all(|stride| [1, 2].contains(stride));
    channels && strides && x.kind() == Kind::BFloat16 && x.device().is_cuda() && x.numel() > 0
}

/// `x` convolved, zeros beyond its ends, and the bias added; of that, what lies below zero is multiplied by `slope`.
///
/// # Shapes
/// - x: `[batch, time, frequency, from]`, or `[…, 8]` where `from` is less
/// - weight: `[32, from, taps, taps]`, taps odd; bias: `[32]`
/// - output: `[batch, time / stride, frequency / stride, 32]`, rounded up
pub fn conv_leaky(x: &Tensor, weights: Weights, stride: [i64; 2], slope: f64) -> Result<Tensor, Error> {
    check(x, weights)?;
    if !convolves_planes(x, weights.weight, stride) {
        return plain::conv_leaky(x, weights, stride, slope);
    }
    let (layer, weight) = (PlaneLayer::new(x, weights, stride)?, narrowed(weights.weight, x.kind()));
    let (weight, bias) = (raw(&weight), raw(weights.bias));
    // SAFETY: programs of this operation, live tensors whose shapes were checked, and no target, so that one tensor is made.
    make(|output| unsafe { torchx_conv_leaky(&layer, raw(x), weight, bias, std::ptr::null(), slope, output) })
}

/// The same, and beside it the mean distance of its values from those of `target`, 0-d, f32. The target has no gradient.
pub fn conv_leaky_matched(
    x: &Tensor,
    weights: Weights,
    stride: [i64; 2],
    slope: f64,
    target: &Tensor,
) -> Result<[Tensor; 2], Error> {
    check(x, weights)?;
    let target = target.detach();
    if !convolves_planes(x, weights.weight, stride) {
        return plain::conv_leaky_matched(x, weights, stride, slope, &target);
    }
    let (&[batch, time, frequency, _], [by_time, by_frequency]) = (x.size().as_slice(), stride) else { unreachable!() };
    let size = [batch, (time - 1) / by_time + 1, (frequency - 1) / by_frequency + 1, TO];
    check_like("conv_leaky: target", &target, &size, x.kind(), x.device())?;
    let (layer, weight) = (PlaneLayer::new(x, weights, stride)?, narrowed(weights.weight, x.kind()));
    let (weight, bias) = (raw(&weight), raw(weights.bias));
    // SAFETY: as above, with room for the two tensors that a call with a target makes.
    make_all(|outputs| unsafe { torchx_conv_leaky(&layer, raw(x), weight, bias, raw(&target), slope, outputs) })
}

impl PlaneLayer {
    fn new(x: &Tensor, weights: Weights, stride: [i64; 2]) -> Result<Self, Error> {
        let (&[_, _, _, from], &[_, _, kt, kf]) = (x.size().as_slice(), weights.weight.size().as_slice()) else {
            unreachable!("four axes")
        };
        let plane = Plane { from, kernel: [kt, kf], stride };
        let of = |source| program(source, x.kind(), x.device());
        Ok(PlaneLayer {
            plane: of(Source::Plane(plane))?,
            weight: of(Source::PlaneWeight(plane))?,
            leaky: of(Source::BiasLeaky { matched: false })?,
            leaky_matched: of(Source::BiasLeaky { matched: true })?,
            stride,
        })
    }
}

fn check(x: &Tensor, weights: Weights) -> Result<(), Error> {
    let (&[_, _, _, lies], &[to, from, ..]) = (x.size().as_slice(), weights.weight.size().as_slice()) else {
        let (x, weight) = (x.size(), weights.weight.size());
        return Err(Error::Argument(format!("conv_leaky: x and weight must have four axes, not {x:?} and {weight:?}")));
    };
    check_like("conv_leaky: bias", weights.bias, &[to], Kind::Float, x.device())?;
    check_like("conv_leaky: weight", weights.weight, &weights.weight.size(), Kind::Float, x.device())?;
    match lies == from || (lies == 8 && from < 8) {
        true => Ok(()),
        false => Err(Error::Argument(format!("conv_leaky: {from} channels of {lies}"))),
    }
}
