//! A short run of the real pipeline with other settings: nothing is saved, and running out of memory is an answer.

use crate::run::RunContext;
use crate::tools::measure::{ObservedSteps, Pipeline};
use crate::tools::peak_host_mib;
use anyhow::{Context, Result};
use host::config::Config;
use host::dataset::TrainingData;
use host::loader::{self, Budget};
use host::machine::mib;
use serde::Serialize;
use std::fs;
use std::time::Instant;
use tch::Device;

/// Steps before a GPU's are timed: three run kernel by kernel, then the step is captured.
const GPU_WARM_UP_STEPS: u64 = 8;
const MOST_STEPS: u64 = 100;
const FEWEST_STEPS: u64 = 2;
/// Throughput that differs by less counts as the same: a smaller batch makes more steps of the same speech.
pub const SAME: f64 = 0.03;
/// However unsteady the machine was, twice as fast is faster.
const MOST_DOUBT: f64 = 0.4;

/// Figures of one size of batch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Trial {
    /// Frames of a batch that were asked for.
    pub asked: usize,
    /// Frames that a batch then had.
    pub frames: usize,
    pub steps: u64,
    pub step_ms: f64,
    pub step_cv: f64,
    /// Milliseconds of a step on a batch that stays.
    pub headspace_ms: f64,
    pub audio_seconds_per_second: f64,
    pub readiness: f64,
    pub padding_share: f64,
    /// Milliseconds of a worker for a batch.
    pub load_ms: f64,
    pub copy_ms: f64,
    pub features_ms: f64,
    pub transfer_ms: f64,
    /// Memory at most: what the GPU's allocator took, or on a CPU what this process did.
    pub peak_mib: Option<f64>,
    /// The same of the data role, where it has a GPU of its own.
    pub data_peak_mib: Option<f64>,
    pub parameters: usize,
    /// Seconds of setting up, warming up and measuring.
    pub wall_s: f64,
}

impl Trial {
    /// Relative standard error of its rate.
    fn doubt(&self) -> f64 {
        self.step_cv / (self.steps.max(1) as f64).sqrt()
    }

    /// Faster by more than chance: by two standard errors of the difference, and by something worth having.
    pub fn is_faster_than(&self, other: &Trial) -> bool {
        let margin = SAME.max(2.0 * self.doubt().hypot(other.doubt())).min(MOST_DOUBT);
        self.audio_seconds_per_second * (1.0 - margin) > other.audio_seconds_per_second
    }
}

/// What is left of the process's memory for a trial on the CPU, where nothing says "out of memory" in time.
#[derive(Clone, Copy, Debug)]
pub struct HostLimit {
    pub mib: f64,
}

impl HostLimit {
    /// Most of what is available now, together with what this process has.
    pub fn of_this_machine() -> Option<Self> {
        let free = host::machine::available_bytes()?;
        Some(HostLimit { mib: 0.8 * mib(free) + peak_host_mib().unwrap_or(0.0) })
    }
}

/// Runs for about `seconds` once it is warm.
pub fn dry_run(context: &RunContext, config: &Config, budget: Budget, seconds: f64) -> Result<Trial> {
    let data = context.data.with_budget(budget);
    dry_run_over(context, config, &data, seconds)
}

/// Runs over other clips for about `seconds` once it is warm.
pub fn dry_run_over(context: &RunContext, config: &Config, data: &TrainingData, seconds: f64) -> Result<Trial> {
    let began = Instant::now();
    let device = context.roles.model;
    let data_gpu = Some(context.roles.data).filter(|data| data.is_cuda() && *data != device);
    [Some(device), data_gpu].into_iter().flatten().try_for_each(forget_peak)?;
    let outcome = run(&RunContext { config, data, ..*context }, seconds);
    let (peak_mib, data_peak_mib) = (peak_mib(device), data_gpu.and_then(peak_mib));
    if device.is_cuda() {
        // What the trial held must not be in the way of the next.
        torchx::memory::empty_cache()?;
    }
    let trial = outcome?;
    Ok(Trial { peak_mib, data_peak_mib, wall_s: began.elapsed().as_secs_f64(), ..trial })
}

