//! The training pipeline without the loop around it: steps are run, observed, traced or repeated, and nothing is saved.

use crate::feed::{Event, Feed, FeedTimes, MelStats, Purpose};
use crate::model::Voice;
use crate::ranks::Exchange;
use crate::run::timeline::{TimeAxis, Timeline};
use crate::run::{Done, LoaderTimes, MemoryUsage, RunContext, StageTimes, Steadiness, feed_queued, start_feed};
use crate::train::{MemoryMonitor, RunStart, Step, StepTimes, begin_voice, gpu_sampler};
use anyhow::{Context, Result};
use host::loader::Position;
use host::machine::ThreadClock;
use host::telemetry::cpu::{HostClock, HostLoad};
use host::telemetry::gpu::GpuReading;
use host::telemetry::window::StepSummary;
use std::time::{Duration, Instant};
use torchx::activity::Activity;

/// Steps before anything is measured: lazy set-up; on a GPU capture and its clocks too.
const WARM_UP_STEPS: u64 = 4;
const GPU_WARM_UP_STEPS: u64 = 30;
/// Steps that are traced kernel by kernel, which slows them a little: on their own, not among the timed ones.
pub const TRACED_STEPS: u64 = 30;

/// Network and feed, and the number of the last step.
pub struct Pipeline<'a> {
    context: &'a RunContext<'a>,
    step: Step<Voice>,
    feed: Option<Feed>,
    number: u64,
    /// Of the last reading: what a step spent in the exchange of gradients.
    exchange_ms: f64,
}

/// What a stretch of steps showed.
pub struct ObservedSteps {
    pub summary: StepSummary,
    pub stages: StageTimes,
    pub own_step: Steadiness,
    pub loader: LoaderTimes,
    pub feed: Option<FeedTimes>,
    pub host: Option<HostLoad>,
    pub queued_share: Option<f64>,
    pub feed_queued_share: Option<f64>,
    pub gpus: Result<Vec<GpuReading>, String>,
    pub timeline: Timeline,
}

impl<'a> Pipeline<'a> {
    /// Network, feed and the first step; and when that was done, in seconds since the start of the program.
    pub fn start(context: &'a RunContext) -> Result<(Self, f64)> {
        let (step, state) = crate::catch(|| begin_voice(context, &RunStart::Fresh))??;
        let feed = start_feed(context, Position::default(), state.mel_stats, Purpose::Voice)?;
        let mut pipeline = Pipeline { context, step, feed: Some(feed), number: 0, exchange_ms: 0.0 };
        pipeline.run(1)?;
        let first_step_s = context.began.elapsed().as_secs_f64();
        Ok((pipeline, first_step_s))
    }

    pub fn parameters(&self) -> usize {
        self.step.groups.iter().map(|group| group.len()).sum()
    }

    /// Of gradients between ranks: milliseconds of a step, bytes, and the way.
    pub fn exchange(&self) -> (f64, u64, Option<String>) {
        let exchange = self.step.exchange.as_ref();
        (self.exchange_ms, exchange.map_or(0, Exchange::bytes), exchange.map(Exchange::describe))
    }

    pub fn warm_up(&mut self) -> Result<()> {
        self.run(if self.context.roles.model.is_cuda() { GPU_WARM_UP_STEPS } else { WARM_UP_STEPS })
    }

    /// Starts another feed in place of the one that runs.
    pub fn feed_from(&mut self, context: &RunContext) -> Result<()> {
        self.stop_feed();
        self.feed = Some(start_feed(context, Position::default(), MelStats::identity(), Purpose::Voice)?);
        Ok(())
    }

    pub fn stop_feed(&mut self) {
        self.feed = None;
    }

    pub(super) fn feed(&self) -> Result<&Feed> {
        self.feed.as_ref().context("the feed was stopped")
    }

    fn rate(&self) -> f64 {
        self.context.config.training.peak_rate() * 1e-3
    }

    fn one(&mut self) -> Result<Done> {
        self.context.go_on()?;
        self.number += 1;
        let rate = self.rate();
        let feed = self.feed.as_mut().context("the feed was stopped")?;
        self.step.run(feed, self.number, rate)
    }

    /// Steps whose figures nobody wants; waits for the last.
    pub fn run(&mut self, steps: u64) -> Result<()> {
        for _ in 0..steps {
            let done = self.one()?;
            if !self.step.is_settled() {
                done.span.end.wait()?;
            }
        }
        self.settle()
    }

