//! The `training` section: optimisation, devices, and what is written when.

use super::accept::{Accepts, Setting, above};
use super::layer::Layer;
use super::memory_cap::MemoryCap;
use super::section::{choices, section};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

choices! {
    /// How the learning rate goes on after the warm-up.
    pub enum Schedule {
        #[default]
        Cosine,
        Noam,
        Constant,
    }
}

choices! {
    /// Presets of `mixed_precision`, `enable_xla` and `deterministic`: what trades exactness for speed.
    pub enum OptimizationLevel {
        /// f32, every kernel launched by itself: for debugging
        Basic,
        /// Half-width activations, and the step captured as one CUDA graph
        #[default]
        Enhanced,
        /// As enhanced, and batches that are ready overtake those that are not
        Experimental,
    }
}

choices! {
    /// The number format of half-width activations.
    pub enum Precision {
        /// bf16 where the GPU has it, else f16
        #[default]
        Auto,
        Bf16,
        /// With a scale on the loss, so that small gradients do not vanish
        F16,
    }
}

choices! {
    /// Where batches are prepared when no GPUs are named.
    pub enum DataDevice {
        /// Where the model is
        #[default]
        Auto,
        Cpu,
    }
}

choices! {
    /// What adds up the gradients of several ranks.
    pub enum Collectives {
        /// NCCL where every rank has a GPU of its own, else Gloo
        #[default]
        Auto,
        Nccl,
        Gloo,
    }
}

choices! {
    /// The number format in which gradients cross between ranks.
    pub enum AllReducePrecision {
        #[default]
        F32,
        Bf16,
    }
}

/// GPUs by number, at least one, in the order of their ranks. `2`, `[0, 1]` or `0,1`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "GpuListForm", into = "GpuListForm")]
pub struct GpuList(Vec<usize>);

#[derive(serde::Deserialize, serde::Serialize)]
#[serde(untagged)]
enum GpuListForm {
    One(usize),
    List(Vec<usize>),
    Text(String),
}

impl GpuList {
    pub const ACCEPTED: &str = "a GPU from 0 to 63, or several: 0,1,2";
    const LAST: usize = 63;

    /// The GPU of a rank on this machine, if there is one for it.
    pub fn of_rank(&self, local_rank: usize) -> Option<usize> {
        self.0.get(local_rank).copied()
    }

    pub fn first(&self) -> usize {
        self.0[0]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.0.iter().copied()
    }
}

impl TryFrom<Vec<usize>> for GpuList {
    type Error = &'static str;

    fn try_from(gpus: Vec<usize>) -> Result<Self, Self::Error> {
        let fits = !gpus.is_empty() && gpus.iter().all(|gpu| *gpu <= Self::LAST);
        if fits { Ok(GpuList(gpus)) } else { Err(Self::ACCEPTED) }
    }
}

impl From<usize> for GpuList {
    fn from(gpu: usize) -> Self {
        GpuList(vec![gpu])
    }
}

impl std::str::FromStr for GpuList {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let gpus: Result<Vec<usize>, _> = text.split(',').map(|gpu| gpu.trim().parse()).collect();
        gpus.map_err(|_| Self::ACCEPTED)?.try_into()
    }
}

impl TryFrom<GpuListForm> for GpuList {
    type Error = &'static str;

    fn try_from(form: GpuListForm) -> Result<Self, Self::Error> {
        match form {
            GpuListForm::One(gpu) => vec![gpu].try_into(),
            GpuListForm::List(gpus) => gpus.try_into(),
            GpuListForm::Text(text) => text.parse(),
        }
    }
}

impl From<GpuList> for GpuListForm {
    fn from(GpuList(gpus): GpuList) -> Self {
        match *gpus {
            [gpu] => GpuListForm::One(gpu),
            _ => GpuListForm::List(gpus),
        }
    }
}

impl super::accept::Setting for GpuList {
    fn accepts() -> Accepts {
        Accepts::Any(GpuList::ACCEPTED)
    }
}

impl Training {
    /// Highest learning rate; a usual one where no run was planned.
    pub fn peak_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(5e-4)
    }

    /// Steps over which the learning rate rises; the usual number where no run was planned.
    pub fn warmup(&self) -> u64 {
        self.warmup_steps.unwrap_or(500)
    }

    /// Steps between validations; the usual number where no run was planned.
    pub fn validation_interval(&self) -> u64 {
        self.val_step.unwrap_or(500)
    }

    /// Processes that this machine is to run side by side.
    pub fn local_ranks(&self) -> usize {
        self.ranks.unwrap_or_else(|| self.model_gpu.as_ref().map_or(1, |gpus| gpus.iter().len()))
    }
}

pub(super) fn level(given: &Layer) -> OptimizationLevel {
    given.get("optimization_level").unwrap_or_default()
}

