//! The training run: corpus to checkpoints.

pub mod align;
mod log;
mod memory;
mod metrics;
mod samples;
mod schedule;
mod step;
mod step_times;
mod straggler;
mod tensorboard;
#[cfg(test)]
mod tests;
mod tune;
mod vocoder;
mod voice;
mod warnings;

pub use log::gpu_sampler;
pub use memory::{MemoryMonitor, OutOfMemory};
pub use step::{Done, Learner, Step};
pub use step_times::{StageTimes, StepTimes};
pub use vocoder::{configure as configure_vocoder, train_vocoder};
pub use voice::{begin as begin_voice, train};

use crate::checkpoint::{Checkpoint, CheckpointParts, CheckpointWriter, LOGS, RunState, WeightSource};
use crate::feed::{Feed, Purpose};
use crate::run::{RunContext, note, start_feed};
use anyhow::{Context, Result};
use host::config::Training;
use host::dataset::KnownTokenizer;
use host::error::WithHint;
use host::machine::mib;
use indicatif::ProgressBar;
use log::Log;
use metrics::MetricsWriter;
use schedule::learning_rate;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tune::Tuner;

/// The folder that a run writes to. Opened before anything slow, so that a folder that cannot be used is found at once.
pub struct OutputFolder {
    /// None where another rank writes.
    writer: Option<CheckpointWriter>,
    log_dir: PathBuf,
}

impl OutputFolder {
    pub fn open(training: &Training) -> Result<Self> {
        let writer = CheckpointWriter::new(&training.checkpoint_dir, training.keep_checkpoints)?;
        let log_dir = training.tensorboard_log_dir.clone().unwrap_or_else(|| training.checkpoint_dir.join(LOGS));
        fs::create_dir_all(&log_dir)
            .hint("choose another folder with --tensorboard-log-dir")
            .with_context(|| format!("{}: cannot be created", log_dir.display()))?;
        Ok(OutputFolder { writer: Some(writer), log_dir })
    }

    /// For a rank that leaves writing to another.
    pub fn elsewhere(training: &Training) -> Self {
        OutputFolder { writer: None, log_dir: training.checkpoint_dir.join(LOGS) }
    }
}

/// Result of a finished or interrupted run.
#[derive(Serialize)]
pub struct RunOutcome {
    pub step: u64,
    pub checkpoint: PathBuf,
    pub log_dir: PathBuf,
    pub interrupted: bool,
    /// Mean training loss of the first and the last logged window; absent when there was nothing left to do.
    pub first_loss: Option<f64>,
    pub last_loss: Option<f64>,
    pub validation_loss: Option<f64>,
    /// The checkpoint with the lowest held-out loss; absent where nothing is held out.
    pub best: Option<BestCheckpoint>,
    /// Clips that turned out to be damaged in the middle of the run, and were left out.
    pub failures: Vec<String>,
}

#[derive(Serialize)]
pub struct BestCheckpoint {
    pub step: u64,
    pub checkpoint: PathBuf,
    pub validation_loss: f64,
}

/// What a run begins with.
pub enum RunStart {
    Fresh,
    Resume(Box<Checkpoint>),
    /// Weights of another run, by name.
    FineTune(WeightSource),
}

impl RunStart {
    fn resumed(&self) -> Option<&Checkpoint> {
        match self {
            RunStart::Resume(checkpoint) => Some(checkpoint),
            _ => None,
        }
    }

    /// What is known about the tokenizer before the corpus is read.
    pub fn known(&self) -> KnownTokenizer<'_> {
        match self {
            RunStart::Fresh | RunStart::FineTune(WeightSource::File(_)) => KnownTokenizer::Nothing,
            RunStart::Resume(checkpoint) => KnownTokenizer::Exactly(&checkpoint.tokenizer),
            RunStart::FineTune(WeightSource::Checkpoint(checkpoint)) => KnownTokenizer::AtLeast(&checkpoint.tokenizer),
        }
    }
}

/// Computes the held-out loss of the averaged weights, and says whether everything could be logged.
type Validate<'a, L> = Box<dyn FnMut(&Step<L>, Option<&mut MetricsWriter>, u64) -> Result<(f64, Result<()>)> + 'a>;

/// Writes what a kind of run keeps besides its parameters, after so many updates.
type Extras<'a, L> = &'a dyn Fn(&Step<L>, u64, &Path) -> Result<()>;

/// What differs between kinds of runs.
struct RunSpec<'a, L> {
    step: Step<L>,
    state: RunState,
    purpose: Purpose,
    extras: Extras<'a, L>,
    validate: Option<Validate<'a, L>>,
}

