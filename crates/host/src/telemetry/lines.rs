//! How a run goes, in lines that stay: one every so many steps or so often, over all that happened since the last.

use super::spread::Spread;
use super::status::Figures;
use std::time::{Duration, Instant};

/// When the next line is due.
#[derive(Clone, Copy, Debug)]
pub enum LineInterval {
    Steps(u64),
    Time(Duration),
}

/// Gathers figures and gives a line when one is due. The first comes at once: a run that goes wrong is seen to.
pub struct Lines {
    every: LineInterval,
    last: Option<(u64, Instant)>,
    since: Gathered,
}

/// Figures since the last line.
#[derive(Default)]
struct Gathered {
    step_ms: Spread,
    /// Sums over time, in milliseconds of it.
    ready_ms: f64,
    audio: f64,
    padding: f64,
    /// Sum over steps.
    loss: f64,
}

impl Lines {
    pub fn new(every: LineInterval) -> Self {
        Lines { every, last: None, since: Gathered::default() }
    }

    /// The line, where one is due; `last`: in any case.
    pub fn add(&mut self, figures: &Figures, now: Instant, last: bool) -> Option<String> {
        self.since.add(figures);
        let due = |(step, at): (u64, Instant)| match self.every {
            LineInterval::Steps(steps) => figures.step >= step + steps,
            LineInterval::Time(time) => now.saturating_duration_since(at) >= time,
        };
        (last || self.last.is_none_or(due)).then(|| {
            self.last = Some((figures.step, now));
            std::mem::take(&mut self.since).over(figures).whole_line()
        })
    }
}

impl Gathered {
    fn add(&mut self, figures: &Figures) {
        let window = &figures.window;
        let (steps, ms) = (window.step_ms.count as f64, window.step_ms.mean * window.step_ms.count as f64);
        self.step_ms.merge(&window.step_ms);
        self.ready_ms += window.readiness * ms;
        self.audio += window.audio_seconds_per_second * ms;
        self.padding += window.padding_share * ms;
        self.loss += figures.loss * steps;
    }

    /// The newest figures, but means over all that were gathered.
    fn over(self, newest: &Figures) -> Figures {
        let mut figures = newest.clone();
        let (steps, ms) = (self.step_ms.count as f64, self.step_ms.mean * self.step_ms.count as f64);
        if ms <= 0.0 {
            return figures;
        }
        let window = &mut figures.window;
        (window.readiness, window.padding_share) = (self.ready_ms / ms, self.padding / ms);
        window.audio_seconds_per_second = self.audio / ms;
        window.step_ms = self.step_ms;
        figures.loss = self.loss / steps;
        let left = figures.steps.saturating_sub(figures.step) as f64 * self.step_ms.mean / 1e3;
        figures.eta = Some(Duration::from_secs_f64(left));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::window::StepSummary;

    fn figures(step: u64, loss: f64, steps_ms: &[f64], readiness: f64) -> Figures {
        let window = StepSummary {
            step_ms: steps_ms.iter().copied().collect(),
            p50_ms: 0.0,
            p99_ms: 0.0,
            readiness,
            utterances_per_second: 0.0,
            audio_seconds_per_second: 100.0,
            padding_share: 0.0,
            unsteady: None,
        };
        let (eta, memory_mib) = (None, Vec::new());
        Figures { step, steps: 100, epoch: 1, loss, window, eta, model_gpu: None, data_gpu: None, memory_mib }
    }

    #[test]
    fn a_line_is_over_everything_since_the_last() {
        let (mut lines, now) = (Lines::new(LineInterval::Steps(20)), Instant::now());
        assert!(lines.add(&figures(10, 4.0, &[10.0; 10], 1.0), now, false).is_some(), "the first comes at once");
        assert_eq!(lines.add(&figures(20, 3.0, &[10.0; 10], 1.0), now, false), None);
        let line = lines.add(&figures(30, 1.0, &[30.0; 10], 0.6), now, false).unwrap();
        // 20 steps of 20 ms on average; of 400 ms, 120 without a batch; 70 steps of 20 ms are left.
        assert!(line.starts_with("step 30/100 · epoch 1 · loss 2.000 · 20.0 ms ±50 % · ready 70.0 %"), "{line}");
        assert!(line.ends_with("ETA 0:01"), "{line}");
        assert!(lines.add(&figures(31, 1.0, &[30.0], 1.0), now, true).is_some(), "the last is always said");
    }

    #[test]
    fn lines_by_time_do_not_depend_on_steps() {
        let (mut lines, start) = (Lines::new(LineInterval::Time(Duration::from_secs(30))), Instant::now());
        let mut at = |second: u64| {
            let now = start + Duration::from_secs(second);
            lines.add(&figures(second * 1000, 1.0, &[1.0; 10], 1.0), now, false).is_some()
        };
        assert_eq!([0, 10, 29, 30, 31, 59, 61].map(&mut at), [true, false, false, true, false, false, true]);
    }
}