fn run(context: &RunContext, seconds: f64) -> Result<Trial> {
    let (mut pipeline, _) = Pipeline::start(context)?;
    pipeline.run(if context.roles.model.is_cuda() { GPU_WARM_UP_STEPS } else { 1 })?;
    let start = Instant::now();
    pipeline.run(1)?;
    let steps = (seconds / start.elapsed().as_secs_f64().max(1e-6)) as u64;
    let steps = steps.clamp(FEWEST_STEPS, MOST_STEPS);
    let ObservedSteps { summary, stages, loader, .. } = pipeline.observe(steps)?;
    let parameters = pipeline.parameters();
    pipeline.stop_feed();
    let headspace_ms = pipeline.headspace((steps / 2).max(1))?;
    let mean = |spread: host::telemetry::Spread| spread.known().map_or(0.0, |spread| spread.mean);
    Ok(Trial {
        asked: context.data.budget.frames,
        frames: context.data.budget.frames,
        steps,
        step_ms: summary.step_ms.mean,
        step_cv: summary.step_ms.cv(),
        headspace_ms,
        audio_seconds_per_second: summary.audio_seconds_per_second,
        readiness: summary.readiness,
        padding_share: summary.padding_share,
        load_ms: mean(loader.batch_ms),
        copy_ms: mean(stages.to_device_ms),
        features_ms: mean(stages.features_ms),
        transfer_ms: mean(stages.transfer_ms),
        peak_mib: None,
        data_peak_mib: None,
        parameters,
        wall_s: 0.0,
    })
}

/// What was said, where there was no room: by LibTorch's allocators, or by the loader, which needs pinned memory.
pub fn shortage(error: &anyhow::Error) -> Option<String> {
    let is_short = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(torchx::Error::OutOfMemory { .. }))
            || matches!(cause.downcast_ref(), Some(loader::Error::Memory { .. }))
    };
    error.chain().any(is_short).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

fn forget_peak(device: Device) -> Result<()> {
    if device.is_cuda() {
        torchx::memory::empty_cache()?;
        torchx::memory::reset_peak(device).context("cannot read the GPU's memory")?;
    } else {
        // 5: VmHWM starts again from what there is now. Where that is not allowed, peaks only rise, and so do trials.
        let _ = fs::write("/proc/self/clear_refs", "5");
    }
    Ok(())
}

fn peak_mib(device: Device) -> Option<f64> {
    match device.is_cuda() {
        true => torchx::memory::stats(device).ok().map(|stats| mib(stats.peak_reserved_bytes as u64)),
        false => peak_host_mib(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_in_which_memory_is_short_is_understood() {
        let said = |text: &str| anyhow::Error::new(torchx::Error::from(tch::TchError::Torch(text.into())));
        let gpu = said("CUDA out of memory. Tried to allocate 1.50 GiB").context("the model role has no room left");
        assert_eq!(shortage(&gpu).as_deref(), Some("the model role has no room left"));
        let cpu = said("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried");
        assert!(shortage(&cpu).is_some());
        assert!(shortage(&said("shapes do not match")).is_none());
    }

    #[test]
    fn faster_is_more_than_chance() {
        let trial = |rate: f64, step_cv: f64, steps| Trial {
            audio_seconds_per_second: rate,
            step_cv,
            steps,
            ..Trial::default()
        };
        assert!(trial(1_050.0, 0.01, 100).is_faster_than(&trial(1_000.0, 0.01, 100)));
        assert!(!trial(1_020.0, 0.01, 100).is_faster_than(&trial(1_000.0, 0.01, 100)), "less than three percent");
        // Three steps that vary by 20 %: the difference is known to 2 · √2 · 0.2 ÷ √3, a third.
        assert!(!trial(1_300.0, 0.2, 3).is_faster_than(&trial(1_000.0, 0.2, 3)));
        assert!(trial(1_700.0, 0.2, 3).is_faster_than(&trial(1_000.0, 0.2, 3)));
        assert!(trial(2_000.0, 3.0, 2).is_faster_than(&trial(1_000.0, 3.0, 2)));
    }
}
