//! Gradient clipping by the global norm, without waiting for the GPU.

use tch::Tensor;

use crate::error::Error;
use crate::ffi::{make, raws, torchx_clip_grad_norm};

/// Scales the gradients so that their common 2-norm is at most `max_norm`. Parameters without a gradient are left out.
///
/// Returns the norm before clipping: f32, 0-d, on the gradients' device. Reading it waits for the GPU. It is not finite
/// when a gradient is not, and the gradients are then of no use: see `found_inf` of [`crate::AdamW::step`].
pub fn clip_grad_norm<'a>(params: impl IntoIterator<Item = &'a Tensor>, max_norm: f64) -> Result<Tensor, Error> {
    let params = raws(params);
    // SAFETY: live tensors, their count, and room for the new one.
    make(|norm| unsafe { torchx_clip_grad_norm(params.as_ptr(), params.len(), max_norm, norm) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    fn with_grad(values: &[f32]) -> Tensor {
        let param = Tensor::zeros([values.len() as i64], FLOAT_CPU).set_requires_grad(true);
        (&param * Tensor::from_slice(values)).sum(tch::Kind::Float).backward();
        param
    }

    fn grad(param: &Tensor) -> Vec<f32> {
        Vec::try_from(param.grad()).unwrap()
    }

    #[test]
    fn scales_all_gradients_by_one_factor() {
        let (a, b) = (with_grad(&[3.0, 0.0]), with_grad(&[0.0, 0.0, 4.0]));
        let unused = Tensor::zeros([7], FLOAT_CPU).set_requires_grad(true);
        let norm = clip_grad_norm([&a, &unused, &b], 1.0).unwrap();
        assert_eq!((norm.double_value(&[]), norm.kind(), norm.dim()), (5.0, tch::Kind::Float, 0));
        assert!((grad(&a)[0] - 0.6).abs() < 1e-6 && (grad(&b)[2] - 0.8).abs() < 1e-6);
    }

    #[test]
    fn leaves_small_gradients_alone() {
        let a = with_grad(&[0.3, 0.4]);
        assert!((clip_grad_norm([&a], 1.0).unwrap().double_value(&[]) - 0.5).abs() < 1e-7);
        assert_eq!(grad(&a), [0.3, 0.4]);
    }

    #[test]
    fn nothing_to_clip_is_a_norm_of_zero() {
        assert_eq!(clip_grad_norm([], 1.0).unwrap().double_value(&[]), 0.0);
        assert_eq!(clip_grad_norm([&Tensor::zeros([2], FLOAT_CPU)], 1.0).unwrap().double_value(&[]), 0.0);
    }

    #[test]
    fn a_gradient_that_is_not_finite_shows_in_the_norm() {
        assert!(!clip_grad_norm([&with_grad(&[1.0, f32::INFINITY])], 1.0).unwrap().double_value(&[]).is_finite());
    }
}
