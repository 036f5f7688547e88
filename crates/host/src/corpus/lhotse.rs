//! Lhotse's own manifests: cuts carry their recording with them, supervisions name one of a second file.
//!
//! A clip is a whole file here, so a cut or supervision that is a part of its recording is refused.

use super::lines::Lines;
use super::manifest::{Entry, Object, field};
use super::tree::Tree;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Durations are rounded, and differ by a frame between decoders.
const TOLERANCE_S: f64 = 0.1;

#[derive(Clone)]
struct Recorded {
    path: String,
    duration_s: Option<f64>,
}

/// Recordings by their id, from `x_recordings_y.jsonl` beside `x_supervisions_y.jsonl`; read when first asked for.
pub(super) struct RecordingIndex {
    tree: Tree,
    file: Option<PathBuf>,
    read: Option<Result<HashMap<String, Recorded>, String>>,
}

impl RecordingIndex {
    pub fn beside(tree: &Tree, file: &Path) -> Self {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let other = name.replace("supervisions", "recordings");
        Self { tree: tree.clone(), file: (other != name).then(|| file.with_file_name(other)), read: None }
    }

    fn find(&mut self, id: &str) -> Result<Recorded, String> {
        let file = self.file.as_deref().ok_or("a supervision, in a file that is not called supervisions")?;
        let all = self.read.get_or_insert_with(|| recordings(&self.tree, file));
        let found = all.as_ref().map_err(Clone::clone)?.get(id);
        found.cloned().ok_or_else(|| format!("recording `{id}` is not in {}", file.display()))
    }
}

pub(super) fn cut(cut: &Object) -> Result<Entry, String> {
    let supervision = match cut.get("supervisions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
        [Value::Object(only)] => only,
        all => return Err(format!("{} supervisions in a cut, expected 1", all.len())),
    };
    let recording = cut.get("recording").and_then(Value::as_object).ok_or("a cut without a recording of its own")?;
    entry(supervision, field(cut, "id"), recorded(recording)?, span(cut))
}

pub(super) fn supervision(supervision: &Object, recordings: &mut RecordingIndex) -> Result<Entry, String> {
    let recording = recordings.find(&field(supervision, "recording_id").unwrap_or_default())?;
    entry(supervision, field(supervision, "id"), recording, span(supervision))
}

fn entry(said: &Object, id: Option<String>, recording: Recorded, span: (f64, Option<f64>)) -> Result<Entry, String> {
    let (start_s, duration_s) = span;
    let is_shorter = duration_s.zip(recording.duration_s).is_some_and(|(part, whole)| whole - part > TOLERANCE_S);
    if start_s > TOLERANCE_S || is_shorter {
        return Err(format!("a part of a recording, from {start_s} s on: cut it into a file of its own"));
    }
    Ok(Entry {
        id,
        audio: recording.path,
        text: field(said, "text").ok_or("no `text`, or an empty one")?,
        speaker: field(said, "speaker"),
        language: field(said, "language"),
    })
}

/// Start and duration of an object, in seconds.
fn span(object: &Object) -> (f64, Option<f64>) {
    let seconds = |name| object.get(name).and_then(Value::as_f64);
    (seconds("start").unwrap_or(0.0), seconds("duration"))
}

fn recorded(recording: &Object) -> Result<Recorded, String> {
    let source = match recording.get("sources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
        [Value::Object(only)] => only,
        all => return Err(format!("{} sources of a recording, expected 1", all.len())),
    };
    let kind = field(source, "type").unwrap_or_default();
    if kind != "file" {
        return Err(format!("its recording is of the type `{kind}`, expected `file`"));
    }
    let path = field(source, "source").ok_or("its recording has no path")?;
    Ok(Recorded { path, duration_s: span(recording).1 })
}

