//! Keeps speech from clipping, as it streams: a gain that is down before a peak arrives, and comes back slowly after it.

use std::collections::VecDeque;

/// Highest level of what is spoken.
pub const CEILING: f32 = 0.95;
/// How far it looks ahead, and how soon the gain has come back by two thirds.
const AHEAD_S: f64 = 0.005;
const RELEASE_S: f64 = 0.08;
/// Samples that are looked at together: most hold no peak.
const BLOCK: usize = 512;

/// A peak limiter with look-ahead.
pub struct Limiter {
    ahead: usize,
    release: f32,
    /// Samples that wait for what is behind them.
    waiting: VecDeque<f32>,
    /// Gains that keep a sample under the ceiling, lowest first, with the number of their sample: a sliding minimum.
    lowest: VecDeque<(u64, f32)>,
    /// The last `ahead + 1` gains before smoothing, and their sum.
    gains: VecDeque<f32>,
    sum: f64,
    seen: u64,
    /// The lowest gain that was used.
    taken: f32,
}

impl Limiter {
    pub fn new(rate_hz: u32) -> Self {
        let samples = |seconds: f64| (seconds * f64::from(rate_hz)) as usize;
        let ahead = samples(AHEAD_S);
        Limiter {
            ahead,
            release: 1.0 - (-1.0 / samples(RELEASE_S) as f32).exp(),
            waiting: VecDeque::with_capacity(ahead + 1),
            lowest: VecDeque::new(),
            gains: vec![1.0; ahead + 1].into(),
            sum: ahead as f64 + 1.0,
            seen: 0,
            taken: 1.0,
        }
    }

    /// Appends what is final now.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        for block in samples.chunks(BLOCK) {
            match self.is_idle() && block.iter().all(|sample| sample.abs() <= CEILING) {
                true => self.pass(block, out),
                false => block.iter().for_each(|&sample| self.step(sample, out)),
            }
        }
    }

    /// Nothing is turned down, nor about to be.
    fn is_idle(&self) -> bool {
        let level = self.lowest.front().is_some_and(|(_, gain)| *gain == 1.0);
        self.seen > self.ahead as u64 && level && self.sum == self.gains.len() as f64
    }

    /// What `step` does to samples that need no gain, all at once: that is nearly all of speech.
    fn pass(&mut self, block: &[f32], out: &mut Vec<f32>) {
        self.waiting.extend(block);
        out.extend(self.waiting.drain(..block.len()));
        self.seen += block.len() as u64;
        self.lowest.clear();
        self.lowest.push_back((self.seen - 1, 1.0));
    }

    /// Appends what was still waiting.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        let whole = out.len() + self.waiting.len();
        while out.len() < whole {
            self.step(0.0, out);
        }
        self.waiting.clear();
    }

    /// Decibels by which the loudest moment was turned down.
    pub fn reduction_db(&self) -> f32 {
        -20.0 * self.taken.log10() + 0.0 // no negative zero
    }

    fn step(&mut self, sample: f32, out: &mut Vec<f32>) {
        let allowed = (CEILING / sample.abs()).min(1.0);
        while self.lowest.back().is_some_and(|(_, gain)| *gain >= allowed) {
            self.lowest.pop_back();
        }
        self.lowest.push_back((self.seen, allowed));
        self.waiting.push_back(sample);
        self.seen += 1;
        if self.waiting.len() <= self.ahead {
            return;
        }
        let leaving = self.seen - 1 - self.ahead as u64;
        let needed = self.lowest.front().expect("one was just pushed").1;
        if leaving == 0 {
            // As if speech had begun long before: nothing was there to be turned down gently.
            self.gains.iter_mut().for_each(|gain| *gain = needed);
            self.sum = f64::from(needed) * self.gains.len() as f64;
        }
        let before = *self.gains.back().expect("never empty");
        let risen = before + (1.0 - before) * self.release;
        // Close enough: otherwise it would never be whole again.
        let gain = if risen > 0.9999 { needed } else { needed.min(risen) };
        self.gains.push_back(gain);
        self.sum += f64::from(gain) - f64::from(self.gains.pop_front().expect("never empty"));
        if self.lowest.front().is_some_and(|(number, _)| *number <= leaving) {
            self.lowest.pop_front();
        }
        // The mean of gains that are each low enough for the peak is low enough, and has no steps.
        let smooth = (self.sum / self.gains.len() as f64) as f32;
        self.taken = self.taken.min(smooth);
        out.push(self.waiting.pop_front().expect("longer than `ahead`") * smooth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limited(samples: &[f32], chunk: usize) -> (Vec<f32>, f32) {
        let (mut limiter, mut out) = (Limiter::new(22_050), Vec::new());
        samples.chunks(chunk).for_each(|chunk| limiter.push(chunk, &mut out));
        limiter.finish(&mut out);
        (out, limiter.reduction_db())
    }

    #[test]
    fn quiet_speech_passes_untouched() {
        let samples: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.1).sin() * 0.9).collect();
        assert_eq!(limited(&samples, 700), (samples, 0.0));
    }

    #[test]
    fn a_loud_stretch_is_turned_down_smoothly_and_said_so() {
        let loud = |i: usize| if (9000..11_000).contains(&i) { 1.9 } else { 0.5 };
        let samples: Vec<f32> = (0..30_000).map(|i| (i as f32 * 0.05).sin() * loud(i)).collect();
        let (out, db) = limited(&samples, 1000);
        assert!((db - 6.02).abs() < 0.05, "{db} dB");
        assert!(out.iter().all(|sample| sample.abs() <= CEILING + 1e-6));
        let gain = |i: usize| out[i] / samples[i];
        let steps = (1..30_000).filter(|&i| samples[i].abs() > 0.05 && samples[i - 1].abs() > 0.05);
        assert!(steps.map(|i| (gain(i) - gain(i - 1)).abs()).fold(0.0, f32::max) < 0.02, "the gain jumps");
        assert_eq!(out[29_000], samples[29_000], "it comes back");
    }

    proptest! {
        #[test]
        fn nothing_exceeds_the_ceiling_and_nothing_is_lost(
            samples in prop::collection::vec(-4f32..4.0, 0..2000), chunk in 1usize..300,
        ) {
            let (out, _) = limited(&samples, chunk);
            prop_assert_eq!(out.len(), samples.len());
            prop_assert!(out.iter().all(|sample| sample.abs() <= CEILING * 1.00001));
            prop_assert_eq!(out, limited(&samples, 4000).0);
        }
    }
}
