//! Runs under a folder, and how each of them stands.

use super::events::{Event, EventKind};
use super::facts::RunFile;
use super::metrics::newest_figures;
use super::{BEST, LOGS, METRICS, unix_time_s};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Folders in folders that are looked into.
const DEPTH: usize = 6;
const MOST_RUNS: usize = 1000;
/// A run of another machine that wrote nothing for this long is thought to have ended.
const SILENT_S: f64 = 180.0;

/// The logs of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFolder {
    /// Its place below the folder that was searched, for people.
    pub name: String,
    pub log_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    Running,
    /// All is done.
    Ended,
    /// It was told to stop, and saved.
    Stopped,
    /// It ended with an error.
    Failed,
    /// Its process is gone, and it has not said why.
    Killed,
    /// It has written nothing for long, and nobody can tell more.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointName {
    pub step: u64,
    pub is_best: bool,
}

/// All folders below `root`, itself included, that hold figures; the newest first.
pub fn find_runs(root: &Path) -> Vec<RunFolder> {
    let mut found = Vec::new();
    look(root, root, DEPTH, &mut found);
    found.sort_by(|(a, _): &(f64, RunFolder), (b, _)| b.total_cmp(a));
    found.into_iter().map(|(_, run)| run).collect()
}

fn look(root: &Path, folder: &Path, depth: usize, found: &mut Vec<(f64, RunFolder)>) {
    let metrics = folder.join(METRICS);
    if let Some(written) = modified_s(&metrics).filter(|_| found.len() < MOST_RUNS) {
        found.push((written, RunFolder { name: name(root, folder), log_dir: folder.to_path_buf() }));
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|_| depth > 0) {
        // Links are not followed: what lies elsewhere is not this folder's.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if is_folder && !name.starts_with('.') && !name.starts_with("step-") && name != super::samples::FOLDER {
            look(root, &entry.path(), depth - 1, found);
        }
    }
}

/// "voices/anna" for "voices/anna/logs"; for the root itself, its own name.
fn name(root: &Path, log_dir: &Path) -> String {
    let run = if log_dir.ends_with(LOGS) && log_dir != root { log_dir.parent().unwrap_or(log_dir) } else { log_dir };
    let inside = run.strip_prefix(root).unwrap_or(run);
    if !inside.as_os_str().is_empty() {
        return inside.display().to_string();
    }
    let whole = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    whole.file_name().map_or_else(|| whole.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn modified_s(path: &Path) -> Option<f64> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.is_file())?;
    Some(meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

impl RunFolder {
    pub fn metrics(&self) -> PathBuf {
        self.log_dir.join(METRICS)
    }

    /// Unix time and size of the file of figures.
    pub fn written(&self) -> (f64, u64) {
        let size = fs::metadata(self.metrics()).map_or(0, |meta| meta.len());
        (modified_s(&self.metrics()).unwrap_or(0.0), size)
    }

    pub fn state(&self, facts: Option<&RunFile>, events: &[Event]) -> RunState {
        let last = events.iter().rev().find_map(|event| match event.kind {
            EventKind::Ended => Some(RunState::Ended),
            EventKind::Stopped => Some(RunState::Stopped),
            EventKind::Failed => Some(RunState::Failed),
            EventKind::Started => Some(RunState::Running),
            _ => None,
        });
        match (last, facts.and_then(|facts| facts.process.is_alive())) {
            (Some(over), _) if over != RunState::Running => over,
            (_, Some(true)) => RunState::Running,
            (_, Some(false)) => RunState::Killed,
            (_, None) if unix_time_s() - self.written().0 < SILENT_S => RunState::Running,
            (_, None) => RunState::Silent,
        }
    }

    /// The newest figures, without reading the others.
    pub fn newest_figures(&self) -> Vec<(String, f64)> {
        newest_figures(&self.metrics()).unwrap_or_default()
    }

    /// Checkpoints beside the logs, in order.
    pub fn checkpoints(&self) -> Vec<CheckpointName> {
        let Some(folder) = self.log_dir.parent().filter(|_| self.log_dir.ends_with(LOGS)) else { return Vec::new() };
        let step_of = |name: &str| name.strip_prefix("step-")?.parse().ok();
        let best: Option<u64> = fs::read_link(folder.join(BEST)).ok().and_then(|to| step_of(to.to_str()?));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut steps: Vec<u64> = entries.filter_map(|entry| step_of(entry.file_name().to_str()?)).collect();
        steps.sort_unstable();
        steps.into_iter().map(|step| CheckpointName { step, is_best: Some(step) == best }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::ProcessFacts;
    use super::*;

    fn run(root: &Path, name: &str) -> PathBuf {
        let logs = root.join(name);
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join(METRICS), "{\"step\":1,\"loss\":2}\n").unwrap();
        logs
    }

    #[test]
    fn runs_are_found_wherever_they_lie_and_links_are_not_followed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        run(dir.path(), "a/logs");
        run(dir.path(), "deep/b/logs");
        run(dir.path(), "elsewhere");
        run(dir.path(), "a/step-00000010/logs");
        run(other.path(), "logs");
        std::os::unix::fs::symlink(other.path(), dir.path().join("link")).unwrap();
        let mut names: Vec<String> = find_runs(dir.path()).into_iter().map(|run| run.name).collect();
        names.sort();
        assert_eq!(names, ["a", "deep/b", "elsewhere"]);
        let own = find_runs(&dir.path().join("a"));
        assert_eq!((own.len(), own[0].name.as_str()), (1, "a"));
        assert!(find_runs(&dir.path().join("nowhere")).is_empty());
    }

    #[test]
    fn how_a_run_stands_follows_from_what_it_said_and_from_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder { name: String::new(), log_dir: run(dir.path(), "a/logs") };
        let own = RunFile { process: ProcessFacts::own(None), ..RunFile::default() };
        let mut gone = own.clone();
        gone.process.start_ticks += 1;
        let event = |kind| Event::now(1, kind, "");
        let started = [event(EventKind::Started)];
        let ended = [event(EventKind::Started), event(EventKind::Ended), event(EventKind::Note)];
        let resumed = [event(EventKind::Stopped), event(EventKind::Started)];
        assert_eq!(folder.state(Some(&own), &started), RunState::Running);
        assert_eq!(folder.state(Some(&own), &resumed), RunState::Running);
        assert_eq!(folder.state(Some(&gone), &started), RunState::Killed);
        assert_eq!(folder.state(Some(&gone), &ended), RunState::Ended);
        assert_eq!(folder.state(None, &[]), RunState::Running, "it has just written something");
        let long_ago = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        fs::File::options().write(true).open(folder.metrics()).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(folder.state(None, &[]), RunState::Silent);
    }

    #[test]
    fn checkpoints_lie_beside_the_logs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder { name: String::new(), log_dir: run(dir.path(), "a/logs") };
        for step in ["step-00000020", "step-00000010", ".step-00000030", "other"] {
            fs::create_dir(dir.path().join("a").join(step)).unwrap();
        }
        std::os::unix::fs::symlink("step-00000010", dir.path().join("a/best")).unwrap();
        let found: Vec<(u64, bool)> = folder.checkpoints().iter().map(|it| (it.step, it.is_best)).collect();
        assert_eq!(found, [(10, true), (20, false)]);
    }
}
