//! The table of one corpus: a row for each utterance in corpus order, with its text as tokens and where its sound lies.
//!
//! Its name holds a hash of the utterances and the tokenizer, so a warm start looks for one file and reads nothing
//! else; and the digest of its bytes, so that nothing is read from it that was not written. It also remembers what
//! recordings and shards looked like from outside when they were last read.

use super::digest::{self, Digest};
use super::file_stat::{self, FileStat};
use super::identity::Identity;
use super::map;
use super::packed::Packed;
use super::shard::ShardLocation;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray};
use arrow_buffer::ScalarBuffer;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Enough for the parts of a few corpora; each edit of a corpus makes a new table.
pub(super) const KEPT: usize = 8;
/// A table is written and read in pieces of so many rows, some 4 MiB.
pub(super) const PIECE_ROWS: usize = 1 << 13;

/// What became of one utterance.
pub(super) struct TableEntry {
    /// What its recording looked like.
    pub stat: FileStat,
    pub outcome: Result<ReadyClip, String>,
}

pub(super) struct ReadyClip {
    /// Digest of the recording.
    pub source: Digest,
    pub text: TokenizedText,
}

/// A transcript as the model reads it.
pub(super) struct TokenizedText {
    /// As named, or as detected.
    pub language: String,
    pub tokens: Packed,
}

pub(super) struct CorpusTable {
    pub path: PathBuf,
    pub about: TableMetadata,
    /// `PIECE_ROWS` rows each, but the last.
    pieces: Vec<Piece>,
    rows: usize,
}

struct Piece {
    id: StringArray,
    audio: BinaryArray,
    speaker: StringArray,
    language: StringArray,
    text: FixedSizeBinaryArray,
    tokens: ListArray,
    source: FixedSizeBinaryArray,
    shard: ScalarBuffer<u32>,
    offset: ScalarBuffer<u64>,
    samples: ScalarBuffer<u32>,
    checksum: ScalarBuffer<u64>,
    stats: [ScalarBuffer<i64>; 3],
    failure: StringArray,
}

/// What the table says about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TableMetadata {
    /// The tokenizer's fingerprint.
    pub tokenizer: String,
    /// The folder that holds all recordings.
    pub corpus: String,
    /// Names of shards, and what they looked like.
    pub shards: Vec<(String, [i64; 3])>,
}

/// What a file's name says: which corpus it is the table of, and its digest.
pub(super) fn claimed(path: &Path) -> Option<(&str, &str)> {
    let name = path.file_name()?.to_str()?.strip_prefix("corpus-")?.strip_suffix(".arrow")?;
    name.split_once('-').filter(|(identity, digest)| (identity.len(), digest.len()) == (32, 32))
}

impl CorpusTable {
    /// The table of a corpus, if it is whole.
    pub(super) fn find(dir: &Path, corpus: &Identity) -> Option<Self> {
        let entries = fs::read_dir(dir).ok()?;
        let path = entries.flatten().map(|entry| entry.path()).find(|path| corpus.is_claimed_by(path))?;
        Self::open(&path)
    }

    /// None when the file is not what its name says, or is of another make.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let (_, claimed) = claimed(path)?;
        (file_stat::digest(&File::open(path).ok()?).ok()?.hex() == claimed).then_some(())?;
        let (_, file) = map::open(path).ok()?;
        let (schema, batches) = map::batches(&file).ok()?;
        let about = serde_json::from_str(schema.metadata().get("about")?).ok()?;
        let (_, whole) = batches.split_last()?;
        whole.iter().all(|batch| batch.num_rows() == PIECE_ROWS).then_some(())?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let pieces = batches.iter().map(Piece::of).collect::<Option<Vec<_>>>()?;
        Some(CorpusTable { path: path.to_owned(), about, pieces, rows })
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    fn at(&self, row: usize) -> (&Piece, usize) {
        // The last piece of a table from elsewhere may be longer.
        let piece = (row / PIECE_ROWS).min(self.pieces.len() - 1);
        (&self.pieces[piece], row - piece * PIECE_ROWS)
    }

