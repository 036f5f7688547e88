//! Folders of recordings: metadata rows become utterances, rows that cannot be used become problems with file and line.
//!
//! `detect` says which reader, the readers say which rows, `builder` keeps what can be used. A new layout is a file
//! with a [`Reader`], a line in [`READERS`] and a variant of [`CorpusFormat`].

mod builder;
mod columns;
mod common_voice;
mod detect;
mod error;
mod language;
mod lhotse;
mod lines;
mod list;
mod ljspeech;
mod manifest;
mod piper;
mod recordings;
mod split;
mod two_file;
mod vctk;

pub use error::{Error, RowProblem};
pub use split::hash_fraction;
pub(crate) use split::{border, split};

use crate::config::{CorpusFormat, Data};
use builder::CorpusBuilder;
use detect::{Folder, Metadata};
use regex::Regex;
use std::path::{Path, PathBuf};

/// Every layout that can be read, from the one that is told most surely by its names to the one told least.
const READERS: [&Reader; 6] =
    [&vctk::READER, &common_voice::READER, &two_file::READER, &ljspeech::READER, &piper::READER, &manifest::READER];
/// What to do where no layout fits.
const LAYOUTS: &str = "a corpus has a file metadata.csv with a line `id|text` for each recording wavs/<id>.wav, or is \
                       laid out as Piper, VCTK, Common Voice or a JSON manifest; `--format` names the layout";

/// One layout: how it is told from the others, and how it is read.
struct Reader {
    format: CorpusFormat,
    /// What a corpus of this layout consists of: the hint where that is missing.
    parts: &'static str,
    /// Endings of metadata files; a file whose ending only this layout has is of this layout.
    extensions: &'static [&'static str],
    /// Finds the metadata in a folder by their names.
    find: fn(&Folder) -> Result<Option<Metadata>, Error>,
    /// Says why what was found by its name is of this layout; none where a look at its rows says otherwise.
    recognise: fn(&Metadata) -> Result<Option<String>, Error>,
    /// Reads a metadata file, or a folder of them, row by row.
    read: fn(&Path, &mut CorpusBuilder) -> Result<(), Error>,
    /// Whether rows stand in lists; otherwise each clip has a metadata file of its own.
    has_lists: bool,
}

impl Reader {
    /// The reader of a layout; none for `auto`.
    fn of(format: CorpusFormat) -> Option<&'static Reader> {
        READERS.into_iter().find(|reader| reader.format == format)
    }
}

/// How a corpus is to be read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    pub format: CorpusFormat,
    /// A pattern whose first group, found in an id, is the speaker, whatever the metadata say.
    pub speaker_pattern: Option<Regex>,
}

impl ReadOptions {
    pub fn of(data: &Data) -> Result<Self, regex::Error> {
        let speaker_pattern = data.speaker_pattern.as_deref().map(Regex::new).transpose()?;
        Ok(Self { format: data.format, speaker_pattern })
    }
}

/// A recording and what is said in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    pub id: String,
    pub audio: PathBuf,
    pub text: String,
    pub speaker: String,
    /// A code in lower case such as `en` or `pt-br`; none where the metadata name none.
    pub language: Option<String>,
}

/// Where in the metadata an utterance was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the file in `Corpus::files`.
    pub file: usize,
    /// Number of the line, counted from 1.
    pub line: usize,
}

/// All that was read of a corpus.
#[derive(Debug, Default)]
pub struct Corpus {
    /// All utterances; a validation part that the corpus brings with it comes last.
    pub utterances: Vec<Utterance>,
    /// Where each utterance was read.
    pub origins: Vec<Origin>,
    /// The metadata files that utterances were read from.
    pub files: Vec<PathBuf>,
    /// The rows that were left out.
    pub problems: Vec<RowProblem>,
    pub format: CorpusFormat,
    /// What the format was told by.
    pub why: String,
    /// Index of the first utterance of the corpus's own validation part.
    pub validation_from: Option<usize>,
}

impl Corpus {
    /// Training part, and the validation part where the corpus brings one.
    pub fn into_parts(mut self) -> (Vec<Utterance>, Option<Vec<Utterance>>) {
        let validation = self.validation_from.map(|from| self.utterances.split_off(from.min(self.utterances.len())));
        (self.utterances, validation)
    }

    /// Whether its rows stand in lists that single lines can be left out of.
    pub fn has_lists(&self) -> bool {
        Reader::of(self.format).is_none_or(|reader| reader.has_lists)
    }
}

/// Reads a corpus folder, or a single metadata file of one. Memory: the utterances, and the names of their files.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Corpus, Error> {
    let found = detect::detect(path, options.format)?;
    let mut builder = CorpusBuilder::new(&found.metadata.dir, options.speaker_pattern.as_ref());
    (found.reader.read)(&found.metadata.file, &mut builder)?;
    if let Some(validation) = &found.metadata.validation {
        builder.start_validation();
        (found.reader.read)(validation, &mut builder)?;
    }
    builder.finish(found)
}

#[cfg(test)]
mod tests;
