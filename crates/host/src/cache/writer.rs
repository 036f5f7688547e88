//! Writing shards: rows are gathered, written under a temporary name, and named after their digest. They are not synced:
//! a clip is held against its checksum before its first use, so what a power cut spoils is found and built again.

use super::Error;
use super::digest::{self, Digest};
use super::features::{ClipAudioBuf, Extracted};
use super::output::Output;
use super::settings::FeatureSettings;
use super::shard::{self, ShardLocation};
use super::{file_stat, folder};
use arrow_array::{
    Array, FixedSizeBinaryArray, FixedSizeListArray, Float16Array, Int16Array, ListArray, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the names of shards begin with that are being written.
pub(super) const TEMPORARY: &str = "shard";
/// What is gathered in memory before it is written.
const BATCH_BYTES: usize = 1 << 20;
/// Arrow starts every column at a multiple of this, and ends a batch at one.
const COLUMN_BYTES: u64 = 64;

/// Appends recordings to shards in a folder that no other process writes to.
pub(super) struct Writer {
    dir: PathBuf,
    temporary: PathBuf,
    schema: SchemaRef,
    batch: Columns,
    open: Option<FileWriter<Output>>,
    /// Larger shards lose more when a build is killed, smaller ones make a large cache slow to open.
    shard_bytes: usize,
    written_bytes: usize,
    /// What is in the shard at hand. The number of the shard is for its reader to give.
    places: Vec<(Digest, ShardLocation)>,
}

/// A shard that is complete: where it is, and what is where in it, so that it need not be read back.
pub(super) struct FinishedShard {
    pub path: PathBuf,
    pub bytes: u64,
    pub places: Vec<(Digest, ShardLocation)>,
}

impl Writer {
    pub(super) fn new(dir: &Path, settings: &FeatureSettings, shard_bytes: usize) -> Self {
        let batch = Columns::new(settings.mel.map(|mel| mel.n_mels));
        let temporary = folder::temporary(&dir.join(TEMPORARY));
        Writer {
            dir: dir.to_owned(),
            temporary,
            schema: schema(settings),
            batch,
            open: None,
            shard_bytes,
            written_bytes: 0,
            places: vec![],
        }
    }

    /// Takes a recording; returns the shard that it filled, if it filled one.
    pub(super) fn push(&mut self, source: &Digest, kept: &Extracted) -> Result<Option<FinishedShard>, Error> {
        self.batch.push(source, kept);
        let filled =
            if self.batch.bytes() < BATCH_BYTES.min(self.shard_bytes) { Ok(None) } else { self.flush_or_seal() };
        filled.map_err(|error| self.abandon(error))
    }

    /// Completes the shard at hand: writes it, and gives it its name.
    pub(super) fn seal(&mut self) -> Result<Option<FinishedShard>, Error> {
        self.try_seal().map_err(|error| self.abandon(error))
    }

    fn flush_or_seal(&mut self) -> Result<Option<FinishedShard>, ArrowError> {
        self.flush()?;
        if self.written_bytes < self.shard_bytes { Ok(None) } else { self.try_seal() }
    }

    fn try_seal(&mut self) -> Result<Option<FinishedShard>, ArrowError> {
        self.flush()?;
        let Some(mut open) = self.open.take() else { return Ok(None) };
        open.finish()?;
        let output = open.into_inner()?;
        let (bytes, digest) = (output.bytes(), output.finish()?);
        let path = self.dir.join(shard::name(digest));
        // Another machine may have done the same work. What others have looked at stays, unless it is damaged.
        if File::open(&path).and_then(|file| file_stat::digest(&file)).is_ok_and(|there| there == digest) {
            fs::remove_file(&self.temporary)?;
        } else {
            fs::rename(&self.temporary, &path)?;
        }
        self.written_bytes = 0;
        Ok(Some(FinishedShard { path, bytes, places: std::mem::take(&mut self.places) }))
    }

    fn flush(&mut self) -> Result<(), ArrowError> {
        if self.batch.samples.is_empty() {
            return Ok(());
        }
        self.written_bytes += self.batch.bytes();
        let sound_bytes = self.batch.bytes() as u64;
        let rows = self.batch.rows();
        let batch = self.take_batch().finish(&self.schema)?;
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(FileWriter::try_new(Output::create(&self.temporary)?, &self.schema)?),
        };
        open.write(&batch)?;
        // Sound is the last column of a batch.
        let mut offset = open.get_ref().bytes() - sound_bytes.next_multiple_of(COLUMN_BYTES);
        for (source, samples, checksum, bytes) in rows {
            self.places.push((source, ShardLocation { shard: 0, offset, samples, checksum }));
            offset += bytes;
        }
        Ok(())
    }

    fn take_batch(&mut self) -> Columns {
        let empty = Columns::new(self.batch.n_mels);
        std::mem::replace(&mut self.batch, empty)
    }

    /// After a failed write the file's end is unknown: it can no longer become a shard.
    fn abandon(&mut self, error: ArrowError) -> Error {
        (self.open, _) = (None, self.take_batch());
        self.places.clear();
        // At once: a full disk needs the room for the table of the clips that are done.
        let _ = fs::remove_file(&self.temporary);
        Error::arrow(&self.temporary, error)
    }
}

