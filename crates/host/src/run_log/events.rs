//! What happened in a run, a line each.

use super::unix_time_s;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};

const FILE: &str = "events.jsonl";
/// The newest that are shown.
const MOST: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    Started,
    Validated,
    /// A checkpoint was written.
    Saved,
    /// The checkpoint of this step has the lowest held-out loss so far.
    Best,
    Warning,
    /// What keeps the run from going faster, as `profile` would say it.
    Verdict,
    /// Nothing keeps it any more.
    Well,
    /// Somebody wrote something down.
    Note,
    /// All is done.
    Ended,
    /// It was told to stop.
    Stopped,
    /// It ended with an error.
    Failed,
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub step: u64,
    /// Unix time.
    pub time: f64,
    pub kind: EventKind,
    pub text: String,
}

impl Event {
    pub fn now(step: u64, kind: EventKind, text: impl Into<String>) -> Self {
        Event { step, time: unix_time_s(), kind, text: text.into() }
    }
}

/// Writes what happens in a run to the end of its file.
pub struct EventLog {
    file: File,
}

impl EventLog {
    /// `resume_from`: what an earlier try wrote behind this step is dropped, notes excepted. `None` starts anew.
    pub fn create(log_dir: &Path, resume_from: Option<u64>) -> io::Result<Self> {
        let path = log_dir.join(FILE);
        let kept: Vec<Event> = match resume_from {
            Some(step) => read(&path)?.filter(|event| event.step <= step || event.kind == EventKind::Note).collect(),
            None => Vec::new(),
        };
        // Those of the end are of that try: the run goes on.
        let over = |kind| matches!(kind, EventKind::Ended | EventKind::Stopped | EventKind::Failed);
        let kept = kept.into_iter().filter(|event| !over(event.kind));
        let unfinished = log_dir.join(".events.jsonl");
        let mut text = Vec::new();
        for event in kept {
            serde_json::to_writer(&mut text, &event)?;
            text.push(b'\n');
        }
        fs::write(&unfinished, text)?;
        fs::rename(unfinished, &path)?;
        Ok(EventLog { file: OpenOptions::new().append(true).open(path)? })
    }

    pub fn add(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Adds an event to the file of a run that nobody holds open any more. What cannot be written is not.
    pub fn append(log_dir: &Path, event: &Event) {
        if let Ok(file) = OpenOptions::new().create(true).append(true).open(log_dir.join(FILE)) {
            let _ = EventLog { file }.add(event);
        }
    }

    /// The newest events of a run, oldest first.
    pub fn newest(log_dir: &Path) -> Vec<Event> {
        let mut events: Vec<Event> = read(&log_dir.join(FILE)).map_or_else(|_| Vec::new(), Iterator::collect);
        events.drain(..events.len().saturating_sub(MOST));
        events
    }
}

/// All that can be read; lines that were cut are not.
fn read(path: &PathBuf) -> io::Result<Box<dyn Iterator<Item = Event>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Box::new(std::iter::empty())),
        opened => BufReader::new(opened?),
    };
    let lines = file.split(b'\n').map_while(Result::ok);
    Ok(Box::new(lines.filter_map(|line| serde_json::from_slice(&line).ok())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_keeps_what_came_before_and_every_note() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(dir.path(), None).unwrap();
        let event = |step, kind| Event::now(step, kind, "text");
        for (step, kind) in [
            (0, EventKind::Started),
            (10, EventKind::Saved),
            (20, EventKind::Validated),
            (25, EventKind::Note),
            (10, EventKind::Stopped),
        ] {
            log.add(&event(step, kind)).unwrap();
        }
        log.file.write_all(b"{\"step\":3,\"ti").unwrap();
        let kinds = |dir: &Path| EventLog::newest(dir).iter().map(|event| event.kind).collect::<Vec<_>>();
        assert_eq!(kinds(dir.path()).len(), 5);
        EventLog::create(dir.path(), Some(10)).unwrap().add(&event(10, EventKind::Started)).unwrap();
        let wanted = [EventKind::Started, EventKind::Saved, EventKind::Note, EventKind::Started];
        assert_eq!(kinds(dir.path()), wanted);
        EventLog::create(dir.path(), None).unwrap();
        assert!(kinds(dir.path()).is_empty());
    }

    #[test]
    fn a_kind_of_a_later_version_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{\"step\":1,\"time\":2,\"kind\":\"danced\",\"text\":\"\"}\n").unwrap();
        assert_eq!(EventLog::newest(dir.path())[0].kind, EventKind::Other);
    }
}
