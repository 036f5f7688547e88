//! Checkpoints: folders that hold everything a run needs to go on, and a voice to speak. Written beside their place,
//! synced, and renamed into it, so that a checkpoint is either whole or not there.

mod import;
pub mod voice;
mod writer;

pub use import::{BundledStart, WeightSource, bundled_start, load_matching_weights};
pub use writer::{CheckpointParts, CheckpointWriter, Saved, archive_earlier_run};

use crate::feed::MelStats;
use crate::model::Voice;
use crate::optimizer::{LossScale, ParameterGroup};
use anyhow::{Context, Result, ensure};
use host::config::{Config, Model, Start};
use host::error::{WithHint, hinted};
use host::loader::Position;
use host::text::Tokenizer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchx::adamw::Moments;
use torchx::named_parameters;

/// Files of each group of parameters, behind its name.
const WEIGHTS: &str = "safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// The moving average as it is kept: a sum that `WEIGHT_SUM` divides.
const AVERAGE: &str = "ema.safetensors";
const WEIGHT_SUM: &str = "weight_sum";
pub const STATE: &str = "state.json";
const CONFIG: &str = "config.yaml";
pub const TOKENIZER: &str = "tokenizer.json";
/// What to do about a checkpoint that cannot be read.
const USE_ANOTHER: &str = "move this checkpoint away, and the one before it is used";
pub use host::run_log::{BEST, LOGS};

/// State of a run besides weights and moments. Random draws depend on seed and step alone, so the step is all the
/// generator state there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    pub format: u32,
    pub step: u64,
    pub position: Position,
    /// Lowest loss of held-out speech so far, of the part that validation compares.
    pub best_loss: Option<f64>,
    /// The step that had it.
    #[serde(default)]
    pub best_step: Option<u64>,
    /// Validations in a row that did not lower it.
    #[serde(default)]
    pub stale_validations: u64,
    pub mel_stats: MelStats,
    /// Fingerprint of the durations that the run trains with; absent where it searches for them.
    #[serde(default)]
    pub durations: Option<String>,
    #[serde(default)]
    pub kind: RunKind,
    /// What the run started from: its length follows from it, however often it is resumed.
    #[serde(default)]
    pub start: Start,
}

/// Kind of network that a run trains and its checkpoints hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    #[default]
    Voice,
    Vocoder,
}

impl RunKind {
    /// Raised when one program could not speak with what the other wrote.
    fn format(self) -> u32 {
        match self {
            Self::Voice => 4,
            Self::Vocoder => 5,
        }
    }
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Voice => "voice",
            Self::Vocoder => "vocoder",
        })
    }
}

impl RunState {
    /// Takes other durations than so far: whether there was anything to change. Losses under the old ones, which a
    /// search has made as low as they get, say nothing about those to come.
    pub fn change_durations(&mut self, durations: Option<&str>) -> bool {
        let changed = self.durations.as_deref() != durations;
        if changed {
            self.durations = durations.map(str::to_owned);
            (self.best_loss, self.best_step, self.stale_validations) = (None, None, 0);
        }
        changed
    }

    pub fn new(mel_stats: MelStats) -> Self {
        RunState {
            format: RunKind::Voice.format(),
            step: 0,
            position: Position::default(),
            best_loss: None,
            best_step: None,
            stale_validations: 0,
            mel_stats,
            durations: None,
            kind: RunKind::Voice,
            start: Start::Nothing,
        }
    }

    pub fn vocoder(mel_stats: MelStats) -> Self {
        RunState { kind: RunKind::Vocoder, format: RunKind::Vocoder.format(), ..RunState::new(mel_stats) }
    }
}

/// A checkpoint on disk, its small parts read.
pub struct Checkpoint {
    folder: PathBuf,
    pub config: Config,
    pub tokenizer: Tokenizer,
    pub state: RunState,
}

