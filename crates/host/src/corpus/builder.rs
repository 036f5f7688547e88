//! A corpus on its way: rows end up among its utterances, or among its problems.

use super::recordings::Recordings;
use super::tree::Tree;
use super::{AudioSource, Corpus, CorpusFormat, Error, Origin, RowProblem, UtteranceRef};
use crate::error::Hint;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use regex::Regex;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

/// What a reader makes of a row; the rest is the same for all readers.
pub(super) struct Row {
    pub id: String,
    pub audio: AudioSource<'static>,
    pub text: String,
    /// None stands for the name of the corpus folder.
    pub speaker: Option<String>,
    pub language: Option<String>,
}

/// Takes rows from a reader until the corpus is whole.
pub(super) struct CorpusBuilder<'a> {
    pub recordings: Recordings,
    corpus: Corpus,
    speaker_pattern: Option<&'a Regex>,
    folder_name: String,
    /// Index of the last utterance of each id; the ids themselves lie with the utterances.
    seen: HashTable<u32>,
    hasher: RandomState,
}

impl<'a> CorpusBuilder<'a> {
    pub fn new(tree: Tree, dir: &Path, speaker_pattern: Option<&'a Regex>) -> Self {
        let (recordings, folder_name) = (Recordings::of(tree, dir), folder_name(dir));
        let (seen, hasher) = (HashTable::new(), RandomState::new());
        Self { recordings, corpus: Corpus::default(), speaker_pattern, folder_name, seen, hasher }
    }

    pub fn add(&mut self, file: &Path, line: usize, row: Result<Row, String>) {
        match row.and_then(|row| self.utterance(row)) {
            Ok(()) => {
                if self.corpus.files.last().is_none_or(|last| last != file) {
                    self.corpus.files.push(file.into());
                }
                let origin = Origin { file: self.corpus.files.len() as u32 - 1, line: line as u32 };
                self.corpus.origins.push(origin);
            }
            Err(what) => self.corpus.problems.push(RowProblem { file: file.into(), line, what }),
        }
    }

    /// As [`add`](Self::add), for a clip of a shard: one whose name is taken by a clip of another shard is named after its
    /// own, because each may number its clips from 1.
    pub fn add_of_shard(&mut self, shard: &Path, number: usize, row: Result<Row, String>) {
        let row = row.map(|row| {
            let is_taken = self.seen(&row.id).is_some_and(|index| {
                let file = self.corpus.files.get(self.corpus.origins[index].file as usize);
                file.is_none_or(|file| file != shard)
            });
            let stem =
                || shard.file_name().and_then(|name| name.to_str()?.split('.').next()).unwrap_or("shard").to_owned();
            if is_taken { Row { id: format!("{}/{}", stem(), row.id), ..row } } else { row }
        });
        self.add(shard, number, row);
    }

    /// Makes what is added from now on the corpus's own validation part.
    pub fn start_validation(&mut self) {
        self.corpus.validation_from = Some(self.corpus.utterances.len());
    }

    pub fn finish(self, path: &Path, format: CorpusFormat, why: String) -> Result<Corpus, Error> {
        let path = path.to_owned();
        match (self.corpus.utterances.is_empty(), self.corpus.problems.is_empty()) {
            (true, true) => Err(Error::Empty { path, hint: Hint::new("one line for each clip, `id|text`") }),
            (true, false) => Err(Error::NoUsableRow { path, problems: self.corpus.problems }),
            _ => Ok(Corpus { format, why, ..self.corpus }),
        }
    }

    fn utterance(&mut self, row: Row) -> Result<(), String> {
        if row.text.trim().is_empty() {
            return Err("the text is empty".into());
        }
        self.check_id(&row)?;
        let Row { id, audio, text, speaker, language } = row;
        let speaker = self.speaker(&id, speaker)?;
        self.note(&id);
        let (id, text, speaker, language) = (&*id, &*text, &*speaker, language.as_deref());
        self.corpus.utterances.push(&UtteranceRef { id, audio, text, speaker, language });
        Ok(())
    }

    /// Index of the last utterance of an id.
    fn seen(&self, id: &str) -> Option<usize> {
        let is_same = |index: &u32| self.corpus.utterances.get(*index as usize).id == id;
        self.seen.find(self.hasher.hash_one(id), is_same).map(|index| *index as usize)
    }

    /// Notes that the next utterance has this id.
    fn note(&mut self, id: &str) {
        let Self { seen, hasher, corpus: Corpus { utterances, .. }, .. } = self;
        let of = |index: &u32| utterances.get(*index as usize).id;
        let next = utterances.len() as u32;
        match seen.entry(hasher.hash_one(id), |index| of(index) == id, |index| hasher.hash_one(of(index))) {
            Entry::Occupied(mut earlier) => *earlier.get_mut() = next,
            Entry::Vacant(room) => _ = room.insert(next),
        }
    }

    /// Refuses an id that was there before. Each part may number its own recordings from 1, but none may validate on
    /// what it trains on.
    fn check_id(&self, row: &Row) -> Result<(), String> {
        let Some(index) = self.seen(&row.id) else { return Ok(()) };
        let line = self.corpus.origins[index].line;
        if self.corpus.validation_from.is_none_or(|from| index >= from) {
            return Err(format!("id `{}` again, first on line {line}", row.id));
        }
        let is_trained_on = self.corpus.utterances.get(index).audio == row.audio;
        let what = || format!("id `{}` again, which is on line {line} of the training part", row.id);
        if is_trained_on { Err(what()) } else { Ok(()) }
    }

    fn speaker(&self, id: &str, named: Option<String>) -> Result<String, String> {
        let Some(pattern) = self.speaker_pattern else {
            return Ok(named.filter(|name| !name.is_empty()).unwrap_or_else(|| self.folder_name.clone()));
        };
        let group = pattern.captures(id).and_then(|found| found.get(1)).filter(|group| !group.is_empty());
        group.map(|group| group.as_str().into()).ok_or_else(|| format!("speaker_pattern finds no speaker in id `{id}`"))
    }
}

/// The last part of the path, which is resolved first, so that `.` has a name too.
fn folder_name(dir: &Path) -> String {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.into());
    whole.file_name().map_or("speaker".into(), |name| name.to_string_lossy().into_owned())
}
