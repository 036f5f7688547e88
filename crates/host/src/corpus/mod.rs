//! Folders of recordings: metadata rows become utterances, rows that cannot be used become problems with file and line.
//!
//! `detect` says which reader, the readers say which rows, `gather` keeps what can be used.

mod columns;
mod common_voice;
mod detect;
mod error;
mod gather;
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

pub use crate::config::CorpusFormat as Format;
pub use error::{Error, Problem};
pub use split::{place, split};

use crate::config::Data;
use gather::Gather;
use regex::Regex;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub format: Format,
    /// Its first group, found in the id, is the speaker, whatever the metadata say.
    pub speaker_pattern: Option<Regex>,
}

impl Options {
    pub fn of(data: &Data) -> Result<Self, regex::Error> {
        let speaker_pattern = data.speaker_pattern.as_deref().map(Regex::new).transpose()?;
        Ok(Self { format: data.format, speaker_pattern })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    pub id: String,
    pub audio: PathBuf,
    pub text: String,
    pub speaker: String,
    /// A code in lower case such as `en` or `pt-br`; none where the metadata name none.
    pub language: Option<String>,
}

/// A row of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index in `Corpus::files`.
    pub file: usize,
    /// Counted from 1.
    pub line: usize,
}

#[derive(Debug, Default)]
pub struct Corpus {
    /// All of them; a validation part that the corpus brings with it comes last.
    pub utterances: Vec<Utterance>,
    /// Where each of them was read.
    pub origins: Vec<Origin>,
    /// The metadata files that utterances were read from.
    pub files: Vec<PathBuf>,
    pub problems: Vec<Problem>,
    pub format: Format,
    /// What that format was told by.
    pub why: String,
    /// Where the corpus's own validation part begins.
    pub validation_from: Option<usize>,
}

impl Corpus {
    /// Training part, and the validation part where the corpus brings one.
    pub fn into_parts(mut self) -> (Vec<Utterance>, Option<Vec<Utterance>>) {
        let validation = self.validation_from.map(|from| self.utterances.split_off(from.min(self.utterances.len())));
        (self.utterances, validation)
    }
}

/// Reads a corpus folder, or a single metadata file of one. Memory: the utterances, and the names of their files.
pub fn read(path: &Path, options: &Options) -> Result<Corpus, Error> {
    let found = detect::detect(path, options.format)?;
    let mut gather = Gather::new(&found.source.dir, options.speaker_pattern.as_ref());
    let reader = match found.format {
        Format::CommonVoice => common_voice::read,
        Format::Manifest => manifest::read,
        Format::Piper => piper::read,
        Format::TwoFile => two_file::read,
        Format::Vctk => vctk::read,
        Format::Auto | Format::Ljspeech => ljspeech::read,
    };
    reader(&found.source.file, &mut gather)?;
    if let Some(validation) = &found.source.validation {
        gather.start_validation();
        reader(validation, &mut gather)?;
    }
    gather.finish(found)
}

#[cfg(test)]
mod tests;
