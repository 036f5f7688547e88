//! A recording and the same sentence spoken, frame by frame.

use super::warp::{self, Pair};
use anyhow::{Context, Result};
use host::audio::cepstra::{self, Frames, distortion_db, hop_samples};
use host::audio::{self, Waveform, pitch};
use serde::Serialize;
use std::f64::consts::LN_2;
use std::path::Path;

/// Frames and pitch of one recording.
pub struct AnalysedSpeech {
    pub frames: Frames,
    /// Hz, or none where a frame is not voiced.
    pub pitch: Vec<Option<f64>>,
    pub seconds: f64,
}

/// A recording and its sentence as spoken, with the frames of both paired.
pub struct SpeechComparison {
    pub recorded: AnalysedSpeech,
    pub spoken: AnalysedSpeech,
    /// Frames that say the same, recorded first.
    pub path: Vec<Pair>,
}

/// How far the speech of one sentence is from its recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClipFigures {
    pub recorded_seconds: f64,
    pub spoken_seconds: f64,
    pub mel_cepstral_distortion_db: f64,
    /// Natural logarithm; none where no frame is voiced in both.
    pub log_f0_rmse: Option<f64>,
    pub log_f0_rmse_cents: Option<f64>,
    pub voicing_error: f64,
    pub duration_ratio: f64,
    pub real_time_factor: f64,
}

impl AnalysedSpeech {
    /// Silence at the ends is cut from both alike.
    fn of(path: &Path) -> Result<Self> {
        let Waveform { samples, rate_hz } = audio::trim_silence(audio::decode(path)?);
        let pitch = pitch::track(&samples, rate_hz, hop_samples(rate_hz));
        let seconds = samples.len() as f64 / f64::from(rate_hz);
        Ok(AnalysedSpeech { frames: Frames::of(&samples, rate_hz), pitch, seconds })
    }
}

impl SpeechComparison {
    pub fn of(recorded: &Path, spoken: &Path) -> Result<Self> {
        let (recorded, spoken) = (AnalysedSpeech::of(recorded)?, AnalysedSpeech::of(spoken)?);
        let (a, b) = (&recorded.frames.cepstra, &spoken.frames.cepstra);
        let path = warp::align(a.len(), b.len(), |row, col| distortion_db(&a[row], &b[col]))
            .with_context(|| format!("{:.0} s recorded, {:.0} s spoken", recorded.seconds, spoken.seconds))?;
        Ok(SpeechComparison { recorded, spoken, path })
    }

    pub fn figures(&self, real_time_factor: f64) -> ClipFigures {
        let log_f0_rmse = self.log_f0_rmse();
        ClipFigures {
            recorded_seconds: self.recorded.seconds,
            spoken_seconds: self.spoken.seconds,
            mel_cepstral_distortion_db: self.distortion_db(),
            log_f0_rmse,
            log_f0_rmse_cents: log_f0_rmse.map(|error| error * 1200.0 / LN_2),
            voicing_error: self.voicing_error(),
            duration_ratio: self.spoken.seconds / self.recorded.seconds,
            real_time_factor,
        }
    }

    /// Mean over the pairs that are not silent in both.
    fn distortion_db(&self) -> f64 {
        let (a, b) = (&self.recorded.frames, &self.spoken.frames);
        let heard = self.path.iter().filter(|(row, col)| !(a.silent[*row] && b.silent[*col]));
        mean(heard.map(|&(row, col)| distortion_db(&a.cepstra[row], &b.cepstra[col]))).unwrap_or(0.0)
    }

    fn log_f0_rmse(&self) -> Option<f64> {
        let voiced = |&(row, col): &Pair| Some((self.recorded.pitch[row]? / self.spoken.pitch[col]?).ln());
        Some(mean(self.path.iter().filter_map(voiced).map(|error| error * error))?.sqrt())
    }

    /// Share of the pairs of which one is voiced and the other is not.
    fn voicing_error(&self) -> f64 {
        let differ = |&(row, col): &Pair| self.recorded.pitch[row].is_some() != self.spoken.pitch[col].is_some();
        mean(self.path.iter().map(|pair| f64::from(u8::from(differ(pair))))).unwrap_or(0.0)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Seconds of a frame.
pub fn seconds(frame: usize) -> f64 {
    frame as f64 * cepstra::HOP_S
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::audio::write_wav;
    use std::f64::consts::TAU;
    use tempfile::TempDir;

    const RATE_HZ: u32 = 22_050;

    /// A buzz between two stretches of noise.
    fn sentence(hz: f64, pace: f64) -> Vec<f32> {
        let mut rng = host::rng::Rng::new(&[5]);
        let (mut phase, mut samples) = (0.0, Vec::new());
        let part = |share: f64| (share * pace * f64::from(RATE_HZ)) as usize;
        samples.extend((0..part(0.2)).map(|_| (0.1 * (rng.unit() - 0.5)) as f32));
        for _ in 0..part(0.6) {
            phase += hz / f64::from(RATE_HZ);
            samples.push((1..12).map(|h| 0.2 / f64::from(h) * (TAU * phase * f64::from(h)).sin()).sum::<f64>() as f32);
        }
        samples.extend((0..part(0.2)).map(|_| (0.1 * (rng.unit() - 0.5)) as f32));
        samples
    }

    fn compared(a: &[f32], b: &[f32]) -> ClipFigures {
        let dir = TempDir::new().unwrap();
        let [recorded, spoken] = ["a.wav", "b.wav"].map(|name| dir.path().join(name));
        write_wav(&recorded, a, RATE_HZ).unwrap();
        write_wav(&spoken, b, RATE_HZ).unwrap();
        SpeechComparison::of(&recorded, &spoken).unwrap().figures(0.5)
    }

    #[test]
    fn a_recording_is_like_itself() {
        let figures = compared(&sentence(150.0, 1.0), &sentence(150.0, 1.0));
        assert_eq!((figures.mel_cepstral_distortion_db, figures.voicing_error), (0.0, 0.0));
        assert_eq!((figures.log_f0_rmse, figures.duration_ratio), (Some(0.0), 1.0));
    }

    /// Truth: a fifth is 702 cents, and 0.405 in natural logarithm.
    #[test]
    fn slower_and_a_fifth_higher() {
        let figures = compared(&sentence(150.0, 1.0), &sentence(225.0, 1.4));
        assert!((figures.log_f0_rmse_cents.unwrap() - 702.0).abs() < 40.0, "{figures:?}");
        assert!((figures.log_f0_rmse.unwrap() - 0.405).abs() < 0.025, "{figures:?}");
        assert!((figures.duration_ratio - 1.4).abs() < 0.02 && figures.voicing_error < 0.08, "{figures:?}");
    }

    #[test]
    fn a_whisper_has_no_pitch() {
        let mut rng = host::rng::Rng::new(&[9]);
        let noise: Vec<f32> = (0..RATE_HZ).map(|_| (0.3 * (rng.unit() - 0.5)) as f32).collect();
        let figures = compared(&sentence(150.0, 1.0), &noise);
        assert_eq!((figures.log_f0_rmse, figures.log_f0_rmse_cents), (None, None));
        assert!(figures.voicing_error > 0.4 && figures.mel_cepstral_distortion_db > 3.0, "{figures:?}");
    }
}
