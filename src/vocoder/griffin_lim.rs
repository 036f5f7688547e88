//! Waveform from log-mel frames without a trained vocoder: fast Griffin-Lim (Perraudin et al. 2013).

use crate::feed::{mel_filters, stft};
use host::config;
use host::rng::Rng;
use std::f32::consts::TAU;
use tch::{Device, Kind, Tensor};

const ITERATIONS: usize = 60;
const MOMENTUM: f64 = 0.99;
/// Multiplicative updates after the pseudo-inverse: enough to empty the bins that it left negative.
const REFINEMENTS: usize = 20;

/// A vocoder that needs no training.
pub struct GriffinLim {
    /// `[n_mels, bins]` and its pseudo-inverse.
    filters: Tensor,
    inverse: Tensor,
    window: Tensor,
    n_fft: i64,
    hop_samples: i64,
}

impl GriffinLim {
    pub fn new(config: &config::Model, rate_hz: u32, device: Device) -> Self {
        let filters = mel_filters(config, rate_hz);
        GriffinLim {
            inverse: filters.pinverse(1e-8).to_device(device),
            filters: filters.to_device(device),
            window: Tensor::hann_window(config.n_fft, (Kind::Float, device)),
            n_fft: config.n_fft,
            hop_samples: config.hop_length,
        }
    }

    /// `log_mel`: `[frames, n_mels]`, natural logarithm of magnitudes, not normalised → samples.
    pub fn waveform(&self, log_mel: &Tensor) -> Vec<f32> {
        self.rebuild(&self.magnitude(&log_mel.exp().transpose(0, 1)), ITERATIONS)
    }

    /// Samples whose STFT has magnitudes near `magnitude` (`[bins, frames]`), starting from random phases.
    fn rebuild(&self, magnitude: &Tensor, iterations: usize) -> Vec<f32> {
        let samples = (magnitude.size()[1] - 1) * self.hop_samples;
        let phase = self.phases(magnitude);
        let mut angles = Tensor::polar(&phase.ones_like(), &phase);
        let mut previous = angles.zeros_like();
        for _ in 0..iterations {
            let wave = self.istft(&(&angles * magnitude), samples);
            let rebuilt = stft(&wave, &self.window, self.hop_samples).transpose(0, 1);
            let pushed = &rebuilt - &previous * (MOMENTUM / (1.0 + MOMENTUM));
            angles = &pushed / pushed.abs().clamp_min(1e-8);
            previous = rebuilt;
        }
        let wave = self.istft(&(angles * magnitude), samples).to_device(Device::Cpu);
        Vec::try_from(wave.contiguous()).expect("an f32 vector on the CPU")
    }

    /// Uniform, and the same for the same shape: speech must not depend on what was spoken before.
    fn phases(&self, magnitude: &Tensor) -> Tensor {
        let mut rng = Rng::new(&[]);
        let turns: Vec<f32> = (0..magnitude.numel()).map(|_| rng.unit() as f32 * TAU).collect();
        Tensor::from_slice(&turns).view(magnitude.size().as_slice()).to_device(magnitude.device())
    }

    /// Non-negative linear magnitudes whose mel is nearest to `mel` (`[n_mels, frames]`): Lee & Seung's updates.
    fn magnitude(&self, mel: &Tensor) -> Tensor {
        let mut linear = self.inverse.matmul(mel).clamp_min(1e-6);
        let target = self.filters.transpose(0, 1).matmul(mel);
        for _ in 0..REFINEMENTS {
            let reached = self.filters.transpose(0, 1).matmul(&self.filters.matmul(&linear));
            linear = linear * &target / reached.clamp_min(1e-10);
        }
        linear
    }

    fn istft(&self, spectrum: &Tensor, samples: i64) -> Tensor {
        let window = Some(&self.window);
        spectrum.istft(self.n_fft, self.hop_samples, self.n_fft, window, true, false, true, samples, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::MelExtractor;
    use host::config::Config;

    #[test]
    fn iterations_bring_the_mel_back() {
        let config = Config::default();
        let rate_hz = config.data.sample_rate;
        let time = Tensor::arange(128 * 256, (Kind::Float, Device::Cpu)) / f64::from(rate_hz);
        let tone = |hz: f64| (&time * (std::f64::consts::TAU * hz)).sin() * 0.2;
        let extractor = MelExtractor::new(&config.model, rate_hz, Device::Cpu);
        let mel = extractor.log_mel(&(tone(220.0) + tone(554.37) + tone(1318.5)));
        let vocoder = GriffinLim::new(&config.model, rate_hz, Device::Cpu);
        let magnitude = vocoder.magnitude(&mel.exp().transpose(0, 1));
        let error = |iterations: usize| {
            let mut wave = vocoder.rebuild(&magnitude, iterations);
            wave.resize(128 * 256, 0.0);
            let again = extractor.log_mel(&Tensor::from_slice(&wave));
            // Away from the ends, where the recording was cut.
            let (a, b) = (mel.exp().narrow(0, 8, 100), again.exp().narrow(0, 8, 100));
            ((&a - b).norm() / a.norm()).double_value(&[])
        };
        // Griffin-Lim is exact only in the limit, so it is compared with what random phases give.
        let (random, rebuilt) = (error(0), error(ITERATIONS));
        assert!(rebuilt < random / 3.0, "relative mel error {random:.3} → {rebuilt:.3}");
    }
}
