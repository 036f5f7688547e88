//! A stretch of the real training pipeline with all its clocks read: what every report on a run rests on.

mod devices;
mod pipeline;

pub use crate::feed::FeedTimes;
pub use crate::run::{LoaderTimes, Steadiness};
pub use devices::{DeviceUse, KernelUse};
pub use pipeline::{ObservedSteps, Pipeline};

use crate::feed::name;
use crate::run::timeline::Timeline;
use crate::run::{Observation, RunContext, StageTimes, activations, ring_slots};
use crate::train::MemoryMonitor;
use anyhow::Result;
use host::config::Config;
use host::dataset::CacheBuild;
use host::telemetry::Spread;
use host::telemetry::cpu::HostLoad;
use host::telemetry::window::percentile;
use serde::Serialize;
use torchx::activity::KernelRun;

/// Plain and observed steps take turns of this length, so that a machine that changes its speed changes both.
const TURN_STEPS: u64 = 25;

/// What a run was and did. A figure that could not be taken is absent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunMeasurement {
    pub steps: u64,
    pub setup: RunSettings,
    pub corpus: CorpusCounts,
    pub building: CacheBuild,
    /// Seconds from the start of the program to the end of the first step.
    pub first_step_s: f64,
    /// Milliseconds from the end of one step to the end of the next.
    pub step_ms: Spread,
    pub step_p50_ms: f64,
    pub step_p99_ms: f64,
    /// The step alone: on a GPU its time there, on a CPU what its thread ran, however long it waited for a core.
    pub own_step: Steadiness,
    pub stages: StageTimes,
    pub loader: LoaderTimes,
    /// Absent where batches are made in the training thread.
    pub feed: Option<FeedTimes>,
    pub readiness: f64,
    pub padding_share: f64,
    pub audio_seconds_per_second: f64,
    /// Milliseconds of a step on a batch that stays: the most that any pipeline could give.
    pub headspace_ms: f64,
    /// Kernels by CUPTI; absent without a GPU.
    pub kernels: Option<KernelUse>,
    pub devices: Vec<DeviceUse>,
    pub host: Option<HostLoad>,
    /// Share of the training thread's time that it waited for a core.
    pub queued_share: Option<f64>,
    /// Share of the feed's time at batches that it waited for a core.
    pub feed_queued_share: Option<f64>,
    pub failures: Vec<String>,
    #[serde(skip)]
    pub timeline: Timeline,
    /// Every kernel of some steps, in order; none without a GPU.
    #[serde(skip)]
    pub kernel_runs: Vec<KernelRun>,
}

/// The settings that matter for speed, as they were in this run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunSettings {
    pub model_size: String,
    pub parameters: usize,
    pub frames_per_batch: usize,
    pub bytes_per_batch: usize,
    pub data_device: String,
    pub model_device: String,
    pub on_gpu: bool,
    pub data_on_gpu: bool,
    /// Workers of the loader; 0: batches are laid by whoever asks for them.
    pub workers: usize,
    pub depth: usize,
    /// Batches on the model device; 0: made in the training thread.
    pub slots: usize,
    pub padded: bool,
    pub graphs: bool,
    /// LibTorch takes only kernels whose result is the same each time, which may be slower.
    pub deterministic_kernels: bool,
    /// Format of the activations.
    pub activations: &'static str,
    pub accumulate: u64,
    pub route: String,
}

/// What there is to train on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CorpusCounts {
    pub clips: usize,
    pub held_out: usize,
    /// Sound clips that the limits of the run leave out.
    pub refused: usize,
    /// Rows and clips that cannot be used.
    pub damaged: usize,
    pub hours: f64,
}

/// Runs the pipeline and measures `steps` of it. Want of memory is explained as `train` does it.
pub fn run(context: &RunContext, steps: u64) -> Result<RunMeasurement> {
    measured(context, steps)
        .map_err(|error| MemoryMonitor::new(context.roles, context.caps).explain(error, context.config))
}

