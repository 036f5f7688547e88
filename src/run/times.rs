//! Where the time of workers, feed and steps went.

use super::observe::Done;
use host::loader::BatchTiming;
use host::machine::Ran;
use host::telemetry::Spread;
use host::telemetry::window::percentile;
use serde::Serialize;
use std::time::Duration;

/// Milliseconds of each stage for a batch, on the clocks of the devices that did it; waits on the host's.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StageTimes {
    pub load_wait_ms: Spread,
    pub to_device_ms: Spread,
    pub features_ms: Spread,
    pub transfer_ms: Spread,
    /// The optimizer step alone, without its wait for data.
    pub compute_ms: Spread,
    /// The model device stood idle because no batch was there.
    pub starved_ms: Spread,
    /// The model device stood idle because nobody had asked for the next batch yet.
    pub gap_ms: Spread,
    /// The training thread's wait for a batch; on a GPU the device may have been busy all the while.
    pub host_wait_ms: Spread,
}

/// How alike steps are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steadiness {
    pub ms: Spread,
    pub p50_ms: f64,
    /// Steps of more than one and a half times the median.
    pub long_steps: usize,
}

impl Steadiness {
    /// On a GPU the step's time there; on a CPU what its thread ran, however long it waited for a core.
    pub fn of(steps: &[&(u64, Done)]) -> Self {
        let own_ms = |done: &Done| done.ran.map_or_else(|| done.span.ms(), |ran| Some(ran.ran.as_secs_f64() * 1e3));
        let own = steps.iter().filter_map(|step| own_ms(&step.1));
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
    pub fn of(steps: &[&(u64, Done)], workers: usize, wall: Duration) -> Self {
        let mut times = LoaderTimes::default();
        let (mut busy, mut batches, mut utterances) = (Duration::ZERO, 0, 0);
        for delivery in steps.iter().flat_map(|step| &step.1.deliveries) {
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
pub fn feed_queued(steps: &[&(u64, Done)]) -> Option<f64> {
    let (mut wall, mut queued) = (Duration::ZERO, Duration::ZERO);
    for delivery in steps.iter().flat_map(|step| &step.1.deliveries) {
        (wall, queued) = (wall + delivery.trace.wall, queued + delivery.trace.ran?.queued);
    }
    Some(queued.as_secs_f64() / wall.as_secs_f64().max(1e-9))
}
