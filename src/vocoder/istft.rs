//! Inverse STFT that gradients flow through: inverse transform, window, overlap-add, division by the windows' sum of
//! squares. The counterpart of `feed::stft`: frame `t` is centred on sample `t * hop`.

use crate::model::graph::GraphWriter;
use host::config;
use host::onnx::{Attribute, Value};
use tch::{Device, Kind, Tensor};

/// The last samples lie under fewer windows. Where these all but vanish (only if the hop is half a window), the sound
/// fades instead of being divided by nothing.
const LEAST_ENVELOPE: f64 = 1e-2;

/// Inverse STFT with a fixed window and hop.
pub struct Istft {
    /// `[n_fft]`, Hann, periodic.
    window: Tensor,
    /// `[bins]`: 0 for the two bins whose imaginary part means nothing, 1 for the others. Transforms differ in what they
    /// make of it.
    imaginary: Tensor,
    hop_samples: i64,
}

impl Istft {
    pub fn new(config: &config::Model, device: Device) -> Self {
        let inner = Tensor::ones([config.n_fft / 2 - 1], (Kind::Float, device));
        Istft {
            window: Tensor::hann_window(config.n_fft, (Kind::Float, device)),
            imaginary: inner.constant_pad_nd([1, 1]),
            hop_samples: config.hop_length,
        }
    }

    /// Real and imaginary parts, `[batch, frames, bins]` each, f32 → `[batch, frames * hop]`. Frames where `mask`
    /// (`[frames, 1]`) is 0 are not there.
    pub fn forward(&self, real: &Tensor, imaginary: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let spectrum = Tensor::complex(real, &(imaginary * &self.imaginary));
        let (n_fft, frames) = (self.window.size()[0], real.size()[1]);
        let there = |x: Tensor| mask.map_or_else(|| x.shallow_clone(), |mask| &x * mask);
        let waves = there(spectrum.fft_irfft(n_fft, -1, "backward") * &self.window);
        let squares = there(self.window.square().expand([1, frames, n_fft], false));
        let envelope = self.overlap_add(&squares).clamp_min(LEAST_ENVELOPE);
        (self.overlap_add(&waves) / envelope).narrow(1, n_fft / 2, frames * self.hop_samples)
    }

    /// The same in a graph: `[frames, bins]` each → `[1, 1, frames * hop]`. Inverse transform, window and overlap-add are one
    /// transposed convolution; its kernel is computed when the file is loaded, and so takes no room in it.
    pub fn graph(&self, real: &Value, imaginary: &Value, g: &mut GraphWriter) -> Value {
        let Istft { window, imaginary: inner, hop_samples } = self;
        let n_fft = window.size()[0];
        let bins = n_fft / 2 + 1;
        let windowed = g.values("istft.window", &(window / n_fft as f64));
        // Both sides of the spectrum, but for the two bins in its middle.
        let mut side = |name, of: fn(f64) -> f64, share: Tensor| {
            let (wave, share) = (g.fourier(bins, n_fft, of), g.values(name, &share.unsqueeze(1)));
            let wave = g.mul(&wave, &share);
            g.mul(&wave, &windowed)
        };
        let real_side = side("istft.real", f64::cos, inner + 1.0);
        let imaginary_side = side("istft.imaginary", |angle| -angle.sin(), inner * 2.0);
        let kernel = g.concat(&[&real_side, &imaginary_side], 0);
        let kernel = g.unsqueeze(&kernel, 1);
        let attributes =
            || vec![("strides", Attribute::Ints(vec![*hop_samples])), ("kernel_shape", Attribute::Ints(vec![n_fft]))];
        let spectrum = g.concat(&[real, imaginary], 1);
        let spectrum = g.transpose(&spectrum, &[1, 0]);
        let spectrum = g.unsqueeze(&spectrum, 0);
        let waves = g.op("ConvTranspose", &[&spectrum, &kernel], attributes());

        let squares = g.values("istft.squares", &window.square().view([1, 1, n_fft]));
        let (one, frames) = (g.float(1.0), g.len(real, 0));
        let shape = g.ints(&[1, 1]);
        let shape = g.concat(&[&shape, &frames], 0);
        let there = g.op("Expand", &[&one, &shape], vec![]);
        let envelope = g.op("ConvTranspose", &[&there, &squares], attributes());
        let least = g.float(LEAST_ENVELOPE);
        let envelope = g.op("Max", &[&envelope, &least], vec![]);
        let wave = g.op("Div", &[&waves, &envelope], vec![]);
        let (start, hop) = (g.ints(&[n_fft / 2]), g.ints(&[*hop_samples]));
        let samples = g.mul(&frames, &hop);
        let end = g.add(&samples, &start);
        g.slice(&wave, &start, &end, 2)
    }

