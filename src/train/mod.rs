//! The training run: corpus to checkpoints.

pub mod align;
mod learning;
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
pub use step::{Learner, Step};
pub use step_times::StepTimes;
pub use vocoder::{configure as configure_vocoder, train_vocoder};
pub use voice::{begin as begin_voice, train};

use crate::checkpoint::voice::VoiceFile;
use crate::checkpoint::{Checkpoint, CheckpointParts, CheckpointWriter, LOGS, RunKind, RunState, Saved, WeightSource};
use crate::feed::{self, Feed, Purpose, Role};
use crate::run::{RunContext, activations, note, ring_slots, start_feed};
use anyhow::{Context, Result};
use host::config::{Config, Recipe, Start, Training};
use host::dataset::{KnownTokenizer, TrainingData};
use host::error::{Explained, WithHint};
use host::machine::mib;
use host::run_log::{Event, EventKind, EventLog, PipelineFacts, ProcessFacts, RunFile, unix_time_s};
use indicatif::ProgressBar;
use log::Log;
use metrics::MetricsWriter;
use schedule::learning_rate;
use serde::Serialize;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tune::Tuner;

/// After so long somebody who waits for a checkpoint wants to know for what.
const SLOW_WRITE: Duration = Duration::from_secs(1);

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
    /// Why the run is over; absent where it was interrupted.
    pub ended: Option<RunEnd>,
    /// The checkpoint with the lowest loss of held-out speech; absent where nothing is held out.
    pub best: Option<BestCheckpoint>,
    /// Clips that turned out to be damaged in the middle of the run, and were left out.
    pub failures: Vec<String>,
}

#[derive(Serialize)]
pub struct BestCheckpoint {
    pub step: u64,
    pub checkpoint: PathBuf,
    /// Name and value of the held-out loss that it was chosen by.
    pub compared: &'static str,
    pub validation_loss: f64,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunEnd {
    Steps,
    Epochs,
    /// Held-out speech got no better for as many validations as `patience` allows.
    NoBetter,
}

impl RunEnd {
    pub fn told(self) -> &'static str {
        match self {
            RunEnd::Steps => "all its steps",
            RunEnd::Epochs => "all its epochs",
            RunEnd::NoBetter => "held-out speech gets no better",
        }
    }
}

/// What a run begins with.
pub enum RunStart {
    Fresh,
    Resume(Box<Checkpoint>),
    /// Weights of another run, by name.
    FineTune(WeightSource),
}

impl RunStart {
    /// What the run has its first weights from, whenever that was.
    pub fn origin(&self) -> Start {
        match self {
            RunStart::Fresh => Start::Nothing,
            RunStart::Resume(checkpoint) => checkpoint.state.start,
            RunStart::FineTune(_) => Start::Weights,
        }
    }

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

/// Gives a value to every setting that was left to the program, and returns what to say about that. A run that goes on keeps
/// what it learned with so far, unless something else is given.
pub fn apply_recipe(config: &mut Config, data: &TrainingData, kind: RunKind, start: &RunStart) -> [String; 2] {
    if let RunStart::Resume(checkpoint) = start {
        let (training, was) = (&mut config.training, &checkpoint.config.training);
        training.learning_rate = training.learning_rate.or(was.learning_rate);
        training.warmup_steps = training.warmup_steps.or(was.warmup_steps);
        config.model.dropout = config.model.dropout.or(checkpoint.config.model.dropout);
    }
    let facts = data.facts(config.data.sample_rate, start.origin());
    let recipe = match kind {
        RunKind::Voice => Recipe::voice(&facts, config.model.size),
        RunKind::Vocoder => Recipe::vocoder(&facts, config.training.vocoder_learning_rate),
    };
    let told = recipe.told(config);
    recipe.fill(config);
    told
}

/// Losses of held-out speech.
struct HeldOutLoss {
    /// What training lowers.
    loss: f64,
    /// The part of it that tells whether the run still gets better: see `Learner::compared`.
    compared: f64,
}

/// Computes the held-out loss of the averaged weights, and says whether everything could be logged.
type Validate<'a, L> =
    Box<dyn FnMut(&Step<L>, Option<&mut MetricsWriter>, u64) -> Result<(HeldOutLoss, Result<()>)> + 'a>;

/// What differs between kinds of runs.
struct RunSpec<'a, L> {
    step: Step<L>,
    state: RunState,
    purpose: Purpose,
    /// What its checkpoints speak as.
    own_voice: Option<&'a VoiceFile>,
    validate: Option<Validate<'a, L>>,
}

/// Trains, and writes down how it ended where it ended with an error.
fn run<L: Learner>(
    context: &RunContext,
    output: OutputFolder,
    resumed: Option<&Checkpoint>,
    spec: RunSpec<L>,
) -> Result<RunOutcome> {
    let (log_dir, writes, reached) = (output.log_dir.clone(), output.writer.is_some(), Cell::new(spec.state.step));
    let outcome = run_to_end(context, output, resumed, spec, &reached);
    if let (Err(error), true) = (&outcome, writes) {
        let text = Explained::of(error.as_ref()).to_string();
        EventLog::append(&log_dir, &Event::now(reached.get(), EventKind::Failed, text));
    }
    outcome
}

