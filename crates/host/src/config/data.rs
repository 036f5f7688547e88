//! The `data` section: where recordings are, how they become features, and how batches are made and buffered.

use super::accept::{Accepts, Setting, above};
use super::byte_size::ByteSize;
use super::section::{choices, section};
use super::training::{OptimizationLevel, level};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

choices! {
    /// How a corpus is laid out.
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
        /// Tar files with `key.flac` and `key.json` or `key.txt`
        Webdataset,
        /// Parquet files with a column of sound and one of texts, as Hugging Face writes them
        Parquet,
        /// cuts.*.jsonl.gz and recording.*.tar, as Lhotse writes them
        Shar,
    }
}

choices! {
    /// What stands for a text: its characters, or the IPA phonemes that `espeak-ng` reads from it.
    pub enum TokenizerKind {
        /// Phonemes where `espeak-ng` is installed, characters for languages that it cannot read
        #[default]
        Auto,
        Characters,
        Phonemes,
    }
}

choices! {
    /// What the cache keeps of the sound.
    pub enum CacheContent {
        /// 16-bit samples: any mel geometry can be made from them, on the GPU
        #[default]
        Pcm,
        /// Mel frames in half precision, for machines without a GPU: the transform is done once, and other mel settings
        /// need another cache
        Mel,
    }
}

choices! {
    /// What becomes of clips that are longer than a run allows.
    pub enum LongClips {
        /// Left out, and counted
        #[default]
        Refuse,
        /// The first piece of `split` alone
        Crop,
        /// Cut at pauses, and the text between words at the same share of it
        Split,
    }
}

choices! {
    /// How a run knows which frames belong to a token.
    pub enum Durations {
        /// Found anew for every batch, by the weights as they are then
        #[default]
        Search,
        /// As `myxtts align` found them, for all clips
        Frozen,
    }
}

section! {
    /// Where recordings are, how they become features, and how batches are made and buffered.
    pub struct Data from given {
        /// corpus: a folder, a metadata file, shards behind a URL (s3://, gs://, az://, https://) or of a pattern
        dataset_path: Option<PathBuf>, also "train_data", flag "--train-data";
        /// corpus for validation; null holds out val_split of the corpus
        val_data: Option<PathBuf>;
        /// layout of the corpus: auto, ljspeech, two-file, piper, vctk, common-voice, manifest, webdataset, parquet, shar
        format: CorpusFormat;
        /// regular expression on the id; its first group is the speaker
        speaker_pattern: Option<String>, in Accepts::Text(is_pattern, SPEAKER_PATTERN);
        /// share of the corpus that trains
        train_split: f64 = share(0.95, given.get("val_split")), in above(0.0, 1.0);
        /// share of the corpus that validates; with train_split at most 1
        val_split: f64 = share(0.05, given.get("train_split")), in 0.0..1.0;
        /// language of utterances whose metadata names none: a code such as en, or auto to detect it
        language: String = "auto".into(), in Accepts::Text(is_language_or_auto, LANGUAGE);
        /// characters, phonemes (IPA by espeak-ng), or auto: phonemes for languages that an installed espeak-ng reads
        tokenizer: TokenizerKind;
        /// sample rate in Hz; recordings are resampled to it
        sample_rate: u32 = 22_050, in 8_000..=192_000;
        /// cut silence at both ends
        trim_silence: bool = true;
        /// bring recordings to one loudness
        normalize_audio: bool = true;
        /// loudness that recordings are brought to, LUFS after EBU R128; clips that would clip stay quieter
        loudness_lufs: f64 = -20.0, in -40.0..=-5.0;
        /// keep features on disk between runs
        enable_caching: bool = true;
        /// folder of the features on disk, or a bucket such as s3://…; null is `myxtts` in the user's cache directory
        cache_dir: Option<PathBuf>;
        /// folder of this machine that features of a bucket are fetched into; null is `myxtts` in the user's cache directory
        local_cache: Option<PathBuf>;
        /// most that features of a bucket take on this machine, such as 200GB; the least recently used go
        local_cache_size: ByteSize = ByteSize(100_000_000_000);
        /// size of the shards that features are built into; of a bucket, smaller ones mix better in the same room and take more requests
        shard_size: ByteSize = ByteSize(64 << 20);
        /// of features in a bucket, shards that are shuffled together; all of them where they are no more
        shuffle_shards: usize = 32, in 1..=1_000_000;
        /// pcm: 16-bit samples; mel: frames in half precision, for machines without a GPU
        cache_content: CacheContent;
        /// unreadable clips to skip before the run stops; a number, or a share such as 1%
        max_failures: MaxFailures = MaxFailures::Clips(20);
        /// utterances of mean length in a batch
        batch_size: usize = 32, in 1..=8_192;
        /// mel frames of a batch; null is batch_size times the mean length
        frame_budget: Option<usize>, in 64..=10_000_000;
        /// longest text, in characters as the metadata have it, whatever the tokenizer makes of them
        max_text_length: usize = 400, in 1..=100_000;
        /// longest recording, in frames of hop_length samples
        max_mel_frames: usize = 800, in 16..=100_000;
        /// what becomes of longer clips: refuse, split (at pauses) or crop (the first such piece)
        long_clips: LongClips;
        /// frames of each token: search, in every step; frozen: as `myxtts align` found them
        durations: Durations;
        /// a fixed slot per utterance instead of packing end to end
        pad_to_fixed_length: bool;
        /// white noise this many dB below each utterance, or up to 10 dB weaker; null adds none
        augment_noise_snr_db: Option<f64>, in -20.0..=100.0;
        /// each utterance is spoken faster or slower by at most this share, such as 0.1
        augment_speed: f64 = 0.0, in 0.0..=0.5;
        /// moves each utterance up or down by at most this much: more speakers
        augment_pitch_semitones: f64 = 0.0, in 0.0..=12.0;
        /// share of utterances whose context the decoder hears as another microphone, a room, a telephone or noise would have it,
        /// so that a voice learns to clone from bad recordings, at some cost from good ones
        augment_context: f64 = 0.0, in 0.0..=1.0;
        /// batches in an order that depends on the seed alone; false: ready ones overtake
        deterministic: bool = level(given) != OptimizationLevel::Experimental;
        /// threads that assemble batches; null chooses by the cores
        num_workers: Option<usize>, in 1..=256;
        /// assemble batches ahead in threads
        use_native_loading: bool = true, also "use_tf_native_loading";
        /// batches waiting in host memory; null is 2 to 8 by batch_size
        prefetch_buffer_size: Option<usize>, in 1..=256;
        /// move batches to the model device ahead of the step
        prefetch_to_gpu: bool = true;
        /// keep pipeline_buffer_size batches on the model device instead of one
        enhanced_gpu_prefetch: bool = true;
        /// batches on the model device: one trains, one is in transfer, one is being prepared; as many as fit
        pipeline_buffer_size: usize = 3, in 1..=1_000_000, flag "--buffer-size";
        /// copy from pinned memory on a stream of its own
        optimize_cpu_gpu_overlap: bool = true;
    }
}

