//! Convolutions on padded batches, `[batch, channels, time]` or `[batch, channels, time, frequency]`. Weights are f32 and
//! are cast to the kind of the input.

use super::graph::GraphWriter;
use super::layers::{FIXED, uniform_by_fan_in};
use host::onnx::Value;
use tch::Tensor;
use tch::nn::{Init, Path};
use torchx::{fused, narrowed, product};

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
        let conv = Self::grouped(path, from, to, kernel, stride, 1);
        Conv { weight: product(conv.weight), ..conv }
    }

    /// For kernels that read weights in f32: they are never narrowed.
    pub fn full_precision(path: Path, from: i64, to: i64, kernel: i64) -> Self {
        Self::grouped(path, from, to, &[kernel], &[1], 1)
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
        if self.groups > 1 {
            let (weight, bias) = (narrowed(&self.weight, x.kind()), narrowed(&self.bias, x.kind()));
            return self.convolve(x, &weight, Some(&bias));
        }
        let bias = narrowed(&self.bias, x.kind());
        let made = match missing(self.width()) {
            0 => self.laid_out(x, Some(&bias)),
            _ => self.laid_out(x, None).narrow(1, 0, self.width()) + bias.view([1, -1, 1, 1]),
        };
        if x.dim() == 3 { made.squeeze_dim(3) } else { made }
    }

    /// Then what lies below zero is multiplied by `slope`.
    pub fn leaky(&self, x: &Tensor, slope: f64) -> Tensor {
        if let Some((places, stride)) = self.places(x) {
            return from_places(&fused::conv_leaky(&places, self.weights(), stride, slope).expect(FIXED));
        }
        let (rows, shape) = self.rows(x);
        shape.restore(&fused::bias_leaky(&rows, &self.bias, slope).expect(FIXED))
    }

    /// The same, and its mean distance from `target`.
    pub fn leaky_matched(&self, x: &Tensor, slope: f64, target: &Tensor) -> [Tensor; 2] {
        if let Some((places, stride)) = self.places(x) {
            let target = target.permute([0, 2, 3, 1]);
            let made = fused::conv_leaky_matched(&places, self.weights(), stride, slope, &target).expect(FIXED);
            return [from_places(&made[0]), made[1].shallow_clone()];
        }
        let (rows, shape) = self.rows(x);
        let (target, _) = Shape::flatten(target);
        let [made, distance] = fused::bias_leaky_matched(&rows, &self.bias, slope, &target).expect(FIXED);
        [shape.restore(&made), distance]
    }

    /// The input as kernels of our own take it, where there are such for this convolution, and its strides.
    fn places(&self, x: &Tensor) -> Option<(Tensor, [i64; 2])> {
        let &[by_time, by_frequency] = self.stride.as_slice() else { return None };
        if !x.device().is_cuda() {
            return None;
        }
        let (places, stride) = (laid(x).permute([0, 2, 3, 1]), [by_time, by_frequency]);
        fused::convolves_planes(&places, &self.weight, stride).then_some((places, stride))
    }

    pub fn weights(&self) -> fused::Weights<'_> {
        fused::Weights { weight: &self.weight, bias: &self.bias }
    }

    fn width(&self) -> i64 {
        self.weight.size()[0]
    }

    /// Without the bias, a row for each place; no copy is made where convolutions leave the channels side by side.
    fn rows(&self, x: &Tensor) -> (Tensor, Shape) {
        assert_eq!(missing(self.width()), 0, "channels by eights");
        let made = self.laid_out(x, None);
        Shape::flatten(&if x.dim() == 3 { made.squeeze_dim(3) } else { made })
    }

    /// `[batch, channels, time, frequency]`, of channels by eights.
    fn laid_out(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let in_two = |tensor: &Tensor| if tensor.dim() == 3 { tensor.unsqueeze(3) } else { tensor.shallow_clone() };
        let weight = laid(&in_two(&narrowed(&self.weight, x.kind())));
        // A single channel would come out by a kernel that is slower than eight are by tensor cores, backward most of all.
        let more = missing(self.width());
        let weight = if more > 0 { weight.constant_pad_nd([0, 0, 0, 0, 0, 0, 0, more]) } else { weight };
        self.convolve(&laid(&in_two(x)), &weight, bias)
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
    fn convolve(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let half: Vec<i64> = weight.size()[2..].iter().map(|kernel| kernel / 2).collect();
        let (ones, zeros) = (vec![1; half.len()], vec![0; half.len()]);
        let stride: Vec<i64> = self.stride.iter().copied().chain([1]).take(half.len()).collect();
        x.convolution(weight, bias, &stride, &half, &ones, false, &zeros, self.groups)
    }
}

/// Of a tensor `[batch, channels, …]` that lies in rows of channels.
struct Shape(Vec<i64>);

