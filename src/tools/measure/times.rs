//! Where the time of workers, feed and steps went.

use crate::train::Done;
use host::loader::BatchTiming;
use host::machine::Ran;
use host::telemetry::Spread;
use host::telemetry::window::percentile;
use serde::Serialize;
use std::time::Duration;
use tch::Device;

/// How alike steps are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steadiness {
    pub ms: Spread,
    pub p50_ms: f64,
    /// Steps of more than one and a half times the median.
    pub long_steps: usize,
}

impl Steadiness {
    pub(super) fn of(steps: &[(u64, Done)], ran: &[Option<Ran>], model: Device) -> Self {
        let own_ms = |done: &Done, ran: &Option<Ran>| match ran {
            Some(ran) if !model.is_cuda() => Some(ran.ran.as_secs_f64() * 1e3),
            _ => done.span.ms(),
        };
        let own = steps.iter().zip(ran).filter_map(|((_, done), ran)| own_ms(done, ran));
        let mut sorted: Vec<f64> = own.collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return Steadiness::default();
        }
        let p50_ms = percentile(&sorted, 0.5);
        let long_steps = sorted.iter().filter(|ms| **ms > 1.5 * p50_ms).count();
        Steadiness { ms: sorted.iter().copied().collect(), p50_ms, long_steps }
    }
}

/// Milliseconds of a worker for one batch, and where they went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LoaderTimes {
    pub batch_ms: Spread,
    pub ran_ms: Spread,
    pub queued_ms: Spread,
    pub locked_ms: Spread,
    /// The rest: waiting for bytes.
    pub disk_ms: Spread,
    /// Share of the workers' time at work on batches.
    pub busy: f64,
    pub utterances: f64,
}

impl LoaderTimes {
    pub(super) fn of(steps: &[(u64, Done)], workers: usize, wall: Duration) -> Self {
        let mut times = LoaderTimes::default();
        let (mut busy, mut batches, mut utterances) = (Duration::ZERO, 0, 0);
        for delivery in steps.iter().flat_map(|(_, done)| &done.deliveries) {
            let BatchTiming { wall, locked, ran, .. } = delivery.trace.timing;
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            times.batch_ms.add(ms(wall));
            times.locked_ms.add(ms(locked));
            if let Some(Ran { ran, queued }) = ran {
                times.ran_ms.add(ms(ran));
                times.queued_ms.add(ms(queued));
                times.disk_ms.add(ms(wall.saturating_sub(ran + queued + locked)));
            }
            busy += wall;
            batches += 1;
            utterances += delivery.utterances;
        }
        times.busy = busy.as_secs_f64() / wall.as_secs_f64() / workers.max(1) as f64;
        times.utterances = utterances as f64 / f64::from(batches.max(1));
        times
    }
}

/// Share of the feed thread's time for batches that it waited for a core.
pub(super) fn feed_queued(steps: &[(u64, Done)]) -> Option<f64> {
    let (mut wall, mut queued) = (Duration::ZERO, Duration::ZERO);
    for delivery in steps.iter().flat_map(|(_, done)| &done.deliveries) {
        (wall, queued) = (wall + delivery.trace.wall, queued + delivery.trace.ran?.queued);
    }
    Some(queued.as_secs_f64() / wall.as_secs_f64().max(1e-9))
}
