//! The `training` section: optimisation, devices, and what is written when.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    #[default]
    Cosine,
    Noam,
    Constant,
}

/// Presets of `mixed_precision`, `enable_xla` and `deterministic`: what trades exactness for speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OptimizationLevel {
    /// f32, every kernel launched by itself: for debugging.
    Basic,
    /// Half-width activations, and the step captured as one CUDA graph.
    #[default]
    Enhanced,
    /// The same, and batches that are ready overtake those that are not.
    Experimental,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 where the GPU has it, else f16.
    #[default]
    Auto,
    Bf16,
    /// With a scale on the loss, so that small gradients do not vanish.
    F16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DataDevice {
    /// Where the model is.
    #[default]
    Auto,
    Cpu,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    pub optimization_level: OptimizationLevel,
    pub mixed_precision: bool,
    /// The half-width kind of `mixed_precision`.
    pub precision: Precision,
    /// Only algorithms that give the same bits in every run; slower.
    pub deterministic_kernels: bool,
    /// Capture the step as one CUDA graph (the name is an old one; `enable_graphs` is the same key).
    pub enable_xla: bool,
    pub seed: u64,
    pub epochs: u64,
    /// Stop after this many steps, whatever the epochs say.
    pub steps: Option<u64>,
    pub learning_rate: f64,
    pub schedule: Schedule,
    pub warmup_steps: u64,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub gradient_clip_norm: f64,
    /// Of the moving average of the weights, which validation and synthesis use; 0 keeps none.
    pub ema_decay: f64,
    pub gradient_accumulation_steps: u64,
    pub log_step: u64,
    pub val_step: u64,
    pub save_step: u64,
    /// How many checkpoints stay besides the best.
    pub keep_checkpoints: usize,
    pub checkpoint_dir: PathBuf,
    /// Default: `logs` inside the checkpoint directory.
    pub tensorboard_log_dir: Option<PathBuf>,
    /// GPU that prepares batches and GPU that trains, by PCI order.
    pub data_gpu: Option<usize>,
    pub model_gpu: Option<usize>,
    /// Where batches are prepared when no GPUs are named: beside the model, or on the CPU.
    pub data_device: DataDevice,
    pub enable_memory_isolation: bool,
    /// Hard caps in MiB; null takes a third of what is free for the data role and the rest for the model.
    pub data_gpu_memory: Option<u64>,
    pub model_gpu_memory: Option<u64>,
    /// Stop after this many validations in a row without a lower loss.
    pub patience: Option<u64>,
    /// Seconds to wait at most until the batch ring is full before the first step.
    pub model_start_delay: f64,
    pub vocoder_learning_rate: f64,
    pub vocoder_segment_frames: i64,
    /// Of the mel distance, against the judges' opinion.
    pub vocoder_mel_weight: f64,
}
