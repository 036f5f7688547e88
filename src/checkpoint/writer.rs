//! Writing checkpoints of a run: whole or not at all, the newest few and the best; beside the steps that follow, which wait
//! no longer than it takes to copy what is to be written.

use super::voice::{self, VoiceFile};
use super::{
    AVERAGE, BEST, CONFIG, LOGS, OPTIMIZER, RunState, STATE, TOKENIZER, WEIGHT_SUM, WEIGHTS, step_of, steps_in,
};
use crate::optimizer::{LossScale, ParameterGroup};
use anyhow::{Context, Result};
use host::config::Config;
use host::error::{Explained, WithHint, hinted};
use host::telemetry::console;
use host::text::Tokenizer;
use safetensors::SafeTensorError;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tch::{Device, TchError, Tensor};
use torchx::{Unfinished, named_parameters};

const LOCK: &str = ".lock";
/// What to do about a folder that cannot be used.
const ELSEWHERE: &str = "choose another folder with --checkpoint-dir";
/// What to do about a checkpoint that could not be written.
const GO_ON: &str = "free some space, then go on with --resume";
const MEND: &str = "put that right, then go on with --resume";

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
        let unfinished = Unfinished::begin();
        let write = move || {
            let _unfinished = unfinished;
            folder.write(&snapshot, is_best)
        };
        let thread =
            thread::Builder::new().name("checkpoint".into()).spawn(write).context("no thread for a checkpoint")?;
        self.writing = Some((parts.state.step, thread));
        Ok(before)
    }

    /// Writes a checkpoint at once, where one that was begun has failed.
    pub fn save(&self, parts: &CheckpointParts) -> Result<Saved> {
        let folder = self.folder.write(&crate::catch(|| Snapshot::of(parts))??, false)?;
        Ok(Saved { step: parts.state.step, folder })
    }

    /// Whether a checkpoint is still being written after so much time, which this waits at most.
    pub fn is_late(&self, patience: Duration) -> bool {
        let Some((_, thread)) = &self.writing else { return false };
        let start = Instant::now();
        while !thread.is_finished() && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        !thread.is_finished()
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

    /// Points `best` where the state of a run says, if that is there: a run may have been killed between a checkpoint and
    /// its mark.
    pub fn restore_best(&self, step: Option<u64>) -> Result<()> {
        let lost = step.filter(|step| self.best().is_none_or(|(marked, _)| marked != *step)).map(name_of);
        match lost.filter(|name| self.folder.path.join(name).join(STATE).exists()) {
            Some(name) => self.folder.mark_best(&name),
            None => Ok(()),
        }
    }
}

impl Drop for CheckpointWriter {
    /// A run that ends with an error leaves the checkpoint whole that it had begun.
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            console::complain(format!("warning: {}", Explained::of(error.as_ref())));
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
            .and_then(|()| if place.exists() { Ok(discard(&place)?) } else { Ok(()) })
            .and_then(|()| Ok(fs::rename(&unfinished, &place)?))
            .and_then(|()| Ok(File::open(&self.path)?.sync_all()?));
        written.map_err(|error| {
            drop(fs::remove_dir_all(&unfinished));
            let kept = steps_in(&self.path).map_or(0, |steps| steps.len());
            let hint = if is_full(&error) { GO_ON } else { MEND };
            let fact = format!("{}: not saved; earlier checkpoints that are intact: {kept}", place.display());
            Err::<(), _>(error).hint(hint).context(fact).unwrap_err()
        })?;
        if is_best {
            self.mark_best(&snapshot.name)?;
        }
        self.prune();
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
        let marked = std::os::unix::fs::symlink(name, &fresh).and_then(|()| fs::rename(&fresh, &link));
        marked
            .inspect_err(|_| drop(fs::remove_file(&fresh)))
            .hint(MEND)
            .with_context(|| format!("{}: cannot be made to point at {name}, which was saved", link.display()))
    }

    /// Removes checkpoints that are neither new nor the best. One that stays in spite of that does no harm.
    fn prune(&self) {
        let best = self.best().map(|(step, _)| step);
        let steps = steps_in(&self.path).unwrap_or_default();
        let excess = steps.len().saturating_sub(self.keep);
        for (_, path) in steps.into_iter().take(excess).filter(|(step, _)| Some(*step) != best) {
            if let Err(error) = discard(&path) {
                console::complain(format!("warning: {}: cannot be removed: {error}", path.display()));
            }
        }
    }
}

