//! Loudness as people hear it, and one gain to bring a clip to a target. After ITU-R BS.1770-4 and EBU R128: two
//! filters stand for the head and for the ear's dullness to bass, 400 ms blocks are measured every 100 ms, and pauses
//! do not count.

use super::{Waveform, peak};
use std::f64::consts::PI;

/// Loudness below which a block is silence, whatever the clip.
const SILENCE_LUFS: f64 = -70.0;
/// Share of the mean power, 10 LU down, below which a block is a pause.
const PAUSE_SHARE: f64 = 0.1;
/// Steps of 100 ms in a block.
const BLOCK_STEPS: usize = 4;
/// Highest sample that a gain may make: a clip that would clip stays quieter than the target.
const MAX_PEAK: f32 = 0.95;

/// Brings a clip to `target_lufs`, or as near as `MAX_PEAK` allows. Silence stays silence.
pub fn normalize(mut wave: Waveform, target_lufs: f64) -> Waveform {
    if let Some(lufs) = integrated_lufs(&wave) {
        let wanted = 10f64.powf((target_lufs - lufs) / 20.0) as f32;
        let gain = wanted.min(MAX_PEAK / peak(&wave.samples));
        wave.samples.iter_mut().for_each(|sample| *sample *= gain);
    }
    wave
}

/// Gated loudness of a mono clip; None where it is silent. A clip shorter than a block counts as one block.
fn integrated_lufs(wave: &Waveform) -> Option<f64> {
    let blocks = block_powers(&wave.samples, wave.rate_hz);
    let silence = power(SILENCE_LUFS);
    let heard = mean_above(&blocks, silence)?;
    mean_above(&blocks, silence.max(heard * PAUSE_SHARE)).map(lufs)
}

/// Mean square of each block after the filters.
fn block_powers(samples: &[f32], rate_hz: u32) -> Vec<f64> {
    let step_samples = (rate_hz as usize / 10).max(1);
    let (mut shelf, mut high_pass) = k_weighting(f64::from(rate_hz));
    let mut energy_of = |step: &[f32]| -> f64 {
        step.iter().map(|&sample| high_pass.filter(shelf.filter(f64::from(sample))).powi(2)).sum()
    };
    if samples.len() < BLOCK_STEPS * step_samples {
        return vec![energy_of(samples) / samples.len().max(1) as f64];
    }
    let steps: Vec<f64> = samples.chunks_exact(step_samples).map(energy_of).collect();
    steps.windows(BLOCK_STEPS).map(|block| block.iter().sum::<f64>() / (BLOCK_STEPS * step_samples) as f64).collect()
}

