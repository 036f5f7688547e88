//! One shard: some 64 MiB of clips in an Arrow IPC file whose name is the digest of its bytes.
//!
//! A name that is a checksum needs no other record to be checked against, so a shard that a killed build finished is
//! found and used by the next one.

use super::Error;
use arrow_array::builder::{FixedSizeBinaryBuilder, ListBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{ArrowPrimitiveType, Int16Type, Int32Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use blake3::Hash;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TEMPORARY: &str = "shard.tmp";
/// Larger shards lose more when a build is killed, smaller ones make a large cache slow to open.
const SHARD_BYTES: usize = 64 << 20;
/// What is gathered in memory before it is written.
const BATCH_BYTES: usize = 8 << 20;

/// A clip as it is stored.
pub(super) struct Row {
    pub key: Hash,
    pub id: String,
    pub speaker: String,
    pub language: String,
    pub tokens: Vec<i32>,
    pub pcm: Vec<i16>,
}

/// The digest that a file's name claims, if it is named like a shard.
pub(super) fn claimed(path: &Path) -> Option<Hash> {
    let name = path.file_name()?.to_str()?;
    Hash::from_hex(name.strip_prefix("shard-")?.strip_suffix(".arrow")?).ok()
}

/// Appends clips to shards in a folder that no other process writes to.
pub(super) struct Writer {
    dir: PathBuf,
    schema: SchemaRef,
    batch: Columns,
    open: Option<FileWriter<Hashing>>,
    written_bytes: usize,
}

impl Writer {
    pub(super) fn new(dir: &Path, rate_hz: u32) -> Self {
        let batch = Columns::default();
        Writer { dir: dir.to_owned(), schema: schema(rate_hz), batch, open: None, written_bytes: 0 }
    }

    /// Takes a clip; returns the shard that it filled, if it filled one.
    pub(super) fn push(&mut self, row: &Row) -> Result<Option<(PathBuf, Hash)>, Error> {
        self.try_push(row).map_err(|error| self.abandon(error))
    }

    /// Completes the shard at hand: writes, syncs, and gives it its name.
    pub(super) fn seal(&mut self) -> Result<Option<(PathBuf, Hash)>, Error> {
        self.try_seal().map_err(|error| self.abandon(error))
    }

    fn try_push(&mut self, row: &Row) -> Result<Option<(PathBuf, Hash)>, ArrowError> {
        self.batch.push(row)?;
        if self.batch.bytes < BATCH_BYTES {
            return Ok(None);
        }
        self.flush()?;
        if self.written_bytes < SHARD_BYTES { Ok(None) } else { self.try_seal() }
    }

    fn try_seal(&mut self) -> Result<Option<(PathBuf, Hash)>, ArrowError> {
        self.flush()?;
        let Some(mut open) = self.open.take() else { return Ok(None) };
        open.finish()?;
        let Hashing { file, hasher } = open.into_inner()?;
        file.sync_all()?;
        let hash = hasher.finalize();
        let path = self.dir.join(format!("shard-{}.arrow", hash.to_hex()));
        fs::rename(self.temporary(), &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.written_bytes = 0;
        Ok(Some((path, hash)))
    }

    fn flush(&mut self) -> Result<(), ArrowError> {
        if self.batch.rows == 0 {
            return Ok(());
        }
        self.written_bytes += self.batch.bytes;
        let batch = std::mem::take(&mut self.batch).finish(&self.schema)?;
        if self.open.is_none() {
            let file = File::create(self.temporary())?;
            self.open = Some(FileWriter::try_new(Hashing { file, hasher: blake3::Hasher::new() }, &self.schema)?);
        }
        self.open.as_mut().map_or(Ok(()), |open| open.write(&batch))
    }

    fn temporary(&self) -> PathBuf {
        self.dir.join(TEMPORARY)
    }

    /// After a failed write the file's end is unknown: it can no longer become a shard.
    fn abandon(&mut self, error: ArrowError) -> Error {
        (self.open, self.batch) = (None, Columns::default());
        // At once: a full disk needs the room for the table of digests.
        let _ = fs::remove_file(self.temporary());
        Error::arrow(&self.temporary(), error)
    }
}

/// Shards that were not sealed leave nothing behind, also those of a build that was killed.
impl Drop for Writer {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.temporary());
    }
}

/// A file and the digest of what was written to it. Unbuffered: nearly every write is a whole column.
struct Hashing {
    file: File,
    hasher: blake3::Hasher,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn schema(rate_hz: u32) -> SchemaRef {
    let list = |name, item| Field::new(name, DataType::List(Arc::new(Field::new("item", item, false))), false);
    let fields = vec![
        Field::new("id", DataType::Utf8, false),
        Field::new("key", DataType::FixedSizeBinary(32), false),
        list("tokens", DataType::Int32),
        list("pcm", DataType::Int16),
        Field::new("speaker", DataType::Utf8, false),
        Field::new("language", DataType::Utf8, false),
    ];
    let metadata = HashMap::from([("rate_hz".to_owned(), rate_hz.to_string())]);
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

struct Columns {
    id: StringBuilder,
    key: FixedSizeBinaryBuilder,
    tokens: Numbers<Int32Type>,
    pcm: Numbers<Int16Type>,
    speaker: StringBuilder,
    language: StringBuilder,
    rows: usize,
    bytes: usize,
}

type Numbers<T> = ListBuilder<PrimitiveBuilder<T>>;

impl Default for Columns {
    fn default() -> Self {
        Columns {
            id: StringBuilder::new(),
            key: FixedSizeBinaryBuilder::new(32),
            tokens: numbers(DataType::Int32),
            pcm: numbers(DataType::Int16),
            speaker: StringBuilder::new(),
            language: StringBuilder::new(),
            rows: 0,
            bytes: 0,
        }
    }
}

impl Columns {
    fn push(&mut self, row: &Row) -> Result<(), ArrowError> {
        self.id.append_value(&row.id);
        self.key.append_value(row.key.as_bytes())?;
        append(&mut self.tokens, &row.tokens);
        append(&mut self.pcm, &row.pcm);
        self.speaker.append_value(&row.speaker);
        self.language.append_value(&row.language);
        self.rows += 1;
        self.bytes += row.pcm.len() * 2 + row.tokens.len() * 4;
        Ok(())
    }

    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<Arc<dyn Array>> = vec![
            Arc::new(self.id.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.tokens.finish()),
            Arc::new(self.pcm.finish()),
            Arc::new(self.speaker.finish()),
            Arc::new(self.language.finish()),
        ];
        RecordBatch::try_new(schema.clone(), columns)
    }
}

fn numbers<T: ArrowPrimitiveType>(item: DataType) -> Numbers<T> {
    ListBuilder::new(PrimitiveBuilder::new()).with_field(Field::new("item", item, false))
}

fn append<T: ArrowPrimitiveType>(list: &mut Numbers<T>, values: &[T::Native]) {
    list.values().append_slice(values);
    list.append(true);
}
