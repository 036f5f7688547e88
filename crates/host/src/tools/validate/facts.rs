//! What checks are made against: the machine, the disk, the corpus. Gathered once; tests make their own.

use crate::cache::{self, FeatureSettings};
use crate::config::Config;
use crate::config::devices::{self, Gpus};
use crate::corpus::{self, UtteranceRef, Utterances};
use crate::dataset::{self, KnownTokenizer};
use crate::error::{Explained, hinted};
use crate::loader::{COPIES_IN_FLIGHT, Counts, LimitUse};
use crate::recording;
use crate::simulate::Hook;
use crate::tools::devices::{CudaGpu, DriverGpus, LinkPath, other_order, survey};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Recordings that are decoded to guess the length of all: their mean is then known to some percent.
const SAMPLED: usize = 24;

pub struct Facts {
    pub cores: usize,
    /// The devices of both roles, or why they cannot be had.
    pub placement: Result<Placement, Explained>,
    pub room: Room,
    /// The corpus, or why it cannot be read.
    pub speech: Result<Speech, Explained>,
}

/// Devices of the two roles; `None` is the CPU.
pub struct Placement {
    pub data: Option<CudaGpu>,
    pub model: Option<CudaGpu>,
    /// GPUs that a run on this machine could use; 0 where it asks for none.
    pub gpus: usize,
    /// Path between the two, where they differ and the driver tells.
    pub link: Option<LinkPath>,
    /// `CUDA_DEVICE_ORDER`, where it numbers GPUs otherwise than the driver: the devices here may then be others.
    pub other_order: Option<String>,
}

/// Where features go.
pub struct Room {
    pub dir: PathBuf,
    /// Why nothing can be written there, if so.
    pub writable: Result<(), String>,
    pub free_bytes: Option<u64>,
}

pub struct Speech {
    pub clips: usize,
    pub speakers: usize,
    /// Rows of the metadata that cannot be used.
    pub left_out: usize,
    /// Recordings that were decoded for an estimate; 0 where the cache knows.
    pub sampled: usize,
    /// Seconds of speech in the whole corpus, and in the part that trains.
    pub seconds: f64,
    pub train_seconds: f64,
    /// Bytes that its features take.
    pub bytes: u64,
    /// Batches, known where the cache is complete.
    pub planned: Option<Planned>,
    /// What the limits on sound and text do: to the clips that train where the cache is complete; else to the sound of
    /// the recordings that were decoded, and to all texts.
    pub limits: [LimitUse; 2],
}

/// The batches of the first epoch.
pub struct Planned {
    pub batches: usize,
    pub frames: usize,
    pub padding_share: f64,
    pub host_bytes: u64,
}

impl Facts {
    pub fn gather(config: &Config) -> Facts {
        Facts {
            cores: crate::machine::cores(),
            placement: placement(config).map_err(|error| Explained::of(error.as_ref())),
            room: room(&cache::folder_of(&config.data)),
            speech: speech(config).map_err(|error| Explained::of(error.as_ref())),
        }
    }

    pub fn speech(&self) -> Option<&Speech> {
        self.speech.as_ref().ok()
    }

    /// The GPU of the model, where there is one.
    pub fn model_gpu(&self) -> Option<&CudaGpu> {
        self.placement.as_ref().ok()?.model.as_ref()
    }

    pub fn data_gpu(&self) -> Option<&CudaGpu> {
        self.placement.as_ref().ok()?.data.as_ref()
    }
}

/// By the driver alone: LibTorch would take a third of a second to load, and room on the GPUs.
fn placement(config: &Config) -> Result<Placement> {
    let gpus = DriverGpus::default();
    let roles = devices::choose_all(&config.training, &gpus)?[0]; // the first of the ranks stands for all
    let (data, model) = (roles.data.and_then(|gpu| gpus.get(gpu)), roles.model.and_then(|gpu| gpus.get(gpu)));
    let pair = data.zip(model).filter(|(data, model)| data.index != model.index);
    let link = pair.and_then(|(data, model)| Some(survey().link(data.driver_index?, model.driver_index?)?.path));
    let count = if data.or(model).is_some() { gpus.count()? } else { 0 };
    Ok(Placement { data: data.cloned(), model: model.cloned(), gpus: count, link, other_order: other_order() })
}

