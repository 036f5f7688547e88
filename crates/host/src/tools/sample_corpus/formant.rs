//! A voice in one file, for machines without espeak-ng: each letter has a sound of its own, none is beautiful.
//!
//! Source and filter, after Klatt (1980): a glottal pulse train through a cascade of resonators for what is voiced,
//! noise through one resonator for what hisses, and parameters that glide from one letter to the next.

use crate::audio::Waveform;
use crate::rng::Rng;
use std::f32::consts::TAU;

const FRAME_MS: f32 = 5.0;
/// Frames on either side that a parameter is averaged over: formants glide, loudness may jump (bursts must).
const GLIDE_FRAMES: usize = 4;
const LOUDNESS_FRAMES: usize = 1;
/// Pitch at the first and the last frame: a statement falls.
const PITCH_HZ: (f32, f32) = (135.0, 95.0);
const BANDWIDTHS_HZ: [f32; 3] = [70.0, 100.0, 160.0];
/// Gain of the voice: pulses leave the glottis far louder than noise leaves a constriction.
const VOICE_GAIN: f32 = 60.0;
/// Share by which low frequencies are held back in the voice, so that the upper formants stand out.
const BRIGHTNESS: f32 = 0.9;

/// What the synthesiser does for 5 ms.
#[derive(Clone, Copy, Default)]
struct Frame {
    voice: f32,
    noise: f32,
    formants_hz: [f32; 3],
    noise_hz: f32,
    noise_width_hz: f32,
}

pub fn speak(text: &str, rate_hz: u32) -> Waveform {
    let frames = glide(&score(&text.to_lowercase()));
    let frame_samples = (rate_hz as f32 * FRAME_MS / 1000.0) as usize;
    let mut synth = Synth::new(rate_hz as f32);
    let mut samples = Vec::with_capacity(frames.len() * frame_samples);
    for (index, frame) in frames.iter().enumerate() {
        let progress = index as f32 / frames.len() as f32;
        let pitch_hz = PITCH_HZ.0 + (PITCH_HZ.1 - PITCH_HZ.0) * progress;
        synth.tune(frame);
        samples.extend((0..frame_samples).map(|_| synth.sample(frame, pitch_hz)));
    }
    Waveform { samples, rate_hz }
}

/// Letters, and a few pairs of letters, to frames.
fn score(text: &str) -> Vec<Frame> {
    let mut frames = pause(60.0);
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let pair = rest.get(..2).and_then(digraph);
        let taken = if pair.is_some() { 2 } else { letter.len_utf8() };
        frames.extend(pair.unwrap_or_else(|| sound(letter)));
        rest = &rest[taken..];
    }
    frames.extend(pause(60.0));
    frames
}

fn digraph(pair: &str) -> Option<Vec<Frame>> {
    Some(match pair {
        "sh" => hiss(0.0, 0.7, 2_700.0, 900.0, 110.0),
        "ch" => [closure(0.0, [300.0, 1_800.0, 2_700.0]), hiss(0.0, 0.7, 3_000.0, 900.0, 70.0)].concat(),
        "th" => hiss(0.25, 0.12, 5_000.0, 3_000.0, 70.0),
        "ee" => vowel(1.0, [290.0, 2_350.0, 3_050.0], 150.0),
        "oo" => vowel(1.0, [320.0, 800.0, 2_250.0], 150.0),
        _ => return None,
    })
}

fn sound(letter: char) -> Vec<Frame> {
    match letter {
        'a' => vowel(1.0, [750.0, 1_300.0, 2_500.0], 110.0),
        'e' => vowel(1.0, [530.0, 1_850.0, 2_500.0], 85.0),
        'i' => vowel(1.0, [380.0, 2_150.0, 2_800.0], 90.0),
        'o' => vowel(1.0, [520.0, 920.0, 2_450.0], 110.0),
        'u' => vowel(1.0, [600.0, 1_150.0, 2_350.0], 90.0),
        'y' => vowel(0.9, [300.0, 2_000.0, 2_650.0], 80.0),
        'j' => [closure(0.1, [280.0, 1_900.0, 2_700.0]), hiss(0.4, 0.35, 2_500.0, 900.0, 60.0)].concat(),
        'l' => vowel(0.55, [370.0, 1_050.0, 2_850.0], 70.0),
        'm' => vowel(0.4, [260.0, 1_000.0, 2_200.0], 75.0),
        'n' => vowel(0.4, [270.0, 1_600.0, 2_600.0], 70.0),
        'r' => vowel(0.6, [430.0, 1_250.0, 1_600.0], 70.0),
        'w' => vowel(0.5, [310.0, 650.0, 2_200.0], 70.0),
        'v' => hiss(0.4, 0.12, 3_000.0, 2_500.0, 65.0),
        'z' => hiss(0.3, 0.4, 5_200.0, 1_200.0, 85.0),
        'f' => hiss(0.0, 0.25, 3_600.0, 3_500.0, 95.0),
        's' => hiss(0.0, 0.6, 6_200.0, 1_400.0, 100.0),
        'h' => hiss(0.0, 0.22, 1_500.0, 1_500.0, 55.0),
        'b' => stop(0.15, [280.0, 850.0, 2_250.0], 700.0, 12.0),
        'd' => stop(0.15, [290.0, 1_700.0, 2_700.0], 3_600.0, 14.0),
        'g' => stop(0.15, [280.0, 2_050.0, 2_350.0], 1_900.0, 18.0),
        'p' => stop(0.0, [300.0, 800.0, 2_250.0], 900.0, 22.0),
        't' => stop(0.0, [300.0, 1_750.0, 2_700.0], 4_400.0, 26.0),
        'k' => stop(0.0, [300.0, 2_000.0, 2_350.0], 2_100.0, 30.0),
        'c' => stop(0.0, [300.0, 1_500.0, 2_350.0], 1_600.0, 30.0),
        'q' => stop(0.0, [300.0, 900.0, 2_250.0], 1_200.0, 30.0),
        'x' => [stop(0.0, [300.0, 2_000.0, 2_350.0], 2_100.0, 15.0), hiss(0.0, 0.5, 5_700.0, 1_400.0, 60.0)].concat(),
        ' ' => pause(45.0),
        ',' | '.' | '?' | '!' | ';' | ':' => pause(120.0),
        _ => vec![],
    }
}