    /// Notes that the table was used, for those who clear up. A folder that cannot be written to goes without.
    pub(super) fn touch(&self) {
        let _ = File::open(&self.path).and_then(|file| file.set_modified(SystemTime::now()));
    }

    pub(super) fn id(&self, row: usize) -> &str {
        let (piece, row) = self.at(row);
        piece.id.value(row)
    }

    pub(super) fn speaker(&self, row: usize) -> &str {
        let (piece, row) = self.at(row);
        piece.speaker.value(row)
    }

    pub(super) fn language(&self, row: usize) -> &str {
        let (piece, row) = self.at(row);
        piece.language.value(row)
    }

    pub(super) fn audio(&self, row: usize) -> &Path {
        let (piece, row) = self.at(row);
        Path::new(OsStr::from_bytes(piece.audio.value(row)))
    }

    pub(super) fn tokens(&self, row: usize) -> &[i32] {
        let (Piece { tokens, .. }, row) = self.at(row);
        let (ends, values) = (tokens.offsets(), tokens.values().as_primitive::<Int32Type>().values());
        &values[ends[row] as usize..ends[row + 1] as usize]
    }

    /// Tokens of a text, counted without touching them.
    pub(super) fn token_count(&self, row: usize) -> usize {
        let (piece, row) = self.at(row);
        piece.tokens.value_length(row) as usize
    }

    pub(super) fn source(&self, row: usize) -> Digest {
        let (piece, row) = self.at(row);
        Digest::from_bytes(piece.source.value(row)).expect("16 bytes, as `open` has checked")
    }

    /// Names the tokens.
    pub(super) fn text(&self, row: usize) -> Digest {
        let (piece, row) = self.at(row);
        Digest::from_bytes(piece.text.value(row)).expect("16 bytes, as `open` has checked")
    }

    pub(super) fn place(&self, row: usize) -> ShardLocation {
        let (Piece { shard, offset, samples, checksum, .. }, row) = self.at(row);
        ShardLocation { shard: shard[row], offset: offset[row], samples: samples[row], checksum: checksum[row] }
    }

    pub(super) fn stat(&self, row: usize) -> FileStat {
        let (piece, row) = self.at(row);
        let [bytes, modified_ns, changed_ns] = piece.stats.each_ref().map(|column| column[row]);
        FileStat { bytes, modified_ns, changed_ns }
    }

    pub(super) fn failure(&self, row: usize) -> Option<&str> {
        let (piece, row) = self.at(row);
        piece.failure.is_valid(row).then(|| piece.failure.value(row))
    }
}

impl Piece {
    fn of(batch: &RecordBatch) -> Option<Self> {
        let column = |name| batch.column_by_name(name);
        let text = |name| Some(column(name)?.as_string_opt::<i32>()?.clone());
        let digests = |name| {
            let column = column(name)?.as_fixed_size_binary_opt()?.clone();
            Some(column).filter(|column| column.value_length() as usize == digest::BYTES)
        };
        let stat = |name| numbers::<Int64Type>(batch, name);
        let tokens = column("tokens")?.as_list_opt::<i32>()?.clone();
        tokens.values().as_primitive_opt::<Int32Type>()?;
        Some(Piece {
            id: text("id")?,
            audio: column("audio")?.as_binary_opt::<i32>()?.clone(),
            speaker: text("speaker")?,
            language: text("language")?,
            text: digests("text")?,
            tokens,
            source: digests("source")?,
            shard: numbers::<UInt32Type>(batch, "shard")?,
            offset: numbers::<UInt64Type>(batch, "offset")?,
            samples: numbers::<UInt32Type>(batch, "samples")?,
            checksum: numbers::<UInt64Type>(batch, "checksum")?,
            stats: [stat("bytes")?, stat("modified_ns")?, stat("changed_ns")?],
            failure: text("failure")?,
        })
    }
}

fn numbers<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Option<ScalarBuffer<T::Native>> {
    Some(batch.column_by_name(name)?.as_primitive_opt::<T>()?.values().clone())
}
