//! Where the time of every step went, read from events that have passed: nothing waits for a figure.

use crate::feed::{Delivery, Event, Interval, Trace};
use crate::run::{Done, RunContext, StageTimes};
use host::telemetry::Spread;
use host::telemetry::window::{self, StepSummary, Window};
use std::collections::VecDeque;

/// Steps that stay at hand after they were read, for who looks at single ones.
const KEPT_STEPS: usize = 64;

/// Reads the times of steps whose events have passed.
pub struct StepTimes {
    pending: VecDeque<(u64, Done)>,
    /// Steps that were read, the newest last.
    read: VecDeque<(u64, Done)>,
    /// Nothing else ran since the last one that was read.
    is_unbroken: bool,
    /// Steps after which something else ran, such as a validation.
    breaks: VecDeque<u64>,
    window: Window,
    stages: StageTimes,
    seconds_per_frame: f64,
    frames_per_batch: usize,
}

impl StepTimes {
    pub fn of(context: &RunContext, warm_up_steps: u64) -> Self {
        let config = context.config;
        StepTimes {
            pending: VecDeque::new(),
            read: VecDeque::new(),
            is_unbroken: false,
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

    /// What follows `step` is not part of the next one's time. May be said twice of one: a validation, and a checkpoint.
    pub fn interrupt(&mut self, step: u64) {
        if self.pending.iter().all(|(number, _)| *number != step) {
            self.is_unbroken = false;
        } else if self.breaks.back() != Some(&step) {
            self.breaks.push_back(step);
        }
    }

    /// The newest steps that have ended, oldest first.
    pub fn ended(&self, at_most: usize) -> Vec<&(u64, Done)> {
        let has_ended = |step: &&(u64, Done)| step.1.span.end.passed().unwrap_or(false);
        let all: Vec<_> = self.read.iter().chain(self.pending.iter().take_while(has_ended)).collect();
        all[all.len().saturating_sub(at_most)..].to_vec()
    }

    /// Steps behind `step` that were read, as far as they are at hand.
    pub fn since(&self, step: u64) -> Vec<&(u64, Done)> {
        self.read.iter().filter(|(number, _)| *number > step).collect()
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
        let Done { deliveries, part_ends, span, .. } = &done;
        let last_end = self.read.back().filter(|_| self.is_unbroken).map(|(_, last)| &last.span.end);
        let starved_ms = starved(last_end, deliveries, part_ends);
        let asked = deliveries.first().and_then(|delivery| delivery.asked.as_ref());
        let gap_ms = last_end.zip(asked).and_then(|(end, asked)| end.ms_until(asked));
        let stages = &mut self.stages;
        add(&mut stages.compute_ms, span.ms());
        add(&mut stages.starved_ms, starved_ms);
        add(&mut stages.gap_ms, gap_ms.map(|ms| ms.max(0.0)));
        for delivery in deliveries {
            let Trace { load_wait, to_device, features, transfer, .. } = &delivery.trace;
            stages.load_wait_ms.add(load_wait.as_secs_f64() * 1e3);
            stages.host_wait_ms.add(delivery.wait.as_secs_f64() * 1e3);
            add(&mut stages.to_device_ms, to_device.as_ref().and_then(Interval::ms));
            add(&mut stages.features_ms, features.ms());
            add(&mut stages.transfer_ms, transfer.ms());
        }
        let whole_ms = last_end.and_then(|last| last.ms_until(&span.end));
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
        self.is_unbroken = self.breaks.front() != Some(&number);
        if !self.is_unbroken {
            self.breaks.pop_front();
        }
        self.read.push_back((number, done));
        self.read.drain(..self.read.len().saturating_sub(KEPT_STEPS));
    }
}

/// Milliseconds that the model device waited: from the end of what ran before, or from when the batch was asked for if that
/// was later, to its arrival, summed over the step's batches. `last_end`: of the step before, where nothing else ran since.
fn starved(last_end: Option<&Event>, deliveries: &[Delivery], part_ends: &[Event]) -> Option<f64> {
    let before = last_end.into_iter().chain(part_ends);
    // Without a last end, the first batch has nothing to be late for.
    let skip = usize::from(last_end.is_none());
    let late = |(end, delivery): (&Event, &Delivery)| {
        let since = |event: &Event| event.ms_until(&delivery.arrived);
        let since_asked = delivery.asked.as_ref().and_then(since).unwrap_or(f64::INFINITY);
        since(end).map(|ms| ms.min(since_asked).max(0.0))
    };
    let gaps: Vec<f64> = before.zip(deliveries.iter().skip(skip)).filter_map(late).collect();
    (last_end.is_some() || !gaps.is_empty()).then(|| gaps.iter().sum())
}

fn add(spread: &mut Spread, ms: Option<f64>) {
    if let Some(ms) = ms {
        spread.add(ms);
    }
}
