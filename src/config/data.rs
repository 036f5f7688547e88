//! The `data` section: where recordings are, how they become features, and how batches are made and buffered.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CorpusFormat {
    /// Found by looking
    #[default]
    Auto,
    /// metadata.csv with `id|text` or `id|raw|normalised`, recordings in wavs/
    Ljspeech,
    /// metadata_train.csv and metadata_eval.csv
    TwoFile,
    /// `path|speaker|text` or `path|speaker|text|language`
    Piper,
    /// txt/SPEAKER/*.txt and wav48*/SPEAKER/
    Vctk,
    /// validated.tsv and clips/
    CommonVoice,
    /// JSON lines, as NeMo and Lhotse write them
    Manifest,
}

impl fmt::Display for CorpusFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Ljspeech => "LJSpeech",
            Self::TwoFile => "two-file",
            Self::Piper => "Piper",
            Self::Vctk => "VCTK",
            Self::CommonVoice => "Common Voice",
            Self::Manifest => "JSON manifest",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Corpus folder (alias `train_data`).
    pub dataset_path: Option<PathBuf>,
    /// Corpus folder for validation; without one, `val_split` of the training corpus is held out.
    pub val_data: Option<PathBuf>,
    /// How the corpus is laid out.
    pub format: CorpusFormat,
    /// Its first group, found in an utterance's id, is the speaker.
    pub speaker_pattern: Option<String>,
    pub train_split: f64,
    pub val_split: f64,
    /// Language of utterances whose metadata names none; `auto` detects it from each text.
    pub language: String,
    /// What stands for a text: its characters, or the IPA phonemes that `espeak-ng` reads from it.
    pub tokenizer: TokenizerKind,
    pub sample_rate: u32,
    pub trim_silence: bool,
    pub normalize_audio: bool,
    /// Loudness that `normalize_audio` brings every clip to, in LUFS after EBU R128.
    pub loudness_lufs: f64,
    /// Keep features on disk between runs; otherwise they live in a temporary folder of this run.
    pub enable_caching: bool,
    /// Default: `myxtts` in the user's cache directory.
    pub cache_dir: Option<PathBuf>,
    /// What the cache keeps of the sound: 16-bit samples, or mel frames in half precision.
    pub cache_content: CacheContent,
    /// Clips that may fail before the run stops: a number, or a share such as `1%`.
    pub max_failures: MaxFailures,
    /// Utterances of mean length in a batch; the frame budget is this times the mean length.
    pub batch_size: usize,
    /// Mel frames of a batch, given directly; null leaves it to `batch_size`.
    pub frame_budget: Option<usize>,
    pub max_text_length: usize,
    pub max_mel_frames: usize,
    /// What becomes of clips above these two.
    pub long_clips: LongClips,
    /// Where the frames of each token come from.
    pub durations: Durations,
    /// Every utterance in a slot of `max_text_length` and `max_mel_frames`, instead of packed end to end.
    pub pad_to_fixed_length: bool,
    /// White noise this far below each utterance, in dB, or up to 10 dB weaker; null adds none.
    pub augment_noise_snr_db: Option<f64>,
    /// Every utterance is spoken faster or slower by at most this share; 0 leaves it.
    pub augment_speed: f64,
    /// Every utterance is moved up or down by at most this much; 0 leaves it.
    pub augment_pitch_semitones: f64,
    /// Batches come in an order that depends on the seed alone; otherwise those that are ready overtake slow ones.
    pub deterministic: bool,
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

    /// The same; none where whoever asks for a batch makes it.
    pub fn loader_workers(&self) -> usize {
        if self.use_native_loading { self.workers() } else { 0 }
    }

    /// Threads that read recordings: nothing else runs then.
    pub fn reading_workers(&self) -> usize {
        self.num_workers.unwrap_or_else(cores)
    }

    /// What recordings are brought to; none leaves them as they are.
    pub fn loudness(&self) -> Option<f64> {
        self.normalize_audio.then_some(self.loudness_lufs)
    }

    /// Assembled batches that wait in host memory.
    pub fn prefetch_depth(&self) -> usize {
        self.prefetch_buffer_size.unwrap_or_else(|| (64 / self.batch_size).clamp(2, 8))
    }
}

/// That this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// Phonemes where `espeak-ng` is installed and reads every language of the corpus, else characters.
    #[default]
    Auto,
    Characters,
    Phonemes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CacheContent {
    /// Any mel geometry can be made from them, on the GPU.
    #[default]
    Pcm,
    /// For machines without a GPU: the transform is done once, and other mel settings need another cache.
    Mel,
}

/// What becomes of clips that are longer than a run allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LongClips {
    /// Left out, and counted.
    #[default]
    Refuse,
    /// The first piece of `split` alone.
    Crop,
    /// Cut at pauses, and the text between words at the same share of it.
    Split,
}

/// How a run knows which frames belong to a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durations {
    /// Found anew for every batch, by the weights as they are then
    #[default]
    Search,
    /// As `myxtts align` found them, for all clips
    Frozen,
}

/// How many clips may fail. Written as `20` or as `1%`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "serde_json::Value")]
pub enum MaxFailures {
    Clips(usize),
    Percent(f64),
}

impl MaxFailures {
    /// The number of clips, of this many.
    pub fn of(self, clips: usize) -> usize {
        match self {
            Self::Clips(number) => number,
            Self::Percent(percent) => (percent * clips as f64 / 100.0) as usize,
        }
    }
}

impl FromStr for MaxFailures {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = |digits: &str| digits.trim_end().parse().ok().filter(|share| (0.0..=100.0).contains(share));
        let taken = match text.strip_suffix('%') {
            Some(digits) => percent(digits).map(Self::Percent),
            None => text.parse().ok().map(Self::Clips),
        };
        taken.ok_or_else(|| format!("`{text}` is neither a number of clips nor a share such as 1%"))
    }
}

impl fmt::Display for MaxFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clips(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl TryFrom<serde_json::Value> for MaxFailures {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        value.as_str().map_or_else(|| value.to_string(), String::from).parse()
    }
}

impl From<MaxFailures> for serde_json::Value {
    fn from(limit: MaxFailures) -> Self {
        match limit {
            MaxFailures::Clips(number) => number.into(),
            MaxFailures::Percent(_) => limit.to_string().into(),
        }
    }
}
