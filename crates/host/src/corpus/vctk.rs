//! The VCTK layout: a folder for each speaker, `txt/p225/p225_001.txt` with what is said in
//! `wav48_silence_trimmed/p225/p225_001_mic1.flac` (version 0.92) or `wav48/p225/p225_001.wav` (before).

use super::builder::{CorpusBuilder, Row};
use super::detect::{Folder, Metadata};
use super::lines::Lines;
use super::recordings::Recordings;
use super::tree::Tree;
use super::{AudioSource, CorpusFormat, Error, Reader};
use std::path::Path;

/// Endings that name the microphone: the first is the better one; version 0.80 has only one.
const MICROPHONES: [&str; 3] = ["_mic1", "", "_mic2"];
const MAX_TEXT_BYTES: usize = 10_000;

pub(super) const READER: Reader = Reader {
    format: CorpusFormat::Vctk,
    parts: "expected folders txt/SPEAKER/ and wav48/SPEAKER/",
    extensions: &[],
    find: |folder| Ok(find(folder)),
    recognise: |_| Ok(Some("txt/ and wav48/ hold a folder for each speaker".into())),
    read,
    has_lists: false,
};

fn find(folder: &Folder) -> Option<Metadata> {
    let is_there = folder.has("txt") && folder.tree.is_dir(&folder.dir.join("txt")) && !wav_folders(folder).is_empty();
    is_there.then(|| folder.metadata("txt", None))
}

fn read(texts: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
    let tree = builder.recordings.tree.clone();
    let wavs = wav_folders(&Folder::list(&tree, texts.parent().unwrap_or(texts))?);
    let wavs: Vec<&str> = wavs.iter().map(String::as_str).collect();
    for speaker in Folder::list(&tree, texts)?.names {
        let folder = texts.join(&speaker);
        if !tree.is_dir(&folder) {
            continue;
        }
        let names = Folder::list(&tree, &folder)?.names;
        for stem in names.iter().filter_map(|name| name.strip_suffix(".txt")) {
            let file = folder.join(format!("{stem}.txt"));
            let (line, text) = read_text(&tree, &file);
            let row = text.and_then(|text| row(&speaker, stem, text, &wavs, &mut builder.recordings));
            builder.add(&file, line, row);
        }
    }
    Ok(())
}

fn row(speaker: &str, stem: &str, text: String, wavs: &[&str], recordings: &mut Recordings) -> Result<Row, String> {
    let audio = recording(speaker, stem, wavs, recordings)?;
    let id = if stem.starts_with(speaker) { stem.into() } else { format!("{speaker}/{stem}") };
    Ok(Row { id, audio, text, speaker: Some(speaker.into()), language: None })
}

fn recording(
    speaker: &str,
    stem: &str,
    wavs: &[&str],
    recordings: &mut Recordings,
) -> Result<AudioSource<'static>, String> {
    let mut first_problem = None;
    for microphone in MICROPHONES {
        match recordings.find(wavs, &format!("{speaker}/{stem}{microphone}")) {
            Ok((_, source)) => return Ok(source),
            Err(what) => first_problem.get_or_insert(what),
        };
    }
    Err(first_problem.unwrap_or_default())
}

/// Folders of recordings, named after their rate in kHz; `wav48_silence_trimmed` before `wav48`.
fn wav_folders(folder: &Folder) -> Vec<String> {
    let is_rate =
        |name: &str| name.strip_prefix("wav").is_some_and(|rate| rate.starts_with(|c: char| c.is_ascii_digit()));
    let folders = folder.names.iter().rev().filter(|name| is_rate(name) && folder.tree.is_dir(&folder.dir.join(name)));
    folders.cloned().collect()
}

/// All lines of a file as one text, and the number of the first.
fn read_text(tree: &Tree, file: &Path) -> (usize, Result<String, String>) {
    let (mut first, mut text) = (None, String::new());
    let mut read = || {
        let mut lines = Lines::open(tree, file)?;
        while let Some((number, line)) = lines.next()? {
            first.get_or_insert(number);
            match line {
                Ok(line) if text.len() + line.len() <= MAX_TEXT_BYTES => text += &format!(" {}", line.trim()),
                Ok(_) => return Ok(Err(format!("longer than {MAX_TEXT_BYTES} bytes"))),
                Err(what) => return Ok(Err(what)),
            }
        }
        Ok(Ok(()))
    };
    let read = read().unwrap_or_else(|error: Error| Err(error.to_string()));
    (first.unwrap_or(1), read.map(|()| text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use crate::config::CorpusFormat;
    use crate::corpus::tests::{auto, folder, told};

    #[test]
    fn both_versions_and_the_first_microphone() {
        let dir = folder(&[
            ("speaker-info.txt", b"ID  AGE  GENDER\n"),
            ("txt/p226/p226_001.txt", b"Please call Stella.\n"),
            ("txt/p225/p225_002.txt", b"Ask her to\r\nbring \"these\" things.\r\n"),
            ("txt/p225/p225_001.txt", b"\xef\xbb\xbfPlease call Stella.\n"),
            ("txt/s5/001.txt", b"One file for each microphone."),
            ("wav48_silence_trimmed/p225/p225_001_mic1.flac", b""),
            ("wav48_silence_trimmed/p225/p225_001_mic2.flac", b""),
            ("wav48/p225/p225_001.wav", b""),
            ("wav48/p225/p225_002.wav", b""),
            ("wav48/p226/p226_001.wav", b""),
            ("wav48_silence_trimmed/s5/001_mic2.flac", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.problems.len()), (CorpusFormat::Vctk, 0));
        let trimmed = "wav48_silence_trimmed";
        assert_eq!(
            told(&dir, &corpus),
            [
                ["p225_001", &format!("{trimmed}/p225/p225_001_mic1.flac"), "Please call Stella.", "p225", ""],
                ["p225_002", "wav48/p225/p225_002.wav", "Ask her to bring \"these\" things.", "p225", ""],
                ["p226_001", "wav48/p226/p226_001.wav", "Please call Stella.", "p226", ""],
                ["s5/001", &format!("{trimmed}/s5/001_mic2.flac"), "One file for each microphone.", "s5", ""],
            ]
        );
    }

    #[test]
    fn bad_texts_are_named_with_their_file() {
        let dir = folder(&[
            ("txt/p1/p1_1.txt", b"fine"),
            ("txt/p1/p1_2.txt", b" \n"),
            ("txt/p1/p1_3.txt", b"\nbad \xff"),
            ("txt/p1/p1_4.txt", b"no recording"),
            ("txt/p1/p1_5.txt", &[b'x'; 20_000]),
            ("txt/notes", b"not a folder"),
            ("wav48/p1/p1_1.wav", b""),
            ("wav48/p1/p1_2.wav", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        let told: Vec<String> = corpus.problems.iter().map(|problem| problem.to_string()).collect();
        assert_eq!((corpus.utterances.len(), told.len()), (1, 4));
        for (told, truth) in told.iter().zip([
            "p1_2.txt:1: the text is empty",
            "p1_3.txt:2: not UTF-8 at byte 5",
            "p1_4.txt:1: no recording wav48/p1/p1_4_mic1.wav",
            "p1_5.txt:1: longer than 10000 bytes",
        ]) {
            assert!(told.contains(truth), "{told}");
        }
    }
}
