//! The `data` section: where recordings are, how they become features, and how batches are made and buffered.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Corpus folder (alias `train_data`).
    pub dataset_path: Option<PathBuf>,
    /// Corpus folder for validation; without one, `val_split` of the training corpus is held out.
    pub val_data: Option<PathBuf>,
    pub train_split: f64,
    pub val_split: f64,
    /// Language of utterances whose metadata names none.
    pub language: String,
    pub sample_rate: u32,
    pub trim_silence: bool,
    pub normalize_audio: bool,
    /// Keep features on disk between runs; otherwise they live in a temporary folder of this run.
    pub enable_caching: bool,
    /// Default: `myxtts` in the user's cache directory.
    pub cache_dir: Option<PathBuf>,
    /// Clips that may fail before the run stops.
    pub max_failures: usize,
    /// Utterances of mean length in a batch; the frame budget is this times the mean length.
    pub batch_size: usize,
    pub max_text_length: usize,
    pub max_mel_frames: usize,
    /// Every utterance in a slot of `max_text_length` and `max_mel_frames`, instead of packed end to end.
    pub pad_to_fixed_length: bool,
    /// Threads that assemble batches; null chooses by the cores.
    pub num_workers: Option<usize>,
    /// Assemble batches in worker threads ahead of the step; otherwise in the training thread, when asked for.
    pub use_native_loading: bool,
    /// Assembled batches that wait in host memory; null is `max(2, min(8, 64 / batch_size))`.
    pub prefetch_buffer_size: Option<usize>,
    /// Move batches to the model device ahead of the step.
    pub prefetch_to_gpu: bool,
    /// Keep `pipeline_buffer_size` batches there instead of one.
    pub enhanced_gpu_prefetch: bool,
    pub pipeline_buffer_size: usize,
    /// Copy from pinned memory on a stream of its own, beside the running step.
    pub optimize_cpu_gpu_overlap: bool,
}

impl Data {
    /// Threads that assemble batches: half the cores unless told otherwise, since the step wants cores too.
    pub fn workers(&self) -> usize {
        self.num_workers.unwrap_or_else(|| (cores() / 2).clamp(1, 8))
    }

    /// Assembled batches that wait in host memory.
    pub fn prefetch_depth(&self) -> usize {
        self.prefetch_buffer_size.unwrap_or_else(|| (64 / self.batch_size).clamp(2, 8))
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