/// Shards that were not sealed leave nothing behind.
impl Drop for Writer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Whoever opens a shard elsewhere finds in its metadata how the sound was made.
fn schema(settings: &FeatureSettings) -> SchemaRef {
    let sound = match &settings.mel {
        None => Field::new_list("pcm", sample(), false),
        Some(mel) => Field::new_list("mel", frame(mel.n_mels), false),
    };
    let fields = vec![
        Field::new("source", DataType::FixedSizeBinary(digest::BYTES as i32), false),
        Field::new("samples", DataType::UInt32, false),
        Field::new("checksum", DataType::UInt64, false),
        sound,
    ];
    let metadata = HashMap::from([("settings".to_owned(), settings.json())]);
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

fn sample() -> FieldRef {
    Arc::new(Field::new("item", DataType::Int16, false))
}

fn frame(n_mels: usize) -> FieldRef {
    Arc::new(Field::new_fixed_size_list("item", band(), n_mels as i32, false))
}

fn band() -> FieldRef {
    Arc::new(Field::new("item", DataType::Float16, false))
}

struct Columns {
    source: Vec<u8>,
    samples: Vec<u32>,
    checksum: Vec<u64>,
    sound: ClipAudioBuf,
    /// Samples or frames of each row.
    lengths: Vec<usize>,
    /// None keeps samples.
    n_mels: Option<usize>,
}

impl Columns {
    fn new(n_mels: Option<usize>) -> Self {
        let sound = if n_mels.is_some() { ClipAudioBuf::Mel(vec![]) } else { ClipAudioBuf::Pcm(vec![]) };
        Columns { source: vec![], samples: vec![], checksum: vec![], sound, lengths: vec![], n_mels }
    }

    fn push(&mut self, source: &Digest, kept: &Extracted) {
        self.source.extend(source.bytes());
        self.samples.push(kept.samples);
        self.checksum.push(kept.checksum);
        let values = match (&mut self.sound, &kept.sound) {
            (ClipAudioBuf::Pcm(all), ClipAudioBuf::Pcm(values)) => append(all, values),
            (ClipAudioBuf::Mel(all), ClipAudioBuf::Mel(values)) => append(all, values),
            _ => unreachable!("one maker, one form"),
        };
        self.lengths.push(values / self.n_mels.unwrap_or(1));
    }

    /// Source, length, checksum and bytes of each.
    fn rows(&self) -> Vec<(Digest, u32, u64, u64)> {
        let value_bytes = (self.n_mels.unwrap_or(1) * size_of::<i16>()) as u64;
        let bytes = self.lengths.iter().map(|length| *length as u64 * value_bytes);
        let sources = self.source.chunks_exact(digest::BYTES).filter_map(Digest::from_bytes);
        let rows = sources.zip(&self.samples).zip(&self.checksum).zip(bytes);
        rows.map(|(((source, samples), checksum), bytes)| (source, *samples, *checksum, bytes)).collect()
    }

    fn bytes(&self) -> usize {
        self.sound.as_audio().bytes().len()
    }

    fn finish(self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let ends = OffsetBuffer::from_lengths(self.lengths);
        let list = match (self.sound, self.n_mels) {
            (ClipAudioBuf::Pcm(samples), _) => {
                ListArray::try_new(sample(), ends, Arc::new(Int16Array::from(samples)), None)?
            }
            (ClipAudioBuf::Mel(bands), n_mels) => {
                let n_mels = n_mels.unwrap_or(1);
                let bands = Float16Array::new(bands.into(), None);
                let frames = FixedSizeListArray::try_new(band(), n_mels as i32, Arc::new(bands), None)?;
                ListArray::try_new(frame(n_mels), ends, Arc::new(frames), None)?
            }
        };
        let columns: Vec<Arc<dyn Array>> = vec![
            Arc::new(FixedSizeBinaryArray::try_new(digest::BYTES as i32, Buffer::from_vec(self.source), None)?),
            Arc::new(UInt32Array::from(self.samples)),
            Arc::new(UInt64Array::from(self.checksum)),
            Arc::new(list),
        ];
        RecordBatch::try_new(schema.clone(), columns)
    }
}

fn append<T: Copy>(column: &mut Vec<T>, values: &[T]) -> usize {
    column.extend_from_slice(values);
    values.len()
}
