//! Checkpoints: folders that hold everything a run needs to go on, and a voice to speak. Written beside their place,
//! synced, and renamed into it, so that a checkpoint is either whole or not there.

use super::group::Group;
use super::named_parameters;
use super::step::{Learner, Step};
use crate::config::Config;
use crate::feed::MelStats;
use crate::loader::Position;
use crate::model::Voice;
use crate::text::Tokenizer;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchx::adamw::Moments;

/// Raised when older programs could not read what newer ones write.
const FORMAT: u32 = 4;
/// Files of each group of parameters, behind its name.
const WEIGHTS: &str = "safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// The moving average as it is kept: a sum that `WEIGHT_SUM` divides.
const AVERAGE: &str = "ema.safetensors";
const WEIGHT_SUM: &str = "weight_sum";
const STATE: &str = "state.json";
const CONFIG: &str = "config.yaml";
const TOKENIZER: &str = "tokenizer.json";
const BEST: &str = "best";
const LOCK: &str = ".lock";

/// What changes from step to step besides weights and moments. Random draws depend on seed and step alone, so the step
/// is all the generator state there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub format: u32,
    pub step: u64,
    pub position: Position,
    /// Lowest validation loss so far.
    pub best_loss: Option<f64>,
    /// Validations in a row that did not lower it.
    #[serde(default)]
    pub stale_validations: u64,
    pub mel_stats: MelStats,
    /// Fingerprint of the durations it trains with; absent where it searches.
    #[serde(default)]
    pub durations: Option<String>,
    #[serde(default)]
    pub kind: RunKind,
}

/// What a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    #[default]
    Voice,
    Vocoder,
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Voice => "voice",
            Self::Vocoder => "vocoder",
        })
    }
}

impl State {
    /// Takes other durations than so far: whether there was anything to change. Losses under the old ones, which a
    /// search has made as low as they get, say nothing about those to come.
    pub fn change_durations(&mut self, durations: Option<&str>) -> bool {
        let changed = self.durations.as_deref() != durations;
        if changed {
            self.durations = durations.map(str::to_owned);
            (self.best_loss, self.stale_validations) = (None, 0);
        }
        changed
    }

    pub fn new(mel_stats: MelStats) -> Self {
        State {
            format: FORMAT,
            step: 0,
            position: Position::default(),
            best_loss: None,
            stale_validations: 0,
            mel_stats,
            durations: None,
            kind: RunKind::Voice,
        }
    }

    pub fn vocoder(mel_stats: MelStats) -> Self {
        State { kind: RunKind::Vocoder, ..State::new(mel_stats) }
    }
}

/// A checkpoint on disk, its small parts read.
pub struct Checkpoint {
    folder: PathBuf,
    pub config: Config,
    pub tokenizer: Tokenizer,
    pub state: State,
}

impl Checkpoint {
    /// `path` is a checkpoint, or a folder of checkpoints: then its best one, or its newest where none is best.
    pub fn open(path: &Path) -> Result<Self> {
        ensure!(path.exists(), "{}: no such folder\nhint: `myxtts train` writes checkpoints", path.display());
        if path.join(STATE).exists() {
            return Self::read(path.to_path_buf());
        }
        if path.join(BEST).join(STATE).exists() {
            return Self::read(path.join(BEST));
        }
        Self::newest(path)?.with_context(|| {
            format!("{}: not a checkpoint, and no checkpoints in it\nhint: `myxtts train` writes them", path.display())
        })
    }

    /// The newest checkpoint in a run's folder.
    pub fn newest(folder: &Path) -> Result<Option<Self>> {
        steps_in(folder)?.pop().map(|(_, path)| Self::read(path)).transpose()
    }