impl Shape {
    fn flatten(tensor: &Tensor) -> (Tensor, Shape) {
        let last = tensor.movedim_int(1, -1);
        let shape = last.size();
        (last.reshape([-1, tensor.size()[1]]), Shape(shape))
    }

    fn restore(&self, rows: &Tensor) -> Tensor {
        rows.view(self.0.as_slice()).movedim_int(-1, 1)
    }
}

/// `[batch, time, frequency, channels]` as `[batch, channels, time, frequency]`, where it lies.
fn from_places(places: &Tensor) -> Tensor {
    places.permute([0, 3, 1, 2])
}

/// As many channels or a few more: a number that tensor cores can take.
pub fn whole_units(channels: i64) -> i64 {
    channels + missing(channels)
}

/// Channels that are missing to a number that tensor cores can take.
fn missing(channels: i64) -> i64 {
    (CHANNEL_UNIT - channels % CHANNEL_UNIT) % CHANNEL_UNIT
}

/// `[_, channels, time, frequency]` with the channels of one place side by side in memory, and of a number that tensor
/// cores can take: convolutions then need no copies of their own. Channels that are added are zeros.
fn laid(tensor: &Tensor) -> Tensor {
    let more = missing(tensor.size()[1]);
    let last = tensor.permute([0, 2, 3, 1]);
    let last = if more > 0 { last.constant_pad_nd([0, more]) } else { last }.contiguous();
    // Viewed anew, an axis of one place gets the stride that tells this layout from others: without it LibTorch takes a
    // weight's gradient by the other layout, and copies input and gradient there and back.
    last.view([-1]).view(last.size().as_slice()).permute([0, 3, 1, 2])
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
        for (from, to, kernel, stride, shape) in [
            (1, 24, &[5][..], &[3][..], &[4, 1, 50][..]),
            (16, 24, &[5], &[3], &[4, 16, 50]),
            (16, 1, &[3], &[1], &[4, 16, 50]),
            (2, 24, &[3, 9], &[1, 2], &[2, 2, 7, 33]),
        ] {
            let (conv, _) = drawn_conv(from, to, kernel, stride);
            let (x, weight) = (drawn(shape), conv.weight.detach().set_requires_grad(true));
            let plain = conv.convolve(&x, &weight, Some(&conv.bias.detach()));
            let slope = plain.randn_like();
            (&plain * &slope).sum(Kind::Float).backward();
            let by_x = x.grad().copy();
            let _ = x.grad().zero_();
            let made = conv.forward(&x);
            (&made * &slope).sum(Kind::Float).backward();
            for (made, plain) in [(made, plain), (x.grad(), by_x), (conv.weight.grad(), weight.grad())] {
                assert!(made.allclose(&plain, 1e-4, 1e-4, false), "{from} to {to} channels, kernel {kernel:?}");
            }
        }
    }

    #[test]
    fn a_leaky_convolution_is_a_convolution_and_a_leaky_rectifier() {
        for (kernel, stride, shape) in [(&[5][..], &[3][..], &[4, 8, 50][..]), (&[3, 9], &[1, 2], &[2, 8, 7, 33])] {
            let (conv, _) = drawn_conv(8, 16, kernel, stride);
            let x = drawn(shape);
            let plain = conv.forward(&x).prelu(&Tensor::from_slice(&[0.1f32]));
            assert!(conv.leaky(&x, 0.1).allclose(&plain, 1e-5, 1e-5, false), "kernel {kernel:?}");
            let target = plain.randn_like();
            let [made, distance] = conv.leaky_matched(&x, 0.1, &target);
            assert!(made.allclose(&plain, 1e-5, 1e-5, false), "kernel {kernel:?}");
            assert!(distance.allclose(&(plain - target).abs().mean(Kind::Float), 1e-5, 1e-5, false));
        }
    }

    /// As LibTorch's own strides of that layout are; those of axes of one place are what it looks at.
    #[test]
    fn what_is_laid_says_so_in_its_strides() {
        let rows_of_channels = drawn(&[4, 50, 16]).movedim_int(-1, 1);
        for tensor in [drawn(&[4, 16, 50]), drawn(&[4, 1, 50]), rows_of_channels] {
            let laid = laid(&tensor.unsqueeze(3));
            let channels = laid.size()[1];
            assert_eq!(laid.stride(), [50 * channels, 1, channels, channels]);
        }
    }

    fn drawn_conv(from: i64, to: i64, kernel: &[i64], stride: &[i64]) -> (Conv, VarStore) {
        let store = VarStore::new(Device::Cpu);
        let mut conv = Conv::new(store.root(), from, to, kernel, stride);
        tch::no_grad(|| drop(conv.bias.normal_(0.0, 1.0)));
        (conv, store)
    }
}
