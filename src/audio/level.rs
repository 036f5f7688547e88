//! Edges and loudness: every clip starts where speech starts, at about the same level.

use super::Waveform;

/// Quieter than this against the loudest frame (40 dB) is silence.
const SILENCE_RATIO: f32 = 0.01;
/// -20 dBFS, about the level of LJSpeech.
const TARGET_RMS: f32 = 0.1;
const MAX_PEAK: f32 = 0.95;

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

/// One gain for the whole clip: to `TARGET_RMS`, or less where the peak would pass `MAX_PEAK`.
pub fn normalize(mut wave: Waveform) -> Waveform {
    let level = rms(&wave.samples);
    if level > 0.0 {
        let peak = wave.samples.iter().fold(0.0, |peak: f32, sample| peak.max(sample.abs()));
        let gain = (TARGET_RMS / level).min(MAX_PEAK / peak);
        wave.samples.iter_mut().for_each(|sample| *sample *= gain);
    }
    wave
}

/// Summed in f64: f32 loses the small samples of a long clip.
fn rms(samples: &[f32]) -> f32 {
    let energy: f64 = samples.iter().map(|&sample| f64::from(sample).powi(2)).sum();
    (energy / samples.len().max(1) as f64).sqrt() as f32
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

    #[test]
    fn level_is_set_and_the_peak_is_held() {
        let level = rms(&normalize(wave([0.3, -0.3].repeat(50))).samples);
        assert!((level - TARGET_RMS).abs() < 1e-6);
        let spiky = normalize(wave([vec![0.0; 999], vec![0.2]].concat()));
        assert!((spiky.samples[999] - MAX_PEAK).abs() < 1e-6);
        assert_eq!(normalize(wave(vec![0.0; 5])).samples, vec![0.0; 5]);
    }
}