    fn read(folder: PathBuf) -> Result<Self> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| damaged(&path))
        };
        let state: State = serde_json::from_str(&text(STATE)?).with_context(|| damaged(&folder.join(STATE)))?;
        ensure!(
            state.format == FORMAT,
            "{}: checkpoint format {}, and this program reads {FORMAT}\nhint: use the program that wrote it",
            folder.display(),
            state.format
        );
        Ok(Checkpoint {
            config: Config::load_resolved(&folder.join(CONFIG))?,
            tokenizer: serde_json::from_str(&text(TOKENIZER)?).with_context(|| damaged(&folder.join(TOKENIZER)))?,
            state,
            folder,
        })
    }

    /// Fails where it holds something else.
    pub fn of_kind(self, kind: RunKind) -> Result<Self> {
        let (found, folder) = (self.state.kind, self.folder.display());
        ensure!(found == kind, "{folder}: holds a {found}, and a {kind} is needed");
        Ok(self)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The averaged weights, or those as trained where no average was kept.
    pub fn load_weights(&self, group: &str, store: &VarStore) -> Result<()> {
        let path = weights_file(&self.folder, group);
        let mut read = read_weights(&path)?;
        named_parameters(store).iter().try_for_each(|(name, tensor)| put(&mut read, name, tensor, &path))
    }

    /// The voice that speaks from it, and what holds its weights.
    pub fn voice(&self, device: Device, kind: Kind) -> Result<(VarStore, Voice)> {
        let (store, tokenizer) = (VarStore::new(device), &self.tokenizer);
        let (vocabulary, languages) = (tokenizer.vocab_size(), tokenizer.languages().len());
        let voice = Voice::new(&store.root(), &self.config.model, vocabulary, languages, kind)?;
        self.load_weights("model", &store)?;
        Ok((store, voice))
    }

    /// The settings it was trained with, on disk.
    pub fn config_file(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// Everything that a run needs to go on as if it had not stopped.
    pub fn restore<L: Learner>(&self, step: &mut Step<L>) -> Result<()> {
        for group in &mut step.groups {
            self.restore_group(group)?;
        }
        let path = self.file(step.groups[0].name, OPTIMIZER);
        step.scale.load(&read_tensors(&path)?);
        Ok(())
    }

    fn restore_group(&self, group: &mut Group) -> Result<()> {
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
        self.folder.join(format!("{group}.{what}"))
    }
}

/// The file that `load_weights` reads: the average where one was kept.
pub fn weights_file(checkpoint: &Path, group: &str) -> PathBuf {
    let average = checkpoint.join(format!("{group}.{AVERAGE}"));
    if average.exists() { average } else { checkpoint.join(format!("{group}.{WEIGHTS}")) }
}

/// Weights by name; an average is made of its sums.
pub fn read_weights(path: &Path) -> Result<Tensors> {
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

pub type Tensors = HashMap<String, Tensor>;

/// All tensors of a file, none of which may hold a value that is not finite.
fn read_tensors(path: &Path) -> Result<Tensors> {
    fs::metadata(path).with_context(|| damaged(path))?;
    let read = Tensor::read_safetensors(path).map_err(|_| anyhow!(damaged(path)))?;
    for (name, tensor) in &read {
        let finite = tensor.isfinite().all().int64_value(&[]) == 1;
        ensure!(finite, "{}: `{name}` holds values that are not finite\n{ANOTHER}", path.display());
    }
    Ok(read.into_iter().collect())
}

fn take(tensors: &mut Tensors, name: &str, path: &Path) -> Result<Tensor> {
    tensors.remove(name).with_context(|| format!("{}: no `{name}` in it\n{ANOTHER}", path.display()))
}

const ANOTHER: &str = "hint: move this checkpoint away, and the one before it is used";

fn damaged(path: &Path) -> String {
    format!("{}: missing, damaged or cut off\n{ANOTHER}", path.display())
}

/// Writes what a kind of run keeps besides its parameters, into a folder where those lie already.
pub type Extras<'a, L> = &'a dyn Fn(&Step<L>, u64, &Path) -> Result<()>;

/// Writes checkpoints of one run and keeps the newest few.
pub struct Writer {
    folder: PathBuf,
    keep: usize,
    /// Held as long as the run lasts.
    _lock: File,
}

impl Writer {
    /// Fails now, with a clear message, rather than after hours of training.
    pub fn new(folder: &Path, keep: usize) -> Result<Self> {
        let hint = "hint: choose another folder with --checkpoint-dir";
        fs::create_dir_all(folder).with_context(|| format!("{}: cannot be created\n{hint}", folder.display()))?;
        let lock = folder.join(LOCK);
        let unusable = || format!("{}: cannot be written to\n{hint}", folder.display());
        let lock = File::create(&lock).with_context(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{}: another training is writing here\n{hint}", folder.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(unusable),
        }
        for entry in fs::read_dir(folder)?.flatten() {
            // What a killed run left half written.
            if entry.file_name().to_string_lossy().starts_with(".step-") {
                fs::remove_dir_all(entry.path()).with_context(unusable)?;
            }
        }
        Ok(Writer { folder: folder.to_path_buf(), keep, _lock: lock })
    }

    pub fn save<L: Learner>(
        &self,
        config: &Config,
        tokenizer: &Tokenizer,
        state: &State,
        step: &Step<L>,
        extras: Extras<L>,
    ) -> Result<PathBuf> {
        let name = format!("step-{:08}", state.step);
        let (unfinished, place) = (self.folder.join(format!(".{name}")), self.folder.join(&name));
        let written = write_parts(&unfinished, config, tokenizer, state, step, extras)
            .and_then(|()| if place.exists() { Ok(fs::remove_dir_all(&place)?) } else { Ok(()) })
            .and_then(|()| Ok(fs::rename(&unfinished, &place)?))
            .and_then(|()| Ok(File::open(&self.folder)?.sync_all()?));
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&unfinished);
            let kept = steps_in(&self.folder).map_or(0, |steps| steps.len());
            return Err(error.context(format!(
                "{}: not saved; earlier checkpoints that are intact: {kept}\nhint: free some space, then go on with --resume",
                place.display()
            )));
        }
        self.prune()?;
        Ok(place)
    }

    /// The checkpoint that `best` points at, and its step.
    pub fn best(&self) -> Option<(u64, PathBuf)> {
        let name = fs::read_link(self.folder.join(BEST)).ok()?;
        Some((step_of(name.to_str()?)?, self.folder.join(name)))
    }

    /// Points `best` at a checkpoint; it is then kept whatever its age.
    pub fn mark_best(&self, checkpoint: &Path) -> Result<()> {
        let (fresh, link) = (self.folder.join(".step-best"), self.folder.join(BEST));
        let _ = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(checkpoint.file_name().expect("a checkpoint has a name"), &fresh)?;
        Ok(fs::rename(&fresh, &link)?)
    }

    fn prune(&self) -> Result<()> {
        let best = self.best().map(|(step, _)| step);
        let steps = steps_in(&self.folder)?;
        let excess = steps.len().saturating_sub(self.keep);
        let old = steps.into_iter().take(excess).filter(|(step, _)| Some(*step) != best);
        for (_, path) in old {
            fs::remove_dir_all(path)?;
        }
        Ok(())
    }
}

