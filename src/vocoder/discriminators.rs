//! Discriminators: small networks that learn to tell real from generated speech. Five multi-period ones see the waveform
//! folded at different periods (HiFi-GAN, Kong et al. 2020), three multi-resolution ones its spectrum (UnivNet, Jang et
//! al. 2021, on real and imaginary parts as in DAC, Kumar et al. 2023).
//!
//! Narrower than in the papers by default: about 0.1 million multiplications a sample instead of 0.7, for training in
//! minutes.

use crate::feed::stft;
use crate::model::conv::{Conv, whole_units};
use host::config;
use tch::nn::Path;
use tch::{Device, Kind, Tensor};
use torchx::stream::side_by_side;

/// Prime, so that no two fold the waveform alike.
const PERIODS: [i64; 5] = [2, 3, 5, 7, 11];
const SPECTRUM_CHANNELS: i64 = 32;
/// Negative slope of the leaky rectifiers.
const NEGATIVE_SLOPE: f64 = 0.1;

/// All discriminators of a vocoder's training.
pub struct Discriminators {
    periods: Vec<Stack>,
    spectra: Vec<(Spectrum, Stack)>,
    /// Kind of the activations; weights and transforms stay f32.
    kind: Kind,
}

/// Output of one discriminator for a batch.
pub struct DiscriminatorOutput {
    /// High for what it takes for real speech.
    pub logits: Tensor,
    /// Feature maps, one a layer.
    pub features: Vec<Tensor>,
    /// How far each lies from that of the real speech, 0-d; none where there was no such.
    pub distances: Vec<Tensor>,
}

/// Convolutions with leaky rectifiers between them; the last gives the logits.
struct Stack {
    layers: Vec<Conv>,
    logits: Conv,
}

impl Discriminators {
    pub fn new(path: &Path, config: &config::Model, kind: Kind) -> Self {
        let periods =
            PERIODS.iter().map(|period| Stack::multi_period(path / "period" / period, config.discriminator_dim));
        let spectrum =
            |n_fft| (Spectrum::new(n_fft, path.device()), Stack::multi_resolution(path / "spectrum" / n_fft));
        let spectra = [2 * config.n_fft, config.n_fft, config.n_fft / 2].map(spectrum).into();
        Discriminators { periods: periods.collect(), spectra, kind }
    }

    /// `waves`: `[batch, samples]`, f32. No discriminator lets one wave of the batch touch another.
    pub fn forward(&self, waves: &Tensor) -> Vec<DiscriminatorOutput> {
        self.each(waves, |_| None)
    }

    /// The same, with distances from what came out for the real speech.
    pub fn matched(&self, waves: &Tensor, real: &[DiscriminatorOutput]) -> Vec<DiscriminatorOutput> {
        self.each(waves, |number| Some(&real[number]))
    }

    /// All at once: none of their layers fills a GPU.
    fn each<'a>(
        &self,
        waves: &Tensor,
        real: impl Fn(usize) -> Option<&'a DiscriminatorOutput>,
    ) -> Vec<DiscriminatorOutput> {
        let judge = |number: usize| {
            let (seen, stack) = self.seen(waves, number);
            stack.forward(&seen.to_kind(self.kind), real(number))
        };
        let count = self.periods.len() + self.spectra.len();
        side_by_side(waves.device(), "discriminators", count, judge).expect("streams of this device")
    }

    /// What a discriminator sees of the waves, and the discriminator.
    fn seen(&self, waves: &Tensor, number: usize) -> (Tensor, &Stack) {
        match self.periods.get(number) {
            Some(stack) => (fold(waves, PERIODS[number]), stack),
            None => {
                let (spectrum, stack) = &self.spectra[number - self.periods.len()];
                (spectrum.forward(waves), stack)
            }
        }
    }
}

impl Stack {
    fn multi_period(path: Path, widest: i64) -> Self {
        let channels = [32, widest / 4, widest / 2, widest, widest].map(whole_units);
        let layers = channels.into_iter().zip([3, 3, 3, 3, 1]).map(|(channels, stride)| (channels, [5], [stride]));
        Self::new(path, 1, layers, [3])
    }

    /// Kernels and strides are (time, frequency).
    fn multi_resolution(path: Path) -> Self {
        let shapes = [([3, 9], [1, 2]), ([3, 9], [1, 2]), ([3, 9], [2, 2]), ([3, 3], [1, 1])];
        Self::new(path, 2, shapes.into_iter().map(|(kernel, stride)| (SPECTRUM_CHANNELS, kernel, stride)), [3, 3])
    }

    /// Layers as (channels, kernel, stride).
    fn new<const D: usize>(
        path: Path,
        mut channels: i64,
        layers: impl Iterator<Item = (i64, [i64; D], [i64; D])>,
        logits_kernel: [i64; D],
    ) -> Self {
        let mut layer = |(number, (to, kernel, stride)): (usize, (i64, [i64; D], [i64; D]))| {
            Conv::new(&path / number, std::mem::replace(&mut channels, to), to, &kernel, &stride)
        };
        let layers = layers.enumerate().map(&mut layer).collect();
        // "score": the name in checkpoints.
        Stack { layers, logits: Conv::new(&path / "score", channels, 1, &logits_kernel, &[1; D]) }
    }

    fn forward(&self, seen: &Tensor, real: Option<&DiscriminatorOutput>) -> DiscriminatorOutput {
        let (mut features, mut distances) = (Vec::with_capacity(self.layers.len()), vec![]);
        for (number, layer) in self.layers.iter().enumerate() {
            let below = features.last().unwrap_or(seen);
            let (feature, distance) = match real {
                None => (layer.leaky(below, NEGATIVE_SLOPE), None),
                Some(real) => {
                    let [feature, distance] = layer.leaky_matched(below, NEGATIVE_SLOPE, &real.features[number]);
                    (feature, Some(distance))
                }
            };
            features.push(feature);
            distances.extend(distance);
        }
        let logits = self.logits.forward(features.last().expect("stacks have layers"));
        DiscriminatorOutput { logits, features, distances }
    }
}

/// `[batch, samples]` → `[batch * period, 1, samples / period]`: every `period`-th sample, from each offset.
fn fold(waves: &Tensor, period: i64) -> Tensor {
    let (batch, samples) = waves.size2().expect("[batch, samples]");
    let missing = (period - samples % period) % period;
    let rows = waves.constant_pad_nd([0, missing]).view([batch, -1, period]);
    rows.transpose(1, 2).reshape([batch * period, 1, -1])
}

/// Complex spectrogram at one resolution.
struct Spectrum {
    /// `[n_fft]`, Hann, periodic, of unit energy: then all resolutions have values of the waveform's size.
    window: Tensor,
}

impl Spectrum {
    fn new(n_fft: i64, device: Device) -> Self {
        let window = Tensor::hann_window(n_fft, (Kind::Float, device));
        Spectrum { window: &window / window.norm() }
    }

    /// `[batch, samples]` → `[batch, 2, frames, bins]`. Real and imaginary part lie side by side in memory, the layout
    /// that tensor cores want, and convolutions keep it.
    fn forward(&self, waves: &Tensor) -> Tensor {
        let hop_samples = self.window.size()[0] / 4;
        stft(waves, &self.window, hop_samples).view_as_real().permute([0, 3, 1, 2])
    }
}
