//! Arrow IPC files through a memory map: the arrays point into the page cache, nothing is copied.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_schema::ArrowError;
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

const TRAILER_BYTES: usize = 10;

/// The record batches of a file. Cost: one pass over offsets and names, none over samples.
pub(super) fn read(path: &Path) -> Result<Vec<RecordBatch>, ArrowError> {
    let file = Buffer::from(bytes::Bytes::from_owner(map(&File::open(path)?)?));
    let trailer_start = file.len().checked_sub(TRAILER_BYTES).ok_or_else(|| bad("shorter than an Arrow trailer"))?;
    let trailer = file[trailer_start..].try_into().map_err(|_| bad("no Arrow trailer"))?;
    let footer_start = trailer_start.checked_sub(read_footer_length(trailer)?).ok_or_else(|| bad("no Arrow footer"))?;
    let footer = arrow_ipc::root_as_footer(&file[footer_start..trailer_start]).map_err(bad)?;
    let schema = footer.schema().ok_or_else(|| bad("no schema"))?;
    let schema = Arc::new(arrow_ipc::convert::try_fb_to_schema(schema)?);
    let decoder = FileDecoder::new(schema, footer.version()).with_require_alignment(true);
    footer.recordBatches().iter().flatten().map(|block| batch(&decoder, &file, block)).collect()
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

/// The only unsafe code of this crate: the operating system's map has no safe form.
#[allow(unsafe_code)]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the bytes must not change under the map. Files of the cache are written under a temporary name, synced,
    // and renamed; afterwards nothing writes to them. A replaced or deleted file lives on as long as it is mapped.
    unsafe { Mmap::map(file) }
}
