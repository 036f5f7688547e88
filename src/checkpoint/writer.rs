//! Writing checkpoints of a run: whole or not at all, the newest few and the best; beside the steps that follow, which wait
//! no longer than it takes to copy what is to be written.

use super::voice::{self, VoiceFile};
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
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use tch::{Device, TchError, Tensor};
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
    /// Whom it speaks as where no other voice is asked for.
    pub own_voice: Option<&'a VoiceFile>,
}

/// Writes checkpoints of one run and keeps the newest few.
pub struct CheckpointWriter {
    folder: RunFolder,
    /// The checkpoint that is being written.
    writing: Option<(u64, JoinHandle<Result<PathBuf>>)>,
    /// Keeps other runs out of the folder as long as this one lasts.
    _lock: File,
}

/// A checkpoint that is whole.
pub struct Saved {
    pub step: u64,
    pub folder: PathBuf,
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
        Ok(CheckpointWriter { folder: RunFolder { path: folder.to_path_buf(), keep }, writing: None, _lock: lock })
    }

    /// Begins to write a checkpoint of how things are, beside whatever changes them next. Returns the one before it, which
    /// must be whole first.
    pub fn begin(&mut self, parts: &CheckpointParts, is_best: bool) -> Result<Option<Saved>> {
        let before = self.wait()?;
        let (folder, snapshot) = (self.folder.clone(), crate::catch(|| Snapshot::of(parts))??);
        let write = move || folder.write(&snapshot, is_best);
        let thread =
            thread::Builder::new().name("checkpoint".into()).spawn(write).context("no thread for a checkpoint")?;
        self.writing = Some((parts.state.step, thread));
        Ok(before)
    }

    /// The checkpoint that was begun, if it is whole by now.
    pub fn written(&mut self) -> Result<Option<Saved>> {
        match &self.writing {
            Some((_, thread)) if thread.is_finished() => self.wait(),
            _ => Ok(None),
        }
    }

    /// The checkpoint that was begun, once it is whole.
    pub fn wait(&mut self) -> Result<Option<Saved>> {
        let Some((step, thread)) = self.writing.take() else { return Ok(None) };
        let folder = thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(Some(Saved { step, folder }))
    }

    /// Step and folder of the checkpoint that `best` points at.
    pub fn best(&self) -> Option<(u64, PathBuf)> {
        self.folder.best()
    }
}

impl Drop for CheckpointWriter {
    /// A run that ends with an error leaves the checkpoint whole that it had begun.
    fn drop(&mut self) {
        if let Some((_, thread)) = self.writing.take() {
            let _ = thread.join();
        }
    }
}

/// Where checkpoints go, and how many stay there.
#[derive(Clone)]
struct RunFolder {
    path: PathBuf,
    keep: usize,
}

impl RunFolder {
    /// Writes a checkpoint and returns its folder.
    fn write(&self, snapshot: &Snapshot, is_best: bool) -> Result<PathBuf> {
        let (unfinished, place) = (self.path.join(format!(".{}", snapshot.name)), self.path.join(&snapshot.name));
        let written = snapshot
            .write(&unfinished)
            .and_then(|()| if place.exists() { Ok(fs::remove_dir_all(&place)?) } else { Ok(()) })
            .and_then(|()| Ok(fs::rename(&unfinished, &place)?))
            .and_then(|()| Ok(File::open(&self.path)?.sync_all()?));
        written.inspect_err(|_| drop(fs::remove_dir_all(&unfinished))).hint(GO_ON).with_context(|| {
            let kept = steps_in(&self.path).map_or(0, |steps| steps.len());
            format!("{}: not saved; earlier checkpoints that are intact: {kept}", place.display())
        })?;
        self.prune()?;
        if is_best {
            self.mark_best(&snapshot.name)?;
        }
        Ok(place)
    }

    fn best(&self) -> Option<(u64, PathBuf)> {
        let name = fs::read_link(self.path.join(BEST)).ok()?;
        Some((step_of(name.to_str()?)?, self.path.join(name)))
    }

    /// Points `best` at a checkpoint; it is then kept whatever its age.
    fn mark_best(&self, name: &str) -> Result<()> {
        let (fresh, link) = (self.path.join(".step-best"), self.path.join(BEST));
        let _ = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(name, &fresh)?;
        Ok(fs::rename(&fresh, &link)?)
    }

