//! One shard, mapped: some 64 MiB of sound in an Arrow IPC file whose name is the digest of its bytes.
//!
//! A name that is a checksum needs no other record to be checked against, so a shard that a killed build finished is
//! found and used by the next one. Arrow reads it once, when its digest has just been made; from then on the table of
//! a corpus says at which byte each sound starts, and a clip is a slice of the map.

use super::digest::Digest;
use super::features::ClipSound;
use super::file_stat::FileStat;
use super::map;
use super::settings::AudioForm;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Int16Type, UInt32Type, UInt64Type};
use arrow_array::{FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::{Buffer, ScalarBuffer, ToByteSlice};
use std::io;
use std::path::{Path, PathBuf};

/// So many values of a buffer, as what they are.
pub(super) fn sound(bytes: &Buffer, start: usize, count: usize, form: AudioForm) -> ClipSound {
    match form.n_mels {
        None => ClipSound::Pcm(ScalarBuffer::new(bytes.clone(), start, count)),
        Some(_) => ClipSound::Mel(ScalarBuffer::new(bytes.clone(), start, count)),
    }
}

/// The digest that a file's name claims, if it is named like a shard.
pub(super) fn claimed(path: &Path) -> Option<Digest> {
    let name = path.file_name()?.to_str()?;
    Digest::from_hex(name.strip_prefix("shard-")?.strip_suffix(".arrow")?)
}

pub(super) fn name(digest: Digest) -> String {
    format!("shard-{}.arrow", digest.hex())
}

pub(super) struct Shard {
    pub path: PathBuf,
    pub stat: FileStat,
    file: Buffer,
    form: AudioForm,
}

/// Where the sound of a recording lies, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardLocation {
    pub shard: u32,
    /// Offset of the first byte, from the start of the file.
    pub offset: u64,
    pub samples: u32,
    pub checksum: u64,
}

impl Shard {
    /// Maps the file, so that it stays whatever becomes of its name, and reads none of it.
    pub(super) fn open(path: &Path, form: AudioForm) -> io::Result<Self> {
        let (stat, file) = map::open(path)?;
        Ok(Shard { path: path.to_owned(), stat, file, form })
    }

    /// One that is known by its name and size, and not read here.
    pub(super) fn named(path: PathBuf, bytes: u64, form: AudioForm) -> Self {
        let stat = FileStat { bytes: bytes as i64, modified_ns: 0, changed_ns: 0 };
        Shard { path, stat, file: Buffer::from_vec(Vec::<u64>::new()), form }
    }

    /// So many values from a byte on; none where the file has not so many. The caller compares checksums.
    pub(super) fn sound(&self, offset: u64, count: usize) -> Option<ClipSound> {
        let start = usize::try_from(offset).ok()? / size_of::<i16>();
        let end = start.checked_add(count)?.checked_mul(size_of::<i16>())?;
        (end <= self.file.len()).then(|| sound(&self.file, start, count, self.form))
    }

    /// The recordings of a shard whose digest was just made; none where it is of another make.
    pub(super) fn recordings(&self, number: u32, form: AudioForm) -> Option<Vec<(Digest, ShardLocation)>> {
        let (_, batches) = map::batches(&self.file).ok()?;
        let found = batches.iter().map(|batch| self.of_batch(batch, number, form)).collect::<Option<Vec<_>>>()?;
        Some(found.concat())
    }

    fn of_batch(&self, batch: &RecordBatch, shard: u32, form: AudioForm) -> Option<Vec<(Digest, ShardLocation)>> {
        let sources: &FixedSizeBinaryArray = batch.column_by_name("source")?.as_fixed_size_binary_opt()?;
        let samples = batch.column_by_name("samples")?.as_primitive_opt::<UInt32Type>()?.values();
        let checksums = batch.column_by_name("checksum")?.as_primitive_opt::<UInt64Type>()?.values();
        let list = batch.column_by_name(if form.n_mels.is_some() { "mel" } else { "pcm" })?.as_list_opt::<i32>()?;
        let (values, width) = match form.n_mels {
            None => (list.values().as_primitive_opt::<Int16Type>()?.values().to_byte_slice(), 1),
            Some(width) => {
                let frames = list.values().as_fixed_size_list_opt().filter(|f| f.value_length() as usize == width)?;
                (frames.values().as_primitive_opt::<Float16Type>()?.values().to_byte_slice(), width)
            }
        };
        let base = (values.as_ptr() as usize).checked_sub(self.file.as_ptr() as usize)?;
        let place = |row: usize| {
            let offset = (base + list.value_offsets()[row] as usize * width * size_of::<i16>()) as u64;
            let place = ShardLocation { shard, offset, samples: samples[row], checksum: checksums[row] };
            Some((Digest::from_bytes(sources.value(row))?, place))
        };
        (0..batch.num_rows()).map(place).collect()
    }
}
