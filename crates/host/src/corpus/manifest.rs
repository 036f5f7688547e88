//! JSON-lines manifests: an object for each clip, with `audio_filepath`, `text`, `speaker` and `language` as NeMo
//! writes them, or a cut or supervision of Lhotse. Paths may be absolute, unlike in other layouts: both write such.

use super::builder::{CorpusBuilder, Row};
use super::columns::{AUDIO, LANGUAGE, NORMALISED, SPEAKER, TEXT};
use super::detect::{Folder, Metadata};
use super::lhotse::{self, RecordingIndex};
use super::lines::{self, Lines};
use super::recordings::{Recordings, inside, without_extension};
use super::tree::Tree;
use super::{CorpusFormat, Error, Reader, language};
use crate::error::Hint;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A folder may hold a .json file for each clip, which would all have to be opened.
const LOOK_FILES: usize = 64;

pub(super) type Object = Map<String, Value>;

/// A clip as the line of a manifest tells it.
pub(super) struct Entry {
    pub id: Option<String>,
    pub audio: String,
    pub text: String,
    pub speaker: Option<String>,
    pub language: Option<String>,
}

pub(super) const READER: Reader = Reader {
    format: CorpusFormat::Manifest,
    parts: "expected a file .jsonl or .json whose lines hold `audio_filepath` and `text`",
    extensions: &["json", "jsonl"],
    find,
    recognise: |metadata| Ok(Some(format!("{} has lines of JSON with a recording and a text", metadata.file_name()))),
    read,
    has_lists: true,
};

/// The only manifest, or one for training with at most one for validation.
fn find(folder: &Folder) -> Result<Option<Metadata>, Error> {
    let by_name = folder.names.iter().filter(|name| name.ends_with(".jsonl") || name.ends_with(".json"));
    let manifests: Vec<&String> =
        by_name.take(LOOK_FILES).filter(|name| is_manifest(&folder.tree, &folder.dir.join(name))).collect();
    let of_part = |parts: &[&str]| -> Vec<&String> {
        let has_part = |name: &str| name.split(|c: char| !c.is_alphanumeric()).any(|word| parts.contains(&word));
        manifests.iter().copied().filter(|name| has_part(name)).collect()
    };
    let (training, validation) = (of_part(&["train"]), of_part(&["val", "valid", "validation", "dev", "eval"]));
    let test = of_part(&["test"]);
    Ok(match (&manifests[..], &training[..], &validation[..]) {
        ([], ..) => None,
        ([only], ..) => Some(folder.metadata(only, None)),
        (all, [training], [] | [_]) if all.len() == 1 + validation.len() + test.len() => {
            Some(folder.metadata(training, validation.first().map(|name| name.as_str())))
        }
        (all, ..) => {
            let names = all.iter().map(|name| (*name).clone()).collect();
            let hint = Hint::new("name one instead of the folder");
            return Err(Error::Several { path: folder.dir.clone(), names, hint });
        }
    })
}

fn read(file: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
    let dir = file.parent().unwrap_or(Path::new(""));
    let (mut lines, mut index) =
        (Lines::open(&builder.recordings.tree, file)?, RecordingIndex::beside(&builder.recordings.tree, file));
    while let Some((number, line)) = lines.next()? {
        let entry = line.and_then(object).and_then(|object| entry(&object, &mut index));
        let row = entry.and_then(|entry| row(entry, dir, &mut builder.recordings));
        builder.add(file, number, row);
    }
    Ok(())
}

fn is_manifest(tree: &Tree, file: &Path) -> bool {
    let head = lines::head(tree, file, 1).unwrap_or_default();
    let is_clip = |object: Object| {
        let has = |names: &[&str]| names.iter().any(|name| object.contains_key(*name));
        has(&["supervisions", "recording_id"]) || (has(&AUDIO) && (has(&TEXT) || has(&NORMALISED)))
    };
    head.first().and_then(|line| object(line).ok()).is_some_and(is_clip)
}

fn object(line: &str) -> Result<Object, String> {
    serde_json::from_str(line).map_err(|error| match error.is_data() {
        true => "JSON, but not an object".into(),
        false => format!("not JSON, at column {}", error.column()),
    })
}

fn entry(object: &Object, recordings: &mut RecordingIndex) -> Result<Entry, String> {
    if object.contains_key("supervisions") {
        lhotse::cut(object)
    } else if object.contains_key("recording_id") {
        lhotse::supervision(object, recordings)
    } else {
        nemo(object)
    }
}

fn nemo(object: &Object) -> Result<Entry, String> {
    let find = |names: &[&str]| names.iter().find_map(|name| field(object, name));
    if let Some(offset_s) = object.get("offset").and_then(Value::as_f64).filter(|offset_s| *offset_s != 0.0) {
        return Err(format!("a part of a recording, from {offset_s} s on: cut it into a file of its own"));
    }
    Ok(Entry {
        id: field(object, "id"),
        audio: find(&AUDIO).ok_or("no `audio_filepath`")?,
        text: find(&NORMALISED).or_else(|| find(&TEXT)).ok_or("no `text`, or an empty one")?,
        speaker: find(&SPEAKER),
        language: find(&LANGUAGE),
    })
}

