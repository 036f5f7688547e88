//! The table of one corpus: a row for each utterance in corpus order, with its text as tokens and where its sound lies.
//!
//! Its name holds a hash of the utterances and the tokenizer, so a warm start looks for one file and reads nothing
//! else; and the digest of what it says about itself, which holds a digest of every piece of it, so that nothing is used
//! that was not written. It also remembers what recordings and shards looked like from outside when they were last read.
//!
//! A row costs no memory: its columns are mapped, piece by piece, when a clip of the piece is first used. What a run needs
//! of all rows, lengths above all, lies in front of each piece and is read through once, when the table is opened.

use super::digest::{self, Digest, Hasher};
use super::file_stat::FileStat;
use super::identity::Identity;
use super::map::{self, Footer};
use super::packed::Packed;
use super::shard::ShardLocation;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, ListArray, RecordBatch, StringArray};
use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Raised whenever an older program could not read what a newer one writes, or would read it wrongly.
pub(super) const FORMAT: u32 = 2;
/// Enough for the parts of a few corpora; each edit of a corpus makes a new table.
pub(super) const KEPT: usize = 8;
/// A table is written and read in pieces of so many rows, some 4 MiB.
pub(super) const PIECE_ROWS: usize = 1 << 13;
/// Pieces that are held against their digests when a table is opened: all of 131,000 rows. Those of a larger one are when
/// they are first used.
const CHECKED_AT_ONCE: usize = 16;
/// Columns in front of each piece, and the most bytes that they and their padding take.
pub(super) const LENGTH_COLUMNS: [&str; 5] = ["samples", "token_count", "characters", "shard", "fraction"];
const LENGTH_BYTES: usize = PIECE_ROWS * (4 * size_of::<u32>() + size_of::<f64>()) + 64 * LENGTH_COLUMNS.len();
/// Pieces whose lengths are read before what was found in them is taken.
const PIECES_AT_ONCE: usize = 64;
/// Names what the table says about itself, in the file's footer.
pub(super) const ABOUT: &str = "about";

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
    file: File,
    mapped: Buffer,
    footer: Footer,
    /// `PIECE_ROWS` rows each, but the last; nothing where one is not as it was written.
    pieces: Vec<OnceLock<Option<Piece>>>,
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
    characters: ScalarBuffer<u32>,
    checksum: ScalarBuffer<u64>,
    stats: [ScalarBuffer<i64>; 3],
    failure: StringArray,
}

/// What a run needs of every row of a piece.
pub(super) struct LengthColumns {
    /// Number of the first row.
    pub first: usize,
    /// None for an utterance that failed.
    pub samples: ScalarBuffer<u32>,
    pub tokens: ScalarBuffer<u32>,
    /// Of the text, as the corpus has it.
    pub characters: ScalarBuffer<u32>,
    /// Number of the shard that holds the sound.
    pub shards: ScalarBuffer<u32>,
    /// Hash of the id as a number in 0..1.
    pub fractions: ScalarBuffer<f64>,
}

/// What the table says about itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TableMetadata {
    pub format: u32,
    /// The tokenizer's fingerprint.
    pub tokenizer: String,
    /// The folder that holds all recordings.
    pub corpus: String,
    /// Hash of the utterances of the whole corpus, where this is the table of a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// Names of shards, and what they looked like.
    pub shards: Vec<(String, [i64; 3])>,
    pub rows: usize,
    /// Rows that have features.
    pub clips: usize,
    /// Samples, values of sound, and tokens of all of them.
    pub samples: usize,
    pub values: usize,
    pub tokens: usize,
    /// The lowest and the highest fraction of an id, as bits.
    pub fractions: [u64; 2],
    /// Some recording must be looked at again, whatever it looks like.
    pub unsettled: bool,
    /// Digest of all recordings and texts in their order, whatever machine they are on.
    pub content: String,
    /// Digests of each piece, and of its lengths.
    pub pieces: Vec<[u64; 2]>,
}

/// What a table is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    Corpus,
    /// What one of several machines made of its part of a corpus.
    Part,
}

impl TableKind {
    pub(super) fn prefix(self) -> &'static str {
        match self {
            TableKind::Corpus => "corpus-",
            TableKind::Part => "part-",
        }
    }
}

/// What a file's name says: what it is the table of, the hash of its utterances, and its digest.
pub(super) fn claimed(path: &Path) -> Option<(TableKind, &str, &str)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".arrow")?;
    let of_kind = |kind: TableKind| {
        let (identity, digest) = name.strip_prefix(kind.prefix())?.split_once('-')?;
        ((identity.len(), digest.len()) == (32, 32)).then_some((kind, identity, digest))
    };
    [TableKind::Corpus, TableKind::Part].into_iter().find_map(of_kind)
}

impl CorpusTable {
    /// The table of a corpus, if it is whole.
    pub(super) fn find(dir: &Path, corpus: &Identity) -> Option<Self> {
        let entries = fs::read_dir(dir).ok()?;
        let path = entries.flatten().map(|entry| entry.path()).find(|path| corpus.is_claimed_by(path))?;
        let table = Self::open(&path)?;
        (table.pieces.len() > CHECKED_AT_ONCE || table.is_whole()).then_some(table)
    }

