//! `myxtts train`

use super::layout::Layout;
use super::{INTERRUPTED, print_line, progress, say};
use crate::config::{Config, OptimizationLevel, Overrides, Size};
use crate::feed::{Roles, apply_caps};
use crate::train::checkpoint::{self, Checkpoint};
use crate::train::{self, Outcome, Place, Prepared};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use tch::Device;

/// Train a voice from a corpus. Flags win over the config file, and that over the presets.
#[derive(clap::Args)]
pub struct Args {
    /// YAML file; `myxtts config` prints every key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Corpus to train on
    #[arg(long, value_name = "DIR")]
    train_data: Option<PathBuf>,
    /// Corpus to validate on [default: a share of the training corpus, `val_split`]
    #[arg(long, value_name = "DIR")]
    val_data: Option<PathBuf>,
    #[command(flatten)]
    layout: Layout,
    /// Where checkpoints go
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
    /// Go on from the newest checkpoint
    #[arg(long, conflicts_with = "reset_training")]
    resume: bool,
    /// Start over; earlier checkpoints are moved aside, not deleted
    #[arg(long)]
    reset_training: bool,

    /// Passes over the corpus
    #[arg(long, value_name = "N", help_heading = "Training")]
    epochs: Option<u64>,
    /// Stop after this many steps
    #[arg(long, value_name = "N", help_heading = "Training")]
    steps: Option<u64>,
    /// Utterances of mean length in a batch
    #[arg(long, value_name = "N", help_heading = "Training")]
    batch_size: Option<usize>,
    /// Preset of the network's dimensions
    #[arg(long, value_name = "SIZE", help_heading = "Training")]
    model_size: Option<Size>,
    /// Peak learning rate
    #[arg(long, value_name = "RATE", help_heading = "Training")]
    lr: Option<f64>,
    /// Batches whose gradients make one step
    #[arg(long, value_name = "N", help_heading = "Training")]
    grad_accum: Option<u64>,
    /// bf16 activations on a GPU
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Training")]
    mixed_precision: Option<bool>,
    /// Preset of mixed precision and graph capture
    #[arg(long, value_name = "LEVEL", help_heading = "Training")]
    optimization_level: Option<OptimizationLevel>,
    /// Of weights, order and noise: the same seed gives the same run
    #[arg(long, value_name = "N", help_heading = "Training")]
    seed: Option<u64>,

    /// auto, cpu, cuda or cuda:N
    #[arg(long, help_heading = "Devices")]
    device: Option<String>,
    /// GPU that prepares batches
    #[arg(long, value_name = "N", help_heading = "Devices")]
    data_gpu: Option<usize>,
    /// GPU that trains
    #[arg(long, value_name = "N", help_heading = "Devices")]
    model_gpu: Option<usize>,
    /// Hard memory caps on the GPUs
    #[arg(long, help_heading = "Devices")]
    enable_memory_isolation: bool,
    /// Cap of the data role
    #[arg(long, value_name = "MIB", help_heading = "Devices")]
    data_gpu_memory: Option<u64>,
    /// Cap of the model role
    #[arg(long, value_name = "MIB", help_heading = "Devices")]
    model_gpu_memory: Option<u64>,
    /// Seconds to wait at most for a full ring before the first step
    #[arg(long, value_name = "SECONDS", help_heading = "Devices")]
    model_start_delay: Option<f64>,

    /// Threads that assemble batches
    #[arg(long, value_name = "N", help_heading = "Batches")]
    num_workers: Option<usize>,
    /// Batches that wait on the model device
    #[arg(long, value_name = "N", help_heading = "Batches")]
    buffer_size: Option<usize>,
    /// Batches that wait in host memory
    #[arg(long, value_name = "N", help_heading = "Batches")]
    prefetch_buffer_size: Option<usize>,
    /// Every utterance in a slot of fixed size, instead of packed end to end
    #[arg(long, conflicts_with = "disable_static_shapes", help_heading = "Batches")]
    enable_static_shapes: bool,
    #[arg(long, help_heading = "Batches", help = "Pack utterances end to end (the default)")]
    disable_static_shapes: bool,
    /// Clips with more text are left out
    #[arg(long, value_name = "TOKENS", help_heading = "Batches")]
    max_text_length: Option<usize>,
    /// Clips with more sound are left out
    #[arg(long, value_name = "FRAMES", help_heading = "Batches")]
    max_mel_frames: Option<usize>,

    /// Where TensorBoard logs go [default: `logs` in the checkpoint directory]
    #[arg(long, value_name = "DIR")]
    tensorboard_log_dir: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let config = args.resolve()?;
    let stop = progress::stop_flag()?;
    let resume = args.checkpoint(&config)?;
    let roles = Roles::resolve(&config.training)?;
    apply_caps(&config.training, &roles)?;
    let place = Place::open(&config.training)?;

    let bar = progress::bar(0, "preparing");
    let tokenizer = resume.as_ref().map(|checkpoint| checkpoint.tokenizer.clone());
    let data = train::prepare(&config, tokenizer, &progress::of_cache(&bar), &stop);
    bar.finish_and_clear();
    let data = data?;
    describe(&config, &data, &roles);
    if args.reset_training
        && let Some(aside) = checkpoint::set_aside(&config.training.checkpoint_dir)?
    {
        say(format!("earlier checkpoints are in {}", aside.display()));
    }