    fn prune(&self) -> Result<()> {
        let best = self.best().map(|(step, _)| step);
        let steps = steps_in(&self.path)?;
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

/// A checkpoint as things were at one moment, in host memory.
struct Snapshot {
    name: String,
    /// Tensors of each file.
    tensors: Vec<(String, Vec<(String, Tensor)>)>,
    texts: [(&'static str, String); 3],
}

impl Snapshot {
    fn of(parts: &CheckpointParts) -> Result<Self> {
        let CheckpointParts { config, tokenizer, state, groups, scale, own_voice } = parts;
        let mut tensors = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let scale = if index == 0 { scale.saved() } else { Vec::new() };
            tensors.extend(files_of(group, scale, state.step));
        }
        tensors.extend(own_voice.map(|own| (voice::FILE.to_owned(), own.tensors())));
        let texts = [
            (CONFIG, config.to_yaml()),
            (TOKENIZER, serde_json::to_string(tokenizer)?),
            (STATE, serde_json::to_string_pretty(state)?),
        ];
        Ok(Snapshot { name: format!("step-{:08}", state.step), tensors, texts })
    }

    fn write(&self, folder: &Path) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir(folder)?;
        for (file, tensors) in &self.tensors {
            write_tensors(tensors, &folder.join(file))?;
        }
        for (file, text) in &self.texts {
            fs::write(folder.join(file), text)?;
        }
        for entry in fs::read_dir(folder)? {
            File::open(entry?.path())?.sync_all()?;
        }
        Ok(File::open(folder)?.sync_all()?)
    }
}

/// Names and tensors of a group's files.
fn files_of(
    group: &ParameterGroup,
    scale: Vec<(String, &Tensor)>,
    updates: u64,
) -> Vec<(String, Vec<(String, Tensor)>)> {
    let file = |what: &str| format!("{}.{what}", group.name);
    let parameters = named_parameters(&group.store);
    let mut moments = vec![("steps".to_owned(), held(group.optimizer.steps()))];
    moments.extend(scale.into_iter().map(|(name, tensor)| (name, held(tensor))));
    for ((name, _), kept) in parameters.iter().zip(group.optimizer.moments()) {
        moments.push((format!("{name}.exp_avg"), held(&kept.exp_avg)));
        moments.push((format!("{name}.exp_avg_sq"), held(&kept.exp_avg_sq)));
    }
    let average = group.weight_sum(updates).map(|sum| {
        let averages = group.averages().into_iter().map(|(name, tensor)| (name, held(tensor)));
        (file(AVERAGE), averages.chain([(WEIGHT_SUM.to_owned(), Tensor::from(sum))]).collect())
    });
    let weights = parameters.into_iter().map(|(name, tensor)| (name, held(&tensor))).collect();
    [(file(WEIGHTS), weights), (file(OPTIMIZER), moments)].into_iter().chain(average).collect()
}

/// As it is now, whatever becomes of it.
fn held(tensor: &Tensor) -> Tensor {
    let tensor = tensor.detach();
    if tensor.device() == Device::Cpu { tensor.copy() } else { tensor.to_device(Device::Cpu) }
}

fn write_tensors(tensors: &[(String, Tensor)], path: &Path) -> Result<()> {
    let written = Tensor::write_safetensors(tensors, path).map_err(|error| match error {
        TchError::SafeTensorError { err: SafeTensorError::IoError(error), .. } => anyhow::Error::new(error),
        other => other.into(),
    });
    written.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Checkpoint;
    use super::*;
    use crate::feed::MelStats;
    use tch::Kind;
    use tch::nn::{Init, VarStore};

    /// A run of one weight, which is 1 at first.
    struct Case {
        dir: tempfile::TempDir,
        config: Config,
        tokenizer: Tokenizer,
        groups: [ParameterGroup; 1],
        weight: Tensor,
        scale: LossScale,
    }

    impl Case {
        fn new() -> Self {
            let (config, store) = (Config::default(), VarStore::new(Device::Cpu));
            let weight = store.root().var("weight", &[3], Init::Const(1.0));
            Case {
                dir: tempfile::tempdir().unwrap(),
                tokenizer: Tokenizer::fit([("ab", "en")].into_iter()),
                groups: [ParameterGroup::new("model", store, &config.training, false).unwrap()],
                weight,
                scale: LossScale::new(Kind::Float, Device::Cpu),
                config,
            }
        }

        fn begin(&self, writer: &mut CheckpointWriter, step: u64, is_best: bool) -> Result<Option<Saved>> {
            let state = RunState { step, ..RunState::new(MelStats::identity()) };
            let Case { config, tokenizer, groups, scale, .. } = self;
            writer.begin(&CheckpointParts { config, tokenizer, state: &state, groups, scale, own_voice: None }, is_best)
        }

        fn weight_of(&self, folder: &Path) -> f64 {
            let store = VarStore::new(Device::Cpu);
            let weight = store.root().var("weight", &[3], Init::Const(0.0));
            Checkpoint::open(folder).unwrap().load_weights("model", &store).unwrap();
            weight.mean(Kind::Float).double_value(&[])
        }
    }

    #[test]
    fn what_follows_changes_nothing_that_was_saved() {
        let mut case = Case::new();
        let mut writer = CheckpointWriter::new(case.dir.path(), 2).unwrap();
        let mut saved = Vec::new();
        for step in 1..=4 {
            saved.extend(case.begin(&mut writer, step, step == 1).unwrap());
            let _ = tch::no_grad(|| case.weight.g_add_scalar_(1.0));
        }
        saved.extend(writer.wait().unwrap());
        assert!(writer.written().unwrap().is_none());
        assert_eq!(saved.iter().map(|saved| saved.step).collect::<Vec<_>>(), [1, 2, 3, 4]);
        // The best, and the newest two.
        assert_eq!(steps_in(case.dir.path()).unwrap().iter().map(|(step, _)| *step).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!(writer.best().unwrap().0, 1);
        for Saved { step, folder } in saved.iter().filter(|saved| saved.step != 2) {
            assert_eq!(case.weight_of(folder), *step as f64);
        }
    }

    #[test]
    fn a_checkpoint_that_was_begun_is_whole_once_its_writer_is_gone() {
        let case = Case::new();
        let mut writer = CheckpointWriter::new(case.dir.path(), 2).unwrap();
        case.begin(&mut writer, 7, true).unwrap();
        drop(writer);
        assert_eq!(case.weight_of(&case.dir.path().join(BEST)), 1.0);
    }

    #[test]
    fn what_could_not_be_written_is_an_error_of_the_next_call() {
        let case = Case::new();
        let mut writer = CheckpointWriter::new(case.dir.path(), 2).unwrap();
        // A file stands where the folder should.
        fs::write(case.dir.path().join(".step-00000001"), "").unwrap();
        case.begin(&mut writer, 1, false).unwrap();
        let error = case.begin(&mut writer, 2, false).err().unwrap();
        assert!(error.to_string().contains("step-00000001: not saved"), "{error}");
    }
}