section! {
    /// Optimisation, devices, and what is written when.
    pub struct Training from given {
        /// device that trains: auto, cpu, cuda or cuda:N
        device: String = "auto".into(), in Accepts::Text(is_device, "auto, cpu, cuda or cuda:N");
        /// basic, enhanced or experimental: sets mixed_precision, enable_xla and deterministic
        optimization_level: OptimizationLevel;
        /// half-width activations on a GPU; weights stay f32
        mixed_precision: bool = level(given) != OptimizationLevel::Basic;
        /// format of half-width activations: bf16, f16 (with a scaled loss), or auto: bf16 where the GPU has it
        precision: Precision;
        /// the same bits in every run on a GPU; slower
        deterministic_kernels: bool;
        /// capture the step as one CUDA graph
        enable_xla: bool = level(given) != OptimizationLevel::Basic, also "enable_graphs";
        /// seed of weights, order and noise
        // LibTorch takes seeds as signed 64-bit numbers.
        seed: u64 = 1234, in 0..=i64::MAX as u64;
        /// passes over the corpus; null: as steps says
        epochs: Option<u64>, in 1..=1_000_000_000;
        /// stop after this many steps, whatever the epochs say; null without epochs: by hours of speech, speakers and start
        steps: Option<u64>, in 1..=1_000_000_000_000;
        /// at the end of the warm-up; null: by size, hours of speech and start
        learning_rate: Option<f64>, in above(0.0, 1.0), also "lr", flag "--lr";
        /// cosine, noam or constant after the warm-up
        schedule: Schedule, also "scheduler";
        /// steps over which the learning rate rises; null: 500, or 100 from weights, at most half of the run
        warmup_steps: Option<u64>, in 0..=10_000_000;
        /// weight decay of AdamW
        weight_decay: f64 = 0.01, in 0.0..=1.0;
        /// decay of AdamW's mean gradient; a vocoder has vocoder_beta1
        beta1: f64 = 0.9, in 0.0..1.0;
        /// decay of AdamW's mean squared gradient; a vocoder has vocoder_beta2
        beta2: f64 = 0.98, in 0.0..1.0;
        /// gradients longer than this are shortened to it
        gradient_clip_norm: f64 = 1.0, in above(0.0, 1_000_000.0);
        /// decay of the averaged weights, which validation and synthesis use (less in short runs); 0 keeps none
        ema_decay: f64 = 0.999, in 0.0..1.0;
        /// batches per optimizer step
        gradient_accumulation_steps: u64 = 1, in 1..=1_024, also "gradient_accumulation", flag "--grad-accum";
        /// steps between figures; a reading is copied in passing, no step waits for it
        log_step: u64 = 10, in 1..=1_000_000_000;
        /// steps (100) or time (30s, 5m, 1h) between lines about the run; null is 30s where no terminal shows a bar
        log_every: Option<LogEvery>;
        /// file that gets everything a run says, at its end; null is none
        log_file: Option<PathBuf>;
        /// steps between validations; null: a twelfth of the run, 50 to 1000
        val_step: Option<u64>, in 1..=1_000_000_000;
        /// held-out clips that are spoken at every validation, for the live view and TensorBoard; 0: nothing is spoken
        sample_clips: usize = 2, in 0..=16;
        /// sentence that is spoken too; null: one in the language of the voice, where the program knows one
        sample_text: Option<String>, in Accepts::Text(is_sentence, "a sentence of at most 300 characters");
        /// steps between checkpoints
        save_step: u64 = 1000, in 1..=1_000_000_000;
        /// stop after this many validations in a row without better held-out speech; 0 never; null: as many as make a third
        /// of the run, and never where steps or epochs are given
        patience: Option<u64>, in 0..=1_000_000;
        /// checkpoints that stay besides the best
        keep_checkpoints: usize = 3, in 1..=1_000_000;
        /// folder that checkpoints are written to
        checkpoint_dir: PathBuf = "./checkpoints".into();
        /// folder of TensorBoard files; null is `logs` in checkpoint_dir
        tensorboard_log_dir: Option<PathBuf>;
        /// GPU that prepares batches, by PCI order; given together with model_gpu
        data_gpu: Option<usize>, in 0..=63;
        /// GPU that trains; may be that of data_gpu. Several (`0,1,2`): one process each, side by side
        model_gpu: Option<GpuList>;
        /// processes of this machine that train side by side; null: one for each GPU of model_gpu
        ranks: Option<usize>, in 1..=1_024;
        /// seconds until a rank that does not answer ends the run
        rank_timeout: f64 = 30.0, in 1.0..=86_400.0;
        /// what adds up gradients: nccl (a GPU for each rank), gloo (over host memory), or auto: nccl where it can
        collectives: Collectives;
        /// format in which gradients cross between ranks: f32, or bf16: half the bytes, rounded
        all_reduce_precision: AllReducePrecision;
        /// where batches are prepared when no GPUs are named: auto (beside the model) or cpu
        data_device: DataDevice;
        /// hard memory caps per role
        enable_memory_isolation: bool;
        /// cap of the data role: MiB, or a share of the card such as 0.3; null: a third of what is free
        data_gpu_memory: Option<MemoryCap>;
        /// cap of the model role: MiB, or a share of the card such as 0.7; null: two thirds of what is free
        model_gpu_memory: Option<MemoryCap>;
        /// seconds to wait at most for a full batch ring before the first step
        model_start_delay: f64 = 2.0, in 0.0..=3_600.0;
        /// learning rate of the vocoder and of its discriminators
        vocoder_learning_rate: f64 = 5e-4, in above(0.0, 1.0);
        /// decay of the mean gradient of the vocoder and of its discriminators
        // Those of the program of Vocos.
        vocoder_beta1: f64 = 0.8, in 0.0..1.0;
        /// decay of the mean squared gradient of the vocoder and of its discriminators
        vocoder_beta2: f64 = 0.9, in 0.0..1.0;
        /// frames of each stretch of speech that the vocoder trains on
        vocoder_segment_frames: i64 = 64, in 16..=8_192;
        /// weight of the distance of mel frames, against the losses by discriminators
        vocoder_mel_weight: f64 = 45.0, in above(0.0, 1_000_000.0);
    }
}

