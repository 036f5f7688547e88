//! The training run: corpus to checkpoints.

pub mod checkpoint;
mod data;
mod metrics;
mod picture;
mod samples;
mod schedule;
mod step;
mod tensorboard;

pub use data::{Prepared, prepare};

use crate::config::{Config, Training};
use crate::feed::{Delivery, Feed, MelExtractor, Options, Producer, Roles};
use crate::loader::Loader;
use crate::model::{Losses, Voice};
use anyhow::{Context, Result, ensure};
use checkpoint::{Checkpoint, State, Writer};
use indicatif::ProgressBar;
use metrics::Metrics;
use samples::Validation;
use schedule::learning_rate;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use step::{Reading, Step};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Folder of the logs inside a run's folder.
pub(crate) const LOGS: &str = "logs";

/// Where a run writes. Opened before anything slow, so that a folder that cannot be used is found at once.
pub struct Place {
    writer: Writer,
    log_dir: PathBuf,
}

impl Place {
    pub fn open(training: &Training) -> Result<Self> {
        let writer = Writer::new(&training.checkpoint_dir, training.keep_checkpoints)?;
        let log_dir = training.tensorboard_log_dir.clone().unwrap_or_else(|| training.checkpoint_dir.join(LOGS));
        let hint = "hint: choose another folder with --tensorboard-log-dir";
        fs::create_dir_all(&log_dir).with_context(|| format!("{}: cannot be created\n{hint}", log_dir.display()))?;
        Ok(Place { writer, log_dir })
    }
}

/// What a finished or interrupted run leaves behind.
#[derive(Serialize)]
pub struct Outcome {
    pub step: u64,
    pub checkpoint: PathBuf,
    pub log_dir: PathBuf,
    pub interrupted: bool,
    /// Mean training loss of the first and the last logged window; absent when there was nothing left to do.
    pub first_loss: Option<f64>,
    pub last_loss: Option<f64>,
    pub validation_loss: Option<f64>,
}

/// Trains until the steps or epochs are over, or `stop` is set; then saves and returns.
pub fn train(
    config: &Config,
    place: Place,
    data: &Prepared,
    resume: Option<Checkpoint>,
    roles: Roles,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let training = &config.training;
    let (mut step, mut state) = torchx::catch(|| start(config, data, resume.as_ref(), roles.model))??;
    let parameters: usize = named_parameters(&step.store).iter().map(|(_, tensor)| tensor.numel()).sum();
    note(bar, &format!("model: {:.1} M parameters", parameters as f64 / 1e6));
    let mut metrics = Metrics::create(&place.log_dir, resume.as_ref().map(|checkpoint| checkpoint.state.step))?;
    metrics.text("config", state.step, &format!("```yaml\n{}```", config.to_yaml()))?;
    let mut feed = start_feed(config, data, &state, roles, bar)?;
    let mut validation = Validation::new(config, data, &state, roles.model);
    let expected = expected_steps(training, data);
    bar.set_length(expected);
    bar.set_position(state.step);
    let mut outcome = Outcome {
        step: state.step,
        checkpoint: resume.map(|checkpoint| checkpoint.folder().to_path_buf()).unwrap_or_default(),
        log_dir: place.log_dir,
        interrupted: false,
        first_loss: None,
        last_loss: None,
        validation_loss: None,
    };
    let mut window = Window::new();
    while !is_over(training, &state) && !outcome.interrupted {
        // step: the next batches, forward, backward, update
        let rate = learning_rate(training, state.step, expected);
        let deliveries = step.run(&mut feed, state.step, rate)?;
        state.step += 1;
        state.position = deliveries.last().expect("at least one batch a step").resume_at;
        window.add(&deliveries);
        bar.set_position(state.step);
        outcome.step = state.step;
        outcome.interrupted = stop.load(Ordering::Relaxed);
        let last = outcome.interrupted || is_over(training, &state);
        let mut logged = Ok(());

        // log: reading the loss waits for the device, so only every `log_step`
        if last || state.step.is_multiple_of(training.log_step) {
            let reading = torchx::catch(|| step.read())??;
            ensure_finite(&reading, state.step, rate)?;
            outcome.first_loss.get_or_insert(reading.loss());
            outcome.last_loss = Some(reading.loss());
            logged = metrics.log(state.step, &window.figures(&reading, rate, config, data.budget.frames));
            bar.set_message(format!("loss {:.3}, {:.0} ms a step", reading.loss(), window.step_ms()));
            window = Window::new();
        }

        // validate: held-out loss, a spoken sample, pictures
        let mut best = false;
        if let Some(validation) = &mut validation
            && logged.is_ok()
            && (last || state.step.is_multiple_of(training.val_step))
        {
            let (loss, written) = torchx::catch(|| validation.run(&step.voice, &mut metrics, state.step))??;
            best = state.best_loss.is_none_or(|before| loss < before);
            state.best_loss = state.best_loss.filter(|before| *before <= loss).or(Some(loss));
            outcome.validation_loss = Some(loss);
            logged = written;
            window = Window::new(); // validation is not part of the step time
        }

        // save: weights, moments, loader position; also when logs cannot be written, so that no step is lost
        if last || best || logged.is_err() || state.step.is_multiple_of(training.save_step) {
            let saved = place.writer.save(config, &data.tokenizer, &state, &step.store, &step.optimizer)?;
            if best {
                place.writer.mark_best(&saved)?;
            }
            outcome.checkpoint = saved;
            window = Window::new();
        }
        logged.context("the run was saved and stopped, because its logs cannot be written\nhint: free some space, then go on with --resume")?;
    }
    Ok(outcome)
}

