//! A recording that a voice is to be taken from: whether there is a voice in it, and what may be wrong with it. No
//! transcript is asked for, and the language does not matter.
//!
//! What cannot be used is an error; what can, and will hardly sound as it should, is a warning that says what to do. The
//! limits were set on real recordings (docs/speaking.md has the figures); the measures are plain ones, so that a warning can
//! be understood: how long, how much of it is voiced, whether its pitch stands still as notes do, and whether its sound
//! changes for good somewhere.

use super::cepstra::{Cepstrum, Frames, HOP_S, N_MELS, hop_samples};
use super::mel::first_band_above;
use super::{Resampler, Waveform, peak, pitch, prepare};
use crate::error::hinted;
use anyhow::Result;
use std::f64::consts::LN_10;

/// No sample of a silent recording is further from 0: -60 dB of full scale.
const SILENCE: f32 = 1e-3;
/// Less than this says nothing about a voice.
const LEAST_S: f64 = 0.3;
/// With less than this, a voice comes out that is only roughly like it.
const ENOUGH_S: f64 = 2.0;
/// Recordings are looked at with this rate, and up to this length.
const RATE_HZ: u32 = 16_000;
const MOST_LOOKED_AT_S: usize = 60;
/// Frames further below the loud ones (the 98th percentile) are pauses.
const PAUSE_DB: f64 = 25.0;
/// Fewer frames than this that are no pause tell nothing.
const LEAST_FRAMES: usize = 50;
/// Speech is voiced for 30 to 95 % of its time. Below this it is noise, drums, or a whisper.
const LEAST_VOICED: f64 = 0.1;
/// Pitch that moves by less than this many cents in 10 ms stands still: that of speech does for 14 % of its steps, of notes
/// for more than 90 %, and of speech with music behind it for 60 %.
const STILL_CENTS: f64 = 3.0;
const MOST_STILL: f64 = 0.42;
/// How much a chord changes in 10 ms, in the median (dB of mel-cepstral distortion): half as much as the calmest speech.
const LEAST_CHANGE_DB: f64 = 1.5;
/// A telephone lets nothing through above 3.4 kHz. Of speech that was heard in full, the sharpest sounds have more up there than this
/// below the loudest ones.
const TELEPHONE_HZ: f64 = 4_400.0;
const LEAST_ABOVE_DB: f64 = -50.0;
/// Both sides of a change have as many frames that are no pause.
const LEAST_SIDE: usize = 100;
const SIDE_STEP: usize = 20;
/// Cepstral coefficients whose means are compared, from the first.
const COMPARED: usize = 20;
/// Means of few frames differ by what is said: as much as this, for one frame against infinitely many.
const BY_CHANCE: f64 = 500.0;
/// Squared Mahalanobis distance of the means, less chance, above which two people speak, or one in two places.
const TWO: f64 = 8.5;

/// A recording as a voice is taken from it.
#[derive(Debug)]
pub struct Reference {
    pub wave: Waveform,
    /// What may be wrong with it, each with what to do.
    pub warnings: Vec<String>,
}

impl Reference {
    /// Prepares a recording as the corpus was, and looks at it. Fails where there is no voice to be had.
    pub fn of(wave: Waveform, rate_hz: u32, trim: bool, loudness_lufs: Option<f64>) -> Result<Self> {
        if peak(&wave.samples) <= SILENCE {
            return Err(hinted("silence, so there is no voice in it", "check that the microphone was on"));
        }
        let mut resampler = Resampler::default();
        let wave = prepare(wave, &mut resampler, rate_hz, trim, loudness_lufs)?;
        let seconds = seconds(&wave);
        if seconds < LEAST_S {
            let fact = format!("{seconds:.2} s of sound, too short to hear a voice in it");
            return Err(hinted(fact, "some seconds of speech, any words"));
        }
        let most = wave.samples.len().min(MOST_LOOKED_AT_S * wave.rate_hz as usize);
        let start = Waveform { samples: wave.samples[..most].to_vec(), rate_hz: wave.rate_hz };
        let warnings = Look::at(&resampler.resample(start, RATE_HZ)?).warnings();
        Ok(Reference { wave, warnings })
    }

    pub fn seconds(&self) -> f64 {
        seconds(&self.wave)
    }
}

fn seconds(wave: &Waveform) -> f64 {
    wave.samples.len() as f64 / f64::from(wave.rate_hz)
}