/// Trains until the steps or epochs are over, or `stop` is set; then saves and returns.
fn run<L: Learner>(
    context: &RunContext,
    output: OutputFolder,
    resumed: Option<&Checkpoint>,
    spec: RunSpec<L>,
) -> Result<RunOutcome> {
    let RunSpec { mut step, mut state, purpose, extras, mut validate } = spec;
    let RunContext { config, data, bar, .. } = context;
    let training = &config.training;
    note(bar, &describe(&step));
    if let (Some(ranks), Some(exchange)) = (context.ranks, &step.exchange) {
        let machines =
            if ranks.machines() == 1 { "one machine".into() } else { format!("{} machines", ranks.machines()) };
        note(bar, &format!("{} ranks on {machines}; gradients by {}", ranks.me.size, exchange.describe()));
        state = ranks.of_first("state", &state)?;
    }
    let expected = context.expected_steps();
    let resumed_at = resumed.map(|checkpoint| checkpoint.state.step);
    let mut log = Log::create(context, &output.log_dir, &step, resumed_at, expected)?;
    let mut feed = start_feed(context, state.position.clone(), state.mel_stats, purpose)?;
    announce(&feed, bar);
    let mut tuner = Tuner::new(config);
    bar.set_length(expected);
    bar.set_position(state.step);
    let mut outcome = RunOutcome {
        step: state.step,
        checkpoint: resumed.map(|checkpoint| checkpoint.folder().to_path_buf()).unwrap_or_default(),
        log_dir: output.log_dir,
        interrupted: false,
        first_loss: None,
        last_loss: None,
        validation_loss: None,
        best: None,
        failures: Vec::new(),
    };
    while !is_over(training, &state) && !outcome.interrupted {
        // step: the next batches, forward, backward, update
        let rate = learning_rate(training, state.step, expected);
        let done = step.run(&mut feed, state.step, rate).map_err(|error| log.explain(error))?;
        state.step += 1;
        state.position = done.deliveries.last().expect("at least one batch a step").resume_at.clone();
        bar.set_position(state.step);
        outcome.step = state.step;
        outcome.interrupted = step.is_stopping(context.stop.load(Ordering::Relaxed))?;
        let last = outcome.interrupted || is_over(training, &state);
        let validates = validate.is_some() && (last || state.step.is_multiple_of(training.val_step));
        let saves = last || state.step.is_multiple_of(training.save_step);
        log.stepped(state.step, done, rate);
        tuner.observe(&feed, step.is_settled(), bar)?;

        // log: figures are asked for here and arrive some steps later, so that nothing waits for them
        if last || state.step.is_multiple_of(training.log_step) {
            step.request_reading(state.step)?;
        }
        let mut logged = log.read(&mut step, &feed, validates || saves, &mut outcome)?;

        // validate: held-out loss, a spoken sample, pictures
        let mut best = false;
        if let Some(validate) = validate.as_mut().filter(|_| validates && logged.is_ok()) {
            let (loss, written) = crate::catch(|| validate(&step, log.metrics.as_mut(), state.step))??;
            best = state.best_loss.is_none_or(|before| loss < before);
            state.best_loss = state.best_loss.filter(|before| *before <= loss).or(Some(loss));
            state.stale_validations = if best { 0 } else { state.stale_validations + 1 };
            outcome.validation_loss = Some(loss);
            log.validated(state.step, loss, best);
            logged = written;
            log.interrupt(state.step); // validation is not part of the step time
        }

        // save: weights, moments, loader position; also when logs cannot be written, so that no step is lost
        // and when this validation was one too many in a row without a lower loss
        if saves || best || logged.is_err() || is_over(training, &state) {
            step.ensure_equal(state.step)?;
            let extras = |folder: &Path| extras(&step, state.step, folder);
            let parts = CheckpointParts {
                config,
                tokenizer: &data.tokenizer,
                state: &state,
                groups: &step.groups,
                scale: &step.scale,
                extras: &extras,
            };
            if let Some(writer) = &output.writer {
                outcome.checkpoint = writer.save(&parts)?;
                log.saved(state.step, &outcome.checkpoint);
                if best {
                    writer.mark_best(&outcome.checkpoint)?;
                }
            }
            log.interrupt(state.step);
        }
        logged
            .hint("free some space, then go on with --resume")
            .context("the run was saved and stopped, because its logs cannot be written")?;
    }
    let best = output.writer.as_ref().and_then(CheckpointWriter::best);
    outcome.best = best.zip(state.best_loss).map(|((step, checkpoint), validation_loss)| BestCheckpoint {
        step,
        checkpoint,
        validation_loss,
    });
    outcome.failures = feed.loader().failures().iter().map(ToString::to_string).collect();
    Ok(outcome)
}

fn describe<L: Learner>(step: &Step<L>) -> String {
    let sizes = step.groups.iter().map(|group| format!("{} {:.1} M", group.name, group.len() as f64 / 1e6));
    format!("parameters: {}", sizes.collect::<Vec<_>>().join(", "))
}

fn is_over(training: &Training, state: &RunState) -> bool {
    training.steps.is_some_and(|steps| state.step >= steps)
        || state.position.epoch >= training.epochs
        || training.patience.is_some_and(|patience| state.stale_validations >= patience)
}

/// Notes how batches come, and how many are there before the first step.
fn announce(feed: &Feed, bar: &ProgressBar) {
    let host_mib = mib(feed.loader().host_bytes() as u64);
    note(bar, &format!("batches move {}; at most {host_mib:.0} MiB of host memory", feed.route()));
    if let Some((filled, slots)) = feed.warm_up(Duration::ZERO) {
        let why = if filled == slots { "the ring is full" } else { "model_start_delay is over" };
        note(bar, &format!("{filled} of {slots} batches are ready: {why}"));
    }
}