/// Trains until the steps or epochs are over, held-out speech gets no better, or `stop` is set; then saves and returns.
fn run_to_end<L: Learner>(
    context: &RunContext,
    mut output: OutputFolder,
    resumed: Option<&Checkpoint>,
    spec: RunSpec<L>,
    reached: &Cell<u64>,
) -> Result<RunOutcome> {
    let RunSpec { mut step, mut state, purpose, own_voice, mut validate } = spec;
    let RunContext { config, data, bar, .. } = context;
    let training = &config.training;
    let interval = training.validation_interval();
    note(bar, &describe(&step));
    if let (Some(ranks), Some(exchange)) = (context.ranks, &step.exchange) {
        let machines =
            if ranks.machines() == 1 { "one machine".into() } else { format!("{} machines", ranks.machines()) };
        note(bar, &format!("{} ranks on {machines}; gradients by {}", ranks.me.size, exchange.describe()));
        state = ranks.of_first("state", &state)?;
    }
    if let (Some(writer), true) = (&output.writer, resumed.is_some()) {
        writer.restore_best(state.best_step)?;
    }
    let expected = context.expected_steps();
    let resumed_at = resumed.map(|checkpoint| checkpoint.state.step);
    let mut log = Log::create(context, &output.log_dir, &step, resumed_at, expected)?;
    let mut feed = start_feed(context, state.position.clone(), state.mel_stats, purpose)?;
    announce(&feed, bar);
    if output.writer.is_some() {
        let facts = run_file(context, &step, &state, &feed, expected, resumed_at);
        let _ = facts.write(&output.log_dir); // what follows finds out whether anything can be written
        log.event(state.step, EventKind::Started, begun(&facts));
    }
    let mut tuner = Tuner::new(config);
    bar.set_length(expected);
    bar.set_position(state.step);
    let tell = |saved: Option<Saved>, log: &mut Log, outcome: &mut RunOutcome| {
        let Some(Saved { step, folder }) = saved else { return };
        log.saved(step, &folder);
        outcome.checkpoint = folder;
    };
    let mut outcome = RunOutcome {
        step: state.step,
        checkpoint: resumed.map(|checkpoint| checkpoint.folder().to_path_buf()).unwrap_or_default(),
        log_dir: output.log_dir,
        interrupted: false,
        first_loss: None,
        last_loss: None,
        validation_loss: None,
        ended: None,
        best: None,
        failures: Vec::new(),
    };
    while end(training, &state).is_none() && !outcome.interrupted {
        // step: the next batches, forward, backward, update
        let rate = learning_rate(training, state.step, expected);
        let done = step.run(&mut feed, state.step, rate).map_err(|error| log.explain(error))?;
        state.step += 1;
        state.position = done.deliveries.last().expect("at least one batch a step").resume_at.clone();
        bar.set_position(state.step);
        outcome.step = state.step;
        reached.set(state.step);
        outcome.interrupted = step.is_stopping(context.stop.load(Ordering::Relaxed))?;
        let last = outcome.interrupted || end(training, &state).is_some();
        let validates = validate.is_some() && (last || state.step.is_multiple_of(interval));
        let saves = last || state.step.is_multiple_of(training.save_step);
        log.stepped(state.step, done, rate);
        log.pulse(&feed, state.step);
        let wanted = log.wishes(state.step);
        tuner.observe(&feed, step.is_settled(), bar)?;

        // log: figures are asked for here and arrive some steps later, so that nothing waits for them
        if last || state.step.is_multiple_of(training.log_step) {
            step.request_reading(state.step)?;
        }
        let mut logged = log.read(&mut step, &feed, validates || saves, &mut outcome)?;

        // validate: held-out loss, a spoken sample, pictures
        let mut best = false;
        if let Some(validate) = validate.as_mut().filter(|_| validates && logged.is_ok()) {
            let (HeldOutLoss { loss, compared }, written) =
                crate::catch(|| validate(&step, log.metrics.as_mut(), state.step))??;
            // Where an interrupt alone made it validate, a run that was not interrupted would not have: it decides nothing.
            if !outcome.interrupted || state.step.is_multiple_of(interval) {
                best = state.best_loss.is_none_or(|before| compared < before);
                state.best_loss = state.best_loss.filter(|before| *before <= compared).or(Some(compared));
                state.best_step = if best { Some(state.step) } else { state.best_step };
                state.stale_validations = if best { 0 } else { state.stale_validations + 1 };
            }
            outcome.validation_loss = Some(loss);
            log.validated(state.step, loss, (step.learner.compared(), compared), best);
            logged = written;
            log.interrupt(state.step); // validation is not part of the step time
        }

        // save: weights, moments, loader position; also when logs cannot be written, so that no step is lost
        // and when this validation was one too many in a row without a better one
        let is_over = logged.is_err() || outcome.interrupted || end(training, &state).is_some();
        let planned = saves || best || is_over;
        if planned {
            step.ensure_equal(state.step)?; // what one rank alone was asked for, the others do not know of
        }
        if let Some(writer) = &mut output.writer {
            let parts = CheckpointParts {
                config,
                tokenizer: &data.tokenizer,
                state: &state,
                groups: &step.groups,
                scale: &step.scale,
                own_voice,
            };
            let mut save = || -> Result<()> {
                if planned || wanted {
                    tell(writer.begin(&parts, best)?, &mut log, &mut outcome);
                }
                if is_over && writer.is_late(SLOW_WRITE) {
                    note(bar, "waiting until the checkpoint is written");
                }
                tell(if is_over { writer.wait()? } else { writer.written()? }, &mut log, &mut outcome);
                Ok(())
            };
            if let Err(error) = save() {
                // What was trained since is not lost with a checkpoint that could not be written.
                let Ok(saved) = writer.save(&parts) else { return Err(error) };
                let fact = format!("the run was stopped at step {}, which was saved", saved.step);
                tell(Some(saved), &mut log, &mut outcome);
                return Err(error.context(fact));
            }
        }
        if planned || wanted {
            log.interrupt(state.step);
        }
        logged
            .hint("free some space, then go on with --resume")
            .context("the run was saved and stopped, because its logs cannot be written")?;
    }
    outcome.ended = end(training, &state);
    let best = output.writer.as_ref().and_then(CheckpointWriter::best);
    outcome.best = best.zip(state.best_loss).map(|((at, checkpoint), validation_loss)| BestCheckpoint {
        step: at,
        checkpoint,
        compared: step.learner.compared(),
        validation_loss,
    });
    outcome.failures = feed.loader().failures().iter().map(ToString::to_string).collect();
    let (kind, text) = match outcome.interrupted {
        true => (EventKind::Stopped, "stopped, and saved; --resume goes on"),
        false => (EventKind::Ended, outcome.ended.map_or("", RunEnd::told)),
    };
    let done = if outcome.interrupted { "" } else { "done: " };
    log.event(state.step, kind, format!("{done}{text}"));
    Ok(outcome)
}

