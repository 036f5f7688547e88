//! From cached clips to batches in host memory: sampler, workers, packer. Nothing here knows of devices.

mod batch;
mod block;
mod block_layout;
mod dataset;
mod error;
mod follow;
mod layout;
mod packer;
mod pieces;
mod plans;
mod position;
mod speakers;
#[cfg(test)]
mod tests;
mod window;
mod workers;

pub use batch::{HostBatch, Making};
pub use block::{Allocate, Block, PlainBlock};
pub use block_layout::{BlockLayout, Section, SoundKind};
pub use dataset::{Dataset, Fitting, Limits, Moment};
pub use error::Error;
pub use layout::{Axis, AxisTables, Budget, GAP, Length, Span};
pub use packer::plan;
pub use position::Position;
pub use workers::{Gauges, Loader, Options};

/// Copies of host blocks to a device that may be under way before the feed waits for the oldest: one arrives, one is read.
pub const COPIES_IN_FLIGHT: usize = 2;