/// Frames of a vowel, or of a consonant that sings.
fn vowel(voice: f32, formants_hz: [f32; 3], ms: f32) -> Vec<Frame> {
    held(Frame { voice, formants_hz, noise_hz: 1_500.0, noise_width_hz: 1_500.0, ..Frame::default() }, ms)
}

fn hiss(voice: f32, noise: f32, noise_hz: f32, noise_width_hz: f32, ms: f32) -> Vec<Frame> {
    held(Frame { voice, noise, formants_hz: [350.0, 1_600.0, 2_600.0], noise_hz, noise_width_hz }, ms)
}

/// Frames of the mouth shut, then of a burst whose pitch tells the place.
fn stop(voice: f32, formants_hz: [f32; 3], burst_hz: f32, burst_ms: f32) -> Vec<Frame> {
    let burst = Frame { voice, noise: 0.6, formants_hz, noise_hz: burst_hz, noise_width_hz: 900.0 };
    [closure(voice, formants_hz), held(burst, burst_ms)].concat()
}

fn closure(voice: f32, formants_hz: [f32; 3]) -> Vec<Frame> {
    vowel(voice, formants_hz, 45.0)
}

fn pause(ms: f32) -> Vec<Frame> {
    vowel(0.0, [500.0, 1_500.0, 2_500.0], ms)
}

fn held(frame: Frame, ms: f32) -> Vec<Frame> {
    vec![frame; (ms / FRAME_MS).round() as usize]
}

/// Averages each parameter over its neighbours in time: mouths do not jump.
fn glide(frames: &[Frame]) -> Vec<Frame> {
    let mean = |at: usize, reach: usize, of: &dyn Fn(&Frame) -> f32| {
        let near = &frames[at.saturating_sub(reach)..(at + reach + 1).min(frames.len())];
        near.iter().map(of).sum::<f32>() / near.len() as f32
    };
    let smooth = |at: usize| Frame {
        voice: mean(at, LOUDNESS_FRAMES, &|frame| frame.voice),
        noise: mean(at, LOUDNESS_FRAMES, &|frame| frame.noise),
        formants_hz: std::array::from_fn(|formant| mean(at, GLIDE_FRAMES, &|frame| frame.formants_hz[formant])),
        ..frames[at]
    };
    (0..frames.len()).map(smooth).collect()
}

struct Synth {
    rate_hz: f32,
    phase: f32,
    flow: f32,
    pulse: f32,
    random: Rng,
    throat: [Resonator; 4],
    mouth: Resonator,
}

impl Synth {
    fn new(rate_hz: f32) -> Self {
        let mut throat: [Resonator; 4] = Default::default();
        // A fixed fourth formant keeps the upper spectrum alive.
        throat[3].tune(3_500.0, 250.0, rate_hz);
        Self { rate_hz, phase: 0.0, flow: 0.0, pulse: 0.0, random: Rng::new(&[]), throat, mouth: Resonator::default() }
    }

    fn tune(&mut self, frame: &Frame) {
        for (resonator, formant) in self.throat.iter_mut().zip(0..3) {
            resonator.tune(frame.formants_hz[formant], BANDWIDTHS_HZ[formant], self.rate_hz);
        }
        self.mouth.tune(frame.noise_hz, frame.noise_width_hz, self.rate_hz);
    }

