//! A corpus as it was when it was last opened, so that a warm start reads none of its metadata: at ten million rows that
//! would take half a minute and gigabytes, where the table takes neither.
//!
//! It is relied on while all files of metadata, and all folders that hold recordings, look as they did: what adds, takes
//! away or edits a row changes one of them. Recordings themselves are told by the table, as ever.

use super::digest::Digest;
use super::file_stat::FileStat;
use super::identity::{Identity, field};
use super::{kept_dir, remembered};
use crate::config::Config;
use crate::corpus::Corpus;
use crate::text::Tokenizer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) const FOLDER: &str = "corpora";
/// Files and folders that are looked at, at 1 to 2 µs each; a corpus with more is read each time.
const MOST_WITNESSES: usize = 1 << 16;

/// What a run needs of a corpus besides its table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownCorpus {
    /// Its layout, and what that was told by.
    pub layout: String,
    /// Rows that were left out, each with its place, and what the voice cannot read.
    pub findings: Vec<String>,
    pub notes: Vec<String>,
    pub tokenizer: Tokenizer,
    /// First utterance of its own validation part.
    pub validation_from: Option<usize>,
    pub utterances: usize,
    pub speakers: usize,
    pub(super) identity: String,
    /// What it is told by: files and folders, and what they looked like.
    witnesses: Vec<(PathBuf, [i64; 3])>,
}

/// Which corpus, and all else that decides on what is known of it.
pub struct CorpusKey(PathBuf);

impl CorpusKey {
    /// `tokens` names the tokenizer, or what it is made from.
    pub fn new(path: &Path, config: &Config, tokens: &str) -> Option<Self> {
        let data = &config.data;
        let path = path.canonicalize().ok()?;
        let mut bytes = Vec::new();
        field(&mut bytes, path.as_os_str().as_bytes());
        let pattern = data.speaker_pattern.clone().unwrap_or_default();
        [&*format!("{:?}", data.format), &*pattern, &*data.language, tokens]
            .iter()
            .for_each(|part| field(&mut bytes, part.as_bytes()));
        let name = format!("{}.json", Digest::of(&bytes).hex());
        data.enable_caching.then(|| CorpusKey(kept_dir(data).join(FOLDER).join(name)))
    }

    /// What is known, where nothing has changed.
    pub fn find(&self) -> Option<KnownCorpus> {
        let known: KnownCorpus = remembered::read(&self.0)?;
        known.witnesses.iter().all(|(path, stat)| look(path) == Some(*stat)).then_some(known)
    }

    /// Remembers a corpus that was read and opened whole, unless it cannot be told whether it changes.
    pub fn remember(&self, corpus: &Corpus, path: &Path, config: &Config, known: KnownCorpus) {
        let Some(witnesses) = witnesses(corpus, path) else { return };
        let base = std::env::current_dir().unwrap_or_default();
        let fingerprint = known.tokenizer.fingerprint();
        let identity = Identity::of(corpus.utterances.iter(), &config.data.language, &fingerprint, &base);
        let known = KnownCorpus { witnesses, identity: identity.hex().to_owned(), ..known };
        // Not to be able to remember it costs time and nothing else.
        let _ = remembered::write(&self.0, &known);
    }
}

impl KnownCorpus {
    pub fn new(corpus: &Corpus, tokenizer: &Tokenizer, findings: &[String], notes: &[String]) -> Self {
        KnownCorpus {
            layout: format!("{}: {}", corpus.format, corpus.why),
            findings: findings.to_vec(),
            notes: notes.to_vec(),
            tokenizer: tokenizer.clone(),
            validation_from: corpus.validation_from,
            utterances: corpus.utterances.len(),
            speakers: corpus.speakers(),
            identity: String::new(),
            witnesses: vec![],
        }
    }
}

/// Metadata files and the folders of recordings. None where there are too many, one cannot be looked at, or one changed
/// so recently that it may change again unnoticed.
fn witnesses(corpus: &Corpus, path: &Path) -> Option<Vec<(PathBuf, [i64; 3])>> {
    let mut paths: BTreeSet<PathBuf> = corpus.files.iter().cloned().chain([path.to_owned()]).collect();
    for utterance in corpus.utterances.iter() {
        // What shards hold is remembered where they are read.
        let folder = utterance.audio.file()?.parent()?;
        if !paths.contains(folder) {
            paths.insert(folder.to_owned());
        }
        (paths.len() <= MOST_WITNESSES).then_some(())?;
    }
    paths
        .into_iter()
        .map(|path| {
            let path = path.canonicalize().ok()?;
            let stat = FileStat::new(&std::fs::metadata(&path).ok()?).settled();
            (stat != FileStat::NEVER).then(|| (path, stat.numbers()))
        })
        .collect()
}

/// Of a file or a folder.
fn look(path: &Path) -> Option<[i64; 3]> {
    std::fs::metadata(path).ok().map(|meta| FileStat::new(&meta).numbers())
}
