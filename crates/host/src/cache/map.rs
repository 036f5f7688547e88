//! Arrow IPC files through a memory map: the arrays point into the page cache, nothing is copied. Files of the cache get
//! their names when they are complete, and nothing writes to them afterwards, as a map demands.

use super::file_stat::FileStat;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_schema::{ArrowError, SchemaRef};
use filebuffer::FileBuffer;
use std::fs;
use std::io;
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
///
/// Arrow checks what it reads and gives an error, but it was not written for hostile files; a panic inside it is an
/// error here, like any other damage.
pub(super) fn batches(file: &Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    std::panic::catch_unwind(|| try_batches(file)).unwrap_or_else(|_| Err(bad("its reader failed on it")))
}

fn try_batches(file: &Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let trailer_start = file.len().checked_sub(TRAILER_BYTES).ok_or_else(|| bad("shorter than an Arrow trailer"))?;
    let trailer = file[trailer_start..].try_into().map_err(|_| bad("no Arrow trailer"))?;
    let footer_start = trailer_start.checked_sub(read_footer_length(trailer)?).ok_or_else(|| bad("no Arrow footer"))?;
    let footer = arrow_ipc::root_as_footer(&file[footer_start..trailer_start]).map_err(bad)?;
    let schema = footer.schema().ok_or_else(|| bad("no schema"))?;
    let schema = Arc::new(arrow_ipc::convert::try_fb_to_schema(schema)?);
    let decoder = FileDecoder::new(schema.clone(), footer.version()).with_require_alignment(true);
    let blocks = footer.recordBatches().into_iter().flatten();
    let batches = blocks.map(|block| batch(&decoder, file, block)).collect::<Result<_, _>>()?;
    Ok((schema, batches))
}

fn batch(decoder: &FileDecoder, file: &Buffer, block: &arrow_ipc::Block) -> Result<RecordBatch, ArrowError> {
    let start = usize::try_from(block.offset()).map_err(bad)?;
    let head = usize::try_from(block.metaDataLength()).map_err(bad)?;
    let body = usize::try_from(block.bodyLength()).map_err(bad)?;
    let length = head.checked_add(body).ok_or_else(|| bad("block length"))?;
    if start.checked_add(length).is_none_or(|end| end > file.len()) {
        return Err(bad("a block reaches past the end"));
    }
    let data = file.slice_with_length(start, length);
    decoder.read_record_batch(block, &data)?.ok_or_else(|| bad("an empty block"))
}

fn bad(what: impl ToString) -> ArrowError {
    ArrowError::ParseError(what.to_string())
}