    fn sample(&mut self, frame: &Frame, pitch_hz: f32) -> f32 {
        self.phase = (self.phase + pitch_hz / self.rate_hz).fract();
        let flow = glottal_flow(self.phase);
        let pulse = (flow - std::mem::replace(&mut self.flow, flow)) * VOICE_GAIN * (self.rate_hz / 22_050.0);
        // Upper 24 bits to -1..1.
        let noise = (self.random.next_u64() >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        let bright = pulse - BRIGHTNESS * std::mem::replace(&mut self.pulse, pulse);
        let breath = bright + 0.03 * noise;
        let voiced = self.throat.iter_mut().fold(breath * frame.voice, |signal, resonator| resonator.pass(signal));
        voiced + self.mouth.pass_level(noise * frame.noise)
    }
}

/// Rosenberg's pulse (1971, type C): opens for 40 % of the period, closes within 16 %, and rests.
fn glottal_flow(phase: f32) -> f32 {
    const OPENING: f32 = 0.40;
    const CLOSING: f32 = 0.16;
    if phase < OPENING {
        0.5 * (1.0 - (TAU / 2.0 * phase / OPENING).cos())
    } else if phase < OPENING + CLOSING {
        (TAU / 4.0 * (phase - OPENING) / CLOSING).cos()
    } else {
        0.0
    }
}

/// Klatt's digital resonator: y[n] = gain x[n] + b y[n-1] + c y[n-2].
#[derive(Default)]
struct Resonator {
    b: f32,
    c: f32,
    peak_gain: f32,
    y1: f32,
    y2: f32,
}

impl Resonator {
    fn tune(&mut self, hz: f32, width_hz: f32, rate_hz: f32) {
        let angle = TAU * hz.min(0.45 * rate_hz) / rate_hz;
        let radius = (-TAU / 2.0 * width_hz / rate_hz).exp();
        self.b = 2.0 * radius * angle.cos();
        self.c = -radius * radius;
        self.peak_gain = (1.0 - radius) * (1.0 - 2.0 * radius * (2.0 * angle).cos() + radius * radius).sqrt();
    }

    /// Filters a sample with gain 1 at 0 Hz, as a cascade needs.
    fn pass(&mut self, x: f32) -> f32 {
        self.step((1.0 - self.b - self.c) * x)
    }

    /// Filters a sample with gain 1 at the resonance, so that a narrow hiss is no louder than a wide one.
    fn pass_level(&mut self, x: f32) -> f32 {
        self.step(self.peak_gain * x)
    }

    fn step(&mut self, x: f32) -> f32 {
        let y = x + self.b * self.y1 + self.c * self.y2;
        self.y2 = std::mem::replace(&mut self.y1, y);
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Power of `samples` at one frequency (Goertzel, straight from the definition).
    fn power_at(samples: &[f32], hz: f32, rate_hz: f32) -> f32 {
        let turn = |n: usize| TAU * hz * n as f32 / rate_hz;
        let (mut re, mut im) = (0.0, 0.0);
        for (n, sample) in samples.iter().enumerate() {
            re += sample * turn(n).cos();
            im += sample * turn(n).sin();
        }
        re * re + im * im
    }

    fn band(samples: &[f32], low_hz: f32, high_hz: f32) -> f32 {
        (0..40).map(|step| power_at(samples, low_hz + (high_hz - low_hz) * step as f32 / 40.0, 22_050.0)).sum()
    }

    fn middle(text: &str) -> Vec<f32> {
        let samples = speak(text, 22_050).samples;
        samples[samples.len() / 3..samples.len() * 2 / 3].to_vec()
    }

    /// Truth: the formant table. A vowel is louder near its second formant than another vowel is there.
    #[test]
    fn vowels_have_their_formants() {
        let (high, low) = (middle("eeeeee"), middle("oooooo"));
        let share = |samples: &[f32], low_hz, high_hz| band(samples, low_hz, high_hz) / band(samples, 100.0, 3_000.0);
        assert!(share(&high, 2_100.0, 2_600.0) > 5.0 * share(&low, 2_100.0, 2_600.0));
        assert!(share(&low, 600.0, 1_000.0) > 5.0 * share(&high, 600.0, 1_000.0));
    }

    #[test]
    fn s_hisses_high_and_f_lower() {
        let (s, f) = (middle("ssss"), middle("ffff"));
        assert!(band(&s, 5_500.0, 7_000.0) > 5.0 * band(&s, 300.0, 3_000.0));
        assert!(band(&f, 5_500.0, 7_000.0) < 2.0 * band(&f, 2_000.0, 4_000.0));
    }

    #[test]
    fn any_text_gives_finite_sound() {
        for text in ["The quick fox, jumps!", "über Straße 12", "", "می‌خواهم", "xqzj"] {
            for rate_hz in [8_000, 22_050, 48_000] {
                let wave = speak(text, rate_hz);
                assert!(wave.samples.iter().all(|sample| sample.is_finite() && sample.abs() < 100.0), "{text}");
            }
        }
    }

    #[test]
    fn every_letter_sounds_different() {
        let spoken: Vec<_> = ('a'..='z').map(|letter| speak(&letter.to_string(), 16_000).samples).collect();
        for (index, sound) in spoken.iter().enumerate() {
            assert!(spoken[..index].iter().all(|other| other != sound), "{}", (b'a' + index as u8) as char);
        }
    }
}