/// Moves the checkpoints and logs of an earlier run aside, so that a new one starts from nothing and nothing is lost.
pub fn set_aside(folder: &Path) -> Result<Option<PathBuf>> {
    if steps_in(folder)?.is_empty() {
        return Ok(None);
    }
    let aside = (1..)
        .map(|number| folder.join(format!("earlier-{number}")))
        .find(|path| !path.exists())
        .expect("an endless range finds a free name");
    fs::create_dir(&aside)?;
    let _ = fs::rename(folder.join(BEST), aside.join(BEST));
    let _ = fs::rename(folder.join(super::LOGS), aside.join(super::LOGS));
    for (_, path) in steps_in(folder)? {
        fs::rename(&path, aside.join(path.file_name().expect("a checkpoint has a name")))?;
    }
    Ok(Some(aside))
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

fn write_parts<L: Learner>(
    folder: &Path,
    config: &Config,
    tokenizer: &Tokenizer,
    state: &State,
    step: &Step<L>,
    extras: Extras<L>,
) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    for (index, group) in step.groups.iter().enumerate() {
        let scale = if index == 0 { step.scale.saved() } else { Vec::new() };
        write_group(folder, group, scale, state.step)?;
    }
    extras(step, state.step, folder)?;
    fs::write(folder.join(CONFIG), config.to_yaml())?;
    fs::write(folder.join(TOKENIZER), serde_json::to_string(tokenizer)?)?;
    fs::write(folder.join(STATE), serde_json::to_string_pretty(state)?)?;
    for entry in fs::read_dir(folder)? {
        File::open(entry?.path())?.sync_all()?;
    }
    Ok(File::open(folder)?.sync_all()?)
}

fn write_group(folder: &Path, group: &Group, scale: Vec<(String, &Tensor)>, updates: u64) -> Result<()> {
    let file = |what: &str| folder.join(format!("{}.{what}", group.name));
    let parameters = named_parameters(&group.store);
    let weights: Vec<(&str, &Tensor)> = parameters.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    write_tensors(&weights, &file(WEIGHTS))?;
    let mut moments = vec![("steps".to_owned(), group.optimizer.steps())];
    moments.extend(scale);
    for ((name, _), kept) in parameters.iter().zip(group.optimizer.moments()) {
        moments.push((format!("{name}.exp_avg"), &kept.exp_avg));
        moments.push((format!("{name}.exp_avg_sq"), &kept.exp_avg_sq));
    }
    write_tensors(&moments, &file(OPTIMIZER))?;
    let Some(sum) = group.weight_sum(updates) else { return Ok(()) };
    let sum = Tensor::from(sum);
    let mut averages = group.averages();
    averages.push((WEIGHT_SUM.to_owned(), &sum));
    write_tensors(&averages, &file(AVERAGE))
}

fn write_tensors<S: AsRef<str>>(tensors: &[(S, &Tensor)], path: &Path) -> Result<()> {
    Tensor::write_safetensors(tensors, path).map_err(|error| {
        // tch prints the cause as `IoError(Os { …, message: "No space left on device" })`.
        let text = error.to_string();
        let cause = text.split_once("message: \"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or(&text);
        anyhow!("{}: {cause}", path.display())
    })
}

/// A run that goes on must be the run that was: same network, same features.
pub fn same_network(config: &Config, checkpoint: &Checkpoint) -> Result<()> {
    let was = &checkpoint.config;
    if config.model != was.model || config.data.sample_rate != was.data.sample_rate {
        bail!(
            "{}: trained with other model settings than this run's\nhint: compare `myxtts config` with {}",
            checkpoint.folder.display(),
            checkpoint.config_file().display()
        );
    }
    Ok(())
}
