//! Every clip starts where speech starts and ends where it ends.

use super::Waveform;
use super::sample::Sample;
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// Level of silence against the loudest frame: 40 dB below.
const SILENCE_RATIO: f32 = 0.01;
/// Sums of energy that are kept apart, so that as many samples are added at a time.
const LANES: usize = 16;

/// Cuts silent edges, but keeps 50 ms of them: soft onsets are quieter than the threshold.
pub fn trim_silence(mut wave: Waveform) -> Waveform {
    let speech = speech(&wave.samples, wave.rate_hz);
    wave.samples.truncate(speech.end);
    wave.samples.drain(..speech.start);
    wave
}

/// Where speech lies, with 50 ms before and after it; all of a clip that is nothing but silence.
pub fn speech<T: Sample>(samples: &[T], rate_hz: u32) -> Range<usize> {
    let frame_samples = (rate_hz as usize / 100).max(1);
    let keep_samples = rate_hz as usize / 20;
    let levels = Arch::new().dispatch(Levels { samples, frame_samples });
    let floor = levels.iter().fold(0.0, |peak: f32, &level| peak.max(level)) * SILENCE_RATIO;
    let Some(first) = levels.iter().position(|&level| level > floor) else { return 0..samples.len() };
    let last = levels.iter().rposition(|&level| level > floor).unwrap_or(first);
    let start = (first * frame_samples).saturating_sub(keep_samples);
    start..((last + 1) * frame_samples + keep_samples).min(samples.len())
}

/// Root mean square of each frame.
struct Levels<'a, T> {
    samples: &'a [T],
    frame_samples: usize,
}

impl<T: Sample> WithSimd for Levels<'_, T> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        let mut levels = Vec::with_capacity(self.samples.len().div_ceil(self.frame_samples));
        for frame in self.samples.chunks(self.frame_samples) {
            levels.push((energy(frame) / frame.len() as f32).sqrt());
        }
        levels
    }
}

#[inline(always)]
fn energy<T: Sample>(frame: &[T]) -> f32 {
    let (blocks, rest) = frame.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for lane in 0..LANES {
            let sample = block[lane].to_f32();
            sums[lane] += sample * sample;
        }
    }
    let rest: f32 = rest.iter().map(|sample| sample.to_f32() * sample.to_f32()).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(samples: Vec<f32>) -> Waveform {
        Waveform { samples, rate_hz: 1_000 }
    }

    #[test]
    fn silent_edges_go_and_50_ms_stay() {
        let clip = [vec![0.001; 300], vec![0.5; 200], vec![0.001; 400]].concat();
        let trimmed = trim_silence(wave(clip)).samples;
        assert_eq!(trimmed, [vec![0.001; 50], vec![0.5; 200], vec![0.001; 50]].concat());
    }

    #[test]
    fn quiet_speech_and_pure_silence_stay_whole() {
        let clip = [vec![0.02; 100], vec![0.5; 100], vec![0.02; 105]].concat();
        assert_eq!(trim_silence(wave(clip.clone())).samples, clip);
        assert_eq!(trim_silence(wave(vec![0.0; 90])).samples.len(), 90);
        assert_eq!(trim_silence(wave(vec![])).samples.len(), 0);
    }

    /// One sample of a frame of 220, at each place in it: no lane and no remainder is left out.
    #[test]
    fn every_sample_is_heard() {
        for at in 0..220 {
            let mut frame = [[0, 0]; 220];
            frame[at] = i16::to_le_bytes(-16_384);
            assert_eq!(energy(&frame), 0.25, "sample {at}");
        }
    }
}
