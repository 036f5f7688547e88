//! Log-mel frames on the CPU, for machines without a GPU. The filterbank is on Slaney's scale: linear below 1 kHz,
//! logarithmic above, triangles of equal area. After the Auditory Toolbox, as
//! `librosa.filters.mel(htk=False, norm="slaney")`.

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use std::f32::consts::{FRAC_1_SQRT_2, LN_2};
use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;

/// Quieter bins count as this loud: about -100 dB of full scale.
const FLOOR: f32 = 1e-5;
/// Weights are multiplied this many at a time; bands are padded to it with zeros.
const LANES: usize = 4;
const LINEAR_HZ_PER_MEL: f64 = 200.0 / 3.0;
const KNEE_HZ: f64 = 1000.0;
const KNEE_MEL: f64 = KNEE_HZ / LINEAR_HZ_PER_MEL;
/// 27 mels for a factor of 6.4.
const LOG_STEP: f64 = 0.068_751_777_420_949_12;

pub struct Extractor {
    fft: Arc<dyn Fft<f32>>,
    /// `[n_fft]`, Hann, periodic.
    window: Vec<f32>,
    hop_samples: usize,
    bands: Vec<Band>,
}

/// The bins that a mel band hears: a few of them, where the whole row of the filterbank is mostly zeros.
struct Band {
    first_bin: usize,
    weights: Vec<[f32; LANES]>,
}

impl Extractor {
    pub fn new(rate_hz: u32, n_fft: usize, hop_samples: usize, n_mels: usize, f_min_hz: f64, f_max_hz: f64) -> Self {
        let hann = |index: usize| (0.5 - 0.5 * (TAU * index as f64 / n_fft as f64).cos()) as f32;
        let bank = filterbank(rate_hz, n_fft, n_mels, f_min_hz, f_max_hz);
        Extractor {
            fft: FftPlanner::new().plan_fft_forward(n_fft),
            window: (0..n_fft).map(hann).collect(),
            hop_samples,
            bands: bank.chunks(n_fft / 2 + 1).map(Band::new).collect(),
        }
    }

    /// Two frames share a transform, one as its real part and one as its imaginary part: half the time of a transform
    /// of real numbers for each.
    ///
    /// # Shapes
    /// - samples: `[samples]`, -1..1
    /// - output: `[1 + samples / hop, n_mels]`, row-major; frame `t` is centred on sample `t * hop`, zeros beyond the ends
    pub fn log_mel(&self, samples: &[f32]) -> Vec<f32> {
        let (n_fft, hop) = (self.window.len(), self.hop_samples);
        let padded = [&vec![0.0; n_fft / 2], samples, &vec![0.0; n_fft / 2 + hop]].concat();
        let frames = 1 + samples.len() / hop;
        let (mut pair, mut spectrum) = (vec![Complex::default(); n_fft], vec![Complex::default(); n_fft]);
        let mut scratch = vec![Complex::default(); self.fft.get_outofplace_scratch_len()];
        let mut magnitudes = [vec![0.0; n_fft / 2 + 1 + LANES], vec![0.0; n_fft / 2 + 1 + LANES]];
        let mut mel = Vec::with_capacity(frames * self.bands.len());
        for index in (0..frames).step_by(2) {
            self.cut(&padded[index * hop..], &mut pair);
            self.fft.process_outofplace_with_scratch(&mut pair, &mut spectrum, &mut scratch);
            part(&spectrum, &mut magnitudes);
            for heard in magnitudes.iter().take(frames - index) {
                mel.extend(self.bands.iter().map(|band| band.hear(heard)));
            }
        }
        mel.iter_mut().for_each(|value| *value = ln(value.max(FLOOR)));
        mel
    }

    /// The first frame and the one a hop later, windowed.
    fn cut(&self, samples: &[f32], pair: &mut [Complex<f32>]) {
        let windowed = samples.iter().zip(&samples[self.hop_samples..]).zip(&self.window);
        pair.iter_mut().zip(windowed).for_each(|(out, ((first, second), weight))| {
            *out = Complex::new(first * weight, second * weight);
        });
    }
}

