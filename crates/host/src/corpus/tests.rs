//! Corpora as their users have them: found by looking, read right, and never a panic.

use super::*;
use crate::error::Explained;
use clap::ValueEnum;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fs;
use tempfile::TempDir;

/// A folder with these files; `/` makes folders.
pub(super) fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::Builder::new().prefix("voice-").tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    dir
}

pub(super) fn auto(dir: &TempDir) -> Result<Corpus, Error> {
    read(dir.path(), &ReadOptions::default())
}

/// An error as a user sees it: its fact, then its hint.
pub(super) fn explained(error: Error) -> String {
    Explained::of(&error).to_string()
}

/// `id, recording in the folder, text, speaker, language` of each utterance.
pub(super) fn told(dir: &TempDir, corpus: &Corpus) -> Vec<[String; 5]> {
    let tell = |row: UtteranceRef| {
        let path = row.audio.file().unwrap();
        let audio = path.strip_prefix(dir.path()).unwrap_or(path).to_str().unwrap().to_owned();
        let language = row.language.unwrap_or_default();
        [row.id, &audio, row.text, row.speaker, language].map(str::to_owned)
    };
    corpus.utterances.iter().map(tell).collect()
}

#[test]
fn every_layout_has_one_reader() {
    let in_shards = [CorpusFormat::Auto, CorpusFormat::Webdataset, CorpusFormat::Parquet, CorpusFormat::Shar];
    let layouts = CorpusFormat::value_variants().iter().filter(|format| !in_shards.contains(format));
    for format in layouts.clone() {
        assert_eq!(READERS.iter().filter(|reader| reader.format == *format).count(), 1, "{format}");
    }
    assert_eq!(READERS.len(), layouts.count());
}

#[test]
fn what_is_no_corpus_is_said() {
    let dir = folder(&[("metadata.csv", b"\r\n \n")]);
    let message = |dir: &TempDir| explained(auto(dir).unwrap_err());
    assert!(matches!(auto(&dir), Err(Error::Empty { .. })));
    fs::write(dir.path().join("metadata.csv"), "a|text\nb|text\n").unwrap();
    let none = message(&dir);
    assert!(none.contains("none of its 2 rows") && none.contains("metadata.csv:1: no recording wavs/a.wav"), "{none}");
    fs::remove_file(dir.path().join("metadata.csv")).unwrap();
    assert!(message(&dir).contains("no metadata were found\nhint: a corpus has a file metadata.csv"));
    fs::create_dir(dir.path().join("metadata.csv")).unwrap();
    assert!(message(&dir).contains("metadata.csv: not a file"));
    let at = |name: &str| explained(read(&dir.path().join(name), &ReadOptions::default()).unwrap_err());
    assert!(at("absent").contains("absent: no such corpus folder\nhint: "));
    fs::write(dir.path().join("a.wav"), b"").unwrap();
    assert!(at("a.wav").contains("a.wav: neither a corpus folder nor a metadata file"));
    fs::write(dir.path().join("cuts.jsonl.gz"), b"").unwrap();
    assert!(at("cuts.jsonl.gz").contains("compressed"));
}

