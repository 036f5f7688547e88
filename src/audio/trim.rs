//! Every clip starts where speech starts and ends where it ends.

use super::Waveform;

/// Quieter than this against the loudest frame (40 dB) is silence.
const SILENCE_RATIO: f32 = 0.01;

/// Cuts silent edges, but keeps 50 ms of them: soft onsets are quieter than the threshold.
pub fn trim_silence(mut wave: Waveform) -> Waveform {
    let frame_samples = (wave.rate_hz as usize / 100).max(1);
    let keep_samples = wave.rate_hz as usize / 20;
    let levels: Vec<f32> = wave.samples.chunks(frame_samples).map(rms).collect();
    let floor = levels.iter().fold(0.0, |peak: f32, &level| peak.max(level)) * SILENCE_RATIO;
    let Some(first) = levels.iter().position(|&level| level > floor) else { return wave };
    let last = levels.iter().rposition(|&level| level > floor).unwrap_or(first);
    wave.samples.truncate((last + 1) * frame_samples + keep_samples);
    wave.samples.drain(..(first * frame_samples).saturating_sub(keep_samples));
    wave
}

fn rms(samples: &[f32]) -> f32 {
    let energy: f32 = samples.iter().map(|sample| sample * sample).sum();
    (energy / samples.len().max(1) as f32).sqrt()
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
}