/// Recordings of a file by their id. What is wrong with one of them shows when a supervision asks for it.
fn recordings(tree: &Tree, file: &Path) -> Result<HashMap<String, Recorded>, String> {
    let mut lines = Lines::open(tree, file).map_err(|error| error.to_string())?;
    let mut all = HashMap::new();
    while let Some((_, line)) = lines.next().map_err(|error| error.to_string())? {
        let object = line.ok().and_then(|line| serde_json::from_str::<Object>(line).ok());
        let pair = object.and_then(|object| Some((field(&object, "id")?, recorded(&object).ok()?)));
        all.extend(pair);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use crate::corpus::Corpus;
    use crate::corpus::tests::{auto, folder, told};
    use serde_json::{Value, json};

    /// As `Recording.to_dict` of Lhotse 1.x writes it.
    fn recording(id: &str, duration_s: f64) -> Value {
        let sources = json!([{"type": "file", "channels": [0], "source": format!("{id}.wav")}]);
        json!({"id": id, "sources": sources, "sampling_rate": 16000, "num_samples": (duration_s * 16e3) as u64,
            "duration": duration_s, "channel_ids": [0]})
    }

    fn supervision(id: &str, recording: &str, start_s: f64, duration_s: f64) -> Value {
        json!({"id": id, "recording_id": recording, "start": start_s, "duration": duration_s, "channel": 0,
            "text": "some text", "language": "English", "speaker": "p1"})
    }

    fn cut(id: &str, duration_s: f64, supervisions: Vec<Value>) -> Value {
        json!({"id": id, "start": 0.0, "duration": duration_s, "channel": 0, "supervisions": supervisions,
            "recording": recording("r1", 2.0), "type": "MonoCut"})
    }

    fn lines(rows: &[Value]) -> Vec<u8> {
        rows.iter().map(|row| format!("{row}\n")).collect::<String>().into_bytes()
    }

    fn problems(corpus: &Corpus) -> Vec<(usize, &str)> {
        corpus.problems.iter().map(|problem| (problem.line, problem.what.as_str())).collect()
    }

    #[test]
    fn cuts_of_whole_recordings() {
        let mut url = cut("c5", 2.0, vec![supervision("s", "r1", 0.0, 2.0)]);
        url["recording"]["sources"][0]["type"] = "url".into();
        let rows = lines(&[
            cut("c1", 2.0, vec![supervision("s", "r1", 0.1, 1.8)]),
            cut("c2", 1.0, vec![supervision("s", "r1", 0.0, 1.0)]),
            cut("c3", 2.0, vec![]),
            json!({"id": "c4", "tracks": [], "type": "MixedCut", "supervisions": [{"text": "x"}]}),
            url,
        ]);
        let dir = folder(&[("cuts.jsonl", &rows), ("r1.wav", b"")]);
        let corpus = auto(&dir).unwrap();
        assert_eq!(told(&dir, &corpus), [["c1", "r1.wav", "some text", "p1", "en"]]);
        let truth = [
            (2, "a part of a recording, from 0 s on: cut it into a file of its own"),
            (3, "0 supervisions in a cut, expected 1"),
            (4, "a cut without a recording of its own"),
            (5, "its recording is of the type `url`, expected `file`"),
        ];
        assert_eq!(problems(&corpus), truth);
    }

    #[test]
    fn supervisions_with_their_recordings() {
        let said = lines(&[
            supervision("s1", "r1", 0.0, 2.0),
            supervision("s2", "r2", 1.0, 1.0),
            supervision("s3", "r3", 0.0, 2.0),
        ]);
        let recorded = lines(&[recording("r1", 2.03), recording("r2", 5.0)]);
        let dir = folder(&[
            ("my_supervisions_train.jsonl", &said),
            ("my_recordings_train.jsonl", &recorded),
            ("r1.wav", b""),
            ("r2.wav", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        assert_eq!(told(&dir, &corpus), [["s1", "r1.wav", "some text", "p1", "en"]]);
        let found = problems(&corpus);
        assert_eq!(found[0], (2, "a part of a recording, from 1 s on: cut it into a file of its own"));
        assert!(found[1].1.starts_with("recording `r3` is not in "), "{found:?}");
    }
}
