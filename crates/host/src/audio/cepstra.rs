//! Mel-cepstra, and how far two of them are apart (Kubichek 1993).
//!
//! The cosine transform of log-magnitude mel frames, scaled so that `ln |H| = c0 + Σ c_d cos(dω)` on the mel axis, as SPTK
//! writes mel-cepstra. Kubichek's distance is then the root mean square of the difference of two smoothed spectra, in dB.
//! `c0`, the level, is left out. The geometry is the same for every voice, whatever its own mel frames are.

use super::mel::{Extractor, MelScratch};
use std::f64::consts::{LN_10, PI};

/// Coefficients that are compared, from the first: as many as most papers take.
pub const ORDER: usize = 24;
pub const HOP_S: f64 = 0.01;
pub const N_MELS: usize = 80;
const WINDOW_S: f64 = 0.04;
const F_MAX_HZ: f64 = 8000.0;
/// A frame that is further below the loudest one is silent.
const SILENCE_DB: f64 = 40.0;

pub type Cepstrum = [f32; ORDER];

/// What is compared of a recording, a frame every 10 ms.
pub struct Frames {
    pub cepstra: Vec<Cepstrum>,
    pub silent: Vec<bool>,
    /// `[frames, N_MELS]`
    pub log_mel: Vec<f32>,
    /// Where its bands end.
    pub top_hz: f64,
}

/// Samples between two frames.
pub fn hop_samples(rate_hz: u32) -> usize {
    (f64::from(rate_hz) * HOP_S).round() as usize
}

impl Frames {
    pub fn of(samples: &[f32], rate_hz: u32) -> Self {
        let (rate, hop) = (f64::from(rate_hz), hop_samples(rate_hz));
        let window = 2 * (rate * WINDOW_S / 2.0).round() as usize;
        let top_hz = F_MAX_HZ.min(rate / 2.0);
        let extractor = Extractor::new(rate_hz, window, hop, N_MELS, 0.0, top_hz);
        Self::of_log_mel(extractor.log_mel(samples, &mut MelScratch::default()).to_vec(), top_hz)
    }

    fn of_log_mel(log_mel: Vec<f32>, top_hz: f64) -> Self {
        let basis = cosines();
        let cepstra = log_mel.chunks(N_MELS).map(|frame| cepstrum(frame, &basis)).collect();
        let level = |frame: &[f32]| frame.iter().map(|band| f64::from(*band).exp()).sum::<f64>();
        let levels: Vec<f64> = log_mel.chunks(N_MELS).map(level).collect();
        let floor = levels.iter().copied().fold(0.0, f64::max) * 10f64.powf(-SILENCE_DB / 20.0);
        Frames { cepstra, silent: levels.iter().map(|level| *level <= floor).collect(), log_mel, top_hz }
    }
}

/// Mel-cepstral distortion in dB: 10 / ln 10 · √(2 Σ (a_d − b_d)²).
pub fn distortion_db(a: &Cepstrum, b: &Cepstrum) -> f64 {
    let squares: f32 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    10.0 / LN_10 * (2.0 * f64::from(squares)).sqrt()
}

/// `[ORDER][N_MELS]`
fn cosines() -> Vec<Vec<f32>> {
    let cosine = |d: usize, band: usize| (PI * d as f64 * (band as f64 + 0.5) / N_MELS as f64).cos();
    (1..=ORDER).map(|d| (0..N_MELS).map(|band| (2.0 / N_MELS as f64 * cosine(d, band)) as f32).collect()).collect()
}

fn cepstrum(frame: &[f32], basis: &[Vec<f32>]) -> Cepstrum {
    std::array::from_fn(|d| basis[d].iter().zip(frame).map(|(cosine, band)| cosine * band).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames that differ by `wave` alone.
    fn apart(wave: impl Fn(f64) -> f64) -> f64 {
        let place = |band: usize| PI * (band as f64 + 0.5) / N_MELS as f64;
        let flat = vec![-3.0; N_MELS];
        let bent = (0..N_MELS).map(|band| -3.0 + wave(place(band)) as f32).collect();
        let (flat, bent) = (Frames::of_log_mel(flat, F_MAX_HZ), Frames::of_log_mel(bent, F_MAX_HZ));
        distortion_db(&flat.cepstra[0], &bent.cepstra[0])
    }

    /// By hand: a spectrum that differs by cos(dω) nepers has c_d = 1, and 10 / ln 10 · √2 = 6.1418 dB. That is also the
    /// root mean square of 20 log10(e) cos: 8.6859 / √2.
    #[test]
    fn one_coefficient_of_one_is_six_decibels() {
        for d in [1, 5, ORDER] {
            assert!((apart(|w| (d as f64 * w).cos()) - 6.141_851).abs() < 1e-4, "{d}");
        }
        assert!((apart(|w| w.cos() + (2.0 * w).cos()) - 6.141_851 * 2f64.sqrt()).abs() < 1e-4);
    }

    #[test]
    fn level_and_fine_structure_do_not_count() {
        assert!(apart(|_| 2.0) < 1e-4, "twice nepers louder");
        assert!(apart(|w| ((ORDER + 1) as f64 * w).cos()) < 1e-4, "finer than the last coefficient");
    }

    #[test]
    fn frames_forty_decibels_down_are_silent() {
        let second = 16_000;
        let mut noise = crate::rng::Rng::new(&[3]);
        let mut part = |level: f64| (0..second).map(|_| (level * (noise.unit() - 0.5)) as f32).collect::<Vec<_>>();
        let frames = Frames::of(&[part(1.0), part(0.003), part(0.1)].concat(), second);
        assert_eq!(frames.cepstra.len(), 301);
        assert_eq!([50, 150, 250].map(|at| frames.silent[at]), [false, true, false]);
    }
}
