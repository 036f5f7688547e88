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
#[cfg(test)]
pub(crate) mod tests;
mod window;
mod workers;

pub use batch::{HostBatch, Making};
pub use block::{Allocate, Block, PlainBlock};
pub use block_layout::{BlockLayout, Section, SoundKind};
pub use dataset::{Dataset, Fitting, Limits};
pub use error::Error;
pub use layout::{Axis, AxisTables, Budget, GAP, Length, Span};
pub use packer::plan;
pub use position::Position;
pub use workers::{Gauges, Loader, Options};
