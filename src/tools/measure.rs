//! A stretch of the real training pipeline with all its clocks read: what every report on a run rests on.

use super::timeline::{Axis, Timeline};
use crate::feed::{Event, Feed, MelStats, Purpose, Role, name};
use crate::model::Voice;
use crate::run::{RunContext, ring_slots, start_feed};
use crate::train::{Done, RunStart, Stages, Step, StepTimes, Usage, Watch, begin_voice, gpu_sampler};
use anyhow::{Context, Result};
use host::config::Config;
use host::dataset::Building;
use host::loader::{Making, Position};
use host::machine::{Ran, ThreadClock};
use host::telemetry::Spread;
use host::telemetry::cpu::{HostClock, HostLoad};
use host::telemetry::gpu::Reading;
use host::telemetry::window::{Summary, percentile};
use serde::Serialize;
use std::time::{Duration, Instant};
use tch::Device;
use torchx::activity::Activity;

/// Steps before anything is measured: lazy set-up; on a GPU capture and its clocks too.
const WARM_UP_STEPS: u64 = 4;
const GPU_WARM_UP_STEPS: u64 = 30;
/// Steps that are traced kernel by kernel, which slows them a little: on their own, not among the timed ones.
const TRACED_STEPS: u64 = 30;
/// Plain and watched steps take turns of this length, so that a machine that changes its speed changes both.
const TURN_STEPS: u64 = 25;

/// What a run was and did. A figure that could not be taken is absent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    pub steps: u64,
    pub setup: Setup,
    pub corpus: Corpus,
    pub building: Building,
    /// From the start of the program.
    pub first_step_s: f64,
    /// From the end of one step to the end of the next.
    pub step_ms: Spread,
    pub step_p50_ms: f64,
    pub step_p99_ms: f64,
    /// The step alone: on a GPU its time there, on a CPU what its thread ran, however long it waited for a core.
    pub own_step: Steadiness,
    pub stages: Stages,
    pub loader: LoaderTimes,
    /// Absent where batches are made in the training thread.
    pub feed: Option<FeedTimes>,
    pub readiness: f64,
    pub padding_share: f64,
    pub audio_seconds_per_second: f64,
    /// A step on a batch that stays: the most that any pipeline could give.
    pub headspace_ms: f64,
    /// Kernels by CUPTI; absent without a GPU.
    pub kernels: Option<Kernels>,
    pub devices: Vec<DeviceUse>,
    pub host: Option<HostLoad>,
    /// Of the training thread's time, waiting for a core.
    pub queued_share: Option<f64>,
    /// Of the feed's time at batches, the same.
    pub feed_queued_share: Option<f64>,
    pub failures: Vec<String>,
    #[serde(skip)]
    pub timeline: Timeline,
}

/// The settings that matter for speed, as they were in this run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setup {
    pub model_size: String,
    pub parameters: usize,
    pub frames_per_batch: usize,
    pub bytes_per_batch: usize,
    pub data_device: String,
    pub model_device: String,
    pub on_gpu: bool,
    pub data_on_gpu: bool,
    /// 0: batches are laid by whoever asks for them.
    pub workers: usize,
    pub depth: usize,
    /// Batches on the model device; 0: made in the training thread.
    pub slots: usize,
    pub padded: bool,
    pub graphs: bool,
    pub accumulate: u64,
    pub route: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Corpus {
    pub clips: usize,
    pub held_out: usize,
    /// Sound clips that the limits of the run leave out.
    pub refused: usize,
    /// Rows and clips that cannot be used.
    pub damaged: usize,
    pub hours: f64,
}

/// How alike steps are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steadiness {
    pub ms: Spread,
    pub p50_ms: f64,
    /// Steps of more than one and a half times the median.
    pub long_steps: usize,
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

/// Shares of the feed thread's time, and of the ring.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FeedTimes {
    pub busy: f64,
    pub waits_for_loader: f64,
    pub waits_for_room: f64,
    pub mean_ready: f64,
    pub empty: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Kernels {
    /// Time with a kernel running over the time of a step without records.
    pub busy: f64,
    pub per_step: f64,
    pub mean_us: f64,
}

/// One device of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceUse {
    pub name: String,
    pub roles: String,
    /// By the driver; or why not.
    pub busy: Spread,
    pub not_measured: Option<String>,
    pub memory_used_mib: Spread,
    pub memory_total_mib: Option<f64>,
    /// Of this program's roles, at most.
    pub peak_mib: Option<f64>,
    pub cap_mib: Option<f64>,
    pub power_watts: Spread,
    pub sm_mhz: Spread,
    pub temperature_celsius: Spread,
    pub throttle: Vec<&'static str>,
}

