//! A cleaned copy of the metadata beside the original: the same lines, less those of clips that are better left out.

use super::{CorpusProblem, CorpusSummary};
use crate::corpus::Corpus;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that was written, and how many rows it lacks.
#[derive(Debug, PartialEq)]
pub struct CleanedMetadata {
    pub path: PathBuf,
    pub dropped: usize,
}

/// Writes a cleaned copy of each metadata file. `dir` is the corpus folder, or a metadata file of it.
pub fn fix(corpus: &Corpus, summary: &CorpusSummary, dir: &Path) -> io::Result<Vec<CleanedMetadata>> {
    let mut bad: HashMap<&Path, HashSet<usize>> = HashMap::new();
    for CorpusProblem { path, metadata, line, .. } in summary.problems.iter().filter(|problem| problem.kind.spoils()) {
        bad.entry(metadata.as_ref().unwrap_or(path)).or_default().insert(*line);
    }
    // A file for each clip is no list that lines could be left out of.
    if !corpus.has_lists() {
        return Ok(vec![manifest(corpus, &bad, dir)?]);
    }
    let nothing = HashSet::new();
    corpus.files.iter().map(|file| without(file, bad.get(file.as_path()).unwrap_or(&nothing))).collect()
}

/// Copies a file less some lines, the others byte by byte.
fn without(file: &Path, lines: &HashSet<usize>) -> io::Result<CleanedMetadata> {
    let (stem, extension) = (file.file_stem().unwrap_or_default(), file.extension().unwrap_or(OsStr::new("txt")));
    let path = file.with_file_name(format!("{}.cleaned.{}", stem.to_string_lossy(), extension.to_string_lossy()));
    let (mut input, mut line, mut number) = (BufReader::new(File::open(file)?), Vec::new(), 0);
    write(&path, |out| {
        while input.read_until(b'\n', &mut line)? > 0 {
            number += 1;
            if !lines.contains(&number) {
                out.write_all(&line)?;
            }
            line.clear();
        }
        Ok(())
    })?;
    Ok(CleanedMetadata { path, dropped: lines.len() })
}

/// Writes JSON lines, which every corpus can be written as.
fn manifest(corpus: &Corpus, bad: &HashMap<&Path, HashSet<usize>>, dir: &Path) -> io::Result<CleanedMetadata> {
    let is_bad = |index: usize| {
        let origin = corpus.origins[index];
        bad.get(corpus.files[origin.file as usize].as_path())
            .is_some_and(|lines| lines.contains(&(origin.line as usize)))
    };
    let good: Vec<usize> = (0..corpus.utterances.len()).filter(|&index| !is_bad(index)).collect();
    let path = dir.join("manifest.cleaned.jsonl");
    write(&path, |out| {
        for utterance in good.iter().map(|&index| corpus.utterances.get(index)) {
            let audio = utterance.audio.name(Path::new(""));
            let audio = audio.strip_prefix(dir).unwrap_or(&audio);
            let row = json!({
                "id": utterance.id,
                "audio_filepath": audio,
                "text": utterance.text,
                "speaker": utterance.speaker,
                "language": utterance.language,
            });
            writeln!(out, "{row}")?;
        }
        Ok(())
    })?;
    Ok(CleanedMetadata { path, dropped: corpus.utterances.len() - good.len() + corpus.problems.len() })
}

/// Writes a file under a temporary name first: it is whole, or is not there.
fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut out = BufWriter::new(File::create(&temporary)?);
    let done = content(&mut out).and_then(|()| out.flush()).and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}