    /// Milliseconds from the end of one step to the end of the next, with nothing but the steps.
    pub(super) fn plain(&mut self, steps: u64) -> Result<f64> {
        let first = self.one()?.span.end;
        let mut last = None;
        for _ in 0..steps {
            last = Some(self.one()?.span.end);
        }
        self.settle()?;
        let ms = last.and_then(|last| first.ms_until(&last)).context("no step was run")?;
        Ok(ms / steps as f64)
    }

    fn settle(&self) -> Result<()> {
        Ok(Event::now(self.context.roles.model)?.wait()?)
    }

    /// Runs steps as the training loop does: figures are asked for now and then, and nothing waits for them. All clocks
    /// are read once the steps are over.
    pub fn observe(&mut self, steps: u64) -> Result<ObservedSteps> {
        let sampler = gpu_sampler(self.context);
        let axis = TimeAxis::begin(self.context.roles)?;
        let (host, feed_before) = (HostClock::read(), self.feed()?.reading().unwrap_or_default());
        let clock = ThreadClock::open();
        let (start, before) = (Instant::now(), clock.read());
        let mut steps_done = Vec::new();
        for _ in 0..=steps {
            let done = self.one()?;
            steps_done.push((self.number, done));
            if self.number.is_multiple_of(self.context.config.training.log_step) {
                self.step.request_reading(self.number)?;
            }
            while let Some(reading) = self.step.poll(false)? {
                self.exchange_ms = reading.exchange_ms;
            }
            self.context.bar.inc(1);
        }
        self.settle()?;
        let (wall, waited) = (start.elapsed(), clock.since(before).map(|ran| ran.queued));
        let share = |time: Duration| time.as_secs_f64() / wall.as_secs_f64();
        let host = host.and_then(|before| Some(HostClock::read()?.since(&before)));
        let feed = self.feed()?.reading().map(|now| now.since(&feed_before));
        let gpus = sampler.map(|sampler| sampler.read());
        let seen: Vec<&(u64, Done)> = steps_done.iter().collect();
        let timeline = Timeline::of(&axis, &seen);
        let loader = LoaderTimes::of(&seen, self.feed()?.loader().status().workers, wall);
        let feed_queued_share = feed_queued(&seen);
        let own_step = Steadiness::of(&seen[1..]);
        let mut step_times = StepTimes::of(self.context, 0);
        steps_done.into_iter().for_each(|(number, done)| step_times.add(number, done));
        let (summary, stages) = step_times.close(self.number).context("no step was measured")?;
        let queued_share = waited.map(share);
        Ok(ObservedSteps {
            summary,
            stages,
            own_step,
            loader,
            feed,
            host,
            queued_share,
            feed_queued_share,
            gpus,
            timeline,
        })
    }

    /// Records every kernel of some steps; nothing without a GPU.
    pub fn trace(&mut self) -> Result<Option<Activity>> {
        if !self.context.roles.model.is_cuda() {
            return Ok(None);
        }
        // The first recording of a process sets the recorder up. A GPU that had nothing to do meanwhile runs faster than one
        // that is warm, so that its kernels would be held against slower steps.
        torchx::activity::start()?.stop()?;
        self.run(TRACED_STEPS)?;
        let recorder = torchx::activity::start()?;
        self.run(TRACED_STEPS)?;
        Ok(Some(recorder.stop()?.of(self.context.roles.model)?))
    }

    /// Milliseconds of a step on the batch that the last one left.
    pub fn headspace(&mut self, steps: u64) -> Result<f64> {
        let start = Event::now(self.context.roles.model)?;
        for _ in 0..steps {
            self.context.go_on()?;
            self.number += 1;
            self.step.repeat(self.number, self.rate())?;
            self.context.bar.inc(1);
        }
        let end = Event::now(self.context.roles.model)?;
        end.wait()?;
        Ok(start.ms_until(&end).context("two events of one device")? / steps as f64)
    }

    pub(super) fn failures(&self) -> Vec<String> {
        let failures = self.feed.as_ref().map(|feed| feed.loader().failures()).unwrap_or_default();
        failures.iter().map(ToString::to_string).collect()
    }

    pub(super) fn usage(&self) -> Result<MemoryUsage> {
        Ok(MemoryMonitor::new(self.context.roles, self.context.caps).usage(self.feed()?))
    }
}
