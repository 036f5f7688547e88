//! The LJSpeech layout: `metadata.csv` with `id|text` or `id|raw|normalised`, and `wavs/<id>.wav`.
//!
//! Not CSV in spite of its name: nothing is quoted, so quotation marks are plain characters of the text.

use super::{Corpus, Error, Problem, Utterance};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

const EXTENSIONS: [&str; 4] = ["wav", "flac", "ogg", "mp3"];

pub fn read(dir: &Path) -> Result<Corpus, Error> {
    let path = dir.join("metadata.csv");
    let bytes = metadata(dir, &path)?;
    let speaker = folder_name(dir);
    let mut corpus = Corpus { utterances: vec![], problems: vec![] };
    let mut seen = HashMap::new();
    for (number, line) in lines(&bytes) {
        match utterance(line, dir, &speaker).and_then(|utterance| first_of_its_id(utterance, number, &mut seen)) {
            Ok(utterance) => corpus.utterances.push(utterance),
            Err(what) => corpus.problems.push(Problem { file: path.clone(), line: number, what }),
        }
    }
    match (corpus.utterances.is_empty(), corpus.problems.is_empty()) {
        (true, true) => Err(Error::Empty { path }),
        (true, false) => Err(Error::NoUsableRow { path, problems: corpus.problems }),
        _ => Ok(corpus),
    }
}

fn metadata(dir: &Path, path: &Path) -> Result<Vec<u8>, Error> {
    match fs::metadata(dir) {
        Ok(kind) if !kind.is_dir() => {
            let hint = "name the folder that holds metadata.csv and wavs/";
            Err(Error::Missing { path: dir.into(), what: "not a folder", hint })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = "`myxtts sample-corpus DIR` makes a small corpus to start with";
            Err(Error::Missing { path: dir.into(), what: "no such corpus folder", hint })
        }
        Err(cause) => Err(Error::Io { path: dir.into(), cause }),
        Ok(_) => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    match fs::metadata(path) {
        // A pipe or a device could be endless.
        Ok(kind) if kind.is_file() => fs::read(path).map_err(|cause| Error::Io { path: path.into(), cause }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Io { path: path.into(), cause: error }),
        _ => {
            let hint = "a corpus has a file metadata.csv with a line `id|text` for each recording wavs/<id>.wav";
            Err(Error::Missing { path: path.into(), what: "no such file", hint })
        }
    }
}

/// Lines with their numbers, less byte-order mark, CR and blank ones.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines.enumerate().filter(|(_, line)| !line.is_empty()).map(|(index, line)| (index + 1, line))
}

fn utterance(line: &[u8], dir: &Path, speaker: &str) -> Result<Utterance, String> {
    let line = std::str::from_utf8(line).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to() + 1))?;
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let (id, texts) = match columns[..] {
        [id, ref texts @ ..] if (1..=2).contains(&texts.len()) => (id, texts),
        _ => return Err(format!("columns: {}, expected `id|text` or `id|raw|normalised`", columns.len())),
    };
    let text = texts.iter().rfind(|text| !text.is_empty()).ok_or("the text is empty")?;
    let (id, audio) = recording(&dir.join("wavs"), id)?;
    Ok(Utterance { id, audio, text: text.to_string(), speaker: speaker.into(), language: None })
}

/// The id without extension, and its file.
fn recording(wavs: &Path, id: &str) -> Result<(String, PathBuf), String> {
    if id.is_empty() {
        return Err("the id is empty".into());
    }
    if !Path::new(id).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("id `{id}` leads out of the corpus"));
    }
    if let Some((stem, extension)) = id.rsplit_once('.')
        && EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
        && wavs.join(id).is_file()
    {
        return Ok((stem.into(), wavs.join(id)));
    }
    let mut candidates = EXTENSIONS.iter().map(|extension| wavs.join(format!("{id}.{extension}")));
    let audio = candidates.find(|path| path.is_file());
    audio.map(|audio| (id.into(), audio)).ok_or_else(|| format!("no recording wavs/{id}.wav (nor .flac, .ogg, .mp3)"))
}

fn first_of_its_id(row: Utterance, line: usize, seen: &mut HashMap<String, usize>) -> Result<Utterance, String> {
    match seen.get(&row.id) {
        Some(first) => Err(format!("id `{}` again, first on line {first}", row.id)),
        None => {
            seen.insert(row.id.clone(), line);
            Ok(row)
        }
    }
}

