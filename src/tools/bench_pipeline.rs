//! The training pipeline, measured: as it runs, without data to wait for, without overlap, and without a model.

use super::measure::{KernelUse, ObservedSteps, Pipeline};
use crate::feed::{Delivery, MelStats, Purpose};
use crate::run::{RunContext, start_feed};
use anyhow::Result;
use host::loader::Position;
use host::telemetry::Spread;
use serde::Serialize;
use std::time::Instant;

/// Figures of a training pipeline: milliseconds, seconds and shares.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineFigures {
    pub model_size: String,
    pub parameters: usize,
    pub corpus_hours: f64,
    pub frames_per_batch: usize,
    pub steps: u64,
    pub first_step_s: f64,
    pub step_ms: f64,
    pub step_cv: f64,
    pub step_p99_ms: f64,
    pub data_readiness: f64,
    pub padding_share: f64,
    pub audio_seconds_per_second: f64,
    /// A step on a batch that stays: the most that any pipeline could give.
    pub headspace_ms: f64,
    pub step_over_headspace: f64,
    /// Time with a kernel running (by CUPTI, whose records slow a step down) over the time of a step without records;
    /// absent without a GPU.
    pub kernel_busy: Option<f64>,
    pub kernels_per_step: Option<f64>,
    /// Share of the time that a kernel ran, by the driver.
    pub nvml_busy: Option<f64>,
    pub host_to_device_ms: Option<f64>,
    pub features_ms: f64,
    pub device_to_device_ms: f64,
    pub feature_share_of_step: f64,
    /// Steps with every batch made in the training thread, when it is asked for.
    pub synchronous_ms: f64,
    pub overlap_gain: f64,
    /// Batches a second that the producer makes when nothing reads them, over those that training takes.
    pub producer_batches_per_second: f64,
    pub producer_ceiling: f64,
    /// What the GPU spent its time on: share of all kernel time, by kernel.
    pub top_kernels: Vec<(String, f64)>,
}

/// `slow`: the run context with no worker and no ring, for the comparison.
pub fn measure(context: &RunContext, slow: &RunContext, steps: u64) -> Result<PipelineFigures> {
    let (mut pipeline, first_step_s) = Pipeline::start(context)?;
    pipeline.warm_up()?;
    let ObservedSteps { summary, stages, gpus, .. } = pipeline.observe(steps)?;
    let nvml_busy = gpus.ok().and_then(|readings| Some(readings.first()?.busy.known()?.mean));
    let traced = pipeline.trace()?;
    pipeline.stop_feed();
    let headspace_ms = pipeline.headspace(steps)?;
    let synchronous_ms = synchronous(&mut pipeline, slow, steps / 4 + 5)?;
    pipeline.stop_feed();
    let producer = ceiling(context, steps)?;
    let step_ms = summary.step_ms.mean;
    let kernels = traced.as_ref().map(|traced| KernelUse::of(traced, step_ms));
    let mean = |spread: Spread| spread.known().map(|spread| spread.mean);
    let features_ms = mean(stages.features_ms).unwrap_or(0.0);
    let batches_per_second = 1e3 / step_ms * context.config.training.gradient_accumulation_steps as f64;
    Ok(PipelineFigures {
        model_size: format!("{:?}", context.config.model.size).to_lowercase(),
        parameters: pipeline.parameters(),
        corpus_hours: context.data.train.seconds(context.config.data.sample_rate) / 3600.0,
        frames_per_batch: context.data.budget.frames,
        steps,
        first_step_s,
        step_ms,
        step_cv: summary.step_ms.cv(),
        step_p99_ms: summary.p99_ms,
        data_readiness: summary.readiness,
        padding_share: summary.padding_share,
        audio_seconds_per_second: summary.audio_seconds_per_second,
        headspace_ms,
        step_over_headspace: step_ms / headspace_ms,
        kernel_busy: kernels.as_ref().map(|kernels| kernels.busy),
        kernels_per_step: kernels.map(|kernels| kernels.per_step),
        nvml_busy,
        host_to_device_ms: mean(stages.to_device_ms),
        features_ms,
        device_to_device_ms: mean(stages.transfer_ms).unwrap_or(0.0),
        feature_share_of_step: features_ms / step_ms,
        synchronous_ms,
        overlap_gain: synchronous_ms / step_ms,
        producer_batches_per_second: producer,
        producer_ceiling: producer / batches_per_second,
        top_kernels: traced.map(|traced| top(&traced)).unwrap_or_default(),
    })
}

/// Milliseconds of a step on one batch that stays.
pub fn headspace(context: &RunContext, steps: u64) -> Result<f64> {
    let (mut pipeline, _) = Pipeline::start(context)?;
    pipeline.warm_up()?;
    pipeline.stop_feed();
    pipeline.headspace(steps)
}

fn synchronous(pipeline: &mut Pipeline, slow: &RunContext, steps: u64) -> Result<f64> {
    pipeline.feed_from(slow)?;
    pipeline.run(5)?;
    let start = Instant::now();
    pipeline.run(steps)?;
    Ok(start.elapsed().as_secs_f64() * 1e3 / steps as f64)
}

/// Batches a second into a slot that nobody reads.
fn ceiling(context: &RunContext, batches: u64) -> Result<f64> {
    let mut feed = start_feed(context, Position::default(), MelStats::identity(), Purpose::Voice)?;
    let mut input = None;
    let mut take = |count: u64| -> Result<()> {
        let mut last: Option<Delivery> = None;
        for _ in 0..count {
            last = Some(crate::catch(|| feed.next(&mut input))??);
        }
        last.map_or(Ok(()), |delivery| Ok(delivery.arrived.wait()?))
    };
    take(batches / 10 + 5)?;
    let start = Instant::now();
    take(batches)?;
    Ok(batches as f64 / start.elapsed().as_secs_f64())
}

fn top(activity: &torchx::activity::Activity) -> Vec<(String, f64)> {
    let total: u64 = activity.by_name.iter().map(|kernel| kernel.total_ns).sum();
    let share = |ns: u64| ns as f64 / total.max(1) as f64;
    activity.by_name.iter().take(12).map(|kernel| (kernel.name.clone(), share(kernel.total_ns))).collect()
}