impl Checkpoint {
    /// `path` is a checkpoint, or a folder of checkpoints: then its newest one. Not that with the lowest held-out loss, for
    /// wherever both were listened to, the last was the better voice (docs/results.md).
    pub fn open(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(hinted(format!("{}: no such folder", path.display()), "`myxtts train` writes checkpoints"));
        }
        if path.join(STATE).exists() {
            return Self::read(path.to_path_buf());
        }
        if let Some(newest) = Self::newest(path)? {
            return Ok(newest);
        }
        if path.join(BEST).join(STATE).exists() {
            return Self::read(path.join(BEST));
        }
        let fact = format!("{}: not a checkpoint, and no checkpoints in it", path.display());
        Err(hinted(fact, "`myxtts train` writes them"))
    }

    /// The newest checkpoint in a run's folder.
    pub fn newest(folder: &Path) -> Result<Option<Self>> {
        steps_in(folder)?.pop().map(|(_, path)| Self::read(path)).transpose()
    }

    fn read(folder: PathBuf) -> Result<Self> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).hint(USE_ANOTHER).with_context(|| damaged(&path))
        };
        let state: RunState = parse(&text(STATE)?, &folder.join(STATE))?;
        if state.format != state.kind.format() {
            let (path, found, kind, read) = (folder.display(), state.format, state.kind, state.kind.format());
            let fact = format!("{path}: checkpoint format {found}, and this program reads format {read} of a {kind}");
            return Err(hinted(fact, "use the program that wrote it"));
        }
        Ok(Checkpoint {
            config: Config::load_resolved(&folder.join(CONFIG))
                .hint(USE_ANOTHER)
                .context("no settings to go on with")?,
            tokenizer: parse(&text(TOKENIZER)?, &folder.join(TOKENIZER))?,
            state,
            folder,
        })
    }

    /// This checkpoint, or an error where it holds another kind of network.
    pub fn of_kind(self, kind: RunKind) -> Result<Self> {
        let (found, folder) = (self.state.kind, self.folder.display());
        ensure!(found == kind, "{folder}: holds a {found}, and a {kind} is needed");
        Ok(self)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fills `store` with the averaged weights, or with those as trained where no average was kept.
    pub fn load_weights(&self, group: &str, store: &VarStore) -> Result<()> {
        let path = weights_file(&self.folder, group);
        let mut read = read_weights(&path)?;
        named_parameters(store).iter().try_for_each(|(name, tensor)| put(&mut read, name, tensor, &path))
    }

    /// The voice in this checkpoint, and the store that holds its weights.
    pub fn voice(&self, device: Device, kind: Kind) -> Result<(VarStore, Voice)> {
        let (store, tokenizer) = (VarStore::new(device), &self.tokenizer);
        let (vocabulary, languages) = (tokenizer.vocab_size(), tokenizer.languages().len());
        let voice = Voice::new(&store.root(), &self.config.model, vocabulary, languages, kind)?;
        self.load_weights("model", &store)?;
        Ok((store, voice))
    }

    /// Path of the settings that it was trained with.
    pub fn config_file(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// Restores weights, moments, averages and loss scale, so that a run goes on as if it had not stopped.
    pub fn restore(&self, groups: &mut [ParameterGroup], scale: &mut LossScale) -> Result<()> {
        for group in groups.iter_mut() {
            self.restore_group(group)?;
        }
        let path = self.file(groups[0].name, OPTIMIZER);
        scale.load(&read_tensors(&path)?);
        Ok(())
    }

    fn restore_group(&self, group: &mut ParameterGroup) -> Result<()> {
        let path = self.file(group.name, WEIGHTS);
        let mut read = read_tensors(&path)?;
        for (name, tensor) in named_parameters(&group.store) {
            put(&mut read, &name, &tensor, &path)?;
        }
        let path = self.file(group.name, OPTIMIZER);
        let mut read = read_tensors(&path)?;
        let mut moments = Vec::new();
        for (name, _) in named_parameters(&group.store) {
            let exp_avg = take(&mut read, &format!("{name}.exp_avg"), &path)?;
            moments.push(Moments { exp_avg, exp_avg_sq: take(&mut read, &format!("{name}.exp_avg_sq"), &path)? });
        }
        group.optimizer.load_state(take(&mut read, "steps", &path)?.double_value(&[]), &moments)?;
        let path = self.file(group.name, AVERAGE);
        if group.averages().is_empty() {
            return Ok(());
        }
        let mut read = read_tensors(&path)?;
        group.averages().iter().try_for_each(|(name, sum)| put(&mut read, name, sum, &path))
    }

    fn file(&self, group: &str, what: &str) -> PathBuf {
        group_file(&self.folder, group, what)
    }
}

/// The weights file of a group: the averaged weights where an average was kept.
pub fn weights_file(checkpoint: &Path, group: &str) -> PathBuf {
    let average = group_file(checkpoint, group, AVERAGE);
    if average.exists() { average } else { group_file(checkpoint, group, WEIGHTS) }
}

/// One of a group's files.
fn group_file(checkpoint: &Path, group: &str, what: &str) -> PathBuf {
    checkpoint.join(format!("{group}.{what}"))
}

/// Weights in a file by name; sums of an average are divided.
fn read_weights(path: &Path) -> Result<Tensors> {
    let mut read = read_tensors(path)?;
    let Some(sum) = read.remove(WEIGHT_SUM) else { return Ok(read) };
    let share = sum.double_value(&[]);
    Ok(read.into_iter().map(|(name, tensor)| (name, tensor / share)).collect())
}

/// Copies a saved tensor into place.
fn put(read: &mut Tensors, name: &str, tensor: &Tensor, path: &Path) -> Result<()> {
    let saved = take(read, name, path)?;
    ensure!(saved.size() == tensor.size(), "{}: `{name}` has another shape than this network", path.display());
    tch::no_grad(|| tensor.shallow_clone().copy_(&saved));
    Ok(())
}

type Tensors = HashMap<String, Tensor>;

/// All tensors of a file, none of which may hold a value that is not finite.
fn read_tensors(path: &Path) -> Result<Tensors> {
    fs::metadata(path).hint(USE_ANOTHER).with_context(|| damaged(path))?;
    let read = Tensor::read_safetensors(path).map_err(|_| hinted(damaged(path), USE_ANOTHER))?;
    for (name, tensor) in &read {
        if tensor.isfinite().all().int64_value(&[]) != 1 {
            let fact = format!("{}: `{name}` holds values that are not finite", path.display());
            return Err(hinted(fact, USE_ANOTHER));
        }
    }
    Ok(read.into_iter().collect())
}

fn take(tensors: &mut Tensors, name: &str, path: &Path) -> Result<Tensor> {
    tensors.remove(name).ok_or_else(|| hinted(format!("{}: no `{name}` in it", path.display()), USE_ANOTHER))
}

fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    serde_json::from_str(text).hint(USE_ANOTHER).with_context(|| damaged(path))
}

fn damaged(path: &Path) -> String {
    format!("{}: missing, damaged or cut off", path.display())
}

/// Checkpoints in a folder by step, oldest first.
fn steps_in(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    if !folder.exists() {
        return Ok(found);
    }
    let entries = fs::read_dir(folder).with_context(|| format!("{}: cannot be read", folder.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if let Some(step) = name.to_str().and_then(step_of) {
            found.push((step, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok()
}

/// Checks that a run which goes on is the run that was: same network, same features.
pub fn require_same_network(config: &Config, checkpoint: &Checkpoint) -> Result<()> {
    let was = &checkpoint.config;
    let model = Model { dropout: config.model.dropout.or(was.model.dropout), ..config.model.clone() };
    if model == was.model && config.data.sample_rate == was.data.sample_rate {
        return Ok(());
    }
    let fact = format!("{}: trained with other model settings than this run's", checkpoint.folder.display());
    Err(hinted(fact, format!("compare `myxtts config` with {}", checkpoint.config_file().display())))
}
