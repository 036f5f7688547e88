//! Clauses end to end: pauses as punctuation asks, whatever quiet the voice left at its ends, and no clicks.

use host::text::End;

/// Ends rise and fall over this long, so that none is cut off at a sample that is not zero.
pub const FADE_S: f64 = 0.01;
/// Quieter than the clause's loudest moment by 40 dB.
const QUIET: f32 = 0.01;
/// Steps in which quiet is looked for.
const STEP_S: f64 = 0.005;
/// No more than this is held back for the next clause.
const MOST_HELD_S: f64 = 1.0;

/// Seconds from the last sound of a clause to the first of the next.
fn pause_s(end: End) -> f64 {
    match end {
        End::Cut => 0.03,
        End::Clause => 0.18,
        End::Sentence => 0.4,
        End::Paragraph => 0.7,
    }
}

/// Joins clauses into one stream of samples.
pub struct Join {
    rate_hz: u32,
    speed: f64,
    /// End of the last clause, faded out; `quiet` of it is quiet.
    tail: Vec<f32>,
    quiet: usize,
    end: Option<End>,
}

impl Join {
    pub fn new(rate_hz: u32, speed: f64) -> Self {
        Join { rate_hz, speed, tail: Vec::new(), quiet: 0, end: None }
    }

    /// Appends what is final now; the clause's end waits for the next one.
    pub fn push(&mut self, mut clause: Vec<f32>, end: End, out: &mut Vec<f32>) {
        self.fade(&mut clause);
        let (lead, trail) = self.quiet_ends(&clause);
        let first = match self.end {
            Some(before) => self.bridge(before, lead, out),
            None => 0,
        };
        let held = (trail.min(self.samples(MOST_HELD_S)) + self.samples(FADE_S)).min(clause.len() - first);
        let border = clause.len() - held;
        out.extend_from_slice(&clause[first..border]);
        self.tail = clause.split_off(border);
        self.quiet = trail.min(self.tail.len());
        self.end = Some(end);
    }

    /// Appends what was held back.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        out.append(&mut self.tail);
    }

    /// Appends the held end and what lies between; returns how much of the next clause's quiet start is left out.
    fn bridge(&mut self, before: End, lead: usize, out: &mut Vec<f32>) -> usize {
        let wanted = self.samples(pause_s(before) / self.speed);
        let excess = (self.quiet + lead).saturating_sub(wanted);
        let (from_tail, from_lead) = (excess.min(self.quiet), excess.saturating_sub(self.quiet).min(lead));
        let mut tail = std::mem::take(&mut self.tail);
        tail.truncate(tail.len() - from_tail);
        if from_tail > 0 {
            self.fade_out(&mut tail);
        }
        out.append(&mut tail);
        out.resize(out.len() + wanted.saturating_sub(self.quiet + lead), 0.0);
        from_lead
    }

    fn samples(&self, seconds: f64) -> usize {
        (seconds * f64::from(self.rate_hz)) as usize
    }

    /// Lets both ends rise and fall.
    pub fn fade(&self, clause: &mut [f32]) {
        clause.reverse();
        self.fade_out(clause);
        clause.reverse();
        self.fade_out(clause);
    }

    fn fade_out(&self, samples: &mut [f32]) {
        let len = self.samples(FADE_S).min(samples.len());
        let start = samples.len() - len;
        for (at, sample) in samples[start..].iter_mut().enumerate() {
            let left = (at + 1) as f32 / (len + 1) as f32;
            *sample *= 0.5 + 0.5 * (std::f32::consts::PI * left).cos();
        }
    }

    /// Quiet samples at both ends; all of a clause without sound count as its end.
    fn quiet_ends(&self, clause: &[f32]) -> (usize, usize) {
        let loudest = clause.iter().fold(0f32, |peak, sample| peak.max(sample.abs()));
        let step = self.samples(STEP_S).max(1);
        let loud = |part: &[f32]| part.iter().any(|sample| sample.abs() > loudest * QUIET);
        let Some(first) = clause.chunks(step).position(loud) else { return (0, clause.len()) };
        let last = clause.chunks(step).rposition(loud).unwrap_or(first);
        (first * step, clause.len().saturating_sub((last + 1) * step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_HZ: u32 = 22_050;

    fn joined(clauses: Vec<(Vec<f32>, End)>, speed: f64) -> Vec<f32> {
        let (mut join, mut out) = (Join::new(RATE_HZ, speed), Vec::new());
        clauses.into_iter().for_each(|(clause, end)| join.push(clause, end, &mut out));
        join.finish(&mut out);
        out
    }

    /// A tone that is cut off at its ends, with quiet around it.
    fn tone(hz: f32, seconds: f32, quiet_s: [f32; 2]) -> Vec<f32> {
        let silent = |seconds: f32| vec![0.0; (seconds * RATE_HZ as f32) as usize];
        let tone = (0..(seconds * RATE_HZ as f32) as usize)
            .map(|i| (i as f32 / RATE_HZ as f32 * hz * std::f32::consts::TAU + 1.3).sin() * 0.5);
        [silent(quiet_s[0]), tone.collect(), silent(quiet_s[1])].concat()
    }

    /// The largest second difference: a click is one that a smooth sound does not have.
    fn roughness(samples: &[f32]) -> f32 {
        samples.windows(3).fold(0.0, |most, w| most.max((w[0] - 2.0 * w[1] + w[2]).abs()))
    }

    #[test]
    fn no_join_clicks() {
        for end in [End::Cut, End::Clause, End::Sentence, End::Paragraph] {
            let clauses = [211.0, 347.0, 163.0].map(|hz| (tone(hz, 0.37, [0.0, 0.0]), end));
            let butted: Vec<f32> = clauses.iter().flat_map(|(clause, _)| clause.clone()).collect();
            let smooth = roughness(&tone(347.0, 0.3, [0.0, 0.0]));
            let found = roughness(&joined(clauses.into(), 1.0));
            assert!(roughness(&butted) > 20.0 * smooth, "the measure notices a click");
            assert!(found < 1.5 * smooth, "{end:?}: {found} where a tone has {smooth}");
        }
    }

    #[test]
    fn pauses_are_as_punctuation_asks_whatever_quiet_there_was() {
        for quiet_s in [[0.0, 0.0], [0.05, 0.05], [0.3, 0.02], [0.01, 0.6], [0.5, 0.4]] {
            for (end, speed) in [(End::Clause, 1.0), (End::Sentence, 1.0), (End::Sentence, 2.0), (End::Paragraph, 1.0)]
            {
                let clauses = vec![(tone(200.0, 0.5, quiet_s), end), (tone(200.0, 0.5, quiet_s), End::Sentence)];
                let out = joined(clauses, speed);
                let loud: Vec<usize> = (0..out.len()).filter(|&i| out[i].abs() > 0.01).collect();
                let pause = loud.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap() as f64 / f64::from(RATE_HZ);
                let wanted = pause_s(end) / speed;
                assert!((pause - wanted).abs() < 0.02, "{end:?} after {quiet_s:?}: {pause} s, wanted {wanted} s");
            }
        }
    }

    #[test]
    fn clauses_of_any_length_are_safe() {
        for len in [0, 1, 2, 50, 219, 220, 221, 500] {
            let clauses = vec![(vec![0.5; len], End::Cut), (vec![0.0; len], End::Clause), (vec![0.5; len], End::Cut)];
            assert!(joined(clauses, 1.0).len() >= len);
        }
    }
}
