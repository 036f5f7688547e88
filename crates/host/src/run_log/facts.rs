//! What a run is, as it says once at its start.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

const FILE: &str = "run.json";

/// The file `run.json`. What an older or a newer program left out or added does not matter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFile {
    /// "voice" or "vocoder".
    pub kind: String,
    /// Steps that the run is expected to take.
    pub steps: Option<u64>,
    /// Unix time.
    pub started: f64,
    pub resumed_at: Option<u64>,
    /// Held-out loss that decides which checkpoint is the best: its name among the figures.
    pub compared: String,
    pub process: ProcessFacts,
    pub pipeline: PipelineFacts,
    pub corpus: CorpusFacts,
}

/// The process that trains, to tell whether it still does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    pub id: u32,
    /// When it began, in the system's own count: a number that came round belongs to another process.
    pub start_ticks: u64,
    /// Of this start of the machine.
    pub boot: String,
    pub machine: String,
    /// Where it shows itself, if it does.
    pub live: Option<String>,
}

/// What the pipeline consists of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineFacts {
    pub model_size: String,
    pub parameters: usize,
    pub data_device: String,
    pub model_device: String,
    pub activations: String,
    /// How batches get to the model device.
    pub route: String,
    pub frames_per_batch: usize,
    /// Batches a step.
    pub accumulate: u64,
    /// Threads of the loader at the start; 0: batches are laid by whoever asks for them.
    pub workers: usize,
    /// Batches that the loader prepares ahead.
    pub depth: usize,
    /// Batches that wait on the model device; 0: each is made when it is asked for.
    pub slots: usize,
    pub ranks: usize,
    pub data_cap_mib: Option<u64>,
    pub model_cap_mib: Option<u64>,
    /// Memory of the whole card.
    pub model_total_mib: Option<f64>,
    pub data_total_mib: Option<f64>,
}

/// What a run trains on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorpusFacts {
    pub clips: usize,
    pub held_out: usize,
    pub hours: f64,
    /// Clips by whole seconds of their length: 0 to 1, 1 to 2, and so on; the last one holds all that are longer.
    pub durations: Vec<usize>,
    /// Speakers that the corpus names.
    pub speaker_count: usize,
    /// Name and clips of those who have most.
    pub speakers: Vec<(String, usize)>,
    /// Code and clips.
    pub languages: Vec<(String, usize)>,
    /// Clips that speakers and languages were counted by, where they are fewer than all.
    pub counted: Option<usize>,
    /// Sound clips that the limits of the run leave out, and why; what else was noted.
    pub notes: Vec<String>,
    pub left_out: usize,
    /// Rows and clips that cannot be used, each with its path; the first of them.
    pub damaged: Vec<String>,
    pub damaged_count: usize,
}

impl RunFile {
    /// Absent where there is none, or none that can be read.
    pub fn read(log_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(log_dir.join(FILE)).ok()?).ok()
    }

    pub fn write(&self, log_dir: &Path) -> io::Result<()> {
        let unfinished = log_dir.join(".run.json");
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(unfinished, log_dir.join(FILE))
    }
}

impl ProcessFacts {
    /// This process.
    pub fn own(live: Option<String>) -> Self {
        let id = std::process::id();
        ProcessFacts { id, start_ticks: start_ticks(id).unwrap_or(0), boot: boot(), machine: machine(), live }
    }

    /// Whether it still runs; unknown where it ran on another machine.
    pub fn is_alive(&self) -> Option<bool> {
        let known = self.id > 0 && self.machine == machine() && !self.boot.is_empty();
        known.then(|| self.boot == boot() && start_ticks(self.id) == Some(self.start_ticks))
    }
}

/// When a process began, as Linux counts: the 22nd field of its `stat`; the second may hold anything.
fn start_ticks(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    if is_zombie { None } else { fields.nth(18)?.parse().ok() }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_that_ended_is_not() {
        let own = ProcessFacts::own(None);
        assert_eq!(own.is_alive(), Some(true));
        assert_eq!(ProcessFacts { start_ticks: own.start_ticks + 1, ..own.clone() }.is_alive(), Some(false));
        assert_eq!(ProcessFacts { boot: "another".into(), ..own.clone() }.is_alive(), Some(false));
        assert_eq!(ProcessFacts { machine: "elsewhere".into(), ..own }.is_alive(), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of_child =
            ProcessFacts { id: child.id(), start_ticks: start_ticks(child.id()).unwrap(), ..ProcessFacts::own(None) };
        assert_eq!(of_child.is_alive(), Some(true));
        child.kill().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(of_child.is_alive(), Some(false), "killed, and nobody has asked for it yet");
        child.wait().unwrap();
    }

    #[test]
    fn what_another_version_wrote_is_read_as_far_as_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RunFile::read(dir.path()), None);
        fs::write(dir.path().join(FILE), r#"{"kind":"voice","new":[1],"corpus":{"clips":3}}"#).unwrap();
        let read = RunFile::read(dir.path()).unwrap();
        assert_eq!((read.kind.as_str(), read.corpus.clips, read.steps), ("voice", 3, None));
        read.write(dir.path()).unwrap();
        assert_eq!(RunFile::read(dir.path()), Some(read));
    }
}
