//! From cached clips to batches in host memory: sampler, workers, packer. Nothing here knows of devices.

mod batch;
mod block;
mod block_layout;
mod dataset;
mod error;
mod fit_report;
mod lanes;
mod layout;
mod order;
mod packer;
mod pieces;
mod plans;
mod position;
mod stretch;
#[cfg(test)]
mod tests;
mod turns;
mod window;
mod workers;

pub use batch::{BatchTiming, HostBatch};
pub use block::{Allocate, Block, PlainBlock};
pub use block_layout::{BlockLayout, Section, SoundKind};
pub use dataset::{ClipLimits, Dataset};
pub use error::Error;
pub use fit_report::{Counts, FitReport, LimitUse};
pub use lanes::Lanes;
pub use layout::{Axis, AxisTables, Budget, GAP, Length, Lengths, Span, longest};
pub use packer::ChunkPlan;
pub use position::Position;
pub use turns::Share;
pub use workers::{Loader, LoaderOptions, LoaderStatus};

/// Copies of host blocks to a device that may be under way before the feed waits for the oldest: one arrives, one is read.
pub const COPIES_IN_FLIGHT: usize = 2;
