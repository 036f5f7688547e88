//! The training pipeline, measured: as it runs, without data to wait for, without overlap, and without a model.

use crate::feed::{Delivery, Feed, Mark, Purpose};
use crate::loader::Position;
use crate::model::Voice;
use crate::telemetry::Spread;
use crate::telemetry::gpu::Sampler;
use crate::telemetry::window::Summary;
use crate::train::{Pulse, Stages, Start, Step, Surroundings, begin_voice, start_feed};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Instant;

/// Steps before anything is measured: lazy set-up, capture, clocks of the GPU.
const WARM_UP_STEPS: u64 = 30;
/// Steps that are traced kernel by kernel, which slows them a little: on their own, not among the timed ones.
const TRACED_STEPS: u64 = 30;

/// Milliseconds, seconds and shares.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
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
    /// The same step on a batch that stays: the most that any pipeline could give.
    pub headspace_ms: f64,
    pub step_over_headspace: f64,
    /// Time with a kernel running (by CUPTI, whose records slow a step down) over the time of a step without records;
    /// absent without a GPU.
    pub kernel_busy: Option<f64>,
    pub kernels_per_step: Option<f64>,
    /// The driver's own figure.
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

/// `slow`: the same surroundings with no worker and no ring, for the comparison.
pub fn pipeline(around: &Surroundings, slow: &Surroundings, steps: u64) -> Result<Report> {
    let (mut step, state) = torchx::catch(|| begin_voice(around, &Start::Fresh))??;
    let mut feed = start_feed(around, Position::default(), state.mel_stats, Purpose::Voice)?;
    let mut bench = Bench { around, number: 0 };
    let first_step_s = bench.first(&mut step, &mut feed)?;
    bench.run(&mut step, &mut feed, WARM_UP_STEPS)?;
    let sampler = bench.sampler();
    let (summary, stages) = bench.measure(&mut step, &mut feed, steps)?;
    let nvml_busy = sampler.and_then(|sampler| Some(sampler.read().first()?.busy.known()?.mean));
    let traced = bench.trace(&mut step, &mut feed)?;
    drop(feed);
    let headspace_ms = bench.headspace(&mut step, steps)?;
    let synchronous_ms = bench.synchronous(&mut step, slow, steps / 4 + 5)?;
    let producer = bench.ceiling(steps)?;
    let step_ms = summary.step_ms.mean;
    let mean = |spread: Spread| spread.known().map(|spread| spread.mean);
    let features_ms = mean(stages.features_ms).unwrap_or(0.0);
    let batches_per_second = 1e3 / step_ms * around.config.training.gradient_accumulation_steps as f64;
    Ok(Report {
        model_size: format!("{:?}", around.config.model.size).to_lowercase(),
        parameters: step.groups.iter().map(|group| group.len()).sum(),
        corpus_hours: around.data.train.seconds(around.config.data.sample_rate) / 3600.0,
        frames_per_batch: around.data.budget.frames,
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
        kernel_busy: traced.as_ref().map(|traced| traced.kernel_ns as f64 / 1e6 / TRACED_STEPS as f64 / step_ms),
        kernels_per_step: traced.as_ref().map(|traced| traced.kernels as f64 / TRACED_STEPS as f64),
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
pub fn headspace(around: &Surroundings, steps: u64) -> Result<f64> {
    let (mut step, state) = torchx::catch(|| begin_voice(around, &Start::Fresh))??;
    let mut feed = start_feed(around, Position::default(), state.mel_stats, Purpose::Voice)?;
    let mut bench = Bench { around, number: 0 };
    bench.run(&mut step, &mut feed, WARM_UP_STEPS)?;
    drop(feed);
    bench.headspace(&mut step, steps)
}

struct Bench<'a> {
    around: &'a Surroundings<'a>,
    number: u64,
}

impl Bench<'_> {
    fn rate(&self) -> f64 {
        self.around.config.training.learning_rate * 1e-3
    }

    /// Seconds from the start of the program to the end of the first step.
    fn first(&mut self, step: &mut Step<Voice>, feed: &mut Feed) -> Result<f64> {
        self.run(step, feed, 1)?;
        Ok(self.around.began.elapsed().as_secs_f64())
    }

    /// Steps whose figures nobody wants; waits for the last.
    fn run(&mut self, step: &mut Step<Voice>, feed: &mut Feed, steps: u64) -> Result<()> {
        for _ in 0..steps {
            self.number += 1;
            let done = step.run(feed, self.number, self.rate())?;
            if !step.is_settled() {
                done.span.end.wait()?;
            }
        }
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        Ok(Mark::now(self.around.roles.model)?.wait()?)
    }

    /// As the training loop does it: figures are asked for now and then, and nothing waits for them.
    fn measure(&mut self, step: &mut Step<Voice>, feed: &mut Feed, steps: u64) -> Result<(Summary, Stages)> {
        let mut pulse = Pulse::of(self.around, 1);
        for _ in 0..=steps {
            self.number += 1;
            pulse.add(self.number, step.run(feed, self.number, self.rate())?);
            if self.number.is_multiple_of(self.around.config.training.log_step) {
                step.request_reading(self.number)?;
            }
            while step.poll(false)?.is_some() {}
            self.around.bar.inc(1);
        }
        self.settle()?;
        pulse.close(self.number).context("no step was measured")
    }

    fn sampler(&self) -> Option<Sampler> {
        let facts = torchx::cuda::facts(self.around.roles.model).ok()?;
        Sampler::start(&[facts.pci_bus_id]).ok()
    }

    fn trace(&mut self, step: &mut Step<Voice>, feed: &mut Feed) -> Result<Option<torchx::activity::Activity>> {
        if !self.around.roles.model.is_cuda() {
            return Ok(None);
        }
        // The first recording of a process sets the recorder up.
        torchx::activity::start()?.stop()?;
        let recorder = torchx::activity::start()?;
        self.run(step, feed, TRACED_STEPS)?;
        Ok(Some(recorder.stop()?.of(self.around.roles.model)?))
    }

    fn headspace(&mut self, step: &mut Step<Voice>, steps: u64) -> Result<f64> {
        let start = Mark::now(self.around.roles.model)?;
        for _ in 0..steps {
            self.number += 1;
            step.repeat(self.number, self.rate())?;
            self.around.bar.inc(1);
        }
        let end = Mark::now(self.around.roles.model)?;
        end.wait()?;
        Ok(start.ms_until(&end).context("two marks of one device")? / steps as f64)
    }

    fn synchronous(&mut self, step: &mut Step<Voice>, slow: &Surroundings, steps: u64) -> Result<f64> {
        let stats = crate::feed::MelStats::identity();
        let mut feed = start_feed(slow, Position::default(), stats, Purpose::Voice)?;
        self.run(step, &mut feed, 5)?;
        let start = Instant::now();
        self.run(step, &mut feed, steps)?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / steps as f64)
    }

    /// Batches a second into a slot that nobody reads.
    fn ceiling(&self, batches: u64) -> Result<f64> {
        let stats = crate::feed::MelStats::identity();
        let mut feed = start_feed(self.around, Position::default(), stats, Purpose::Voice)?;
        let mut input = None;
        let mut take = |count: u64| -> Result<()> {
            let mut last: Option<Delivery> = None;
            for _ in 0..count {
                last = Some(torchx::catch(|| feed.next(&mut input))??);
            }
            last.map_or(Ok(()), |delivery| Ok(delivery.arrived.wait()?))
        };
        take(batches / 10 + 5)?;
        let start = Instant::now();
        take(batches)?;
        Ok(batches as f64 / start.elapsed().as_secs_f64())
    }
}

fn top(activity: &torchx::activity::Activity) -> Vec<(String, f64)> {
    let total: u64 = activity.by_name.iter().map(|kernel| kernel.total_ns).sum();
    let share = |ns: u64| ns as f64 / total.max(1) as f64;
    activity.by_name.iter().take(12).map(|kernel| (kernel.name.clone(), share(kernel.total_ns))).collect()
}
