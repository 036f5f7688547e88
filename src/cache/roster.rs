//! The table of one corpus: a row for each utterance in corpus order, with its text as tokens and where its sound lies.
//!
//! Its name is a hash of the utterances and the tokenizer, so a warm start looks for one file and reads nothing else.
//! It also remembers what recordings and shards looked like from outside when they were last read.

use super::map;
use super::sound::checksum;
use super::stamp::Stamp;
use crate::corpus::Utterance;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray};
use arrow_buffer::{ScalarBuffer, ToByteSlice};
use blake3::{Hash, Hasher};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Enough for the parts of a few corpora; each edit of a corpus makes a new table.
pub(super) const KEPT: usize = 8;

/// Where the sound of a recording lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub shard: u32,
    pub batch: u32,
    pub row: u32,
    pub samples: u32,
}

/// What became of one utterance.
pub(super) struct Entry {
    /// What its recording looked like.
    pub stamp: Stamp,
    pub outcome: Result<Ready, String>,
}

pub(super) struct Ready {
    /// Digest of the recording.
    pub source: Hash,
    pub text: Text,
}

/// A transcript as the model reads it.
pub(super) struct Text {
    /// As named, or as detected.
    pub language: String,
    pub tokens: Vec<i32>,
}

pub(super) struct Roster {
    pub path: PathBuf,
    pub about: About,
    id: StringArray,
    audio: BinaryArray,
    speaker: StringArray,
    language: StringArray,
    text: FixedSizeBinaryArray,
    tokens: ListArray,
    source: FixedSizeBinaryArray,
    places: [ScalarBuffer<u32>; 4],
    stamps: [ScalarBuffer<i64>; 3],
    failure: StringArray,
    checksum: ScalarBuffer<u64>,
}

/// What the table says about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    /// The tokenizer's fingerprint.
    pub tokenizer: String,
    /// The folder that holds all recordings.
    pub corpus: PathBuf,
    /// Names of shards, and what they looked like.
    pub shards: Vec<(String, [i64; 3])>,
}

/// Where the table of these utterances is, if there is one.
pub(super) fn path<'a>(
    dir: &Path,
    utterances: impl Iterator<Item = &'a Utterance>,
    default: &str,
    fingerprint: &str,
    base: &Path,
) -> PathBuf {
    // Gathered into long pieces, which hash four times as fast as short ones.
    let (mut hasher, mut piece) = (Hasher::new(), Vec::with_capacity(1 << 17));
    field(&mut piece, fingerprint.as_bytes());
    for utterance in utterances {
        // Where the program was started matters only to paths that begin there.
        let base = if utterance.audio.is_relative() { base } else { Path::new("") };
        field(&mut piece, base.as_os_str().as_bytes());
        field(&mut piece, utterance.audio.as_os_str().as_bytes());
        for text in [&utterance.id, &utterance.text, &utterance.speaker] {
            field(&mut piece, text.as_bytes());
        }
        field(&mut piece, language_of(utterance, default).as_bytes());
        if piece.len() > 1 << 16 {
            hasher.update(&piece);
            piece.clear();
        }
    }
    dir.join(format!("corpus-{}.arrow", &hasher.update(&piece).finalize().to_hex()[..32]))
}

pub(super) fn is_named_like_one(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_prefix("corpus-").and_then(|rest| rest.strip_suffix(".arrow")).is_some_and(|hash| hash.len() == 32)
}

pub(super) fn language_of<'a>(utterance: &'a Utterance, default: &'a str) -> &'a str {
    utterance.language.as_deref().unwrap_or(default)
}

/// Names the tokens of a text.
pub(super) fn text_key(fingerprint: &str, text: &str, language: &str) -> Hash {
    let mut piece = Vec::with_capacity(256);
    [fingerprint, text, language].iter().for_each(|part| field(&mut piece, part.as_bytes()));
    blake3::hash(&piece)
}

/// Length first, so that no two lists of fields give the same bytes.
fn field(piece: &mut Vec<u8>, bytes: &[u8]) {
    piece.extend((bytes.len() as u64).to_le_bytes());
    piece.extend(bytes);
}