/// Runs the pipeline and measures `steps` of it. Want of memory is explained as `train` does it.
pub fn run(context: &RunContext, steps: u64) -> Result<Measured> {
    measured(context, steps).map_err(|error| Watch::new(context.roles, context.caps).explain(error, context.config))
}

fn measured(context: &RunContext, steps: u64) -> Result<Measured> {
    let (mut rig, first_step_s) = Rig::start(context)?;
    rig.warm_up()?;
    let watched = rig.watch(steps)?;
    let traced = rig.trace()?;
    let failures = rig.failures();
    let route = rig.feed()?.route().to_string();
    let usage = rig.usage()?;
    rig.stop_feed();
    let headspace_ms = rig.headspace((steps / 2).max(5))?;
    let Watched { summary, stages, own_step, loader, feed, host, queued_share, feed_queued_share, gpus, timeline } =
        watched;
    let step_ms = summary.step_ms;
    let kernels = traced.map(|traced| Kernels::of(&traced, step_ms.mean));
    Ok(Measured {
        steps,
        setup: Setup::of(context, rig.parameters(), route),
        corpus: Corpus::of(context),
        building: context.data.building,
        first_step_s,
        step_ms,
        step_p50_ms: summary.p50_ms,
        step_p99_ms: summary.p99_ms,
        own_step,
        stages,
        loader,
        feed,
        readiness: summary.readiness,
        padding_share: summary.padding_share,
        audio_seconds_per_second: summary.audio_seconds_per_second,
        headspace_ms,
        kernels,
        devices: devices(context, &gpus, &usage),
        host,
        queued_share,
        feed_queued_share,
        failures,
        timeline,
    })
}

/// What watching costs: milliseconds of a plain step and of a watched one, from end to end on the device's clock.
/// Medians of turns.
pub fn overhead(context: &RunContext, steps: u64) -> Result<(f64, f64)> {
    let (mut rig, _) = Rig::start(context)?;
    rig.warm_up()?;
    let (mut plain, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..steps.div_ceil(TURN_STEPS).max(3) {
        plain.push(rig.plain(TURN_STEPS)?);
        watched.push(rig.watch(TURN_STEPS)?.summary.step_ms.mean);
    }
    let median = |mut turns: Vec<f64>| {
        turns.sort_by(f64::total_cmp);
        percentile(&turns, 0.5)
    };
    Ok((median(plain), median(watched)))
}

/// The pipeline on a bench: network, feed, and the number of the step.
pub struct Rig<'a> {
    context: &'a RunContext<'a>,
    step: Step<Voice>,
    feed: Option<Feed>,
    number: u64,
}

/// What a stretch of steps showed.
pub struct Watched {
    pub summary: Summary,
    pub stages: Stages,
    pub own_step: Steadiness,
    pub loader: LoaderTimes,
    pub feed: Option<FeedTimes>,
    pub host: Option<HostLoad>,
    pub queued_share: Option<f64>,
    pub feed_queued_share: Option<f64>,
    pub gpus: Result<Vec<Reading>, String>,
    pub timeline: Timeline,
}

impl<'a> Rig<'a> {
    /// Network, feed and the first step: with it, seconds since the start of the program.
    pub fn start(context: &'a RunContext) -> Result<(Self, f64)> {
        let (step, state) = crate::catch(|| begin_voice(context, &RunStart::Fresh))??;
        let feed = start_feed(context, Position::default(), state.mel_stats, Purpose::Voice)?;
        let mut rig = Rig { context, step, feed: Some(feed), number: 0 };
        rig.run(1)?;
        let first_step_s = context.began.elapsed().as_secs_f64();
        Ok((rig, first_step_s))
    }

    pub fn parameters(&self) -> usize {
        self.step.groups.iter().map(|group| group.len()).sum()
    }

    pub fn warm_up(&mut self) -> Result<()> {
        self.run(if self.context.roles.model.is_cuda() { GPU_WARM_UP_STEPS } else { WARM_UP_STEPS })
    }

    /// Another feed in place of the one that runs.
    pub fn feed_from(&mut self, context: &RunContext) -> Result<()> {
        self.stop_feed();
        self.feed = Some(start_feed(context, Position::default(), MelStats::identity(), Purpose::Voice)?);
        Ok(())
    }

    pub fn stop_feed(&mut self) {
        self.feed = None;
    }