fn measured(context: &RunContext, steps: u64) -> Result<RunMeasurement> {
    let (mut pipeline, first_step_s) = Pipeline::start(context)?;
    pipeline.warm_up()?;
    let observed = pipeline.observe(steps)?;
    let traced = pipeline.trace()?;
    let failures = pipeline.failures();
    let route = pipeline.feed()?.route().to_string();
    let usage = pipeline.usage()?;
    pipeline.stop_feed();
    let headspace_ms = pipeline.headspace((steps / 2).max(5))?;
    let ObservedSteps {
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
    } = observed;
    let step_ms = summary.step_ms;
    let kernels = traced.as_ref().map(|traced| KernelUse::of(traced, step_ms.mean));
    Ok(RunMeasurement {
        steps,
        setup: RunSettings::of(context, pipeline.parameters(), route),
        corpus: CorpusCounts::of(context),
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
        devices: devices::devices(context, &gpus, &usage),
        host,
        queued_share,
        feed_queued_share,
        failures,
        timeline,
        kernel_runs: traced.map(|traced| traced.runs).unwrap_or_default(),
    })
}

/// What observing costs: milliseconds of a plain step and of an observed one, from end to end on the device's clock.
/// Medians of turns.
pub fn overhead(context: &RunContext, steps: u64) -> Result<(f64, f64)> {
    let (mut pipeline, _) = Pipeline::start(context)?;
    pipeline.warm_up()?;
    let (mut plain, mut observed) = (Vec::new(), Vec::new());
    for _ in 0..steps.div_ceil(TURN_STEPS).max(3) {
        plain.push(pipeline.plain(TURN_STEPS)?);
        observed.push(pipeline.observe(TURN_STEPS)?.summary.step_ms.mean);
    }
    let median = |mut turns: Vec<f64>| {
        turns.sort_by(f64::total_cmp);
        percentile(&turns, 0.5)
    };
    Ok((median(plain), median(observed)))
}

/// A run that trains, as a measurement: what its own step takes is the most that any pipeline could give.
pub fn of_training(context: &RunContext, seen: &Observation) -> RunMeasurement {
    let summary = seen.summary;
    RunMeasurement {
        steps: summary.step_ms.count,
        setup: RunSettings::of(context, seen.parameters, seen.route.clone()),
        corpus: CorpusCounts::of(context),
        step_ms: summary.step_ms,
        step_p50_ms: summary.p50_ms,
        step_p99_ms: summary.p99_ms,
        own_step: seen.own_step,
        stages: *seen.stages,
        loader: seen.loader,
        feed: seen.feed,
        readiness: summary.readiness,
        padding_share: summary.padding_share,
        audio_seconds_per_second: summary.audio_seconds_per_second,
        headspace_ms: seen.stages.compute_ms.mean,
        devices: devices::devices(context, &Ok(seen.gpus.to_vec()), &seen.memory),
        host: seen.host,
        queued_share: seen.queued_share,
        feed_queued_share: seen.feed_queued_share,
        failures: seen.failures.clone(),
        ..RunMeasurement::default()
    }
}

impl RunSettings {
    pub fn of(context: &RunContext, parameters: usize, route: String) -> Self {
        let RunContext { config, data, roles, .. } = context;
        let Config { data: settings, training, .. } = config;
        RunSettings {
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
            deterministic_kernels: torchx::is_deterministic(),
            activations: activations(training, roles.model),
            accumulate: training.gradient_accumulation_steps,
            route,
        }
    }
}

impl CorpusCounts {
    fn of(context: &RunContext) -> Self {
        let data = context.data;
        CorpusCounts {
            clips: data.train.lengths().len(),
            held_out: data.validation.as_ref().map_or(0, |set| set.lengths().len()),
            refused: data.fit.refused(),
            damaged: data.findings.len(),
            hours: data.train.seconds(context.config.data.sample_rate) / 3600.0,
        }
    }
}