#[test]
fn a_named_format_wins_over_what_is_seen() {
    let dir =
        folder(&[("metadata.csv", b"a|anna|one text\nb|anna|two texts\n"), ("wavs/a.wav", b""), ("wavs/b.wav", b"")]);
    let text = |format| {
        let corpus = read(dir.path(), &ReadOptions { format, speaker_pattern: None }).unwrap();
        (corpus.format, corpus.utterances.get(0).text.to_owned(), corpus.utterances.get(0).speaker.to_owned())
    };
    assert_eq!(text(CorpusFormat::Auto), (CorpusFormat::Piper, "one text".into(), "anna".into()));
    assert_eq!(text(CorpusFormat::Piper), text(CorpusFormat::Auto));
    assert!(text(CorpusFormat::Ljspeech).2.starts_with("voice-"));
    for (format, hint) in [
        (CorpusFormat::Vctk, "layout VCTK\nhint: expected folders txt/"),
        (CorpusFormat::CommonVoice, "layout Common Voice\nhint: expected validated.tsv"),
        (CorpusFormat::TwoFile, "metadata_train.csv and metadata_eval.csv"),
        (CorpusFormat::Manifest, "`audio_filepath` and `text`"),
    ] {
        let error = explained(read(dir.path(), &ReadOptions { format, speaker_pattern: None }).unwrap_err());
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn a_pattern_finds_the_speaker_in_the_id() {
    let dir = folder(&[
        ("metadata.csv", b"anna_1|one\nbob_2|two\nx3|three\n"),
        ("wavs/anna_1.wav", b""),
        ("wavs/bob_2.wav", b""),
        ("wavs/x3.wav", b""),
    ]);
    let options = ReadOptions { format: CorpusFormat::Auto, speaker_pattern: Some(Regex::new("^([a-z]+)_").unwrap()) };
    let corpus = read(dir.path(), &options).unwrap();
    let speakers: Vec<&str> = corpus.utterances.iter().map(|row| row.speaker).collect();
    assert_eq!(speakers, ["anna", "bob"]);
    assert!(corpus.problems[0].to_string().ends_with("metadata.csv:3: speaker_pattern finds no speaker in id `x3`"));
}

const AUDIO: [(&str, &[u8]); 5] =
    [("wavs/a.wav", b""), ("clips/a.mp3", b""), ("a.wav", b""), ("wav48/p1/p1_a.wav", b""), ("wavs_train/a.ogg", b"")];

/// A file of metadata for every reader, right as it is, to be spoilt.
const METADATA: [(&str, CorpusFormat, &str); 7] = [
    ("metadata.csv", CorpusFormat::Ljspeech, "id|text|normalised\na|Say \"hi\"|\na.wav|Dr. No|Doctor No\n"),
    ("metadata_train.csv", CorpusFormat::TwoFile, "audio_file|text|speaker_name\na.wav|Say so|anna\n"),
    ("metadata.csv", CorpusFormat::Piper, "wavs/a.wav|anna|Say so|en\nclips/a|bob|So it is|de_AT\n"),
    ("txt/p1/p1_a.txt", CorpusFormat::Vctk, "\u{feff}Please call Stella.\r\n"),
    ("validated.tsv", CorpusFormat::CommonVoice, "client_id\tpath\tsentence\tlocale\n1f\ta.mp3\tسلام\tfa\n"),
    (
        "train.json",
        CorpusFormat::Manifest,
        "{\"audio_filepath\": \"a.wav\", \"text\": \"so\", \"duration\": 1.5, \"speaker\": 3}\n",
    ),
    (
        "cuts.jsonl",
        CorpusFormat::Manifest,
        concat!(
            r#"{"id": "c", "start": 0, "duration": 1.0, "supervisions": [{"text": "so", "language": "English"}], "#,
            r#""recording": {"duration": 1.0, "sources": [{"type": "file", "source": "a.wav"}]}}"#
        ),
    ),
];

#[test]
fn every_sample_of_metadata_is_right_before_it_is_spoilt() {
    for (name, format, text) in METADATA {
        let dir = folder(&[&AUDIO[..], &[(name, text.as_bytes())]].concat());
        fs::remove_dir_all(dir.path().join(if format == CorpusFormat::Vctk { "clips" } else { "wav48" })).unwrap();
        let corpus = auto(&dir).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(corpus.format, format, "{name}");
        assert!(!corpus.utterances.is_empty() && corpus.problems.len() <= 1, "{name}: {:?}", corpus.problems);
    }
}

#[derive(Clone, Debug)]
pub(super) enum Spoil {
    Put(usize, Vec<u8>),
    Cut(usize, usize),
    Copy(usize, usize),
    Flip(usize, u8),
}

pub(super) fn spoil() -> impl Strategy<Value = Spoil> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..9),
        prop::sample::select(vec![
            "|", "\t", "\n", "\r", "\"", "\\", "..", "/", "\0", "\u{feff}", "{", "[", ":", ",", "1e999", "ß"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        (any::<usize>(), bytes).prop_map(|(at, bytes)| Spoil::Put(at, bytes)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Spoil::Cut(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Spoil::Copy(a, b)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, bits)| Spoil::Flip(at, bits)),
    ]
}

pub(super) fn spoilt(mut bytes: Vec<u8>, spoils: &[Spoil]) -> Vec<u8> {
    for spoil in spoils {
        let place = |at: usize| at % (bytes.len() + 1);
        match spoil {
            Spoil::Put(at, put) => drop(bytes.splice(place(*at)..place(*at), put.iter().copied())),
            Spoil::Cut(a, b) => drop(bytes.drain(place(*a).min(place(*b))..place(*a).max(place(*b)))),
            Spoil::Copy(a, b) => bytes.extend_from_within(place(*a).min(place(*b))..place(*a).max(place(*b))),
            Spoil::Flip(at, bits) => {
                let at = place(*at);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
            }
        }
    }
    bytes
}

/// Whatever is in the file: no panic, each row counted once at most, no recording outside the corpus.
fn try_metadata(dir: &TempDir, which: usize, bytes: &[u8]) -> Result<(), TestCaseError> {
    let (name, format, _) = METADATA[which];
    fs::write(dir.path().join(name), bytes).unwrap();
    if format == CorpusFormat::TwoFile {
        fs::write(dir.path().join("metadata_eval.csv"), bytes).unwrap();
    }
    let pattern = Some(Regex::new("(.)").unwrap());
    for (format, speaker_pattern) in [(CorpusFormat::Auto, None), (format, pattern)] {
        for path in [dir.path().to_path_buf(), dir.path().join(name)] {
            let options = ReadOptions { format, speaker_pattern: speaker_pattern.clone() };
            let Ok(Corpus { utterances, problems, .. }) = read(&path, &options) else { continue };
            prop_assert!(utterances.len() + problems.len() <= 2 * bytes.split(|byte| *byte == b'\n').count());
            prop_assert!(
                utterances.iter().all(|row| row.audio.file().is_some_and(|path| path.starts_with(dir.path())))
            );
            let is_whole = |row: UtteranceRef| !(row.text.is_empty() || row.id.is_empty() || row.speaker.is_empty());
            prop_assert!(utterances.iter().all(is_whole));
        }
    }
    Ok(())
}

/// The folders stay between cases: making them anew would take most of the time.
fn fuzz<T: Strategy>(cases: u32, strategy: T, metadata: impl Fn(usize, T::Value) -> Vec<u8>) {
    let dirs = METADATA.map(|(name, ..)| folder(&[&AUDIO[..], &[(name, b"")]].concat()));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let run = |(which, value)| try_metadata(&dirs[which], which, &metadata(which, value));
    runner.run(&(0..METADATA.len(), strategy), run).unwrap();
}

#[test]
fn spoilt_metadata_never_panic() {
    fuzz(500, prop::collection::vec(spoil(), 0..6), |which, spoils| spoilt(METADATA[which].2.into(), &spoils));
}

#[test]
fn random_metadata_never_panic() {
    fuzz(250, prop::collection::vec(any::<u8>(), 0..300), |_, bytes| bytes);
}
