//! How steady the steps are: their times over a window, and what was achieved in them.

use super::spread::Spread;

/// A coefficient of variation above this is worth a warning.
pub const UNSTEADY_CV: f64 = 0.3;
/// Fewer steps than this say nothing about steadiness.
const STEPS_TO_JUDGE: u64 = 8;

/// One training step. From the end of the step before to its own end, so that steps add up to wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    pub seconds: f64,
    /// Part of `seconds` while the model's queue was empty.
    pub starved_seconds: f64,
    pub utterances: usize,
    pub audio_seconds: f64,
    /// Frames that hold speech, of `frames` computed.
    pub speech_frames: usize,
    pub frames: usize,
}

/// Collects steps; [`Window::close`] sums them up and starts the next window.
#[derive(Debug, Default)]
pub struct Window {
    warm_up_left: u64,
    steps_ms: Vec<f64>,
    total: Step,
}

/// What a window of steps came to.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    pub step_ms: Spread,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// 1 − time the model's queue was empty ÷ wall time.
    pub readiness: f64,
    pub utterances_per_second: f64,
    pub audio_seconds_per_second: f64,
    pub padding_share: f64,
    /// Step times vary more than they should; unknown where there were too few steps.
    pub unsteady: Option<bool>,
}

impl Window {
    /// The first `warm_up_steps` of the run are not counted: libraries set themselves up in them.
    pub fn new(warm_up_steps: u64) -> Self {
        Window { warm_up_left: warm_up_steps, ..Window::default() }
    }

    pub fn add(&mut self, step: Step) {
        if self.warm_up_left > 0 {
            self.warm_up_left -= 1;
            return;
        }
        self.steps_ms.push(step.seconds * 1e3);
        let total = &mut self.total;
        total.seconds += step.seconds;
        total.starved_seconds += step.starved_seconds;
        total.utterances += step.utterances;
        total.audio_seconds += step.audio_seconds;
        total.speech_frames += step.speech_frames;
        total.frames += step.frames;
    }

    /// `None` while no step was counted.
    pub fn close(&mut self) -> Option<StepSummary> {
        let mut steps_ms = std::mem::take(&mut self.steps_ms);
        let total = std::mem::take(&mut self.total);
        let step_ms = steps_ms.iter().copied().collect::<Spread>().known()?;
        steps_ms.sort_by(f64::total_cmp);
        let wall_s = total.seconds.max(1e-9);
        Some(StepSummary {
            step_ms,
            p50_ms: percentile(&steps_ms, 0.50),
            p99_ms: percentile(&steps_ms, 0.99),
            readiness: 1.0 - (total.starved_seconds / wall_s).clamp(0.0, 1.0),
            utterances_per_second: total.utterances as f64 / wall_s,
            audio_seconds_per_second: total.audio_seconds / wall_s,
            padding_share: 1.0 - total.speech_frames as f64 / total.frames.max(total.speech_frames).max(1) as f64,
            unsteady: (step_ms.count >= STEPS_TO_JUDGE).then(|| step_ms.cv() > UNSTEADY_CV),
        })
    }
}

/// Percentile of sorted figures, at least one, interpolated between neighbours (type 7 of Hyndman and Fan 1996).
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close_over(window: &mut Window, steps_ms: impl IntoIterator<Item = f64>) -> Option<StepSummary> {
        steps_ms.into_iter().for_each(|ms| window.add(Step { seconds: ms / 1e3, ..Step::default() }));
        window.close()
    }

    /// Truth: `pstdev` and `quantiles(n=100, method="inclusive")` of Python's statistics module, same list.
    #[test]
    fn figures_match_a_reference() {
        let summary = close_over(&mut Window::new(0), [8.0, 9.5, 7.25, 30.0, 8.5, 8.0, 11.0]).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(summary.step_ms.mean, 11.75);
        close(summary.step_ms.std(), 7.536814408526419);
        close(summary.p50_ms, 8.5);
        close(summary.p99_ms, 28.86);
        assert_eq!((summary.step_ms.min, summary.step_ms.max, summary.step_ms.count), (7.25, 30.0, 7));
    }

    #[test]
    fn rates_are_over_the_steps_own_time() {
        let mut window = Window::new(0);
        let step = Step {
            seconds: 0.01,
            starved_seconds: 0.0001,
            utterances: 20,
            audio_seconds: 100.0,
            speech_frames: 980,
            frames: 1000,
        };
        (0..10).for_each(|_| window.add(step));
        let summary = window.close().unwrap();
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        close(summary.readiness, 0.99);
        close(summary.utterances_per_second, 2000.0);
        close(summary.audio_seconds_per_second, 10_000.0);
        close(summary.padding_share, 0.02);
        assert_eq!(summary.unsteady, Some(false));
        assert_eq!(window.close(), None);
    }

    #[test]
    fn warm_up_steps_do_not_count() {
        let mut window = Window::new(3);
        assert_eq!(close_over(&mut window, [900.0, 500.0]), None);
        let summary = close_over(&mut window, [400.0, 8.0, 8.0]).unwrap();
        assert_eq!((summary.step_ms.count, summary.step_ms.max), (2, 8.0));
    }

    #[test]
    fn steps_that_vary_are_unsteady_where_there_are_enough_to_tell() {
        let unsteady = [5.0, 5.0, 20.0, 5.0, 5.0, 20.0, 5.0, 5.0, 20.0, 5.0];
        let judged = |steps: &[f64]| close_over(&mut Window::new(0), steps.iter().copied()).unwrap().unsteady;
        assert_eq!([judged(&[10.0; 10]), judged(&unsteady), judged(&unsteady[..3])], [Some(false), Some(true), None]);
    }

    proptest! {
        #[test]
        fn percentiles_lie_between_the_extremes_and_split_the_figures(ms in prop::collection::vec(0.1..1e3f64, 1..300)) {
            let summary = close_over(&mut Window::new(0), ms.iter().copied()).unwrap();
            prop_assert!(summary.step_ms.min <= summary.p50_ms && summary.p50_ms <= summary.p99_ms);
            prop_assert!(summary.p99_ms <= summary.step_ms.max);
            let below = ms.iter().filter(|&&x| x <= summary.p50_ms + 1e-9).count();
            prop_assert!(2 * below >= ms.len());
        }
    }
}
