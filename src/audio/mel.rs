//! Mel filterbank on Slaney's scale: linear below 1 kHz, logarithmic above, triangles of equal area.
//! After the Auditory Toolbox, as `librosa.filters.mel(htk=False, norm="slaney")`.

const LINEAR_HZ_PER_MEL: f64 = 200.0 / 3.0;
const KNEE_HZ: f64 = 1000.0;
const KNEE_MEL: f64 = KNEE_HZ / LINEAR_HZ_PER_MEL;
/// 27 mels for a factor of 6.4.
const LOG_STEP: f64 = 0.068_751_777_420_949_12;

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

    fn check(bank: &[f32], rows: usize, columns: usize, sum: f64, weights: Weights) {
        assert_eq!(bank.len(), rows * columns);
        for (row, column, truth) in weights {
            let weight = bank[row * columns + column];
            assert!((weight - truth).abs() < 1e-8, "row {row}, column {column}: {weight}, librosa {truth}");
        }
        assert!((bank.iter().map(|&weight| f64::from(weight)).sum::<f64>() - sum).abs() < 1e-6);
    }
}