/// Resolved first, so that `.` has a name too.
fn folder_name(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.into());
    whole.file_name().map_or("speaker".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn corpus(metadata: &[u8], recordings: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::Builder::new().prefix("voice-").tempdir().unwrap();
        fs::create_dir(dir.path().join("wavs")).unwrap();
        fs::write(dir.path().join("metadata.csv"), metadata).unwrap();
        recordings.iter().for_each(|name| fs::write(dir.path().join("wavs").join(name), b"").unwrap());
        dir
    }

    #[test]
    fn both_row_forms_with_mark_crlf_quotes_and_blank_lines() {
        let rows = "\u{feff}a|Say \"hi|\r\n\r\n  \nb|Dr. No|Doctor No\r\nc.mp3|see\r\n";
        let dir = corpus(rows.as_bytes(), &["a.wav", "b.flac", "c.mp3"]);
        let Corpus { utterances, problems } = read(dir.path()).unwrap();
        assert_eq!(problems, []);
        let found: Vec<_> = utterances.iter().map(|row| (row.id.as_str(), row.text.as_str())).collect();
        assert_eq!(found, [("a", "Say \"hi"), ("b", "Doctor No"), ("c", "see")]);
        assert_eq!(utterances[1].audio, dir.path().join("wavs/b.flac"));
        assert!(utterances.iter().all(|row| row.speaker.starts_with("voice-") && row.language.is_none()));
    }

    #[test]
    fn every_bad_row_is_named_with_its_line() {
        let rows = [
            &b"good|fine\nlonely\ngood|once more\nempty||\n|text\ngone|text\n"[..],
            b"../up|text\n/etc/x|text\nbad|\xff\xfe\na|b|c|d\ngood.wav|again\n",
        ];
        let dir = corpus(&rows.concat(), &["good.wav", "empty.wav"]);
        fs::write(dir.path().join("up.wav"), b"").unwrap();
        let Corpus { utterances, problems } = read(dir.path()).unwrap();
        assert_eq!(utterances.len(), 1);
        let truth = [
            (2, "columns: 1"),
            (3, "id `good` again, first on line 1"),
            (4, "the text is empty"),
            (5, "the id is empty"),
            (6, "no recording wavs/gone.wav"),
            (7, "leads out of the corpus"),
            (8, "leads out of the corpus"),
            (9, "not UTF-8 at byte 5"),
            (10, "columns: 4"),
            (11, "id `good` again"),
        ];
        assert_eq!(problems.len(), truth.len());
        for (problem, (line, what)) in problems.iter().zip(truth) {
            assert!(problem.line == line && problem.what.contains(what), "{problem}");
            assert!(problem.to_string().contains(&format!("metadata.csv:{line}: ")));
        }
    }

    #[test]
    fn a_corpus_that_is_none() {
        let dir = corpus(b"\r\n \n", &[]);
        assert!(matches!(read(dir.path()), Err(Error::Empty { .. })));
        fs::write(dir.path().join("metadata.csv"), "a|text\nb|text\n").unwrap();
        let message = read(dir.path()).unwrap_err().to_string();
        assert!(
            message.contains("none of its 2 rows") && message.contains("metadata.csv:1: no recording"),
            "{message}"
        );
        fs::remove_file(dir.path().join("metadata.csv")).unwrap();
        let message = read(dir.path()).unwrap_err().to_string();
        assert!(message.contains("metadata.csv: no such file\nhint: "), "{message}");
        assert!(read(&dir.path().join("absent")).unwrap_err().to_string().contains("absent: no such corpus folder"));
    }

    /// Often enough a row that is nearly right.
    fn row_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), Just(b'|'), Just(b'\n'), Just(b'a')];
        prop::collection::vec(byte, 0..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn random_metadata_never_panics(bytes in row_bytes()) {
            let dir = corpus(&bytes, &["a.wav"]);
            let rows = lines(&bytes).count();
            if let Ok(Corpus { utterances, problems }) = read(dir.path()) {
                prop_assert_eq!(utterances.len() + problems.len(), rows);
                prop_assert!(utterances.iter().all(|row| row.audio.starts_with(dir.path().join("wavs"))));
            }
        }
    }
}
