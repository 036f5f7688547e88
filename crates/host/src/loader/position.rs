//! Where a run stands in its batches.

use serde::{Deserialize, Serialize};

/// The next batch of a run. Saved with every checkpoint; reached again without replaying what came before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    pub batch: u64,
    /// Batches behind it that were delivered already, counted from it (1 is the next one). Only where batches may
    /// overtake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<u64>,
}
