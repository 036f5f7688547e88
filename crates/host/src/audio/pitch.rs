//! Fundamental frequency: YIN's difference function (de Cheveigné and Kawahara 2002) says which periods a frame may have,
//! and the cheapest path through the candidates of all frames (as in Boersma 1993) says which it has, or none.

use std::ops::Range;

/// Voices from a deep bass to a child's.
const LOWEST_HZ: f64 = 60.0;
const HIGHEST_HZ: f64 = 600.0;
/// Two of the longest periods.
const WINDOW_S: f64 = 2.0 / LOWEST_HZ;
/// Periods that a frame may choose from.
const CANDIDATES: usize = 6;
/// A frame that is further below the loudest one is not voiced.
const SILENCE_DB: f64 = 40.0;
/// What a frame costs that is said to be unvoiced. One with a period costs the share of its energy that does not repeat.
const UNVOICED: f64 = 0.5;
/// What a period costs for each octave that it lies below the highest: every multiple of a period repeats as well.
const OCTAVE: f64 = 0.02;
/// What a jump costs for each octave, and what beginning or ending to be voiced costs, for frames 10 ms apart.
const JUMP: f64 = 0.4;
const TURN: f64 = 0.12;
/// Sums that are kept apart, so that as many samples are added at a time.
const LANES: usize = 16;

/// Frequency in Hz of each frame, or none where it is not voiced. Frame `t` is centred on sample `t * hop_samples`.
pub fn track(samples: &[f32], rate_hz: u32, hop_samples: usize) -> Vec<Option<f64>> {
    let lags = (f64::from(rate_hz) / HIGHEST_HZ) as usize..(f64::from(rate_hz) / LOWEST_HZ).ceil() as usize + 1;
    let window = (f64::from(rate_hz) * WINDOW_S) as usize;
    // Zeros beyond the ends, so that every frame is whole.
    let margin = vec![0.0; window + lags.end];
    let padded = [&margin, samples, &margin].concat();
    let centres: Vec<usize> =
        (0..=samples.len() / hop_samples).map(|frame| margin.len() + frame * hop_samples).collect();
    let energy = |centre: usize| energy(&padded[centre - window / 2..][..window]);
    let energies: Vec<f32> = centres.iter().map(|&centre| energy(centre)).collect();
    let floor =
        energies.iter().fold(0.0, |most: f32, &energy| most.max(energy)) * 10f32.powf(-SILENCE_DB as f32 / 10.0);
    let of_frame = |(&centre, &energy): (&usize, &f32)| match energy > floor {
        true => candidates(&differences(&padded, centre, window, lags.end), &lags, f64::from(rate_hz)),
        false => vec![],
    };
    cheapest_path(&centres.iter().zip(&energies).map(of_frame).collect::<Vec<_>>())
}

/// A frequency that a frame may have, and what it costs to say so.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hz: f64,
    cost: f64,
}

/// Energy of what changes between the window and itself a lag later, over the mean of that for all shorter lags; each pair
/// of windows lies evenly around the centre. 0 where it repeats exactly, about 1 where it does not repeat.
fn differences(samples: &[f32], centre: usize, window: usize, lags: usize) -> Vec<f32> {
    let mut sum = 0.0;
    let mut against_mean = |lag: usize| {
        let first = centre - (window + lag) / 2;
        let difference = difference(&samples[first..first + window], &samples[first + lag..first + lag + window]);
        sum += difference;
        if lag == 0 || sum == 0.0 { 1.0 } else { difference * lag as f32 / sum }
    };
    (0..=lags).map(&mut against_mean).collect()
}

/// The deepest valleys, each placed between the lags by a parabola.
fn candidates(differences: &[f32], lags: &Range<usize>, rate_hz: f64) -> Vec<Candidate> {
    let valley = |lag: &usize| differences[*lag] < differences[lag - 1] && differences[*lag] <= differences[lag + 1];
    let candidate = |lag: usize| {
        let [left, here, right] = [lag - 1, lag, lag + 1].map(|at| f64::from(differences[at]));
        let bend = left - 2.0 * here + right;
        let shift = if bend > 0.0 { 0.5 * (left - right) / bend } else { 0.0 };
        let hz = rate_hz / (lag as f64 + shift);
        Candidate { hz, cost: here - 0.25 * (left - right) * shift + OCTAVE * (HIGHEST_HZ / hz).log2() }
    };
    let mut found: Vec<Candidate> = lags.clone().filter(valley).map(candidate).collect();
    found.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    found.truncate(CANDIDATES);
    found
}

