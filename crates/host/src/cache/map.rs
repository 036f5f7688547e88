//! Arrow IPC files through a memory map: the arrays point into the page cache, nothing is copied. Files of the cache get
//! their names when they are complete, and nothing writes to them afterwards, as a map demands.

use super::file_stat::FileStat;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{Block, KeyValue, MetadataVersion};
use arrow_schema::{ArrowError, SchemaRef};
use filebuffer::FileBuffer;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

const TRAILER_BYTES: usize = 10;

/// The bytes of a file, and what it looked like when it was mapped.
pub(super) fn open(path: &Path) -> io::Result<(FileStat, Buffer)> {
    let stat = || Ok::<_, io::Error>(FileStat::new(&fs::metadata(path)?));
    let mut before = stat()?;
    loop {
        let bytes = FileBuffer::open(path)?;
        let after = stat()?;
        if before == after {
            // An empty file has no map, and so no address that would suit any values.
            let is_empty = bytes.is_empty();
            let mapped = || Buffer::from(bytes::Bytes::from_owner(bytes));
            return Ok((before, if is_empty { Buffer::from_vec(Vec::<u64>::new()) } else { mapped() }));
        }
        before = after; // another process put the file there anew, meanwhile
    }
}

/// The record batches of a file. Cost: one pass over offsets and names, none over samples.
pub(super) fn batches(file: &Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let footer = Footer::read(file)?;
    let batches = (0..footer.blocks.len()).map(|number| footer.batch(file, number)).collect::<Result<_, _>>()?;
    Ok((footer.schema, batches))
}

/// What the end of a file says: where its record batches lie, and what it says about itself.
pub(super) struct Footer {
    schema: SchemaRef,
    version: MetadataVersion,
    pub blocks: Vec<Block>,
    pub metadata: HashMap<String, String>,
}

impl Footer {
    /// Reads the end of the file and nothing else.
    pub(super) fn read(file: &Buffer) -> Result<Self, ArrowError> {
        guarded(|| Self::try_read(file))
    }

    fn try_read(file: &Buffer) -> Result<Self, ArrowError> {
        let trailer_start =
            file.len().checked_sub(TRAILER_BYTES).ok_or_else(|| bad("shorter than an Arrow trailer"))?;
        let trailer = file[trailer_start..].try_into().map_err(|_| bad("no Arrow trailer"))?;
        let footer_start =
            trailer_start.checked_sub(read_footer_length(trailer)?).ok_or_else(|| bad("no Arrow footer"))?;
        let footer = arrow_ipc::root_as_footer(&file[footer_start..trailer_start]).map_err(bad)?;
        let schema = footer.schema().ok_or_else(|| bad("no schema"))?;
        let pair = |pair: KeyValue| Some((pair.key()?.to_owned(), pair.value()?.to_owned()));
        Ok(Footer {
            schema: Arc::new(arrow_ipc::convert::try_fb_to_schema(schema)?),
            version: footer.version(),
            blocks: footer.recordBatches().into_iter().flatten().copied().collect(),
            metadata: footer.custom_metadata().into_iter().flatten().filter_map(pair).collect(),
        })
    }

    /// The bytes of a record batch, its head included.
    pub(super) fn bytes(&self, file: &Buffer, number: usize) -> Result<Buffer, ArrowError> {
        let (start, head, body) = sizes(&self.blocks[number])?;
        let length = head.checked_add(body).ok_or_else(|| bad("block length"))?;
        if start.checked_add(length).is_none_or(|end| end > file.len()) {
            return Err(bad("a block reaches past the end"));
        }
        Ok(file.slice_with_length(start, length))
    }

    /// A record batch, as slices of the file.
    pub(super) fn batch(&self, file: &Buffer, number: usize) -> Result<RecordBatch, ArrowError> {
        let bytes = self.bytes(file, number)?;
        guarded(|| decoded(&self.decoder(), &self.blocks[number], &bytes))
    }

    /// The first columns of a record batch, read and not mapped: what is looked at once at the start should not count as
    /// memory of this process. They take `body_bytes` at most. `words` is memory that may be used, which the second answer is
    /// made of: memory that is new to a process costs more than what is read into it.
    pub(super) fn first_columns(
        &self,
        file: &File,
        number: usize,
        columns: usize,
        body_bytes: usize,
        mut words: Vec<u64>,
    ) -> Result<(RecordBatch, Buffer), ArrowError> {
        let (start, head, body) = sizes(&self.blocks[number])?;
        let length = head.checked_add(body.min(body_bytes)).ok_or_else(|| bad("block length"))?;
        // Nobody has checked what the file says of its sizes.
        if (start + length) as u64 > file.metadata()?.len() {
            return Err(bad("a block reaches past the end"));
        }
        words.resize(length.div_ceil(size_of::<u64>()), 0);
        file.read_exact_at(&mut bytemuck::cast_slice_mut(&mut words)[..length], start as u64)?;
        let bytes = Buffer::from_vec(words);
        let decoder = self.decoder().with_projection((0..columns).collect());
        guarded(|| decoded(&decoder, &self.blocks[number], &bytes)).map(|batch| (batch, bytes))
    }

    fn decoder(&self) -> FileDecoder {
        FileDecoder::new(self.schema.clone(), self.version).with_require_alignment(true)
    }
}

/// Start, and bytes of head and body.
fn sizes(block: &Block) -> Result<(usize, usize, usize), ArrowError> {
    let [start, body] = [block.offset(), block.bodyLength()].map(|size| usize::try_from(size).map_err(bad));
    let (start, body) = (start?, body?);
    let head = usize::try_from(block.metaDataLength()).map_err(bad)?;
    if start.checked_add(head).is_none_or(|end| end.checked_add(body).is_none()) {
        return Err(bad("block length"));
    }
    Ok((start, head, body))
}

fn decoded(decoder: &FileDecoder, block: &Block, bytes: &Buffer) -> Result<RecordBatch, ArrowError> {
    decoder.read_record_batch(block, bytes)?.ok_or_else(|| bad("an empty block"))
}

/// Arrow checks what it reads and gives an error, but it was not written for hostile files; a panic inside it is an
/// error here, like any other damage.
fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(bad("its reader failed on it")))
}

fn bad(what: impl ToString) -> ArrowError {
    ArrowError::ParseError(what.to_string())
}
