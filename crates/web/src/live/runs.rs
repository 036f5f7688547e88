//! The runs that are shown. A number in an address is looked up in this table and goes nowhere else: no path is made of it.

use host::run_log::{
    EventLog, HeardFile, MetricsReader, RangeQuery, RunFile, RunFolder, RunState, SampleFolder, Series, find_runs,
    word_error_percent,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// New runs are looked for this often at most, and for this part of the time.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_SHARE: u32 = 20;

pub struct RunTable {
    /// Folders that are searched; none where runs were named.
    roots: Vec<PathBuf>,
    known: Mutex<Known>,
}

struct Known {
    /// When runs were looked for, and how long that took.
    looked: Option<(Instant, Duration)>,
    /// Numbers in the order in which runs are shown.
    order: Vec<String>,
    runs: BTreeMap<String, Arc<ShownRun>>,
}

/// A run and what was read of it so far.
pub struct ShownRun {
    pub id: String,
    pub folder: RunFolder,
    pub reader: Mutex<MetricsReader>,
}

impl RunTable {
    /// All runs below some folders, whenever they begin.
    pub fn below(roots: Vec<PathBuf>) -> Self {
        let known = Known { looked: None, order: Vec::new(), runs: BTreeMap::new() };
        RunTable { roots, known: Mutex::new(known) }
    }

    /// One run alone.
    pub fn only(folder: RunFolder) -> Self {
        let table = RunTable::below(Vec::new());
        table.lock().add(folder);
        table
    }

    /// All runs, the newest first.
    pub fn all(&self) -> Vec<Arc<ShownRun>> {
        let mut known = self.lock();
        let is_due = |(looked, took): (Instant, Duration)| looked.elapsed() > LOOK.max(took * LOOK_SHARE);
        if !self.roots.is_empty() && known.looked.is_none_or(is_due) {
            let start = Instant::now();
            known.order.clear();
            for folder in self.roots.iter().flat_map(|root| find_runs(root)) {
                known.add(folder);
            }
            let Known { order, runs, .. } = &mut *known;
            runs.retain(|id, _| order.contains(id));
            known.looked = Some((Instant::now(), start.elapsed()));
        }
        known.order.iter().map(|id| known.runs[id].clone()).collect()
    }

    pub fn get(&self, id: &str) -> Option<Arc<ShownRun>> {
        let known = |id| self.lock().runs.get(id).cloned();
        // A page may be older than this server.
        known(id).or_else(|| {
            self.all();
            known(id)
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn add(&mut self, folder: RunFolder) {
        let id = blake3::hash(folder.log_dir.as_os_str().as_encoded_bytes()).to_hex()[..12].to_owned();
        if self.order.contains(&id) {
            return; // two folders that were given hold it
        }
        self.order.push(id.clone());
        let reader = || Mutex::new(MetricsReader::new(folder.metrics()));
        let fresh = || Arc::new(ShownRun { id: id.clone(), reader: reader(), folder: folder.clone() });
        self.runs.entry(id.clone()).or_insert_with(fresh);
    }
}

impl ShownRun {
    /// A line of the list: how the run stands.
    pub fn summary(&self) -> Value {
        let (facts, events) = (RunFile::read(&self.folder.log_dir), EventLog::newest(&self.folder.log_dir));
        let last: BTreeMap<String, f64> = self.folder.newest_figures().into_iter().collect();
        let (written, bytes) = self.folder.written();
        json!({
            "id": self.id,
            "name": self.folder.name,
            "state": self.folder.state(facts.as_ref(), &events),
            "kind": facts.as_ref().map(|facts| &facts.kind),
            "steps": facts.as_ref().and_then(|facts| facts.steps),
            "live": facts.as_ref().and_then(|facts| facts.process.live.as_ref()),
            "step": last.get("step"),
            "loss": last.get("loss"),
            "held_out": last.get("validation/loss"),
            "written": written,
            "bytes": bytes + HeardFile::of(&self.folder.log_dir).bytes(),
        })
    }

    /// Word error over the steps, where somebody has listened.
    pub fn word_error(&self, range: Option<RangeQuery>) -> Series {
        let log_dir = &self.folder.log_dir;
        word_error_percent(&HeardFile::of(log_dir).read(), &SampleFolder::of(log_dir).clips(), range)
    }

    /// All that is said about the run besides its curves.
    pub fn details(&self, latest: Value, names: Vec<String>) -> Value {
        let log_dir = &self.folder.log_dir;
        let (facts, events) = (RunFile::read(log_dir), EventLog::newest(log_dir));
        let samples = SampleFolder::of(log_dir);
        let clips: Vec<Value> = samples
            .clips()
            .into_iter()
            .enumerate()
            .map(|(at, clip)| {
                let mut shown = json!(clip);
                shown["recorded"] = samples.has_recording(at).into();
                shown
            })
            .collect();
        let heard = HeardFile::of(log_dir).read();
        let heard: Vec<_> = heard.iter().map(|line| (line.step, line.clip, line.edits, line.of)).collect();
        let state: RunState = self.folder.state(facts.as_ref(), &events);
        json!({
            "id": self.id,
            "name": self.folder.name,
            "place": log_dir.display().to_string(),
            "state": state,
            "facts": facts,
            "latest": latest,
            "names": names,
            "events": events,
            "checkpoints": self.folder.checkpoints(),
            "clips": clips,
            "sample_steps": samples.steps(),
            "heard": heard,
        })
    }
}
