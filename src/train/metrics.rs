//! The figures of a run, written twice: TensorBoard event files for people, `metrics.jsonl` for programs.

use super::tensorboard::EventWriter;
use crate::picture::Picture;
use anyhow::{Context, Result};
use host::run_log::{METRICS as FILE, unix_time_s};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where the figures of an earlier run go when a new one starts in the same folder.
const PREVIOUS: &str = "metrics.previous.jsonl";

/// Writes the figures of a run. Both files are flushed at every call, so a run that is killed loses nothing it has logged.
pub struct MetricsWriter {
    events: EventWriter,
    lines: File,
    path: PathBuf,
}

impl MetricsWriter {
    /// `resume_from`: the step of the checkpoint that the run goes on from. What an earlier try logged after it is
    /// dropped, for those steps are about to happen again. `None` starts anew.
    pub fn create(log_dir: &Path, resume_from: Option<u64>) -> Result<Self> {
        let mut events = EventWriter::create(log_dir)?;
        let path = log_dir.join(FILE);
        match resume_from {
            Some(step) => keep_until(&path, step),
            None => set_aside(&path),
        }
        .with_context(|| path.display().to_string())?;
        events.restart(resume_from.map_or(0, |step| step + 1))?;
        events.flush()?;
        let lines = OpenOptions::new().create(true).append(true).open(&path);
        let lines = lines.with_context(|| path.display().to_string())?;
        Ok(Self { events, lines, path })
    }

    /// One JSON object and one scalar per figure. A figure that is not finite is `null` in JSON, which has no NaN.
    pub fn log<S: AsRef<str>>(&mut self, step: u64, figures: &[(S, f64)]) -> Result<()> {
        let mut line = serde_json::to_vec(&Line { step, time: unix_time_s(), figures })?;
        line.push(b'\n');
        self.lines.write_all(&line).with_context(|| self.path.display().to_string())?;
        for (tag, value) in figures {
            self.events.scalar(tag.as_ref(), step, *value)?;
        }
        Ok(self.events.flush()?)
    }

    pub fn image(&mut self, tag: &str, step: u64, picture: &Picture) -> Result<()> {
        self.events.image(tag, step, picture)?;
        Ok(self.events.flush()?)
    }

    /// `samples`: mono, -1..1.
    pub fn audio(&mut self, tag: &str, step: u64, samples: &[f32], rate_hz: u32) -> Result<()> {
        self.events.audio(tag, step, samples, rate_hz)?;
        Ok(self.events.flush()?)
    }

    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> Result<()> {
        self.events.text(tag, step, text)?;
        Ok(self.events.flush()?)
    }
}

/// A map, so that the figures keep the caller's order behind step and time.
struct Line<'a, S> {
    step: u64,
    time: f64,
    figures: &'a [(S, f64)],
}

impl<N: AsRef<str>> Serialize for Line<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2 + self.figures.len()))?;
        map.serialize_entry("step", &self.step)?;
        map.serialize_entry("time", &self.time)?;
        self.figures.iter().try_for_each(|(name, value)| map.serialize_entry(name.as_ref(), value))?;
        map.end()
    }
}

/// Rewrites the file under another name and renames it, so that a crash leaves the old or the new one.
fn keep_until(path: &Path, last_step: u64) -> std::io::Result<()> {
    let old = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => BufReader::new(opened?),
    };
    let unfinished = path.with_extension("jsonl.tmp");
    let mut new = BufWriter::new(File::create(&unfinished)?);
    for line in old.split(b'\n') {
        let line = line?;
        if step_of(&line).is_some_and(|step| step <= last_step) {
            new.write_all(&line)?;
            new.write_all(b"\n")?;
        }
    }
    new.into_inner()?.sync_all()?;
    fs::rename(unfinished, path)
}

/// `None` for a line that a crash cut off.
fn step_of(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(line).ok()?.get("step")?.as_u64()
}

fn set_aside(path: &Path) -> std::io::Result<()> {
    match fs::metadata(path) {
        Ok(old) if old.len() > 0 => fs::rename(path, path.with_file_name(PREVIOUS)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lines(dir: &Path, file: &str) -> Vec<Value> {
        let text = fs::read_to_string(dir.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn steps(dir: &Path, file: &str) -> Vec<u64> {
        lines(dir, file).iter().map(|line| line["step"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_line_holds_step_time_and_the_figures_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut metrics = MetricsWriter::create(dir.path(), None).unwrap();
        metrics.log(7, &[("loss", 0.25), ("grad_norm", f64::NAN), ("a", 1e-4)]).unwrap();

        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(text.starts_with(r#"{"step":7,"time":1"#) && text.ends_with("\n"), "{text}");
        assert!(text.contains(r#""loss":0.25,"grad_norm":null,"a":0.0001}"#), "{text}");
        assert_eq!(lines(dir.path(), FILE)[0]["grad_norm"], json!(null));
    }

    #[test]
    fn resuming_drops_later_steps_and_a_torn_line_then_appends() {
        let dir = tempfile::tempdir().unwrap();
        let mut metrics = MetricsWriter::create(dir.path(), None).unwrap();
        (1..=5).for_each(|step| metrics.log(step, &[("loss", 1.0)]).unwrap());
        metrics.lines.write_all(br#"{"step":2,"ti"#).unwrap();

        let mut resumed = MetricsWriter::create(dir.path(), Some(3)).unwrap();
        resumed.log(4, &[("loss", 0.5)]).unwrap();
        assert_eq!(steps(dir.path(), FILE), [1, 2, 3, 4]);
        assert_eq!(lines(dir.path(), FILE)[3]["loss"], json!(0.5));
        assert!(!dir.path().join("metrics.jsonl.tmp").exists());
    }

    #[test]
    fn starting_anew_sets_the_old_figures_aside() {
        let dir = tempfile::tempdir().unwrap();
        MetricsWriter::create(dir.path(), None).unwrap().log::<&str>(9, &[]).unwrap();
        MetricsWriter::create(dir.path(), None).unwrap().log::<&str>(1, &[]).unwrap();
        assert_eq!(steps(dir.path(), FILE), [1]);
        assert_eq!(steps(dir.path(), PREVIOUS), [9]);
    }

    #[test]
    fn resuming_without_a_file_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        MetricsWriter::create(dir.path(), Some(3)).unwrap().log::<&str>(4, &[]).unwrap();
        assert_eq!(steps(dir.path(), FILE), [4]);
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::create_dir_all(path.join("folder")).unwrap();
        let error = MetricsWriter::create(dir.path(), Some(3)).err().unwrap();
        assert!(format!("{error:#}").starts_with(&path.display().to_string()), "{error:#}");
    }
}