    /// None when the file is not what its name says, or is of another make. Reads its end alone.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let (_, _, claimed) = claimed(path)?;
        let (_, mapped) = map::open(path).ok()?;
        let footer = Footer::read(&mapped).ok()?;
        let about = footer.metadata.get(ABOUT)?;
        (Digest::of(about.as_bytes()).hex() == claimed).then_some(())?;
        let about: TableMetadata = serde_json::from_str(about).ok()?;
        let pieces = about.rows.div_ceil(PIECE_ROWS).max(1);
        ((about.format, about.pieces.len(), footer.blocks.len()) == (FORMAT, pieces, pieces)).then_some(())?;
        let pieces = (0..pieces).map(|_| OnceLock::new()).collect();
        Some(CorpusTable { path: path.to_owned(), about, file: File::open(path).ok()?, mapped, footer, pieces })
    }

    /// Whether every piece is as it was written. Reads all of it.
    pub(super) fn is_whole(&self) -> bool {
        (0..self.pieces.len()).into_par_iter().all(|number| self.piece(number).is_some())
    }

    /// Whether a row can be read; all that is told of single rows may be asked for then.
    pub(super) fn has(&self, row: usize) -> bool {
        row < self.about.rows && self.piece(row / PIECE_ROWS).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.about.rows
    }

    fn piece(&self, number: usize) -> Option<&Piece> {
        let load = || {
            let bytes = self.footer.bytes(&self.mapped, number).ok()?;
            (Digest::of(&bytes).short() == self.about.pieces[number][0]).then_some(())?;
            let batch = self.footer.batch(&self.mapped, number).ok()?;
            Piece::of(&batch).filter(|_| batch.num_rows() == self.rows_of(number))
        };
        self.pieces[number].get_or_init(load).as_ref()
    }

    fn rows_of(&self, piece: usize) -> usize {
        (self.about.rows - piece * PIECE_ROWS).min(PIECE_ROWS)
    }

    fn at(&self, row: usize) -> (&Piece, usize) {
        let piece = self.piece(row / PIECE_ROWS).expect("a piece that was checked");
        (piece, row % PIECE_ROWS)
    }

    /// Works through the lengths of all rows, several pieces at a time; what is found is taken in order. None where they
    /// are not as they were written.
    pub(super) fn lengths<T: Send>(
        &self,
        of: impl Fn(LengthColumns) -> T + Sync,
        mut take: impl FnMut(T),
    ) -> Option<()> {
        thread_local!(static WORDS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
        let read = |number: usize| {
            let (words, count) = (WORDS.take(), LENGTH_COLUMNS.len());
            let (batch, bytes) = self.footer.first_columns(&self.file, number, count, LENGTH_BYTES, words).ok()?;
            let columns = LengthColumns::of(&batch, number * PIECE_ROWS)?;
            drop(batch);
            let is_whole = columns.digest() == self.about.pieces[number][1];
            let found = (is_whole && columns.samples.len() == self.rows_of(number)).then(|| of(columns));
            if let Ok(words) = bytes.into_vec() {
                WORDS.set(words);
            }
            found
        };
        for start in (0..self.pieces.len()).step_by(PIECES_AT_ONCE) {
            let some = start..(start + PIECES_AT_ONCE).min(self.pieces.len());
            let found: Option<Vec<T>> = some.into_par_iter().map(read).collect();
            found?.into_iter().for_each(&mut take);
        }
        Some(())
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

    /// Characters of a text, as the corpus has it.
    pub(super) fn characters(&self, row: usize) -> usize {
        let (piece, row) = self.at(row);
        piece.characters[row] as usize
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
            characters: numbers::<UInt32Type>(batch, "characters")?,
            checksum: numbers::<UInt64Type>(batch, "checksum")?,
            stats: [stat("bytes")?, stat("modified_ns")?, stat("changed_ns")?],
            failure: text("failure")?,
        })
    }
}

impl LengthColumns {
    fn of(batch: &RecordBatch, first: usize) -> Option<Self> {
        let number = |name| numbers::<UInt32Type>(batch, name);
        let [samples, tokens, characters, shards, fractions] = LENGTH_COLUMNS;
        let (samples, tokens, characters) = (number(samples)?, number(tokens)?, number(characters)?);
        let (shards, fractions) = (number(shards)?, numbers::<Float64Type>(batch, fractions)?);
        Some(LengthColumns { first, samples, tokens, characters, shards, fractions })
    }

    /// What the first columns of a piece are held against.
    fn digest(&self) -> u64 {
        digest_of([&self.samples, &self.tokens, &self.characters, &self.shards], &self.fractions)
    }
}

/// Digest of samples, tokens, characters and shards of some rows, and the fractions of their ids.
pub(super) fn digest_of(numbers: [&[u32]; 4], fractions: &[f64]) -> u64 {
    let mut hasher = Hasher::new();
    for numbers in numbers {
        hasher.update(numbers.to_byte_slice());
    }
    hasher.update(fractions.to_byte_slice()).finish().short()
}

fn numbers<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Option<ScalarBuffer<T::Native>> {
    Some(batch.column_by_name(name)?.as_primitive_opt::<T>()?.values().clone())
}
