//! Log-mel frames on the CPU. The filterbank is on Slaney's scale: linear below 1 kHz, logarithmic above, triangles of
//! equal area. After the Auditory Toolbox, as `librosa.filters.mel(htk=False, norm="slaney")`.
//!
//! Log-mel frames are made in four places, each for a reason of its own; the first three share this filterbank and are
//! held to the same figures of librosa:
//! - [`Extractor`], here: the cache may keep mel frames, evaluation compares cepstra of any rate, and neither needs a
//!   tensor.
//! - `feed/mel.rs`, tensors: on the CPU, where gradients are wanted (a vocoder's mel loss), and for windows that the
//!   kernel cannot do; the kernel is tested against it.
//! - `feed/mel_kernel.rs` with `mel.cu`: a batch in one launch, 104 µs beside a step (`docs/kernels.md`), where tensors
//!   take a launch for every operation.
//! - `serve/page.html`, JavaScript: a picture drawn while speech arrives; its bands are coarse, and nothing measures it.

mod batches;
mod pairs;

use super::Sample;
use batches::Batches;
use pairs::Pairs;
use std::f32::consts::{FRAC_1_SQRT_2, LN_2};
use std::f64::consts::TAU;
use std::ops::Range;

/// Magnitude that quieter bands count as: about -100 dB of full scale.
const FLOOR: f32 = 1e-5;
const LINEAR_HZ_PER_MEL: f64 = 200.0 / 3.0;
const KNEE_HZ: f64 = 1000.0;
const KNEE_MEL: f64 = KNEE_HZ / LINEAR_HZ_PER_MEL;
/// Logarithm of the ratio between two mels: 27 of them for a factor of 6.4.
const LOG_STEP: f64 = 0.068_751_777_420_949_12;

/// Makes log-mel frames of clips.
pub struct Extractor {
    method: Method,
    hop_samples: usize,
    n_mels: usize,
}

enum Method {
    /// Windows of 2ⁿ samples.
    Batches(Batches),
    /// Any other length.
    Pairs(Pairs),
}

/// Memory of an extractor, used again from clip to clip.
#[derive(Default)]
pub struct MelScratch {
    vectors: Vec<f32>,
    mel: Vec<f32>,
}

/// The bins of a mel band and their weights: a few, where the whole row of the filterbank is mostly zeros.
struct Band {
    first_bin: usize,
    weights: Vec<f32>,
}

impl Extractor {
    pub fn new(rate_hz: u32, n_fft: usize, hop_samples: usize, n_mels: usize, f_min_hz: f64, f_max_hz: f64) -> Self {
        let bank = filterbank(rate_hz, n_fft, n_mels, f_min_hz, f_max_hz);
        let bands = bank.chunks(n_fft / 2 + 1).map(Band::new).collect();
        let method = if n_fft.is_power_of_two() && n_fft >= batches::SHORTEST {
            Method::Batches(Batches::new(n_fft, hop_samples, bands))
        } else {
            Method::Pairs(Pairs::new(n_fft, hop_samples, bands))
        };
        Extractor { method, hop_samples, n_mels }
    }

    /// Log-mel frames of a clip.
    ///
    /// # Shapes
    /// - samples: `[samples]`
    /// - output: `[1 + samples / hop, n_mels]`, row-major; frame `t` is centred on sample `t * hop`, zeros beyond the ends
    pub fn log_mel<'a, T: Sample>(&self, samples: &[T], scratch: &'a mut MelScratch) -> &'a [f32] {
        let values = (1 + samples.len() / self.hop_samples) * self.n_mels;
        scratch.mel.resize(values, 0.0);
        match &self.method {
            Method::Batches(batches) => batches.log_mel(samples, &mut scratch.vectors, &mut scratch.mel),
            Method::Pairs(pairs) => pairs.log_mel(samples, &mut scratch.mel),
        }
        &scratch.mel
    }
}

impl Band {
    fn new(row: &[f32]) -> Self {
        let bins = band_bins(row);
        Band { first_bin: bins.start, weights: row[bins].to_vec() }
    }
}

/// Hann's window, periodic.
fn hann(index: usize, n_fft: usize) -> f32 {
    (0.5 - 0.5 * (TAU * index as f64 / n_fft as f64).cos()) as f32
}

/// Natural logarithm of a positive number, to 1e-6: mantissa between √½ and √2, then 2 artanh((m - 1) / (m + 1)).
/// Plain arithmetic, which the compiler does for several values at once.
#[inline(always)]
fn ln(x: f32) -> f32 {
    let exponent = (x.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits()) as i32) >> 23;
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    exponent as f32 * LN_2 + 2.0 * s * (1.0 + s2 * (1.0 / 3.0 + s2 * (1.0 / 5.0 + s2 / 7.0)))
}

/// The bins that have a weight in a row of the filterbank; none where the band is narrower than a bin.
pub fn band_bins(row: &[f32]) -> Range<usize> {
    let some = |weight: &f32| *weight > 0.0;
    let first = row.iter().position(some).unwrap_or(0);
    first..row.iter().rposition(some).map_or(first, |last| last + 1)
}

/// Triangular filters that turn a spectrum into mel bands.
///
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