/// Says so where all recordings of a voice together are short.
pub fn short(seconds: f64) -> Option<String> {
    let told = || format!("{seconds:.1} s of speech say little about a voice: record five seconds or more, any words");
    (seconds < ENOUGH_S).then(told)
}

/// What is measured of a recording; pauses do not count.
struct Look {
    /// Seconds of each frame that is no pause, and its cepstrum.
    times_s: Vec<f64>,
    cepstra: Vec<Cepstrum>,
    /// Share of frames that have a pitch.
    voiced: f64,
    /// Share of steps from frame to frame in which pitch stands still; none where it is hardly voiced.
    still: Option<f64>,
    /// Median of the change from frame to frame, in dB.
    change_db: f64,
    /// Level of the sharpest sounds above a telephone's band, against the loudest ones.
    above_db: f64,
}

impl Look {
    fn at(wave: &Waveform) -> Self {
        let frames = Frames::of(&wave.samples, wave.rate_hz);
        let pitch = pitch::track(&wave.samples, wave.rate_hz, hop_samples(wave.rate_hz));
        let count = pitch.len().min(frames.cepstra.len());
        let loud = louder_than_pauses(&frames);
        let heard: Vec<usize> = (0..count).filter(|at| loud[*at]).collect();
        let of = |at: usize| pitch[at].filter(|_| loud[at]);
        let voiced = heard.iter().filter(|at| of(**at).is_some()).count();
        let step = |at: usize| Some((1200.0 * (of(at)? / of(at.checked_sub(1)?)?).log2()).abs());
        let steps: Vec<f64> = (1..count).filter_map(step).collect();
        let still = steps.iter().filter(|cents| **cents < STILL_CENTS).count();
        let change = |at: &usize| Some(distance_db(&frames, at.checked_sub(1)?, *at));
        Look {
            times_s: heard.iter().map(|at| *at as f64 * HOP_S).collect(),
            cepstra: heard.iter().map(|at| frames.cepstra[*at]).collect(),
            voiced: voiced as f64 / heard.len().max(1) as f64,
            still: (steps.len() >= LEAST_FRAMES).then(|| still as f64 / steps.len() as f64),
            above_db: above_telephone(&frames, &heard),
            change_db: crate::telemetry::median(&sorted(heard.iter().filter_map(change).collect())),
        }
    }

    fn warnings(&self) -> Vec<String> {
        if self.cepstra.len() < LEAST_FRAMES {
            return Vec::new();
        }
        if self.still.is_some_and(|still| still > MOST_STILL) || self.change_db < LEAST_CHANGE_DB {
            return vec!["it sounds like music, or has music in it: take speech alone, or the voice will ring".into()];
        }
        if self.voiced < LEAST_VOICED {
            let told = "hardly any of it is voiced, as noise or a whisper is: take speech in a normal voice, close to \
                        the microphone";
            return vec![told.into()];
        }
        let two = |at_s| {
            format!(
                "its sound changes for good after {at_s:.1} s, as when another person speaks, or in another place: cut \
                 it to one speaker"
            )
        };
        let telephone = || {
            "there is nothing above 4 kHz, as over a telephone, and the voice will sound like one: take a recording of a \
             microphone"
        };
        let narrow = (self.above_db < LEAST_ABOVE_DB).then(|| telephone().to_owned());
        self.change_for_good().map(two).into_iter().chain(narrow).collect()
    }