/// Viterbi's search. State 0 of a frame is unvoiced, then come its candidates.
fn cheapest_path(frames: &[Vec<Candidate>]) -> Vec<Option<f64>> {
    let mut sums = vec![0.0];
    let mut came_from = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let before: &[Candidate] = if at == 0 { &[] } else { &frames[at - 1] };
        let best = |state: Option<&Candidate>| {
            let states = std::iter::once(None).chain(before.iter().map(Some)).zip(&sums).enumerate();
            let (from, cost) = states
                .map(|(from, (other, sum))| (from, sum + turn(other, state)))
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .expect("a frame can always be unvoiced");
            (cost + state.map_or(UNVOICED, |candidate| candidate.cost), from)
        };
        let states = std::iter::once(None).chain(frame.iter().map(Some)).map(best);
        let (costs, from): (Vec<f64>, Vec<usize>) = states.unzip();
        sums = costs;
        came_from.push(from);
    }
    let mut state = (0..sums.len()).min_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap_or(0);
    let mut path: Vec<Option<f64>> = Vec::with_capacity(frames.len());
    for (frame, from) in frames.iter().zip(&came_from).rev() {
        path.push(state.checked_sub(1).map(|index| frame[index].hz));
        state = from[state];
    }
    path.reverse();
    path
}

fn turn(from: Option<&Candidate>, to: Option<&Candidate>) -> f64 {
    match (from, to) {
        (None, None) => 0.0,
        (Some(from), Some(to)) => JUMP * (from.hz / to.hz).log2().abs(),
        _ => TURN,
    }
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    sum_of_squares(a.iter().zip(b).map(|(a, b)| a - b))
}

fn energy(samples: &[f32]) -> f32 {
    sum_of_squares(samples.iter().copied())
}

fn sum_of_squares(mut values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let mut sums = [0f32; LANES];
    for _ in 0..values.len() / LANES {
        for (sum, value) in sums.iter_mut().zip(values.by_ref()) {
            *sum += value * value;
        }
    }
    sums.iter().sum::<f32>() + values.map(|value| value * value).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::f64::consts::TAU;

    const RATE_HZ: u32 = 16_000;
    const HOP_SAMPLES: usize = 160;

    /// A second of a buzz, whose frequency at each time is `hz`.
    fn buzz(hz: impl Fn(f64) -> f64) -> Vec<f32> {
        let mut phase = 0.0;
        let mut sample = |n: u32| {
            phase += hz(f64::from(n) / f64::from(RATE_HZ)) / f64::from(RATE_HZ);
            (1..9).map(|h| 0.2 / f64::from(h) * (TAU * phase * f64::from(h)).sin()).sum::<f64>() as f32
        };
        (0..RATE_HZ).map(&mut sample).collect()
    }

    fn noise(level: f64) -> Vec<f32> {
        let mut rng = Rng::new(&[1]);
        (0..RATE_HZ).map(|_| (2.0 * level * (rng.unit() - 0.5)) as f32).collect()
    }

    fn heard(samples: &[f32]) -> Vec<Option<f64>> {
        track(samples, RATE_HZ, HOP_SAMPLES)
    }

    fn cents(a: f64, b: f64) -> f64 {
        (1200.0 * (a / b).log2()).abs()
    }

    #[test]
    fn tones_are_found_within_three_cents() {
        for hz in [65.0, 82.4, 110.0, 147.3, 220.0, 333.3, 440.0, 590.0] {
            let buzz = heard(&buzz(|_| hz));
            let sine: Vec<f32> = (0..RATE_HZ).map(|n| (TAU * hz * f64::from(n) / 16e3).sin() as f32 * 0.3).collect();
            for frame in buzz[5..95].iter().chain(&heard(&sine)[5..95]) {
                assert!(frame.is_some_and(|found| cents(found, hz) < 3.0), "{hz} Hz: {frame:?}");
            }
        }
    }

    /// An octave and a half in a second: each frame has the frequency of its own centre.
    #[test]
    fn a_chirp_is_followed() {
        let hz = |second: f64| 100.0 * 2f64.powf(1.5 * second);
        for (frame, found) in heard(&buzz(hz)).iter().enumerate().take(95).skip(5) {
            let wanted = hz(frame as f64 / 100.0);
            assert!(found.is_some_and(|found| cents(found, wanted) < 10.0), "{frame}: {found:?}, not {wanted}");
        }
    }

    #[test]
    fn noise_and_silence_are_not_voiced_and_a_noisy_tone_is() {
        let voiced = |samples: &[f32]| heard(samples).iter().filter(|frame| frame.is_some()).count();
        assert_eq!((voiced(&vec![0.0; 16_000]), voiced(&[]), voiced(&[0.1; 7])), (0, 0, 0));
        assert!(voiced(&noise(0.3)) < 5, "{}", voiced(&noise(0.3)));
        // 10 dB of signal over noise.
        let noisy: Vec<f32> = buzz(|_| 120.0).iter().zip(noise(0.07)).map(|(tone, noise)| tone + noise).collect();
        assert!(voiced(&noisy) > 95, "{}", voiced(&noisy));
    }

    #[test]
    fn voicing_begins_and_ends_where_the_tone_does() {
        let tone = buzz(|_| 180.0);
        let found = heard(&[noise(0.05), tone, noise(0.05)].concat());
        let first = found.iter().position(Option::is_some).unwrap();
        let last = found.iter().rposition(Option::is_some).unwrap();
        assert!(first.abs_diff(100) <= 2 && last.abs_diff(200) <= 2, "{first} to {last}");
        assert!(found[first..=last].iter().all(Option::is_some));
    }
}
