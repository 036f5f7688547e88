//! The flags of every command that trains, or runs the training pipeline to measure it. They win over the config file,
//! and that over the presets.
//!
//! A group is what one piece of code obeys: a flag that some of its commands cannot obey belongs into a smaller one.

use super::cache::CacheFlags;
use super::layout::Layout;
use anyhow::Result;
use host::config::{self, Config, Durations, GpuList, LongClips, OptimizationLevel, Overrides, Size};
use std::path::PathBuf;

/// What is trained on, and how it is cut into batches.
#[derive(clap::Args)]
pub struct DataFlags {
    /// YAML file; `myxtts config` prints every key
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Corpus to train on: a folder, a URL of shards (s3://, gs://, az://, https://), or a pattern
    #[arg(long, value_name = "DIR")]
    train_data: Option<PathBuf>,
    /// Corpus to validate on [default: a share of the training corpus, `val_split`]
    #[arg(long, value_name = "DIR")]
    val_data: Option<PathBuf>,
    #[command(flatten)]
    layout: Layout,
    #[command(flatten)]
    cache: CacheFlags,

    /// Utterances of mean length in a batch
    #[arg(long, value_name = "N", help_heading = "Batches")]
    batch_size: Option<usize>,
    /// Mel frames in a batch, instead of --batch-size times the mean length
    #[arg(long, value_name = "FRAMES", help_heading = "Batches")]
    frame_budget: Option<usize>,
    /// Threads that assemble batches
    #[arg(long, value_name = "N", help_heading = "Batches")]
    num_workers: Option<usize>,
    /// Clips with more text, in characters, are refused, cropped or split: see --long-clips
    #[arg(long, value_name = "CHARACTERS", help_heading = "Batches")]
    max_text_length: Option<usize>,
    /// Clips with more sound: the same
    #[arg(long, value_name = "FRAMES", help_heading = "Batches")]
    max_mel_frames: Option<usize>,
    /// What becomes of clips above these limits
    #[arg(long, value_name = "POLICY", help_heading = "Batches")]
    long_clips: Option<LongClips>,
}

/// A whole training: what runs, and for how long.
#[derive(clap::Args)]
pub struct RunFlags {
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Passes over the corpus [default: as --steps]
    #[arg(long, value_name = "N", help_heading = "Training")]
    epochs: Option<u64>,
    /// Stop after this many steps [default: by hours of speech, speakers and start]
    #[arg(long, value_name = "N", help_heading = "Training")]
    steps: Option<u64>,
    /// Peak learning rate [default: by size, hours of speech and start]
    #[arg(long, value_name = "RATE", help_heading = "Training")]
    pub lr: Option<f64>,
}

/// The pipeline of a training, whether it is trained with or measured.
#[derive(clap::Args)]
pub struct PipelineFlags {
    #[command(flatten)]
    data: DataFlags,

    /// Preset of the network's dimensions
    #[arg(long, value_name = "SIZE", help_heading = "Training")]
    model_size: Option<Size>,
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
    /// GPU that trains; several, as 0,1,2, train side by side
    #[arg(long, value_name = "N[,N…]", help_heading = "Devices")]
    model_gpu: Option<GpuList>,
    /// Hard memory caps on the GPUs: those below, or a third and two thirds of what is free
    #[arg(long, help_heading = "Devices")]
    enable_memory_isolation: bool,
    /// Cap of the data role: MiB, or a share of the card such as 0.3
    #[arg(long, value_name = "MIB|SHARE", help_heading = "Devices")]
    data_gpu_memory: Option<serde_json::Number>,
    /// Cap of the model role: MiB, or a share of the card such as 0.7
    #[arg(long, value_name = "MIB|SHARE", help_heading = "Devices")]
    model_gpu_memory: Option<serde_json::Number>,
    /// Seconds to wait at most for a full ring before the first step
    #[arg(long, value_name = "SECONDS", help_heading = "Devices")]
    model_start_delay: Option<f64>,

    /// Batches that wait on the model device, as many as fit
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
    /// Where the frames of each token come from
    #[arg(long, value_name = "SOURCE", help_heading = "Batches")]
    durations: Option<Durations>,
}

impl DataFlags {
    pub fn set(&self, flags: &mut Overrides) {
        self.layout.set(flags);
        self.cache.set(flags);
        flags
            .set("data.dataset_path", self.train_data.as_ref())
            .set("data.val_data", self.val_data.as_ref())
            .set("data.batch_size", self.batch_size)
            .set("data.frame_budget", self.frame_budget)
            .set("data.num_workers", self.num_workers)
            .set("data.max_text_length", self.max_text_length)
            .set("data.max_mel_frames", self.max_mel_frames)
            .set("data.long_clips", self.long_clips);
    }
}

impl RunFlags {
    /// Settings of the run; `flags` is what the command itself sets.
    pub fn resolve(&self, flags: Overrides) -> Result<Config> {
        self.pipeline.resolve(self.over(flags))
    }

    /// Settings of the run, or everything that is wrong with them.
    pub fn resolve_or_list(&self) -> Result<Config, Vec<config::Error>> {
        let PipelineFlags { data, .. } = &self.pipeline;
        Config::resolve_or_list(data.config.as_deref(), self.pipeline.over(self.over(Overrides::default())))
    }

    fn over(&self, mut flags: Overrides) -> Overrides {
        flags
            .set("training.epochs", self.epochs)
            .set("training.steps", self.steps)
            .set("training.learning_rate", self.lr);
        flags
    }
}

impl PipelineFlags {
    /// Settings of the pipeline; `flags` is what the command itself sets.
    pub fn resolve(&self, flags: Overrides) -> Result<Config> {
        Ok(Config::resolve(self.data.config.as_deref(), self.over(flags))?)
    }

    fn over(&self, mut flags: Overrides) -> Overrides {
        self.data.set(&mut flags);
        let padded = match (self.enable_static_shapes, self.disable_static_shapes) {
            (false, false) => None,
            (enabled, _) => Some(enabled),
        };
        flags
            .set("data.pipeline_buffer_size", self.buffer_size)
            .set("data.prefetch_buffer_size", self.prefetch_buffer_size)
            .set("data.pad_to_fixed_length", padded)
            .set("data.durations", self.durations)
            .set("model.size", self.model_size)
            .set("training.gradient_accumulation_steps", self.grad_accum)
            .set("training.mixed_precision", self.mixed_precision)
            .set("training.optimization_level", self.optimization_level)
            .set("training.seed", self.seed)
            .set("training.device", self.device.as_ref())
            .set("training.data_gpu", self.data_gpu)
            .set("training.model_gpu", self.model_gpu.as_ref())
            .set("training.enable_memory_isolation", self.enable_memory_isolation.then_some(true))
            .set("training.data_gpu_memory", self.data_gpu_memory.as_ref())
            .set("training.model_gpu_memory", self.model_gpu_memory.as_ref())
            .set("training.model_start_delay", self.model_start_delay);
        flags
    }
}
