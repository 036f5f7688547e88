//! Convolutions on padded batches, `[batch, channels, time]` or `[batch, channels, time, frequency]`. Weights are f32 and
//! are cast to the kind of the input.

use crate::model::layers::uniform_by_fan_in;
use tch::Tensor;
use tch::nn::{Init, Path};

/// Of odd kernel, with zeros beyond the ends.
pub struct Conv {
    weight: Tensor,
    bias: Tensor,
    stride: Vec<i64>,
    groups: i64,
}

impl Conv {
    pub fn new(path: Path, from: i64, to: i64, kernel: &[i64], stride: &[i64]) -> Self {
        Self::grouped(path, from, to, kernel, stride, 1)
    }

    /// A filter of its own for every channel.
    pub fn depthwise(path: Path, channels: i64, kernel: i64) -> Self {
        Self::grouped(path, channels, channels, &[kernel], &[1], channels)
    }

    fn grouped(path: Path, from: i64, to: i64, kernel: &[i64], stride: &[i64], groups: i64) -> Self {
        let shape = [&[to, from / groups], kernel].concat();
        let weight = path.var("weight", &shape, uniform_by_fan_in(shape[1..].iter().product()));
        Conv { weight, bias: path.var("bias", &[to], Init::Const(0.0)), stride: stride.to_vec(), groups }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (weight, bias) = (self.weight.to_kind(x.kind()), self.bias.to_kind(x.kind()));
        let half: Vec<i64> = weight.size()[2..].iter().map(|kernel| kernel / 2).collect();
        let (ones, zeros) = (vec![1; half.len()], vec![0; half.len()]);
        x.convolution(&weight, Some(&bias), &self.stride, &half, &ones, false, &zeros, self.groups)
    }
}