/// Spectra of real numbers are symmetric, so the two that were transformed as one come apart again: half of
/// `Z[k] + conj(Z[n - k])` is the first, half of `Z[k] - conj(Z[n - k])` the second.
fn part(spectrum: &[Complex<f32>], [first, second]: &mut [Vec<f32>; 2]) {
    let middle = spectrum.len() / 2;
    for bin in [0, middle] {
        (first[bin], second[bin]) = (spectrum[bin].re.abs(), spectrum[bin].im.abs());
    }
    let outs = first[1..middle].iter_mut().zip(&mut second[1..middle]);
    let mirrored = spectrum[1..middle].iter().zip(spectrum[middle + 1..].iter().rev());
    outs.zip(mirrored).for_each(|((first, second), (z, mirror))| {
        let magnitude = |re: f32, im: f32| 0.5 * (re * re + im * im).sqrt();
        *first = magnitude(z.re + mirror.re, z.im - mirror.im);
        *second = magnitude(z.re - mirror.re, z.im + mirror.im);
    });
}

/// Natural logarithm of a positive number, to 1e-6: mantissa between √½ and √2, then 2 artanh((m - 1) / (m + 1)).
/// Plain arithmetic, which the compiler does for several values at once; the library's takes a sixth of `log_mel`.
fn ln(x: f32) -> f32 {
    let exponent = (x.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits()) as i32) >> 23;
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    exponent as f32 * LN_2 + 2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 / 7.0)))
}

impl Band {
    fn new(row: &[f32]) -> Self {
        let bins = heard(row);
        let pad = |part: &[f32]| std::array::from_fn(|lane| part.get(lane).copied().unwrap_or(0.0));
        Band { first_bin: bins.start, weights: row[bins].chunks(LANES).map(pad).collect() }
    }

    /// `magnitudes` has `LANES` zeros at its end, for the padding of the highest band.
    fn hear(&self, magnitudes: &[f32]) -> f32 {
        let mut sums = [0.0; LANES];
        for (bins, weights) in magnitudes[self.first_bin..].as_chunks::<LANES>().0.iter().zip(&self.weights) {
            (0..LANES).for_each(|lane| sums[lane] += bins[lane] * weights[lane]);
        }
        sums.iter().sum()
    }
}

/// The bins that a row of the filterbank hears; none where the band is narrower than a bin.
pub fn heard(row: &[f32]) -> Range<usize> {
    let some = |weight: &f32| *weight > 0.0;
    let first = row.iter().position(some).unwrap_or(0);
    first..row.iter().rposition(some).map_or(first, |last| last + 1)
}

/// # Shapes
/// - output: `[n_mels, n_fft / 2 + 1]`, row-major; multiply with a power or magnitude spectrum
pub fn filterbank(rate_hz: u32, n_fft: usize, n_mels: usize, f_min_hz: f64, f_max_hz: f64) -> Vec<f32> {
    let (low, high) = (mel_from_hz(f_min_hz), mel_from_hz(f_max_hz));
    let edge_hz = |index: usize| hz_from_mel(low + (high - low) * index as f64 / (n_mels + 1) as f64);
    let bin_hz = |bin: usize| f64::from(rate_hz) * bin as f64 / n_fft as f64;
    let mut bank = Vec::with_capacity(n_mels * (n_fft / 2 + 1));
    for mel in 0..n_mels {
        let (left, centre, right) = (edge_hz(mel), edge_hz(mel + 1), edge_hz(mel + 2));
        let area = 2.0 / (right - left);
        bank.extend((0..=n_fft / 2).map(bin_hz).map(|hz| {
            let (rise, fall) = ((hz - left) / (centre - left), (right - hz) / (right - centre));
            (rise.min(fall).max(0.0) * area) as f32
        }));
    }
    bank
}

fn mel_from_hz(hz: f64) -> f64 {
    if hz < KNEE_HZ { hz / LINEAR_HZ_PER_MEL } else { KNEE_MEL + (hz / KNEE_HZ).ln() / LOG_STEP }
}