fn mean_above(powers: &[f64], floor: f64) -> Option<f64> {
    let loud = powers.iter().filter(|&&power| power > floor);
    let (sum, count) = loud.fold((0.0, 0), |(sum, count), power| (sum + power, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The standard's offset makes a 997 Hz sine at full scale in one channel -3.01 LUFS.
fn lufs(power: f64) -> f64 {
    -0.691 + 10.0 * power.log10()
}

fn power(lufs: f64) -> f64 {
    10f64.powf((lufs + 0.691) / 10.0)
}

/// Second-order filter, direct form I: only one product and one difference wait for the sample before, half of what
/// other forms wait for.
struct Biquad {
    b: [f64; 3],
    a: [f64; 2],
    /// The last two samples in, then out.
    x: [f64; 2],
    y: [f64; 2],
}

impl Biquad {
    fn new(b: [f64; 3], a: [f64; 2]) -> Self {
        Biquad { b, a, x: [0.0; 2], y: [0.0; 2] }
    }

    fn filter(&mut self, x: f64) -> f64 {
        let ahead = self.b[0] * x + self.b[1] * self.x[0] + self.b[2] * self.x[1] - self.a[1] * self.y[1];
        let y = ahead - self.a[0] * self.y[0];
        (self.x, self.y) = ([x, self.x[0]], [y, self.y[0]]);
        y
    }
}

/// The standard lists coefficients for 48 kHz only. These are the analogue filters behind them (corner, gain and
/// quality as recovered in libebur128), through the bilinear transform at any rate.
fn k_weighting(rate_hz: f64) -> (Biquad, Biquad) {
    let (corner, quality) = ((PI * 1_681.974_450_955_533 / rate_hz).tan(), 0.707_175_236_955_419_6);
    let high = 10f64.powf(3.999_843_853_973_347 / 20.0);
    let band = high.powf(0.499_666_774_154_541_6) * corner / quality;
    let (poles, scale) = poles(corner, quality);
    let zeros = [high + band + corner * corner, 2.0 * (corner * corner - high), high - band + corner * corner];
    let shelf = Biquad::new(zeros.map(|zero| zero / scale), poles);
    let (poles, _) = self::poles((PI * 38.135_470_876_024_44 / rate_hz).tan(), 0.500_327_037_323_877_3);
    (shelf, Biquad::new([1.0, -2.0, 1.0], poles))
}

/// The feedback half of both filters, and what it was divided by.
fn poles(corner: f64, quality: f64) -> ([f64; 2], f64) {
    let scale = 1.0 + corner / quality + corner * corner;
    ([2.0 * (corner * corner - 1.0) / scale, (1.0 - corner / quality + corner * corner) / scale], scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    /// A 1 kHz sine through (peak dBFS, seconds).
    fn tone(parts: &[(f64, f64)]) -> Waveform {
        let levels = parts.iter().flat_map(|&(db, seconds)| std::iter::repeat_n(db, (seconds * 48_000.0) as usize));
        let sine = |(n, db): (usize, f64)| 10f64.powf(db / 20.0) * (TAU * 1_000.0 * n as f64 / 48_000.0).sin();
        Waveform { samples: levels.enumerate().map(|part| sine(part) as f32).collect(), rate_hz: 48_000 }
    }

    /// Five syllables and the pauses between them.
    fn syllables(rate_hz: u32) -> Waveform {
        let sample = |n: u32| {
            let t = f64::from(n) / f64::from(rate_hz);
            let sine = |hz: f64| (TAU * hz * t).sin();
            let voice = 0.3 * sine(120.0) + 0.2 * sine(730.0) + 0.1 * sine(3_100.0) + 0.03 * sine(30.0);
            (sine(0.7).max(0.0).powi(2) * voice) as f32
        };
        Waveform { samples: (0..(f64::from(rate_hz) * 5.03) as u32).map(sample).collect(), rate_hz }
    }

    /// Truth: ITU-R BS.1770-4, tables 1 and 2.
    #[test]
    fn filters_at_48_khz_are_the_standards() {
        let (shelf, high_pass) = k_weighting(48_000.0);
        let ours = [shelf.b.as_slice(), &shelf.a, &high_pass.b, &high_pass.a].concat();
        let tables = [
            [1.535_124_859_586_97, -2.691_696_189_406_38, 1.198_392_810_852_85].as_slice(),
            &[-1.690_659_293_182_41, 0.732_480_774_215_85],
            &[1.0, -2.0, 1.0, -1.990_047_454_833_98, 0.990_072_250_366_21],
        ];
        assert!(ours.iter().zip(tables.concat()).all(|(ours, table)| (ours - table).abs() < 1e-8), "{ours:?}");
    }

    /// Truth: EBU Tech 3341, cases 1 to 5, -23 or -33 LUFS ±0.1 LU. They are stereo with both channels alike, which is
    /// twice the power of the one channel here.
    #[test]
    fn ebu_cases() {
        let cases: [(&[(f64, f64)], f64); 5] = [
            (&[(-23.0, 20.0)], -23.0),
            (&[(-33.0, 20.0)], -33.0),
            (&[(-36.0, 10.0), (-23.0, 60.0), (-36.0, 10.0)], -23.0),
            (&[(-72.0, 10.0), (-36.0, 10.0), (-23.0, 60.0), (-36.0, 10.0), (-72.0, 10.0)], -23.0),
            (&[(-26.0, 20.0), (-20.0, 20.1), (-26.0, 20.0)], -23.0),
        ];
        for (parts, truth) in cases {
            let stereo = integrated_lufs(&tone(parts)).unwrap() + 10.0 * 2f64.log10();
            assert!((stereo - truth).abs() < 0.1, "{parts:?}: {stereo}");
        }
    }

    /// Truth: pyloudnorm 0.2.0, `Meter(rate, filter_class="DeMan").integrated_loudness(clip)` on the same formula.
    /// FFmpeg's `ebur128` filter agrees within 0.01 LU.
    #[test]
    fn loudness_is_the_reference_programs() {
        for (rate_hz, truth) in [(16_000, -16.1800), (22_050, -16.2176), (44_100, -16.2665)] {
            let ours = integrated_lufs(&syllables(rate_hz)).unwrap();
            assert!((ours - truth).abs() < 0.02, "{rate_hz} Hz: {ours}, pyloudnorm {truth}");
        }
    }

    #[test]
    fn clips_reach_the_target_and_peaks_hold() {
        for target in [-40.0, -23.0, -20.0] {
            let made = integrated_lufs(&normalize(syllables(22_050), target)).unwrap();
            assert!((made - target).abs() < 0.01, "{made}, not {target}");
        }
        let loud = normalize(syllables(22_050), -5.0);
        assert!((peak(&loud.samples) - MAX_PEAK).abs() < 1e-6);
    }

    #[test]
    fn clips_too_short_for_a_block_are_measured_whole_and_silence_stays() {
        let short = normalize(tone(&[(-30.0, 0.25)]), -20.0);
        assert!((integrated_lufs(&short).unwrap() + 20.0).abs() < 0.01);
        for samples in [vec![], vec![0.0; 9], vec![1e-5; 48_000]] {
            let silent = Waveform { samples, rate_hz: 48_000 };
            assert_eq!(normalize(silent.clone(), -20.0), silent);
        }
    }
}