/// The first of so many bands from 0 to `f_max_hz` that lies above `hz` altogether.
pub fn first_band_above(hz: f64, n_mels: usize, f_max_hz: f64) -> usize {
    (mel_from_hz(hz) / mel_from_hz(f_max_hz) * (n_mels + 1) as f64).ceil() as usize
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

    fn log_mel(extractor: &Extractor, samples: &[f32]) -> Vec<f32> {
        extractor.log_mel(samples, &mut MelScratch::default()).to_vec()
    }

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

    /// (frame, band, value). Truth: librosa 0.11.0 on y = 0.5 sin(2π (200 t + 3000 t²)) + 0.1 sin(2π 5000 t), 40 hops
    /// at 22,050 Hz: log(max(1e-5, melspectrogram(y=y, sr=22050, n_fft=1024, hop_length=256, center=True,
    /// pad_mode="constant", power=1.0, n_mels=80, fmin=0, fmax=11025)))[band, frame]. `feed::mel`, the GPU's extractor,
    /// is held to the same numbers.
    const CHIRP: &str = include_str!("../../../../../tests/data/librosa-chirp.tsv");

    #[test]
    fn frames_are_librosas() {
        let wave: Vec<f32> = (0..40 * 256)
            .map(|n| f64::from(n) / 22_050.0)
            .map(|t| 0.5 * (TAU * (200.0 * t + 3_000.0 * t * t)).sin() + 0.1 * (TAU * 5_000.0 * t).sin())
            .map(|sample| sample as f32)
            .collect();
        let mel = log_mel(&Extractor::new(22_050, 1024, 256, 80, 0.0, 11_025.0), &wave);
        assert_eq!(mel.len(), 41 * 80);
        for line in CHIRP.lines() {
            let [frame, band, value] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let value: f32 = value.parse().unwrap();
            let ours = mel[frame.parse::<usize>().unwrap() * 80 + band.parse::<usize>().unwrap()];
            assert!((ours - value).abs() < 1e-3, "frame {frame}, band {band}: {ours}, librosa {value}");
        }
    }

    #[test]
    fn clips_shorter_than_a_window_and_silence() {
        let extractor = Extractor::new(16_000, 512, 128, 40, 0.0, 8_000.0);
        assert_eq!(log_mel(&extractor, &[]), vec![ln(FLOOR); 40]);
        assert_eq!(log_mel(&extractor, &[0.0; 300]), vec![ln(FLOOR); 3 * 40]);
        // One hop later a frame has another place in its batch.
        let click = [vec![1.0], vec![0.0; 400]].concat();
        let later = log_mel(&extractor, &[vec![0.0; 128], click.clone()].concat());
        let differ =
            log_mel(&extractor, &click).iter().zip(&later[40..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(differ < 1e-5, "{differ}");
    }

    /// Truth: transform, magnitudes, filters and logarithm as they are defined, in f64. Odd hops, lengths that fill no
    /// batch, and a window that is no power of two.
    #[test]
    fn frames_are_those_of_the_definition() {
        let mut rng = crate::rng::Rng::new(&[7]);
        let clip: Vec<[u8; 2]> =
            (0..9_000).map(|n| ((rng.below(9_000) as i16 - 4_500) / (1 + n / 300)).to_le_bytes()).collect();
        let floats: Vec<f32> = clip.iter().map(|sample| sample.to_f32()).collect();
        for (n_fft, hop, n_mels) in [(1024, 256, 80), (512, 128, 40), (256, 100, 20), (64, 96, 8), (400, 160, 40)] {
            let extractor = Extractor::new(16_000, n_fft, hop, n_mels, 0.0, 8_000.0);
            let ours = extractor.log_mel(&clip, &mut MelScratch::default()).to_vec();
            assert_eq!(ours, log_mel(&extractor, &floats));
            let bank = filterbank(16_000, n_fft, n_mels, 0.0, 8_000.0);
            for frame in (0..ours.len() / n_mels).step_by(5) {
                let truth = defined(&floats, frame * hop, n_fft, &bank);
                for (band, (ours, truth)) in ours[frame * n_mels..].iter().zip(truth).enumerate() {
                    let error = (f64::from(*ours) - truth).abs();
                    assert!(error < 1e-4, "window {n_fft}, frame {frame}, band {band}: {ours}, not {truth}");
                }
            }
        }
    }

    fn defined(samples: &[f32], centre: usize, n_fft: usize, bank: &[f32]) -> Vec<f64> {
        let sample = |n: usize| (centre + n).checked_sub(n_fft / 2).and_then(|at| samples.get(at)).map_or(0.0, |x| *x);
        let window = |n: usize| 0.5 - 0.5 * (TAU * n as f64 / n_fft as f64).cos();
        let heard: Vec<f64> = (0..n_fft).map(|n| f64::from(sample(n)) * window(n)).collect();
        let size = |bin: usize| {
            let turn = |n: usize| (TAU * (n * bin % n_fft) as f64 / n_fft as f64).sin_cos();
            let [re, im] = heard.iter().enumerate().fold([0.0; 2], |[re, im], (n, x)| {
                let (sin, cos) = turn(n);
                [re + x * cos, im - x * sin]
            });
            re.hypot(im)
        };
        let sizes: Vec<f64> = (0..=n_fft / 2).map(size).collect();
        let hear = |row: &[f32]| row.iter().zip(&sizes).map(|(weight, size)| f64::from(*weight) * size).sum::<f64>();
        bank.chunks(n_fft / 2 + 1).map(|row| hear(row).max(f64::from(FLOOR)).ln()).collect()
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