fn is_over(training: &Training, state: &State) -> bool {
    training.steps.is_some_and(|steps| state.step >= steps) || state.position.epoch >= training.epochs
}

/// What the schedule and the progress bar count to. Epochs differ by a batch or so; the end is decided by `is_over`.
fn expected_steps(training: &Training, data: &Prepared) -> u64 {
    let epoch = crate::loader::plan(data.train.lengths(), &data.budget, training.seed, 0).len() as u64;
    let by_epochs = (epoch * training.epochs).div_ceil(training.gradient_accumulation_steps).max(1);
    training.steps.map_or(by_epochs, |steps| steps.min(by_epochs))
}

fn ensure_finite(reading: &Reading, step: u64, rate: f64) -> Result<()> {
    ensure!(
        reading.loss().is_finite(),
        "the loss is not finite at step {step}\nhint: lower the learning rate (now {rate:.1e}) and go on with --resume \
         from the last checkpoint, which is intact"
    );
    Ok(())
}

/// Every trainable tensor by name, in an order that does not change between runs.
pub(crate) fn named_parameters(store: &VarStore) -> Vec<(String, Tensor)> {
    let mut named: Vec<(String, Tensor)> = store.variables().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// The network and its state: fresh, or as the checkpoint holds them.
fn start(config: &Config, data: &Prepared, resume: Option<&Checkpoint>, device: Device) -> Result<(Step, State)> {
    let mixed = config.training.mixed_precision && device.is_cuda();
    let kind = if mixed { Kind::BFloat16 } else { Kind::Float };
    tch::manual_seed(config.training.seed as i64);
    let mut store = VarStore::new(device);
    let voice = Voice::new(&store.root(), &config.model, data.tokenizer.vocab_size(), kind)?;
    if let Some(checkpoint) = resume {
        checkpoint.load_weights(&mut store)?;
    }
    let mut step = Step::new(voice, store, &config.training)?;
    let state = match resume {
        Some(checkpoint) => {
            checkpoint.load_optimizer(&step.store, &mut step.optimizer)?;
            checkpoint.state.clone()
        }
        None => State::new(data.mel_stats(config)?),
    };
    Ok((step, state))
}

fn start_feed(config: &Config, data: &Prepared, state: &State, roles: Roles, bar: &ProgressBar) -> Result<Feed> {
    let settings = &config.data;
    let workers = if settings.use_native_loading { settings.workers() } else { 0 };
    let loader = Loader::start(
        data.train.clone(),
        data.budget,
        config.training.seed,
        state.position,
        workers,
        settings.prefetch_depth(),
    );
    let producer = Producer {
        loader,
        mel: MelExtractor::new(&config.model, settings.sample_rate, roles.data),
        stats: state.mel_stats,
        roles,
    };
    let slots = match (settings.prefetch_to_gpu, settings.enhanced_gpu_prefetch) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => settings.pipeline_buffer_size,
    };
    let overlap = settings.optimize_cpu_gpu_overlap;
    let feed = Feed::start(producer, Options { slots, overlap })?;
    let delay = Duration::from_secs_f64(config.training.model_start_delay);
    if let Some((filled, slots)) = feed.warm_up(delay) {
        let why = if filled == slots { "the ring is full" } else { "model_start_delay is over" };
        note(bar, &format!("{filled} of {slots} batches are ready: {why}"));
    }
    Ok(feed)
}

/// A line above the bar. Not `bar.println`, which is silent where no bar is drawn.
fn note(bar: &ProgressBar, text: &str) {
    bar.suspend(|| writeln!(io::stderr(), "{text}").ok());
}

/// What happened since the last reading, for the figures that are logged.
struct Window {
    start: Instant,
    steps: u64,
    utterances: usize,
    speech_frames: usize,
    batches: usize,
    wait: Duration,
}

impl Window {
    fn new() -> Self {
        Window { start: Instant::now(), steps: 0, utterances: 0, speech_frames: 0, batches: 0, wait: Duration::ZERO }
    }

    fn add(&mut self, deliveries: &[Delivery]) {
        self.steps += 1;
        for delivery in deliveries {
            self.batches += 1;
            self.utterances += delivery.utterances;
            self.speech_frames += delivery.speech_frames;
            self.wait += delivery.wait;
        }
    }

    fn step_ms(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e3 / self.steps.max(1) as f64
    }

    fn figures(
        &self,
        reading: &Reading,
        learning_rate: f64,
        config: &Config,
        budget_frames: usize,
    ) -> Vec<(&'static str, f64)> {
        let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
        let audio_seconds =
            self.speech_frames as f64 * config.model.hop_length as f64 / f64::from(config.data.sample_rate);
        let mut figures = vec![("loss", reading.loss())];
        figures.extend(Losses::NAMES.into_iter().zip(reading.losses));
        figures.extend([
            ("gradient_norm", reading.gradient_norm),
            ("skipped_steps", reading.skipped_steps as f64),
            ("learning_rate", learning_rate),
            ("step_ms", self.step_ms()),
            ("wait_ms", self.wait.as_secs_f64() * 1e3 / self.steps.max(1) as f64),
            ("utterances_per_second", self.utterances as f64 / seconds),
            ("audio_seconds_per_second", audio_seconds / seconds),
            ("padding_share", 1.0 - self.speech_frames as f64 / (self.batches * budget_frames).max(1) as f64),
        ]);
        figures
    }
}
