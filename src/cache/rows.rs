//! Clips of a mapped shard, as slices into the map.

use super::{Clip, Error, map};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int16Type, Int32Type};
use arrow_array::{FixedSizeBinaryArray, ListArray, RecordBatch, StringArray};
use arrow_buffer::{ArrowNativeType, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use blake3::Hash;
use std::path::Path;

/// One record batch of a mapped shard.
pub(super) struct Rows {
    id: StringArray,
    key: FixedSizeBinaryArray,
    tokens: Lists<i32>,
    pcm: Lists<i16>,
    speaker: StringArray,
    language: StringArray,
}

impl Rows {
    /// All batches of a shard. The caller has checked its digest, so what this refuses is a shard of another make.
    pub(super) fn read(path: &Path) -> Result<Vec<Rows>, Error> {
        let batches = map::read(path).map_err(|error| Error::arrow(path, error))?;
        let other = || Error::arrow(path, ArrowError::SchemaError("not a shard of this program".into()));
        batches.iter().map(|batch| Rows::new(batch).ok_or_else(other)).collect()
    }

    fn new(batch: &RecordBatch) -> Option<Rows> {
        let text = |name| Some(batch.column_by_name(name)?.as_string_opt::<i32>()?.clone());
        let list = |name| batch.column_by_name(name)?.as_list_opt::<i32>();
        Some(Rows {
            id: text("id")?,
            key: batch.column_by_name("key")?.as_fixed_size_binary_opt()?.clone(),
            tokens: Lists::new::<Int32Type>(list("tokens")?)?,
            pcm: Lists::new::<Int16Type>(list("pcm")?)?,
            speaker: text("speaker")?,
            language: text("language")?,
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Hash> {
        // The column is 32 bytes wide; another width gives no keys, so its clips are built again.
        self.key.iter().filter_map(|key| Hash::from_slice(key?).ok())
    }

    pub(super) fn clip(&self, row: usize) -> Clip<'_> {
        Clip {
            id: self.id.value(row),
            tokens: self.tokens.get(row),
            pcm: self.pcm.get(row),
            speaker: self.speaker.value(row),
            language: self.language.value(row),
        }
    }

    pub(super) fn samples(&self, row: usize) -> usize {
        self.pcm.get(row).len()
    }

    pub(super) fn tokens(&self, row: usize) -> usize {
        self.tokens.get(row).len()
    }
}

struct Lists<T: ArrowNativeType> {
    ends: OffsetBuffer<i32>,
    values: ScalarBuffer<T>,
}

impl<T: ArrowNativeType> Lists<T> {
    fn new<P: ArrowPrimitiveType<Native = T>>(array: &ListArray) -> Option<Self> {
        let values = array.values().as_primitive_opt::<P>()?.values().clone();
        Some(Lists { ends: array.offsets().clone(), values })
    }

    fn get(&self, row: usize) -> &[T] {
        &self.values[self.ends[row] as usize..self.ends[row + 1] as usize]
    }
}