impl Roster {
    /// None when there is no such table, or it is damaged or of another make.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let (_, file) = map::open(path).ok()?;
        let (schema, batches) = map::batches(&file).ok()?;
        let about = serde_json::from_str(schema.metadata().get("about")?).ok()?;
        let [batch] = &batches[..] else { return None };
        let column = |name| batch.column_by_name(name);
        let text = |name| Some(column(name)?.as_string_opt::<i32>()?.clone());
        let hashes = |name| Some(column(name)?.as_fixed_size_binary_opt()?.clone()).filter(|c| c.value_length() == 32);
        let (place, stamp) = (|name| numbers::<UInt32Type>(batch, name), |name| numbers::<Int64Type>(batch, name));
        let tokens = column("tokens")?.as_list_opt::<i32>()?.clone();
        tokens.values().as_primitive_opt::<Int32Type>()?;
        Some(Roster {
            path: path.to_owned(),
            about,
            id: text("id")?,
            audio: column("audio")?.as_binary_opt::<i32>()?.clone(),
            speaker: text("speaker")?,
            language: text("language")?,
            text: hashes("text")?,
            tokens,
            source: hashes("source")?,
            places: [place("shard")?, place("batch")?, place("row")?, place("samples")?],
            stamps: [stamp("bytes")?, stamp("modified_ns")?, stamp("changed_ns")?],
            failure: text("failure")?,
            checksum: numbers::<UInt64Type>(batch, "checksum")?,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.id.len()
    }

    /// Notes that the table was used, for those who clear up. A folder that cannot be written to goes without.
    pub(super) fn touch(&self) {
        let _ = File::open(&self.path).and_then(|file| file.set_modified(SystemTime::now()));
    }

    pub(super) fn id(&self, row: usize) -> &str {
        self.id.value(row)
    }

    pub(super) fn speaker(&self, row: usize) -> &str {
        self.speaker.value(row)
    }

    pub(super) fn language(&self, row: usize) -> &str {
        self.language.value(row)
    }

    pub(super) fn audio(&self, row: usize) -> &Path {
        Path::new(OsStr::from_bytes(self.audio.value(row)))
    }

    pub(super) fn tokens(&self, row: usize) -> &[i32] {
        let ends = self.tokens.offsets();
        let values = self.tokens.values().as_primitive::<Int32Type>().values();
        &values[ends[row] as usize..ends[row + 1] as usize]
    }

    pub(super) fn source(&self, row: usize) -> Hash {
        Hash::from_slice(self.source.value(row)).expect("32 bytes, as `open` has checked")
    }

    /// Names the tokens.
    pub(super) fn text(&self, row: usize) -> Hash {
        Hash::from_slice(self.text.value(row)).expect("32 bytes, as `open` has checked")
    }

    pub(super) fn place(&self, row: usize) -> Place {
        let [shard, batch, at, samples] = self.places.each_ref().map(|column| column[row]);
        Place { shard, batch, row: at, samples }
    }

    pub(super) fn stamp(&self, row: usize) -> Stamp {
        let [bytes, modified_ns, changed_ns] = self.stamps.each_ref().map(|column| column[row]);
        Stamp { bytes, modified_ns, changed_ns }
    }

    pub(super) fn failure(&self, row: usize) -> Option<&str> {
        self.failure.is_valid(row).then(|| self.failure.value(row))
    }

    /// Whether the row is as it was written.
    pub(super) fn is_whole(&self, row: usize) -> bool {
        let names = [self.id(row), self.speaker(row), self.language(row)];
        self.checksum[row] == row_checksum(names, self.tokens(row), &self.source(row), self.place(row))
    }
}

fn numbers<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Option<ScalarBuffer<T::Native>> {
    Some(batch.column_by_name(name)?.as_primitive_opt::<T>()?.values().clone())
}

pub(super) fn row_checksum(names: [&str; 3], tokens: &[i32], source: &Hash, place: Place) -> u64 {
    let mut piece = Vec::with_capacity(1024);
    names.iter().for_each(|name| field(&mut piece, name.as_bytes()));
    field(&mut piece, tokens.to_byte_slice());
    field(&mut piece, source.as_bytes());
    field(&mut piece, [place.shard, place.batch, place.row, place.samples].to_byte_slice());
    checksum(Hasher::new().update(&piece))
}