    /// Where the mean cepstra before and after differ most, by Mahalanobis' distance, if they do by more than chance.
    fn change_for_good(&self) -> Option<f64> {
        let count = self.cepstra.len();
        let spread = Spread::of(&self.cepstra)?;
        let mut before = [0.0; COMPARED];
        let (mut most, mut at_s) = (TWO, None);
        for at in 0..count.checked_sub(LEAST_SIDE)? {
            if at >= LEAST_SIDE && (at - LEAST_SIDE).is_multiple_of(SIDE_STEP) {
                let sides = [at as f64, (count - at) as f64];
                let far = spread.distance(&before, sides) - BY_CHANCE * (1.0 / sides[0] + 1.0 / sides[1]);
                if far > most {
                    (most, at_s) = (far, Some(self.times_s[at]));
                }
            }
            before.iter_mut().zip(&self.cepstra[at]).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        at_s
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn louder_than_pauses(frames: &Frames) -> Vec<bool> {
    let levels: Vec<f64> = frames.log_mel.chunks(N_MELS).map(level_db).collect();
    let top = percentile(levels.clone(), 98);
    levels.iter().map(|level| *level > top - PAUSE_DB).collect()
}

fn above_telephone(frames: &Frames, heard: &[usize]) -> f64 {
    let first = first_band_above(TELEPHONE_HZ, N_MELS, frames.top_hz);
    let of = |at: &usize| &frames.log_mel[at * N_MELS..][..N_MELS];
    let above = heard.iter().map(|at| level_db(&of(at)[first..])).collect();
    percentile(above, 95) - percentile(heard.iter().map(|at| level_db(of(at))).collect(), 98)
}

fn level_db(bands: &[f32]) -> f64 {
    20.0 / LN_10 * bands.iter().map(|band| f64::from(*band).exp()).sum::<f64>().ln()
}

fn percentile(values: Vec<f64>, percent: usize) -> f64 {
    let ranked = sorted(values);
    ranked.get((ranked.len() * percent / 100).min(ranked.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn distance_db(frames: &Frames, a: usize, b: usize) -> f64 {
    super::cepstra::distortion_db(&frames.cepstra[a], &frames.cepstra[b])
}

/// Sums over all frames, and the covariance as the product of a triangle with itself (Cholesky).
struct Spread {
    count: f64,
    sum: [f64; COMPARED],
    triangle: [[f64; COMPARED]; COMPARED],
}

impl Spread {
    /// None where frames do not differ at all.
    fn of(cepstra: &[Cepstrum]) -> Option<Self> {
        let count = cepstra.len() as f64;
        let mut sum = [0.0; COMPARED];
        let mut products = [[0.0; COMPARED]; COMPARED];
        for frame in cepstra {
            for row in 0..COMPARED {
                sum[row] += f64::from(frame[row]);
                (0..=row).for_each(|col| products[row][col] += f64::from(frame[row]) * f64::from(frame[col]));
            }
        }
        let mut triangle = [[0.0; COMPARED]; COMPARED];
        for row in 0..COMPARED {
            for col in 0..=row {
                let covariance = products[row][col] / count - sum[row] / count * (sum[col] / count);
                let known: f64 = (0..col).map(|k| triangle[row][k] * triangle[col][k]).sum();
                // A little more on the diagonal: digital silence and pure tones have frames that are all alike.
                triangle[row][col] = match row == col {
                    true => (covariance + 1e-4 - known).sqrt(),
                    false => (covariance - known) / triangle[col][col],
                };
            }
        }
        triangle.iter().flatten().all(|value| value.is_finite()).then_some(Spread { count, sum, triangle })
    }

    /// Squared distance of the means of both sides under the spread inside them: that of all frames, less what the two
    /// means add to it (Sherman and Morrison's formula).
    fn distance(&self, before: &[f64; COMPARED], [a, b]: [f64; 2]) -> f64 {
        let mut solved = [0.0; COMPARED];
        for row in 0..COMPARED {
            let apart = before[row] / a - (self.sum[row] - before[row]) / b;
            let known: f64 = (0..row).map(|col| self.triangle[row][col] * solved[col]).sum();
            solved[row] = (apart - known) / self.triangle[row][row];
        }
        let square: f64 = solved.iter().map(|value| value * value).sum();
        square / (1.0 - a * b / (self.count * self.count) * square).max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explained;
    use crate::rng::Rng;
    use std::f64::consts::TAU;

    const HZ: f64 = RATE_HZ as f64;

    /// Something like a talker: sounds of 40 ms, each with harmonics of its own around `slope` (dB an octave), a pitch that
    /// wavers, and a pause of two after every sixteen.
    fn talk(seconds: f64, hz: f64, slope: f64, seed: u64) -> Vec<f32> {
        let mut rng = Rng::new(&[seed]);
        let (mut samples, mut phase, mut cents) = (Vec::new(), 0.0, 0.0);
        for sound in 0..(seconds / 0.04) as usize {
            let loud = if sound % 18 >= 16 { 0.0 } else { 0.2 };
            let peaks: Vec<f64> = (0..24).map(|_| 16.0 * rng.unit()).collect();
            for at in 0..(0.04 * HZ) as usize {
                if at % 160 == 0 {
                    cents = 0.98 * cents + 60.0 * (rng.unit() - 0.5);
                }
                phase += hz * 2f64.powf(cents / 1200.0) / HZ;
                let harmonic = |number: usize| {
                    let db = peaks[number - 1] + slope * (number as f64).log2();
                    10f64.powf(db / 20.0) * (TAU * phase * number as f64).sin()
                };
                let sum: f64 = (1..=24).map(harmonic).sum();
                samples.push((loud * 0.1 * sum + 0.002 * (rng.unit() - 0.5)) as f32);
            }
        }
        samples
    }

    fn warned(samples: Vec<f32>) -> Vec<String> {
        Reference::of(Waveform { samples, rate_hz: RATE_HZ }, 22_050, true, Some(-23.0)).unwrap().warnings
    }

    fn is(warnings: &[String], what: &str) -> bool {
        warnings.len() == 1 && warnings[0].contains(what)
    }

    #[test]
    fn silence_and_a_moment_of_sound_are_refused_with_what_to_do() {
        let refused = |samples: Vec<f32>| {
            let error = Reference::of(Waveform { samples, rate_hz: RATE_HZ }, 22_050, true, None).unwrap_err();
            Explained::of(error.as_ref())
        };
        let silent = refused(vec![0.0005; 32_000]);
        assert!(silent.fact.contains("silence") && silent.hints[0].contains("microphone"), "{silent:?}");
        let moment = refused(talk(0.2, 120.0, -6.0, 1));
        assert!(moment.fact.contains("too short") && moment.hints[0].contains("seconds of speech"), "{moment:?}");
        assert!(refused(vec![]).fact.contains("silence"));
    }

    #[test]
    fn a_second_is_short_and_five_are_not() {
        assert!(short(1.0).unwrap().starts_with("1.0 s of speech say little"));
        assert_eq!(short(5.0), None);
    }

    #[test]
    fn one_talker_is_fine_and_two_are_noticed() {
        let one = warned(talk(8.0, 120.0, -6.0, 1));
        assert_eq!(one, Vec::<String>::new());
        let two = warned([talk(4.0, 120.0, -9.0, 2), talk(4.0, 210.0, 0.0, 3)].concat());
        assert!(is(&two, "cut it to one speaker"), "{two:?}");
        let at: f64 = two[0].split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        assert!((3.0..5.0).contains(&at), "{two:?}");
    }

    #[test]
    fn a_telephone_is_noticed() {
        // Its sounds end at 24 · 120 = 2,880 Hz; hiss that is 30 dB below them is what a microphone adds.
        let narrow = talk(8.0, 120.0, -6.0, 1);
        let mut rng = Rng::new(&[9]);
        let wide = narrow.iter().map(|sample| sample + (0.01 * (rng.unit() - 0.5)) as f32).collect();
        assert_eq!(warned(wide), Vec::<String>::new());
        let phone = Resampler::default().resample(Waveform { samples: narrow, rate_hz: RATE_HZ }, 8_000).unwrap();
        let warned = Reference::of(phone, 22_050, true, Some(-23.0)).unwrap().warnings;
        assert!(is(&warned, "telephone"), "{warned:?}");
    }

    #[test]
    fn music_and_noise_are_noticed() {
        let note = |n: usize| {
            let hz = [220.0, 277.2, 329.6, 440.0][n / 6_400 % 4];
            (1..6).map(|h| 0.1 / f64::from(h) * (TAU * hz * n as f64 / HZ * f64::from(h)).sin()).sum::<f64>() as f32
        };
        let tune: Vec<f32> = (0..80_000).map(note).collect();
        assert!(is(&warned(tune.clone()), "music"), "{:?}", warned(tune));
        let mut rng = Rng::new(&[7]);
        let noise: Vec<f32> = (0..80_000).map(|_| (0.2 * (rng.unit() - 0.5)) as f32).collect();
        assert!(is(&warned(noise.clone()), "voiced"), "{:?}", warned(noise));
    }

    /// Whatever comes, there is an answer: constants, clicks, one loud sample, values that are no numbers.
    #[test]
    fn nothing_breaks_it() {
        let click = |at: usize| (0..16_000).map(|n| f32::from(u8::from(n == at))).collect::<Vec<f32>>();
        for samples in [vec![0.5; 16_000], click(0), click(15_999), vec![1.0; 1], vec![f32::NAN; 16_000]] {
            let _ =
                Reference::of(Waveform { samples, rate_hz: RATE_HZ }, 24_000, true, Some(-23.0)).map(|it| it.warnings);
        }
    }
}