/// The folder need not exist yet: what counts is where it would be made.
fn room(dir: &Path) -> Room {
    let there = dir.ancestors().find(|folder| folder.exists() && !folder.as_os_str().is_empty());
    let there = there.unwrap_or(Path::new("."));
    let probe = there.join(format!(".myxtts-{}", std::process::id()));
    let writable = fs::write(&probe, []).map_err(|error| format!("{}: {error}", there.display()));
    let _ = fs::remove_file(probe);
    Room { dir: dir.to_owned(), writable, free_bytes: crate::machine::free_bytes(there).ok() }
}

fn speech(config: &Config) -> Result<Speech> {
    let data = &config.data;
    let ways = "set `dataset_path`, or give --train-data; `myxtts sample-corpus DIR` makes one to try";
    let path = data.dataset_path.as_deref().ok_or_else(|| hinted("no corpus is named", ways))?;
    let corpus = corpus::read(path, &corpus::ReadOptions::of(data)?)?;
    let (tokenizer, _) = cache::tokenizer(&corpus.utterances, config)?;
    let (clips, speakers, left_out) = (corpus.utterances.len(), corpus.speakers(), corpus.problems.len());
    if let Some(report) = cache::find(&corpus.utterances, &tokenizer, config) {
        let (planned, train_seconds, limits) = planned(config)?;
        let (seconds, bytes, planned) = (report.seconds, report.bytes, Some(planned));
        return Ok(Speech { clips, speakers, left_out, sampled: 0, seconds, train_seconds, bytes, planned, limits });
    }
    let heard = some_seconds(&corpus.utterances)?;
    let (sampled, mean) = (heard.len(), heard.iter().sum::<f64>() / heard.len() as f64);
    let seconds = mean * clips as f64;
    let characters = || corpus.utterances.iter().map(|u| u.text.chars().count());
    let letters = characters().sum::<usize>();
    let frames_per_second = f64::from(data.sample_rate) / config.model.hop_length as f64;
    let frames: Counts = heard.iter().map(|seconds| (seconds * frames_per_second) as usize + 1).collect();
    Ok(Speech {
        clips,
        speakers,
        left_out,
        sampled,
        seconds,
        train_seconds: seconds * data.train_split,
        bytes: sound_bytes(config, seconds) + (letters * size_of::<i32>()) as u64,
        planned: None,
        limits: [
            LimitUse::of("max_mel_frames", data.max_mel_frames, &frames),
            LimitUse::of("max_text_length", data.max_text_length, &characters().collect()),
        ],
    })
}

/// 16-bit samples, or bands in half precision at every hop.
fn sound_bytes(config: &Config, seconds: f64) -> u64 {
    let settings = FeatureSettings::new(config);
    let values = seconds * f64::from(settings.rate_hz);
    let values = settings.mel.map_or(values, |mel| values / mel.hop_samples as f64 * mel.n_mels as f64);
    (values * 2.0) as u64
}

/// Seconds of some recordings that lie evenly in the corpus: at least one.
fn some_seconds(utterances: &Utterances) -> Result<Vec<f64>> {
    let every = utterances.len().div_ceil(SAMPLED).max(1);
    let seconds = |utterance: UtteranceRef| {
        let wave = recording::decode(&utterance.audio).ok()?;
        Some(wave.samples.len() as f64 / f64::from(wave.rate_hz))
    };
    let heard: Vec<f64> = utterances.iter().step_by(every).filter_map(seconds).collect();
    if heard.is_empty() {
        let none = "none of the recordings that were tried can be read";
        return Err(hinted(none, "`myxtts check` lists every one"));
    }
    Ok(heard)
}

/// The batches of the first epoch, the seconds that train, and what the limits do. The cache is complete: this opens it and no more.
fn planned(config: &Config) -> Result<(Planned, f64, [LimitUse; 2])> {
    let data = dataset::prepare(config, KnownTokenizer::Nothing, &|_| (), &AtomicBool::new(false), &Hook::NONE)?;
    let batches = data.train.batches(&data.budget, config.training.seed);
    let speech: usize = data.train.lengths().iter().map(|length| length.frames).sum();
    let blocks = (config.data.loader_workers() + config.data.prefetch_depth() + COPIES_IN_FLIGHT).max(1);
    let planned = Planned {
        batches,
        frames: data.budget.frames,
        padding_share: 1.0 - speech as f64 / (batches * data.budget.frames) as f64,
        host_bytes: (data.train.layout(&data.budget).bytes * blocks) as u64,
    };
    Ok((planned, data.train.seconds(config.data.sample_rate), data.fit.limits()))
}