    let bar = progress::bar(0, "training");
    let outcome = train::train(&config, place, &data, resume, roles, &bar, &stop);
    bar.finish_and_clear();
    let outcome = outcome?;
    print(&outcome, args.json)?;
    Ok(match outcome.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false if data.findings.is_empty() => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

impl Args {
    fn resolve(&self) -> Result<Config> {
        let mut flags = Overrides::default();
        self.layout.set(&mut flags);
        let padded = match (self.enable_static_shapes, self.disable_static_shapes) {
            (false, false) => None,
            (enabled, _) => Some(enabled),
        };
        flags
            .set("data.dataset_path", self.train_data.as_ref())
            .set("data.val_data", self.val_data.as_ref())
            .set("data.batch_size", self.batch_size)
            .set("data.num_workers", self.num_workers)
            .set("data.pipeline_buffer_size", self.buffer_size)
            .set("data.prefetch_buffer_size", self.prefetch_buffer_size)
            .set("data.pad_to_fixed_length", padded)
            .set("data.max_text_length", self.max_text_length)
            .set("data.max_mel_frames", self.max_mel_frames)
            .set("model.size", self.model_size)
            .set("training.checkpoint_dir", self.checkpoint_dir.as_ref())
            .set("training.tensorboard_log_dir", self.tensorboard_log_dir.as_ref())
            .set("training.epochs", self.epochs)
            .set("training.steps", self.steps)
            .set("training.learning_rate", self.lr)
            .set("training.gradient_accumulation_steps", self.grad_accum)
            .set("training.mixed_precision", self.mixed_precision)
            .set("training.optimization_level", self.optimization_level)
            .set("training.seed", self.seed)
            .set("training.device", self.device.as_ref())
            .set("training.data_gpu", self.data_gpu)
            .set("training.model_gpu", self.model_gpu)
            .set("training.enable_memory_isolation", self.enable_memory_isolation.then_some(true))
            .set("training.data_gpu_memory", self.data_gpu_memory)
            .set("training.model_gpu_memory", self.model_gpu_memory)
            .set("training.model_start_delay", self.model_start_delay);
        Ok(Config::resolve(self.config.as_deref(), flags)?)
    }

    /// The checkpoint to go on from. A folder that holds some is never overwritten without a word.
    fn checkpoint(&self, config: &Config) -> Result<Option<Checkpoint>> {
        let folder = &config.training.checkpoint_dir;
        if self.reset_training {
            return Ok(None);
        }
        let newest = Checkpoint::newest(folder)?;
        match (newest, self.resume) {
            (Some(checkpoint), true) => {
                checkpoint::same_voice(config, &checkpoint)?;
                say(format!("going on from {}", checkpoint.folder().display()));
                Ok(Some(checkpoint))
            }
            (None, true) => bail!(
                "{}: no checkpoint to resume\nhint: leave out --resume to start, or name the folder with --checkpoint-dir",
                folder.display()
            ),
            (Some(checkpoint), false) => bail!(
                "{}: holds a run at step {}\nhint: --resume goes on with it, --reset-training starts over, \
                 --checkpoint-dir chooses another folder",
                folder.display(),
                checkpoint.state.step
            ),
            (None, false) => Ok(None),
        }
    }
}

/// What is about to happen, on stderr.
fn describe(config: &Config, data: &Prepared, roles: &Roles) {
    data.notes.iter().chain(&data.findings).for_each(|note| say(format!("note: {note}")));
    if let (false, Some(corpus)) = (data.findings.is_empty(), &config.data.dataset_path) {
        say(format!("hint: `myxtts check {}` lists every problem of the corpus", corpus.display()));
    }
    let clips = data.train.lengths().len();
    let minutes = data.train.seconds(config.data.sample_rate) / 60.0;
    let held_out = data.validation.as_ref().map_or(0, |set| set.lengths().len());
    let form = if data.budget.padded { "padded" } else { "packed" };
    say(format!("{clips} clips to train on ({minutes:.1} min), {held_out} held out"));
    say(format!("batches: {form}, {} frames and {} tokens each", data.budget.frames, data.budget.tokens));
    let precision = match (roles.model, config.training.mixed_precision) {
        (Device::Cuda(_), true) => "bf16",
        _ => "f32",
    };
    say(format!("devices: data on {}, model on {}, {precision}", name(roles.data), name(roles.model)));
}

fn name(device: Device) -> String {
    match device {
        Device::Cuda(gpu) => format!("GPU {gpu}"),
        _ => "CPU".into(),
    }
}

fn print(outcome: &Outcome, json: bool) -> Result<()> {
    if json {
        return Ok(print_line(serde_json::to_string_pretty(outcome)?)?);
    }
    let Outcome { step, .. } = outcome;
    let loss = |value: Option<f64>| value.map_or("–".into(), |loss| format!("{loss:.3}"));
    let (first, last, held_out) = (outcome.first_loss, outcome.last_loss, outcome.validation_loss);
    match (outcome.interrupted, first) {
        (_, None) => print_line(format!("already at step {step}: raise --steps or --epochs to go on"))?,
        (true, _) => print_line(format!("stopped at step {step}; go on with the same command and --resume"))?,
        (false, _) => print_line(format!("done at step {step}"))?,
    }
    if first.is_some() {
        print_line(format!("loss:        {} → {}, held out {}", loss(first), loss(last), loss(held_out)))?;
    }
    print_line(format!("checkpoint:  {}", outcome.checkpoint.display()))?;
    Ok(print_line(format!("TensorBoard: {}", outcome.log_dir.display()))?)
}