/// What the run is, for its file.
fn run_file<L: Learner>(
    context: &RunContext,
    step: &Step<L>,
    state: &RunState,
    feed: &Feed,
    expected: u64,
    resumed_at: Option<u64>,
) -> RunFile {
    let RunContext { config, data, roles, caps, .. } = context;
    let total = |device: tch::Device| {
        let facts = device.is_cuda().then(|| torchx::cuda::facts(device).ok()).flatten();
        facts.map(|facts| mib(facts.total_bytes))
    };
    RunFile {
        kind: state.kind.to_string(),
        steps: (expected < u64::MAX).then_some(expected),
        started: unix_time_s(),
        resumed_at,
        compared: step.learner.compared().to_owned(),
        process: ProcessFacts::own(context.observer.and_then(|observer| observer.address())),
        pipeline: PipelineFacts {
            model_size: format!("{:?}", config.model.size).to_lowercase(),
            parameters: step.groups.iter().map(|group| group.len()).sum(),
            data_device: feed::name(roles.data),
            model_device: feed::name(roles.model),
            activations: activations(&config.training, roles.model).to_owned(),
            route: feed.route().to_string(),
            frames_per_batch: data.budget.frames,
            accumulate: config.training.gradient_accumulation_steps,
            workers: feed.loader().status().workers,
            depth: config.data.prefetch_depth(),
            slots: ring_slots(&config.data),
            ranks: context.share().ranks,
            data_cap_mib: caps.of(Role::Data),
            model_cap_mib: caps.of(Role::Model),
            model_total_mib: total(roles.model),
            data_total_mib: total(roles.data),
        },
        corpus: data.corpus_facts(config.data.sample_rate),
    }
}

fn begun(facts: &RunFile) -> String {
    let PipelineFacts { model_size, data_device, model_device, .. } = &facts.pipeline;
    let begun = facts.resumed_at.map_or_else(|| "began".to_owned(), |step| format!("goes on from step {step}"));
    format!("{begun}: {} of size {model_size}, data on {data_device}, model on {model_device}", facts.kind)
}

fn describe<L: Learner>(step: &Step<L>) -> String {
    let sizes = step.groups.iter().map(|group| format!("{} {:.1} M", group.name, group.len() as f64 / 1e6));
    format!("parameters: {}", sizes.collect::<Vec<_>>().join(", "))
}

/// Why a run is over in this state, where it is. The state alone decides, which a checkpoint holds and all ranks share.
fn end(training: &Training, state: &RunState) -> Option<RunEnd> {
    let reached = |limit: Option<u64>, at: u64| limit.is_some_and(|limit| at >= limit);
    let ends = [
        (RunEnd::Steps, reached(training.steps, state.step)),
        (RunEnd::Epochs, reached(training.epochs, state.position.epoch)),
        // Patience 0 waits for ever.
        (RunEnd::NoBetter, reached(training.patience.filter(|patience| *patience > 0), state.stale_validations)),
    ];
    ends.into_iter().find(|(_, over)| *over).map(|(end, _)| end)
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
