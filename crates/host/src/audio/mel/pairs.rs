//! Frames of any length, two to a transform: one is its real part and one its imaginary part, which takes half the time
//! of a transform of real numbers for each.

use super::{Band, FLOOR, Sample, hann, ln};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;

/// Extracts frames of any length.
pub struct Pairs {
    fft: Arc<dyn Fft<f32>>,
    /// `[n_fft]`: Hann's window.
    window: Vec<f32>,
    hop_samples: usize,
    bands: Vec<Band>,
}

impl Pairs {
    pub fn new(n_fft: usize, hop_samples: usize, bands: Vec<Band>) -> Self {
        let window = (0..n_fft).map(|index| hann(index, n_fft)).collect();
        Pairs { fft: FftPlanner::new().plan_fft_forward(n_fft), window, hop_samples, bands }
    }

    /// Fills `mel`, which has the length that it shall have.
    pub fn log_mel<T: Sample>(&self, samples: &[T], mel: &mut [f32]) {
        let (n_fft, hop) = (self.window.len(), self.hop_samples);
        let mut padded = vec![0.0; n_fft + samples.len() + hop];
        padded[n_fft / 2..].iter_mut().zip(samples).for_each(|(out, sample)| *out = sample.to_f32());
        let (mut pair, mut spectrum) = (vec![Complex::default(); n_fft], vec![Complex::default(); n_fft]);
        let mut scratch = vec![Complex::default(); self.fft.get_outofplace_scratch_len()];
        let mut magnitudes = [vec![0.0; n_fft / 2 + 1], vec![0.0; n_fft / 2 + 1]];
        for (index, mel) in mel.chunks_mut(2 * self.bands.len()).enumerate() {
            self.cut(&padded[2 * index * hop..], &mut pair);
            self.fft.process_outofplace_with_scratch(&mut pair, &mut spectrum, &mut scratch);
            part(&spectrum, &mut magnitudes);
            for (mel, magnitudes) in mel.chunks_mut(self.bands.len()).zip(&magnitudes) {
                mel.iter_mut().zip(&self.bands).for_each(|(out, band)| *out = ln(band.apply(magnitudes).max(FLOOR)));
            }
        }
    }

    /// Cuts out the first frame and the one a hop later, windowed.
    fn cut(&self, samples: &[f32], pair: &mut [Complex<f32>]) {
        let windowed = samples.iter().zip(&samples[self.hop_samples..]).zip(&self.window);
        pair.iter_mut().zip(windowed).for_each(|(out, ((first, second), weight))| {
            *out = Complex::new(first * weight, second * weight);
        });
    }
}

/// Magnitudes of both frames. Spectra of real numbers are symmetric, so the two that were transformed as one come apart
/// again: half of
/// `Z[k] + conj(Z[n - k])` is the first, half of `Z[k] - conj(Z[n - k])` the second.
fn part(spectrum: &[Complex<f32>], [first, second]: &mut [Vec<f32>; 2]) {
    let n_fft = spectrum.len();
    for bin in 0..=n_fft / 2 {
        let (z, mirror) = (spectrum[bin], spectrum[(n_fft - bin) % n_fft]);
        let magnitude = |re: f32, im: f32| 0.5 * (re * re + im * im).sqrt();
        first[bin] = magnitude(z.re + mirror.re, z.im - mirror.im);
        second[bin] = magnitude(z.re - mirror.re, z.im + mirror.im);
    }
}

impl Band {
    /// The sum of the band's magnitudes by its weights.
    fn apply(&self, magnitudes: &[f32]) -> f32 {
        magnitudes[self.first_bin..].iter().zip(&self.weights).map(|(magnitude, weight)| magnitude * weight).sum()
    }
}