fn hz_from_mel(mel: f64) -> f64 {
    if mel < KNEE_MEL { mel * LINEAR_HZ_PER_MEL } else { KNEE_HZ * ((mel - KNEE_MEL) * LOG_STEP).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (row, column, weight)
    type Weights = [(usize, usize, f32); 6];

    /// Truth: librosa 0.11.0, `librosa.filters.mel(sr=…, n_fft=…, n_mels=…, fmin=…, fmax=…)`; the sum in f64.
    #[test]
    fn weights_are_librosas() {
        let voice: Weights = [
            (0, 2, 0.022_651_39),
            (0, 3, 0.007_123_67),
            (10, 19, 0.026_492_536),
            (40, 80, 0.014_895_47),
            (79, 358, 0.003_265_993),
            (79, 359, 0.003_024_412_3),
        ];
        check(&filterbank(22_050, 1024, 80, 0.0, 8_000.0), 80, 513, 3.713_688_197_5, voice);
        let speech: Weights = [
            (0, 3, 0.013_832_497),
            (1, 5, 0.012_530_772),
            (10, 22, 0.004_673_458),
            (20, 44, 0.007_320_383),
            (39, 177, 0.001_865_231_8),
            (39, 0, 0.0),
        ];
        check(&filterbank(16_000, 400, 40, 50.0, 7_600.0), 40, 201, 1.000_602_494_2, speech);
    }

    /// Truth: librosa 0.11.0 on y = 0.5 sin(2π (200 t + 3000 t²)) + 0.1 sin(2π 5000 t), 40 hops at 22,050 Hz:
    /// log(max(1e-5, melspectrogram(y=y, sr=22050, n_fft=1024, hop_length=256, center=True, pad_mode="constant",
    ///                              power=1.0, n_mels=80, fmin=0, fmax=11025)))[band, frame].
    /// `feed::mel`, the GPU's extractor, is held to the same numbers.
    #[test]
    fn frames_are_librosas() {
        let wave: Vec<f32> = (0..40 * 256)
            .map(|n| f64::from(n) / 22_050.0)
            .map(|t| 0.5 * (TAU * (200.0 * t + 3_000.0 * t * t)).sin() + 0.1 * (TAU * 5_000.0 * t).sin())
            .map(|sample| sample as f32)
            .collect();
        let mel = Extractor::new(22_050, 1024, 256, 80, 0.0, 11_025.0).log_mel(&wave);
        assert_eq!(mel.len(), 41 * 80);
        let truth = [
            (0, 0, -0.83778),
            (0, 10, -2.30196),
            (5, 8, -2.83897),
            (10, 20, 1.01510),
            (20, 30, -5.30379),
            (20, 60, -8.31447),
            (39, 40, -3.92701),
            (39, 79, -4.96495),
        ];
        for (frame, band, value) in truth {
            let ours = mel[frame * 80 + band];
            assert!((ours - value).abs() < 1e-3, "frame {frame}, band {band}: {ours}, librosa {value}");
        }
    }

    #[test]
    fn clips_shorter_than_a_window_and_silence() {
        let extractor = Extractor::new(16_000, 512, 128, 40, 0.0, 8_000.0);
        assert_eq!(extractor.log_mel(&[]), vec![ln(FLOOR); 40]);
        assert_eq!(extractor.log_mel(&[0.0; 300]), vec![ln(FLOOR); 3 * 40]);
        // One hop later a frame has the other place in its pair.
        let click = [vec![1.0], vec![0.0; 400]].concat();
        let later = extractor.log_mel(&[vec![0.0; 128], click.clone()].concat());
        let differ = extractor.log_mel(&click).iter().zip(&later[40..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(differ < 1e-5, "{differ}");
    }

    #[test]
    fn logarithm_is_the_librarys() {
        for x in (1..2_000_000).map(|n| n as f32 * FLOOR).chain([f32::MIN_POSITIVE, f32::MAX]) {
            assert!((ln(x) - x.ln()).abs() < 1e-6 * x.ln().abs().max(1.0), "{x}: {}, not {}", ln(x), x.ln());
        }
    }

    fn check(bank: &[f32], rows: usize, columns: usize, sum: f64, weights: Weights) {
        assert_eq!(bank.len(), rows * columns);
        for (row, column, truth) in weights {
            let weight = bank[row * columns + column];
            assert!((weight - truth).abs() < 1e-8, "row {row}, column {column}: {weight}, librosa {truth}");
        }
        assert!((bank.iter().map(|&weight| f64::from(weight)).sum::<f64>() - sum).abs() < 1e-6);
    }
}