/// The field of an object that is a text or a number, and not empty.
pub(super) fn field(object: &Object, name: &str) -> Option<String> {
    match object.get(name)? {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn row(entry: Entry, dir: &Path, recordings: &mut Recordings) -> Result<Row, String> {
    let language = entry.language.as_deref().map(language::code).transpose()?;
    let audio = locate(&entry.audio, dir, recordings)?;
    let audio = recordings.tree.source(audio);
    let id = entry.id.unwrap_or_else(|| path_id(&entry.audio, dir));
    Ok(Row { id, audio, text: entry.text, speaker: entry.speaker, language })
}

/// The recording of a path. Relative ones start at the manifest, as NeMo has it, or at the current directory, as Lhotse
/// has it.
fn locate(audio: &str, dir: &Path, recordings: &mut Recordings) -> Result<PathBuf, String> {
    let candidates = if Path::new(audio).is_absolute() {
        vec![PathBuf::from(audio)]
    } else {
        let audio = inside(audio)?;
        let here = std::env::current_dir().unwrap_or_default();
        vec![dir.join(&audio), here.join(&audio)]
    };
    candidates.into_iter().find(|path| recordings.has(path)).ok_or_else(|| format!("no recording {audio}"))
}

/// An id out of a path: relative to the manifest where it can be, so that a corpus may move.
fn path_id(audio: &str, dir: &Path) -> String {
    let short = Path::new(audio).strip_prefix(dir).ok().and_then(Path::to_str).unwrap_or(audio);
    let plain = short.strip_prefix("./").unwrap_or(short);
    without_extension(plain).unwrap_or(plain).into()
}

#[cfg(test)]
mod tests {
    use crate::config::CorpusFormat;
    use crate::corpus::tests::{auto, folder, told};
    use crate::corpus::{Error, ReadOptions, read};

    #[test]
    fn nemo_with_relative_and_absolute_paths() {
        let dir = folder(&[("audio/a.wav", b""), ("audio/b.flac", b"")]);
        let absolute = dir.path().join("audio/b.flac");
        let rows = [
            r#"{"audio_filepath": "audio/a.wav", "duration": 1.2, "text": "He said \"so\"", "speaker": 7}"#,
            r#"{"audio_filepath": ABSOLUTE, "text": "2", "normalized_text": "two", "language": "DE"}"#,
            r#"{"audio_filepath": "../a.wav", "text": "up"}"#,
            r#"{"audio_filepath": "audio/a.wav"}"#,
            r#"{"audio_filepath": "audio/a.wav", "text": "x", "offset": 2.5}"#,
            "[1]",
            r#"{"text": "x"}"#,
            r#"{"audio_filepath": "/absent/a.wav", "text": "x"}"#,
            r#"{"audio_filepath": "./audio/a.wav", "text": "x"}"#,
        ];
        let rows = rows.join("\r\n").replace("ABSOLUTE", &format!("{absolute:?}"));
        std::fs::write(dir.path().join("my_manifest.json"), rows).unwrap();
        let corpus = auto(&dir).unwrap();
        assert_eq!(corpus.format, CorpusFormat::Manifest);
        let [a, b] = &told(&dir, &corpus)[..] else { panic!("{:?}", corpus.utterances) };
        assert_eq!(*a, ["audio/a", "audio/a.wav", "He said \"so\"", "7", ""]);
        assert_eq!(([&b[0], &b[1], &b[2], &b[4]]), ["audio/b", "audio/b.flac", "two", "de"]);
        let problems: Vec<_> = corpus.problems.iter().map(|problem| (problem.line, problem.what.as_str())).collect();
        assert_eq!(
            problems,
            [
                (3, "`../a.wav` leads out of the corpus"),
                (4, "no `text`, or an empty one"),
                (5, "a part of a recording, from 2.5 s on: cut it into a file of its own"),
                (6, "JSON, but not an object"),
                (7, "no `audio_filepath`"),
                (8, "no recording /absent/a.wav"),
                (9, "id `audio/a` again, first on line 1"),
            ]
        );
    }

    #[test]
    fn a_pair_of_manifests_and_too_many() {
        let row = |name: &str| format!("{{\"audio_filepath\": \"{name}.wav\", \"text\": \"text\"}}\n");
        let (a, b) = (row("a"), row("b"));
        let dir = folder(&[
            ("train_manifest.json", a.as_bytes()),
            ("dev_manifest.json", b.as_bytes()),
            ("test_manifest.json", b.as_bytes()),
            ("notes.json", b"{\"text\": 1}"),
            ("a.wav", b""),
            ("b.wav", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.utterances.len(), corpus.validation_from), (2, Some(1)));
        std::fs::write(dir.path().join("more.jsonl"), b).unwrap();
        let error = auto(&dir).unwrap_err();
        assert!(matches!(&error, Error::Several { names, .. } if names.len() == 4), "{error}");
        let one = read(&dir.path().join("more.jsonl"), &ReadOptions::default()).unwrap();
        assert_eq!(one.utterances.get(0).id, "b");
    }
}
