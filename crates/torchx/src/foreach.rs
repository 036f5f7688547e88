//! One launch for many tensors: what a step does to all parameters at once.

use tch::Tensor;

use crate::error::Error;
use crate::ffi::{check, raw, raws, torchx_lerp, torchx_scale_grad};

/// Moves each value by `weight` of the way towards its partner: an exponential moving average in place.
pub fn lerp(values: &[Tensor], towards: &[Tensor], weight: f64) -> Result<(), Error> {
    assert_eq!(values.len(), towards.len(), "values and their partners");
    let (values, towards) = (raws(values), raws(towards));
    // SAFETY: two lists of live tensors of one length; LibTorch checks their shapes.
    check(unsafe { torchx_lerp(values.as_ptr(), towards.as_ptr(), values.len(), weight) })
}

/// Multiplies the gradients by a number on the device: f32, 0-d. Parameters without a gradient are left out.
pub fn scale_grad(params: &[Tensor], factor: &Tensor) -> Result<(), Error> {
    let params = raws(params);
    // SAFETY: live tensors and their count.
    check(unsafe { torchx_scale_grad(params.as_ptr(), params.len(), raw(factor)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lerp_goes_part_of_the_way() {
        let average = [Tensor::from_slice(&[0.0f32, 4.0]), Tensor::from_slice(&[1.0f32])];
        let values = [Tensor::from_slice(&[8.0f32, 4.0]), Tensor::from_slice(&[-3.0f32])];
        lerp(&average, &values, 0.25).unwrap();
        assert_eq!(Vec::<f32>::try_from(&average[0]).unwrap(), [2.0, 4.0]);
        assert_eq!(Vec::<f32>::try_from(&average[1]).unwrap(), [0.0]);
    }

    #[test]
    fn gradients_are_scaled_where_there_are_any() {
        let param = Tensor::from_slice(&[3.0f32]).set_requires_grad(true);
        let unused = Tensor::from_slice(&[3.0f32]).set_requires_grad(true);
        param.square().sum(tch::Kind::Float).backward();
        scale_grad(&[param.shallow_clone(), unused], &Tensor::from(0.5f32)).unwrap();
        assert_eq!(Vec::<f32>::try_from(param.grad()).unwrap(), [3.0]);
    }
}