const SPEAKER_PATTERN: &str = r"a regular expression whose first group is the speaker, such as ^(p\d+)_";
const LANGUAGE: &str = "auto, or a language code such as en or pt-br";

impl Data {
    /// Threads that assemble batches: half the cores unless told otherwise, since the step wants cores too.
    pub fn workers(&self) -> usize {
        self.num_workers.unwrap_or_else(|| (crate::machine::cores() / 2).clamp(1, 8))
    }

    /// Threads that assemble batches ahead; none where whoever asks for a batch makes it.
    pub fn loader_workers(&self) -> usize {
        if self.use_native_loading { self.workers() } else { 0 }
    }

    /// Threads that read recordings: nothing else runs then.
    pub fn reading_workers(&self) -> usize {
        self.num_workers.unwrap_or_else(crate::machine::cores)
    }

    /// Loudness in LUFS that recordings are brought to; none leaves them as they are.
    pub fn loudness(&self) -> Option<f64> {
        self.normalize_audio.then_some(self.loudness_lufs)
    }

    /// What brings the speech of a voice to a wanted loudness. Where recordings were left as loud as they were, so is the voice.
    pub fn gain_to(&self, wanted: Option<f64>) -> f32 {
        let by_db = wanted.zip(self.loudness()).map_or(0.0, |(wanted, trained)| wanted - trained);
        10f64.powf(by_db / 20.0) as f32
    }

    /// Assembled batches that wait in host memory.
    pub fn prefetch_depth(&self) -> usize {
        self.prefetch_buffer_size.unwrap_or_else(|| (64 / self.batch_size).clamp(2, 8))
    }

    /// Every `augment_…` key without effect.
    pub(super) fn without_augmentation(&mut self) {
        self.augment_noise_snr_db = None;
        (self.augment_speed, self.augment_pitch_semitones, self.augment_context) = (0.0, 0.0, 0.0);
    }
}

/// A split makes room when only the other one is given, rounded so that `1 - 0.9` prints as `0.1`.
fn share(usual: f64, other: Option<f64>) -> f64 {
    let rest = other.map_or(1.0, |other| ((1.0 - other) * 1e9).round() / 1e9);
    usual.min(rest)
}

/// `en`, `pt-br`, `zh-hant-tw`.
pub(crate) fn is_language(text: &str) -> bool {
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let part_fits = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    (2..=3).contains(&first.len()) && first.bytes().all(|b| b.is_ascii_lowercase()) && parts.all(part_fits)
}

fn is_language_or_auto(text: &str) -> bool {
    text == "auto" || is_language(text)
}

/// A regular expression with a group.
fn is_pattern(text: &str) -> bool {
    regex::Regex::new(text).is_ok_and(|pattern| pattern.captures_len() > 1)
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
            Self::Webdataset => "WebDataset",
            Self::Parquet => "Parquet",
            Self::Shar => "Lhotse shar",
        })
    }
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

impl Setting for MaxFailures {
    fn accepts() -> Accepts {
        Accepts::Any("a whole number, or a share such as 1%")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_their_codes() {
        assert!(is_language("en") && is_language("pt-br") && is_language("zh-Hant-TW"));
        assert!(!is_language("") && !is_language("english") && !is_language("EN") && !is_language("en-"));
    }

    #[test]
    fn a_speaker_pattern_has_a_group() {
        assert!(is_pattern(r"^(p\d+)_") && is_pattern("(?i)^(?<speaker>[^_]+)_"));
        assert!(!is_pattern("p\\d+") && !is_pattern("(") && !is_pattern("(?:a)") && !is_pattern(""));
    }
}
