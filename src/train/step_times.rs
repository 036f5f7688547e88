//! Where the time of every step went, read from events that have passed: nothing waits for a figure.

use super::step::Done;
use crate::feed::{Delivery, Event, Interval, Trace};
use crate::run::RunContext;
use host::telemetry::Spread;
use host::telemetry::window::{self, StepSummary, Window};
use serde::Serialize;
use std::collections::VecDeque;

/// Reads the times of steps whose events have passed.
pub struct StepTimes {
    pending: VecDeque<(u64, Done)>,
    /// End of the last step that was read; absent when something else ran after it.
    last_end: Option<Event>,
    /// Steps after which something else ran, such as a validation.
    breaks: VecDeque<u64>,
    window: Window,
    stages: StageTimes,
    seconds_per_frame: f64,
    frames_per_batch: usize,
}

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

impl StepTimes {
    pub fn of(context: &RunContext, warm_up_steps: u64) -> Self {
        let config = context.config;
        StepTimes {
            pending: VecDeque::new(),
            last_end: None,
            breaks: VecDeque::new(),
            window: Window::new(warm_up_steps),
            stages: StageTimes::default(),
            seconds_per_frame: config.model.hop_length as f64 / f64::from(config.data.sample_rate),
            frames_per_batch: context.data.budget.frames,
        }
    }

    pub fn add(&mut self, step: u64, done: Done) {
        self.pending.push_back((step, done));
    }

    /// What follows `step` is not part of the next one's time.
    pub fn interrupt(&mut self, step: u64) {
        if self.pending.iter().any(|(number, _)| *number == step) {
            self.breaks.push_back(step);
        } else {
            self.last_end = None;
        }
    }

    /// The figures up to and with `step`, which must have ended; `None` before the first full step.
    pub fn close(&mut self, step: u64) -> Option<(StepSummary, StageTimes)> {
        while self.pending.front().is_some_and(|(number, _)| *number <= step) {
            let (number, done) = self.pending.pop_front().expect("it has a front");
            self.read(number, done);
        }
        let stages = std::mem::take(&mut self.stages);
        self.window.close().map(|summary| (summary, stages))
    }

    fn read(&mut self, number: u64, done: Done) {
        let Done { deliveries, part_ends, span: Interval { start, end } } = done;
        let starved_ms = self.starved(&deliveries, &part_ends);
        let asked = deliveries.first().and_then(|delivery| delivery.asked.as_ref());
        let gap_ms = self.last_end.as_ref().zip(asked).and_then(|(end, asked)| end.ms_until(asked));
        let stages = &mut self.stages;
        add(&mut stages.compute_ms, start.ms_until(&end));
        add(&mut stages.starved_ms, starved_ms);
        add(&mut stages.gap_ms, gap_ms.map(|ms| ms.max(0.0)));
        for delivery in &deliveries {
            let Trace { load_wait, to_device, features, transfer, .. } = &delivery.trace;
            stages.load_wait_ms.add(load_wait.as_secs_f64() * 1e3);
            stages.host_wait_ms.add(delivery.wait.as_secs_f64() * 1e3);
            add(&mut stages.to_device_ms, to_device.as_ref().and_then(Interval::ms));
            add(&mut stages.features_ms, features.ms());
            add(&mut stages.transfer_ms, transfer.ms());
        }
        let whole_ms = self.last_end.as_ref().and_then(|last| last.ms_until(&end));
        if let Some(ms) = whole_ms {
            let speech_frames: usize = deliveries.iter().map(|delivery| delivery.speech_frames).sum();
            self.window.add(window::Step {
                seconds: ms / 1e3,
                starved_seconds: starved_ms.unwrap_or(0.0) / 1e3,
                utterances: deliveries.iter().map(|delivery| delivery.utterances).sum(),
                audio_seconds: speech_frames as f64 * self.seconds_per_frame,
                speech_frames,
                frames: deliveries.len() * self.frames_per_batch,
            });
        }
        let interrupted = self.breaks.front() == Some(&number);
        if interrupted {
            self.breaks.pop_front();
        }
        self.last_end = (!interrupted).then_some(end);
    }

    /// Milliseconds that the model device waited: from the end of what ran before, or from when the batch was asked for if that was later, to its arrival, summed
    /// over the step's batches.
    fn starved(&self, deliveries: &[Delivery], part_ends: &[Event]) -> Option<f64> {
        let before = self.last_end.iter().chain(part_ends);
        // Without a last end, the first batch has nothing to be late for.
        let skip = usize::from(self.last_end.is_none());
        let late = |(end, delivery): (&Event, &Delivery)| {
            let since = |event: &Event| event.ms_until(&delivery.arrived);
            let since_asked = delivery.asked.as_ref().and_then(since).unwrap_or(f64::INFINITY);
            since(end).map(|ms| ms.min(since_asked).max(0.0))
        };
        let gaps: Vec<f64> = before.zip(deliveries.iter().skip(skip)).filter_map(late).collect();
        (self.last_end.is_some() || !gaps.is_empty()).then(|| gaps.iter().sum())
    }
}

fn add(spread: &mut Spread, ms: Option<f64>) {
    if let Some(ms) = ms {
        spread.add(ms);
    }
}
