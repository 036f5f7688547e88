//! Convolutions on padded batches, `[batch, channels, time]` or `[batch, channels, time, frequency]`. Weights are f32 and
//! are cast to the kind of the input.

use super::graph::GraphWriter;
use super::layers::uniform_by_fan_in;
use host::onnx::Value;
use tch::Tensor;
use tch::nn::{Init, Path};
use torchx::{narrowed, product};

/// Tensor cores take 16-bit channels by eights.
const CHANNEL_UNIT: i64 = 8;

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
        let weight = if groups == 1 { product(weight) } else { weight };
        Conv { weight, bias: path.var("bias", &[to], Init::Const(0.0)), stride: stride.to_vec(), groups }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (weight, bias) = (narrowed(&self.weight, x.kind()), narrowed(&self.bias, x.kind()));
        if self.groups > 1 {
            return self.convolve(x, &weight, &bias);
        }
        match x.dim() {
            3 => self.convolve(&laid(&x.unsqueeze(3)), &laid(&weight.unsqueeze(3)), &bias).squeeze_dim(3),
            _ => self.convolve(&laid(x), &laid(&weight), &bias),
        }
    }

    /// Along the rows of `[rows, channels]`.
    pub fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let Conv { weight, bias, stride, groups } = self;
        assert_eq!(stride.as_slice(), [1], "a graph has no strided convolutions");
        if *groups > 1 {
            return g.depthwise(x, weight, bias);
        }
        let (to, from, kernel) = weight.size3().expect("one axis");
        let seen = g.unfold(x, from, kernel);
        let matrix = weight.permute([0, 2, 1]).reshape([to, kernel * from]);
        let product = g.product_of(&seen, weight, &matrix, g.precision());
        let bias = g.weight(bias);
        g.add(&product, &bias)
    }

    /// `weight`'s axes decide how many there are; one that the convolution was not made for has a kernel of 1.
    fn convolve(&self, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
        let half: Vec<i64> = weight.size()[2..].iter().map(|kernel| kernel / 2).collect();
        let (ones, zeros) = (vec![1; half.len()], vec![0; half.len()]);
        let stride: Vec<i64> = self.stride.iter().copied().chain([1]).take(half.len()).collect();
        x.convolution(weight, Some(bias), &stride, &half, &ones, false, &zeros, self.groups)
    }
}

/// `[_, channels, time, frequency]` with the channels of one place side by side in memory, and of a number that tensor
/// cores can take: convolutions then need no copies of their own. Channels that are added are zeros.
fn laid(tensor: &Tensor) -> Tensor {
    let missing = (CHANNEL_UNIT - tensor.size()[1] % CHANNEL_UNIT) % CHANNEL_UNIT;
    let last = tensor.permute([0, 2, 3, 1]);
    let last = if missing > 0 { last.constant_pad_nd([0, missing]) } else { last.contiguous() };
    last.permute([0, 3, 1, 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::nn::VarStore;
    use tch::{Device, Kind};

    fn drawn(shape: &[i64]) -> Tensor {
        Tensor::randn(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true)
    }

    /// Against a convolution of the same weights as they are.
    #[test]
    fn layout_and_added_channels_change_no_value_and_no_gradient() {
        for (from, kernel, stride, shape) in [
            (1, &[5][..], &[3][..], &[4, 1, 50][..]),
            (16, &[5], &[3], &[4, 16, 50]),
            (2, &[3, 9], &[1, 2], &[2, 2, 7, 33]),
        ] {
            let store = VarStore::new(Device::Cpu);
            let conv = Conv::new(store.root(), from, 24, kernel, stride);
            let (x, weight) = (drawn(shape), conv.weight.detach().set_requires_grad(true));
            let bias = Tensor::zeros([24], (Kind::Float, Device::Cpu));
            let plain = conv.convolve(&x, &weight, &bias);
            let slope = plain.randn_like();
            (&plain * &slope).sum(Kind::Float).backward();
            let by_x = x.grad().copy();
            let _ = x.grad().zero_();
            let made = conv.forward(&x);
            (&made * &slope).sum(Kind::Float).backward();
            for (made, plain) in [(made, plain), (x.grad(), by_x), (conv.weight.grad(), weight.grad())] {
                assert!(made.allclose(&plain, 1e-4, 1e-4, false), "{from} channels, kernel {kernel:?}");
            }
        }
    }
}
