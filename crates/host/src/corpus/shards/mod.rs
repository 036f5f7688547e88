//! Corpora in shards: tar files, tables, and what Lhotse makes of both. Each shard is read from front to back, a few at a
//! time; of what it holds only texts and places stay in memory.

mod find;
mod gzip;
mod index;
mod parquet;
#[cfg(test)]
mod python;
mod rows;
mod shar;
mod tar;
#[cfg(test)]
mod tests;
mod webdataset;

pub(super) use find::{Found, Unit, find};
pub(super) use rows::read;
pub(super) use webdataset::walk;

use super::Member;
use crate::storage::{self, Fault, Object, Store};
use gzip::Unpacked;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// An hour of 16-bit sound at 44.1 kHz, in a shard of clips. More is no clip, and would have to be held in memory.
const MAX_MEMBER_BYTES: u64 = 320 << 20;

/// One file of a corpus that holds many clips, or an object that is one.
pub(super) struct Shard {
    store: Store,
    object: Object,
    packing: Packing,
    name: String,
}

/// How the bytes of a clip are got out of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// They lie there as they are.
    Plain,
    /// They are what gzip makes of it from the start on.
    Gzip,
    /// They are a cell of a table.
    Parquet,
}

impl Shard {
    pub(super) fn new(store: &Store, object: Object, packing: Packing) -> Arc<Self> {
        // The name is known wherever the program is started.
        let name = match store.file(&object.key) {
            Some(path) => std::path::absolute(&path).unwrap_or(path).display().to_string(),
            None => store.name(&object.key),
        };
        Arc::new(Shard { store: store.clone(), object, packing, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_local(&self) -> bool {
        self.store.as_folder().is_some()
    }

    pub(super) fn version(&self) -> [u8; 32] {
        let Object { bytes, etag, .. } = &self.object;
        let parts = [self.name.as_str(), &bytes.to_string(), etag.as_deref().unwrap_or_default()];
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// Opens it for parts that are asked for mostly in their order; `in_order` reads ahead.
    pub(super) fn open(self: &Arc<Self>, in_order: bool) -> io::Result<ShardReader> {
        ShardReader::open(self.clone(), in_order)
    }

    /// Its bytes, unpacked.
    fn unpacked(&self) -> Result<Unpacked, storage::Error> {
        let reader = self.store.reader(&self.object)?;
        Ok(if self.packing == Packing::Gzip { Unpacked::gzip(reader) } else { Unpacked::plain(reader) })
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A shard while clips are read from it.
pub(super) struct ShardReader {
    shard: Arc<Shard>,
    state: State,
    in_order: bool,
}

enum State {
    Bytes(Option<Unpacked>),
    Table(Box<parquet::Cells>),
}

impl ShardReader {
    fn open(shard: Arc<Shard>, in_order: bool) -> io::Result<Self> {
        let state = match shard.packing {
            Packing::Plain | Packing::Gzip => State::Bytes(None),
            Packing::Parquet => State::Table(Box::new(parquet::Cells::open(&shard)?)),
        };
        Ok(ShardReader { shard, state, in_order })
    }

    /// The bytes of a part. Parts of a gzip that are not asked for in their order cost a new start.
    pub(super) fn member(&mut self, member: &Member) -> io::Result<Vec<u8>> {
        if member.bytes > MAX_MEMBER_BYTES {
            return Err(io::Error::other(format!("longer than {} MiB", MAX_MEMBER_BYTES >> 20)));
        }
        let stream = match &mut self.state {
            State::Table(cells) => return cells.cell(member.at),
            State::Bytes(stream) => stream,
        };
        let is_plain = self.shard.packing == Packing::Plain;
        if is_plain && (!self.in_order || stream.as_ref().is_some_and(|stream| stream.position() > member.at)) {
            let bytes = self.shard.store.get_range(&self.shard.object, member.at..member.at + member.bytes)?;
            return Ok(bytes.into());
        }
        if stream.as_ref().is_none_or(|stream| stream.position() > member.at) {
            *stream = Some(self.shard.unpacked()?);
        }
        let Some(input) = stream else { unreachable!("it was just opened") };
        input.skip(member.at - input.position())?;
        let mut bytes = Vec::with_capacity(member.bytes as usize);
        let read = input.take(member.bytes).read_to_end(&mut bytes);
        if read.is_err() {
            *stream = None;
        }
        if (read? as u64) < member.bytes {
            return Err(io::Error::other("the shard ends inside it"));
        }
        Ok(bytes)
    }
}

/// What is wrong, without the name of the shard, which whoever tells it says.
pub(super) fn why(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<storage::Error>());
    inner.map_or_else(|| error.to_string(), |error| error.what().to_owned())
}

/// Whether a failure says something about the bytes, and not about the way to them.
pub(super) fn is_lasting(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<storage::Error>());
    inner.is_none_or(|error| matches!(error.fault, Fault::Absent | Fault::Unsupported))
}
