//! Writing checkpoints of a run: whole or not at all, the newest few and the best.

use super::{
    AVERAGE, BEST, CONFIG, LOGS, OPTIMIZER, RunState, STATE, TOKENIZER, WEIGHT_SUM, WEIGHTS, step_of, steps_in,
};
use crate::optimizer::{LossScale, ParameterGroup};
use anyhow::{Context, Result};
use host::config::Config;
use host::error::{WithHint, hinted};
use host::text::Tokenizer;
use safetensors::SafeTensorError;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use tch::{TchError, Tensor};
use torchx::named_parameters;

const LOCK: &str = ".lock";
/// What to do about a folder that cannot be used.
const ELSEWHERE: &str = "choose another folder with --checkpoint-dir";
/// What to do about a checkpoint that could not be written.
const GO_ON: &str = "free some space, then go on with --resume";

/// Everything that a checkpoint is written from.
pub struct CheckpointParts<'a> {
    pub config: &'a Config,
    pub tokenizer: &'a Tokenizer,
    pub state: &'a RunState,
    pub groups: &'a [ParameterGroup],
    pub scale: &'a LossScale,
    /// Writes what a kind of run keeps besides its parameters, into a folder where those lie already.
    pub extras: &'a dyn Fn(&Path) -> Result<()>,
}

/// Writes checkpoints of one run and keeps the newest few.
pub struct CheckpointWriter {
    folder: PathBuf,
    keep: usize,
    /// Keeps other runs out of the folder as long as this one lasts.
    _lock: File,
}

impl CheckpointWriter {
    /// Fails now, with a clear message, rather than after hours of training.
    pub fn new(folder: &Path, keep: usize) -> Result<Self> {
        let name = folder.display();
        fs::create_dir_all(folder).hint(ELSEWHERE).with_context(|| format!("{name}: cannot be created"))?;
        let unusable = || format!("{name}: cannot be written to");
        let lock = File::create(folder.join(LOCK)).hint(ELSEWHERE).with_context(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(hinted(format!("{name}: another training is writing here"), ELSEWHERE));
            }
            Err(TryLockError::Error(error)) => return Err(error).hint(ELSEWHERE).with_context(unusable),
        }
        for entry in fs::read_dir(folder)?.flatten() {
            // What a killed run left half written.
            if entry.file_name().to_string_lossy().starts_with(".step-") {
                fs::remove_dir_all(entry.path()).hint(ELSEWHERE).with_context(unusable)?;
            }
        }
        Ok(CheckpointWriter { folder: folder.to_path_buf(), keep, _lock: lock })
    }

    /// Writes a checkpoint and returns its folder.
    pub fn save(&self, parts: &CheckpointParts) -> Result<PathBuf> {
        let name = format!("step-{:08}", parts.state.step);
        let (unfinished, place) = (self.folder.join(format!(".{name}")), self.folder.join(&name));
        let written = write_parts(&unfinished, parts)
            .and_then(|()| if place.exists() { Ok(fs::remove_dir_all(&place)?) } else { Ok(()) })
            .and_then(|()| Ok(fs::rename(&unfinished, &place)?))
            .and_then(|()| Ok(File::open(&self.folder)?.sync_all()?));
        written.inspect_err(|_| drop(fs::remove_dir_all(&unfinished))).hint(GO_ON).with_context(|| {
            let kept = steps_in(&self.folder).map_or(0, |steps| steps.len());
            format!("{}: not saved; earlier checkpoints that are intact: {kept}", place.display())
        })?;
        self.prune()?;
        Ok(place)
    }

    /// Step and folder of the checkpoint that `best` points at.
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

/// Moves the checkpoints and logs of an earlier run into a folder of their own, so that a new one starts from nothing and
/// nothing is lost. Returns that folder; none where there was no earlier run.
pub fn archive_earlier_run(folder: &Path) -> Result<Option<PathBuf>> {
    if steps_in(folder)?.is_empty() {
        return Ok(None);
    }
    let aside = (1..)
        .map(|number| folder.join(format!("earlier-{number}")))
        .find(|path| !path.exists())
        .expect("an endless range finds a free name");
    fs::create_dir(&aside)?;
    let _ = fs::rename(folder.join(BEST), aside.join(BEST));
    let _ = fs::rename(folder.join(LOGS), aside.join(LOGS));
    for (_, path) in steps_in(folder)? {
        fs::rename(&path, aside.join(path.file_name().expect("a checkpoint has a name")))?;
    }
    Ok(Some(aside))
}

fn write_parts(folder: &Path, parts: &CheckpointParts) -> Result<()> {
    let CheckpointParts { config, tokenizer, state, groups, scale, extras } = parts;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    for (index, group) in groups.iter().enumerate() {
        let scale = if index == 0 { scale.saved() } else { Vec::new() };
        write_group(folder, group, scale, state.step)?;
    }
    extras(folder)?;
    fs::write(folder.join(CONFIG), config.to_yaml())?;
    fs::write(folder.join(TOKENIZER), serde_json::to_string(tokenizer)?)?;
    fs::write(folder.join(STATE), serde_json::to_string_pretty(state)?)?;
    for entry in fs::read_dir(folder)? {
        File::open(entry?.path())?.sync_all()?;
    }
    Ok(File::open(folder)?.sync_all()?)
}

fn write_group(folder: &Path, group: &ParameterGroup, scale: Vec<(String, &Tensor)>, updates: u64) -> Result<()> {
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
    let written = Tensor::write_safetensors(tensors, path).map_err(|error| match error {
        TchError::SafeTensorError { err: SafeTensorError::IoError(error), .. } => anyhow::Error::new(error),
        other => other.into(),
    });
    written.with_context(|| path.display().to_string())
}
