//! Where a run stands in its batches.

use serde::{Deserialize, Serialize};

/// The next batch of a run. Saved with every checkpoint; reached again without replaying what came before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    /// Chunk of the epoch that is planned at once; a corpus of usual size is one. Of a bucket that several machines read, the
    /// first of the windows of shards that they are at.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chunk: u64,
    /// Batch of the chunk.
    pub batch: u64,
    /// Batches behind it that were delivered already, counted from it (1 is the next one). Only where batches may
    /// overtake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<u64>,
}

impl Position {
    /// A number that no other batch of the epoch has, for whatever is drawn for it.
    pub fn number(&self) -> u64 {
        number(self.chunk, self.batch)
    }
}

/// A number of its own for each batch of an epoch.
pub(super) fn number(chunk: u64, batch: u64) -> u64 {
    chunk << 32 | batch
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