/// How often a run says how it goes. Written as `100`, in steps, or as `30s`, `5m` or `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "serde_json::Value")]
pub enum LogEvery {
    Steps(u64),
    Seconds(u64),
}

impl LogEvery {
    /// What a run does that was not told.
    pub const USUAL: LogEvery = LogEvery::Seconds(30);
}

impl Setting for LogEvery {
    fn accepts() -> Accepts {
        Accepts::Any("a number of steps, or a time such as 30s, 5m or 1h")
    }
}

impl FromStr for LogEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |digits: &str| digits.trim_end().parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
        let seconds = |unit: char, each: u64| Some(Self::Seconds(number(text.strip_suffix(unit)?)? * each));
        let steps = || number(text).map(Self::Steps);
        let taken = steps().or_else(|| seconds('s', 1)).or_else(|| seconds('m', 60)).or_else(|| seconds('h', 3600));
        taken.ok_or_else(|| format!("`{text}` is neither a number of steps nor a time such as 30s, 5m or 1h"))
    }
}

impl TryFrom<serde_json::Value> for LogEvery {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        value.as_str().map_or_else(|| value.to_string(), String::from).parse()
    }
}

impl From<LogEvery> for serde_json::Value {
    fn from(every: LogEvery) -> Self {
        match every {
            LogEvery::Steps(steps) => steps.into(),
            LogEvery::Seconds(seconds) => format!("{seconds}s").into(),
        }
    }
}

fn is_sentence(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= 300
}

fn is_device(text: &str) -> bool {
    matches!(text, "auto" | "cpu" | "cuda") || device_index(text).is_some()
}

/// The `N` of `cuda:N`.
pub(super) fn device_index(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("cuda:")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_one_or_a_list() {
        for (text, gpus) in [("3", vec![3]), ("0,1", vec![0, 1]), (" 2, 0 ", vec![2, 0])] {
            assert_eq!(text.parse::<GpuList>().unwrap().0, gpus);
        }
        for bad in ["", ",", "a", "-1", "64", "0,,1"] {
            assert!(bad.parse::<GpuList>().is_err(), "{bad}");
        }
        let read = |json: &str| serde_json::from_str::<GpuList>(json);
        assert_eq!(read("[0, 5]").unwrap().0, [0, 5]);
        assert_eq!(read("\"0,5\"").unwrap().0, [0, 5]);
        assert_eq!(serde_json::to_string(&read("[7]").unwrap()).unwrap(), "7");
        assert!(read("[]").is_err() && read("64").is_err());
    }

    #[test]
    fn lines_come_by_steps_or_by_time() {
        let read = |text: &str| text.parse::<LogEvery>().ok();
        assert_eq!(read("100"), Some(LogEvery::Steps(100)));
        assert_eq!([read("30s"), read("5m"), read("1h")], [30, 300, 3600].map(|s| Some(LogEvery::Seconds(s))));
        assert_eq!(["0", "", "s", "0s", "-1", "1.5m", "5 days"].map(read), [None; 7]);
    }

    #[test]
    fn devices_are_known_by_their_names() {
        for good in ["auto", "cpu", "cuda", "cuda:0", "cuda:12"] {
            assert!(is_device(good), "{good}");
        }
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "CPU", "cuda:99999999999999999999"] {
            assert!(!is_device(bad), "{bad}");
        }
    }
}