    /// `[batch, frames, n_fft]` → `[batch, frames * hop + n_fft - hop]`. A window is a few hops long, so the sum is a few
    /// shifted additions: the same result every time, unlike scattered ones on a GPU.
    fn overlap_add(&self, waves: &Tensor) -> Tensor {
        let (batch, frames, n_fft) = waves.size3().expect("[batch, frames, n_fft]");
        let parts = waves.reshape([batch, frames, n_fft / self.hop_samples, self.hop_samples]).unbind(2);
        let last = parts.len() as i64 - 1;
        let shifted = parts.iter().zip(0..).map(|(part, hops)| part.constant_pad_nd([0, 0, hops, last - hops]));
        shifted.reduce(|sum, part| sum + part).expect("a window is at least a hop").flatten(1, 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::stft;
    use host::config::Config;

    fn case(n_fft: i64, hop_length: i64) -> (Istft, Tensor) {
        let config = config::Model { n_fft, hop_length, ..Config::default().model };
        (Istft::new(&config, Device::Cpu), Tensor::randn([2, 20 * hop_length], (Kind::Float, Device::Cpu)))
    }

    /// As the vocoder meets it: as many frames as hops, so the frame beyond the end is missing.
    fn there_and_back(istft: &Istft, wave: &Tensor) -> Tensor {
        let spectrum = stft(wave, &istft.window, istft.hop_samples).narrow(1, 0, 20);
        istft.forward(&spectrum.real(), &spectrum.imag(), None)
    }

    #[test]
    fn brings_back_what_was_transformed() {
        for (n_fft, hop) in [(1024, 256), (64, 8), (256, 128)] {
            let (istft, wave) = case(n_fft, hop);
            let back = there_and_back(&istft, &wave);
            assert_eq!(back.size(), wave.size());
            // With a hop of half a window, the last samples lie under the end of one window and fade.
            let sure = if hop * 2 == n_fft { 19 * hop + hop / 2 } else { 20 * hop };
            let error = (back - wave).narrow(1, 0, sure).abs().max().double_value(&[]);
            assert!(error < 1e-4, "window {n_fft}, hop {hop}: off by {error:.1e}");
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        let (istft, wave) = case(64, 16);
        let spectrum = stft(&wave, &istft.window, 16).narrow(1, 0, 20);
        let (real, imaginary) = (spectrum.real().copy(), spectrum.imag().copy());
        let weights = wave.randn_like();
        let value =
            |real: &Tensor, imaginary: &Tensor| (istft.forward(real, imaginary, None) * &weights).sum(Kind::Double);
        let leaves = [real.copy().set_requires_grad(true), imaginary.copy().set_requires_grad(true)];
        value(&leaves[0], &leaves[1]).backward();
        // The transform is linear: a long step has no error but rounding.
        for place in [[0, 0, 0], [1, 0, 5], [0, 7, 31], [1, 19, 32], [0, 19, 1]] {
            let step = real.zeros_like();
            let _ = step.get(place[0]).get(place[1]).get(place[2]).fill_(10.0);
            for (leaf, moved) in leaves.iter().zip([
                value(&(&real + &step), &imaginary) - value(&(&real - &step), &imaginary),
                value(&real, &(&imaginary + &step)) - value(&real, &(&imaginary - &step)),
            ]) {
                let (wanted, found) = (moved.double_value(&[]) / 20.0, leaf.grad().double_value(&place));
                assert!((wanted - found).abs() < 1e-4, "{place:?}: {found}, finite differences {wanted}");
            }
        }
    }
}
