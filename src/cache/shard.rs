//! One shard, mapped: some 64 MiB of sound in an Arrow IPC file whose name is the digest of its bytes.
//!
//! A name that is a checksum needs no other record to be checked against, so a shard that a killed build finished is
//! found and used by the next one.

use super::map;
use super::sound::Sound;
use super::stamp::Stamp;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Int16Type, UInt32Type, UInt64Type};
use arrow_array::{FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use blake3::Hash;
use half::f16;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The digest that a file's name claims, if it is named like a shard.
pub(super) fn claimed(path: &Path) -> Option<Hash> {
    let name = path.file_name()?.to_str()?;
    Hash::from_hex(name.strip_prefix("shard-")?.strip_suffix(".arrow")?).ok()
}

pub(super) fn name(hash: &Hash) -> String {
    format!("shard-{}.arrow", hash.to_hex())
}

pub(super) struct Shard {
    pub path: PathBuf,
    pub stamp: Stamp,
    file: Buffer,
    /// Read at first use; none when they cannot be.
    batches: OnceLock<Option<Vec<Rows>>>,
}

/// One recording of a shard.
pub(super) struct Row<'a> {
    pub source: Hash,
    pub samples: u32,
    pub checksum: u64,
    pub sound: Sound<'a>,
}

impl Shard {
    /// Maps the file, so that it stays whatever becomes of its name, and reads none of it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (stamp, file) = map::open(path)?;
        Ok(Shard { path: path.to_owned(), stamp, file, batches: OnceLock::new() })
    }

    pub(super) fn batches(&self) -> Option<&[Rows]> {
        let read = || map::batches(&self.file).ok()?.1.iter().map(Rows::new).collect();
        self.batches.get_or_init(read).as_deref()
    }

    pub(super) fn row(&self, batch: u32, row: u32) -> Option<Row<'_>> {
        self.batches()?.get(batch as usize)?.row(row as usize)
    }
}

/// One record batch.
pub(super) struct Rows {
    source: FixedSizeBinaryArray,
    samples: ScalarBuffer<u32>,
    checksum: ScalarBuffer<u64>,
    ends: OffsetBuffer<i32>,
    values: Values,
}

enum Values {
    Pcm(ScalarBuffer<i16>),
    Mel(ScalarBuffer<f16>, usize),
}

impl Rows {
    fn new(batch: &RecordBatch) -> Option<Rows> {
        let list = |name| batch.column_by_name(name)?.as_list_opt::<i32>();
        let (list, values) = match (list("pcm"), list("mel")) {
            (Some(pcm), _) => (pcm, Values::Pcm(pcm.values().as_primitive_opt::<Int16Type>()?.values().clone())),
            (None, mel) => {
                let frames = mel?.values().as_fixed_size_list_opt()?;
                let values = frames.values().as_primitive_opt::<Float16Type>()?.values().clone();
                (mel?, Values::Mel(values, usize::try_from(frames.value_length()).ok()?))
            }
        };
        Some(Rows {
            source: batch.column_by_name("source")?.as_fixed_size_binary_opt()?.clone(),
            samples: batch.column_by_name("samples")?.as_primitive_opt::<UInt32Type>()?.values().clone(),
            checksum: batch.column_by_name("checksum")?.as_primitive_opt::<UInt64Type>()?.values().clone(),
            ends: list.offsets().clone(),
            values,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn source(&self, row: usize) -> Option<Hash> {
        Hash::from_slice(self.source.value(row)).ok()
    }

    pub(super) fn row(&self, row: usize) -> Option<Row<'_>> {
        let (samples, checksum) = (*self.samples.get(row)?, *self.checksum.get(row)?);
        let (start, end) = (*self.ends.get(row)? as usize, *self.ends.get(row + 1)? as usize);
        let sound = match &self.values {
            Values::Pcm(values) => Sound::Pcm(values.get(start..end)?),
            Values::Mel(values, width) => Sound::Mel(values.get(start * width..end * width)?),
        };
        Some(Row { source: self.source(row)?, samples, checksum, sound })
    }
}