fn name_of(step: u64) -> String {
    format!("step-{step:08}")
}

/// Removes a checkpoint. While that lasts, and if it is broken off, what is left of it is none by its name.
fn discard(checkpoint: &Path) -> io::Result<()> {
    if !checkpoint.is_dir() {
        return Err(ErrorKind::NotADirectory.into()); // somebody's file, which stays where it is
    }
    let name = checkpoint.file_name().expect("a checkpoint has a name").to_string_lossy();
    let hidden = checkpoint.with_file_name(format!(".{name}-old"));
    if hidden.exists() {
        fs::remove_dir_all(&hidden)?;
    }
    fs::rename(checkpoint, &hidden)?;
    fs::remove_dir_all(&hidden)
}

fn is_full(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
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
        Ok(Snapshot { name: name_of(state.step), tensors, texts })
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
    fn the_best_and_the_newest_stay_and_no_more() {
        let case = Case::new();
        let mut writer = CheckpointWriter::new(case.dir.path(), 1).unwrap();
        let there = || steps_in(case.dir.path()).unwrap().into_iter().map(|(step, _)| step).collect::<Vec<_>>();
        for (step, is_best, left) in [(1, true, vec![1]), (2, true, vec![2]), (3, false, vec![2, 3])] {
            case.begin(&mut writer, step, is_best).unwrap();
            writer.wait().unwrap();
            assert_eq!(there(), left);
        }
        let hidden = fs::read_dir(case.dir.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert!(hidden.into_iter().all(|name| !name.to_string_lossy().starts_with(".step-")));
        // What cannot be removed as a checkpoint is ends no run.
        fs::write(case.dir.path().join("step-00000000"), "").unwrap();
        case.begin(&mut writer, 4, false).unwrap();
        assert_eq!(writer.wait().unwrap().unwrap().step, 4);
        drop(writer);
        assert!(case.dir.path().join("step-00000000").exists() && CheckpointWriter::new(case.dir.path(), 1).is_ok());
    }

    #[test]
    fn a_mark_that_was_lost_is_set_again() {
        let case = Case::new();
        let mut writer = CheckpointWriter::new(case.dir.path(), 5).unwrap();
        for step in 1..=3 {
            case.begin(&mut writer, step, step == 1).unwrap();
        }
        writer.wait().unwrap();
        for (wanted, marked) in [(None, 1), (Some(9), 1), (Some(2), 2), (Some(2), 2)] {
            writer.restore_best(wanted).unwrap();
            assert_eq!(writer.best().unwrap().0, marked);
        }
        fs::remove_file(case.dir.path().join(BEST)).unwrap();
        fs::create_dir(case.dir.path().join(BEST)).unwrap();
        let error = format!("{:#}", writer.restore_best(Some(3)).unwrap_err());
        assert!(error.contains("best: cannot be made to point at step-00000003"), "{error}");
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
        assert_eq!(Explained::of(error.as_ref()).hints, [MEND]);
        assert!(is_full(&anyhow::Error::new(io::Error::from(ErrorKind::StorageFull)).context("x")));
        // What came after it is not lost with it.
        let state = RunState { step: 2, ..RunState::new(MelStats::identity()) };
        let Case { config, tokenizer, groups, scale, .. } = &case;
        let parts = CheckpointParts { config, tokenizer, state: &state, groups, scale, own_voice: None };
        assert_eq!(case.weight_of(&writer.save(&parts).unwrap().folder), 1.0);
    }
}
