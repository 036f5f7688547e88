//! Corpora: metadata rows become utterances, rows that cannot be used become problems with file and line.
//!
//! Of folders of recordings `detect` says which reader, the readers say which rows; a new layout is a file with a
//! [`Reader`], a line in [`READERS`] and a variant of [`CorpusFormat`]. Of shards of many clips, in a folder or a bucket,
//! `shards` says which there are and what they hold. `builder` keeps what can be used, `feed` reads its sound.

mod builder;
mod columns;
mod common_voice;
mod detect;
mod error;
mod feed;
mod language;
mod lhotse;
mod lines;
mod list;
mod ljspeech;
mod manifest;
mod piper;
mod recordings;
mod shards;
mod source;
mod split;
mod tree;
mod two_file;
mod utterances;
mod vctk;

pub use error::{Error, RowProblem};
pub use feed::{AudioFeed, Unread};
pub use source::{AudioSource, Member, is_member, shown};
pub use split::hash_fraction;
pub(crate) use split::{Borders, Share, split};
pub use utterances::{Rows, Utterance, UtteranceRef, Utterances};

use crate::config::{CorpusFormat, Data};
use crate::storage::{self, Store};
use builder::CorpusBuilder;
use detect::{Folder, Metadata};
use regex::Regex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tree::Tree;

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

/// Where in the metadata an utterance was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the file in `Corpus::files`.
    pub file: u32,
    /// Number of the line, or of the clip in its shard, counted from 1.
    pub line: u32,
}

/// All that was read of a corpus.
#[derive(Debug, Default)]
pub struct Corpus {
    /// All utterances; a validation part that the corpus brings with it comes last.
    pub utterances: Utterances,
    /// Where each utterance was read.
    pub origins: Vec<Origin>,
    /// The metadata files, or shards, that utterances were read from.
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
    pub fn into_parts(self) -> (Vec<Utterance>, Option<Vec<Utterance>>) {
        let mut training: Vec<Utterance> = self.utterances.iter().map(UtteranceRef::into_owned).collect();
        let validation = self.validation_from.map(|from| training.split_off(from.min(training.len())));
        (training, validation)
    }

    /// Number of speakers, by the names in the metadata.
    pub fn speakers(&self) -> usize {
        self.utterances.iter().map(|utterance| utterance.speaker).collect::<HashSet<_>>().len()
    }

    /// Whether its rows stand in lists that single lines can be left out of.
    pub fn has_lists(&self) -> bool {
        Reader::of(self.format).is_some_and(|reader| reader.has_lists)
    }

    /// In the order in which the sound lies in its archive, which is read from front to back. Parts stay parts.
    fn in_shard_order(mut self) -> Self {
        let place = |index: usize| self.utterances.get(index).audio.member().map(Member::at);
        let from = self.validation_from.unwrap_or(self.utterances.len());
        let mut order: Vec<usize> = (0..self.utterances.len()).collect();
        order.sort_by_cached_key(|&index| (index >= from, place(index)));
        self.utterances = order.iter().map(|&index| self.utterances.get(index)).collect();
        self.origins = order.iter().map(|&index| self.origins[index]).collect();
        self
    }

    /// Whether some of its sound lies in shards, and not in files.
    pub fn has_shards(&self) -> bool {
        self.utterances.iter().any(|utterance| utterance.audio.file().is_none())
    }
}

/// Reads a corpus: a folder, a single metadata file of one, shards in a folder, behind a URL or of a pattern. Memory: some
/// bytes for each utterance, and the names of their files.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Corpus, Error> {
    if let Some(found) = shards::find(path, options.format, false)? {
        return of_shards(&found, path, options);
    }
    if let Some(location) = path.to_str().filter(|location| storage::is_url(location)) {
        let (tree, dir) = Tree::bucket(&Store::open(location)?)?;
        return of_tree(&tree, &dir, options);
    }
    match detect::detect(path, options.format) {
        // Nothing that the folder itself tells: shards may lie in folders of it.
        Err(Error::Missing { .. })
            if path.is_dir()
                && let Some(found) = shards::find(path, options.format, true)? =>
        {
            of_shards(&found, path, options)
        }
        found => of_files(found?, options),
    }
}

/// Shards that hold clips; or an archive of a corpus in another layout.
fn of_shards(found: &shards::Found, path: &Path, options: &ReadOptions) -> Result<Corpus, Error> {
    let archive = match &found.training[..] {
        [shards::Unit::Tar(archive)] if found.validation.is_empty() => Some(archive),
        _ => None,
    };
    let of_archive = |archive| {
        let (tree, dir) = Tree::archive(archive)?;
        of_tree(&tree, &dir, options).map(Corpus::in_shard_order)
    };
    match (archive, Reader::of(options.format)) {
        (Some(archive), Some(_)) => of_archive(archive),
        (archive, _) => match (shards::read(found, path, options), archive) {
            (Err(nothing @ (Error::NoUsableRow { .. } | Error::Empty { .. })), Some(archive)) => of_archive(archive)
                .map_err(|error| if matches!(error, Error::Missing { .. }) { nothing } else { error }),
            (read, _) => read,
        },
    }
}

/// Files that were listed, in one of the layouts of folders.
fn of_tree(tree: &Tree, dir: &Path, options: &ReadOptions) -> Result<Corpus, Error> {
    of_files(detect::in_folder(&Folder::list(tree, dir)?, Reader::of(options.format))?, options)
}

fn of_files(found: detect::Found, options: &ReadOptions) -> Result<Corpus, Error> {
    let tree = found.metadata.tree.clone();
    let mut builder = CorpusBuilder::new(tree, &found.metadata.dir, options.speaker_pattern.as_ref());
    (found.reader.read)(&found.metadata.file, &mut builder)?;
    if let Some(validation) = &found.metadata.validation {
        builder.start_validation();
        (found.reader.read)(validation, &mut builder)?;
    }
    builder.finish(&found.metadata.file, found.reader.format, found.why)
}

#[cfg(test)]
mod tests;