    fn feed(&self) -> Result<&Feed> {
        self.feed.as_ref().context("the feed was stopped")
    }

    fn rate(&self) -> f64 {
        self.context.config.training.learning_rate * 1e-3
    }

    fn one(&mut self) -> Result<Done> {
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
    fn plain(&mut self, steps: u64) -> Result<f64> {
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

    /// As the training loop does it: figures are asked for now and then, and nothing waits for them. All clocks are read
    /// once the steps are over.
    pub fn watch(&mut self, steps: u64) -> Result<Watched> {
        let sampler = gpu_sampler(self.context);
        let axis = Axis::begin(self.context.roles)?;
        let (host, feed_before) = (HostClock::read(), self.feed()?.snapshot());
        let clock = ThreadClock::open();
        let (start, before) = (Instant::now(), clock.read());
        let (mut steps_done, mut ran) = (Vec::new(), Vec::new());
        for _ in 0..=steps {
            let lap = clock.read();
            let done = self.one()?;
            ran.push(clock.since(lap));
            steps_done.push((self.number, done));
            if self.number.is_multiple_of(self.context.config.training.log_step) {
                self.step.request_reading(self.number)?;
            }
            while self.step.poll(false)?.is_some() {}
            self.context.bar.inc(1);
        }
        self.settle()?;
        let (wall, waited) = (start.elapsed(), clock.since(before).map(|ran| ran.queued));
        let share = |time: Duration| time.as_secs_f64() / wall.as_secs_f64();
        let host = host.and_then(|before| Some(HostClock::read()?.since(&before)));
        let feed = feed_times(self.feed()?, &feed_before);
        let gpus = sampler.map(|sampler| sampler.read());
        let timeline = Timeline::of(&axis, &steps_done);
        let loader = loader_times(&steps_done, self.feed()?.loader().gauges().workers, wall);
        let feed_queued_share = feed_queued(&steps_done);
        let own_step = Steadiness::of(&steps_done[1..], &ran[1..], self.context.roles.model);
        let mut pulse = StepTimes::of(self.context, 0);
        steps_done.into_iter().for_each(|(number, done)| pulse.add(number, done));
        let (summary, stages) = pulse.close(self.number).context("no step was measured")?;
        let queued_share = waited.map(share);
        Ok(Watched { summary, stages, own_step, loader, feed, host, queued_share, feed_queued_share, gpus, timeline })
    }

    /// Every kernel of some steps; nothing without a GPU.
    pub fn trace(&mut self) -> Result<Option<Activity>> {
        if !self.context.roles.model.is_cuda() {
            return Ok(None);
        }
        // The first recording of a process sets the recorder up.
        torchx::activity::start()?.stop()?;
        let recorder = torchx::activity::start()?;
        self.run(TRACED_STEPS)?;
        Ok(Some(recorder.stop()?.of(self.context.roles.model)?))
    }

    /// Milliseconds of a step on the batch that the last one left.
    pub fn headspace(&mut self, steps: u64) -> Result<f64> {
        let start = Event::now(self.context.roles.model)?;
        for _ in 0..steps {
            self.number += 1;
            self.step.repeat(self.number, self.rate())?;
            self.context.bar.inc(1);
        }
        let end = Event::now(self.context.roles.model)?;
        end.wait()?;
        Ok(start.ms_until(&end).context("two marks of one device")? / steps as f64)
    }

    fn failures(&self) -> Vec<String> {
        let failures = self.feed.as_ref().map(|feed| feed.loader().failures()).unwrap_or_default();
        failures.iter().map(ToString::to_string).collect()
    }

    fn usage(&self) -> Result<Usage> {
        Ok(Watch::new(self.context.roles, self.context.caps).usage(self.feed()?))
    }
}

impl Setup {
    fn of(context: &RunContext, parameters: usize, route: String) -> Self {
        let RunContext { config, data, roles, .. } = context;
        let Config { data: settings, training, .. } = config;
        Setup {
            model_size: format!("{:?}", config.model.size).to_lowercase(),
            parameters,
            frames_per_batch: data.budget.frames,
            bytes_per_batch: data.train.layout(&data.budget).bytes,
            data_device: name(roles.data),
            model_device: name(roles.model),
            on_gpu: roles.model.is_cuda(),
            data_on_gpu: roles.data.is_cuda(),
            workers: settings.loader_workers(),
            depth: settings.prefetch_depth(),
            slots: ring_slots(settings),
            padded: data.budget.padded,
            graphs: training.enable_xla && roles.model.is_cuda(),
            accumulate: training.gradient_accumulation_steps,
            route,
        }
    }
}

impl Kernels {
    /// `step_ms`: of a step that was not traced.
    pub fn of(traced: &Activity, step_ms: f64) -> Self {
        Kernels {
            busy: traced.kernel_ns as f64 / 1e6 / TRACED_STEPS as f64 / step_ms,
            per_step: traced.kernels as f64 / TRACED_STEPS as f64,
            mean_us: traced.kernel_ns as f64 / 1e3 / (traced.kernels as f64).max(1.0),
        }
    }
}

impl Corpus {
    fn of(context: &RunContext) -> Self {
        let data = context.data;
        Corpus {
            clips: data.train.lengths().len(),
            held_out: data.validation.as_ref().map_or(0, |set| set.lengths().len()),
            refused: data.refused,
            damaged: data.findings.len(),
            hours: data.train.seconds(context.config.data.sample_rate) / 3600.0,
        }
    }
}

impl Steadiness {
    fn of(steps: &[(u64, Done)], ran: &[Option<Ran>], model: Device) -> Self {
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

fn loader_times(steps: &[(u64, Done)], workers: usize, wall: Duration) -> LoaderTimes {
    let mut times = LoaderTimes::default();
    let (mut busy, mut batches, mut utterances) = (Duration::ZERO, 0, 0);
    for delivery in steps.iter().flat_map(|(_, done)| &done.deliveries) {
        let Making { wall, locked, ran, .. } = delivery.trace.making;
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

/// Of the time that the feed's thread took for batches, the share it waited for a core.
fn feed_queued(steps: &[(u64, Done)]) -> Option<f64> {
    let (mut wall, mut queued) = (Duration::ZERO, Duration::ZERO);
    for delivery in steps.iter().flat_map(|(_, done)| &done.deliveries) {
        (wall, queued) = (wall + delivery.trace.wall, queued + delivery.trace.ran?.queued);
    }
    Some(queued.as_secs_f64() / wall.as_secs_f64().max(1e-9))
}

fn feed_times(feed: &Feed, before: &host::telemetry::clock::Snapshot) -> Option<FeedTimes> {
    let since = feed.snapshot().since(before);
    let (thread, ring) = (since.stage("feed")?, since.queue("ring")?);
    Some(FeedTimes {
        busy: thread.busy,
        waits_for_loader: thread.blocked_empty,
        waits_for_room: thread.blocked_full,
        mean_ready: ring.mean_len,
        empty: ring.empty,
    })
}

fn devices(context: &RunContext, gpus: &Result<Vec<Reading>, String>, usage: &Usage) -> Vec<DeviceUse> {
    let roles = context.roles;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let peak = |usage: Option<(u64, u64)>| usage.map(|(_, peak)| mib(peak));
    let both = |usage: &Usage| Some(peak(usage.model)? + peak(usage.data)?);
    let cap = |role| context.caps.of(role).map(|mib| mib as f64);
    let parts = match roles.data == roles.model {
        true => vec![(roles.model, "data and model", both(usage), cap(Role::Model))],
        false => vec![
            (roles.model, "model", peak(usage.model), cap(Role::Model)),
            (roles.data, "data", peak(usage.data), cap(Role::Data)),
        ],
    };
    let mut readings = gpus.iter().flatten();
    let device = |(device, role, peak_mib, cap_mib): (Device, &str, Option<f64>, Option<f64>)| {
        let reading = device.is_cuda().then(|| readings.next()).flatten().cloned();
        let not_measured = match (&reading, gpus) {
            (Some(_), _) => None,
            (None, Err(why)) if device.is_cuda() => Some(why.clone()),
            _ => Some("it is a CPU, see `cores`".to_owned()),
        };
        let reading = reading.unwrap_or_default();
        let facts = device.is_cuda().then(|| torchx::cuda::facts(device).ok()).flatten();
        DeviceUse {
            name: facts.as_ref().map_or_else(|| name(device), |facts| format!("{} ({})", name(device), facts.name)),
            roles: role.to_owned(),
            busy: reading.busy,
            not_measured,
            memory_used_mib: reading.memory_used_mib,
            memory_total_mib: facts.map(|facts| mib(facts.total_bytes)),
            peak_mib,
            cap_mib,
            power_watts: reading.power_watts,
            sm_mhz: reading.sm_mhz,
            temperature_celsius: reading.temperature_celsius,
            throttle: reading.throttle,
        }
    };
    parts.into_iter().map(device).collect()
}
