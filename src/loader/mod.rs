//! From cached clips to batches in host memory: sampler, workers, packer. Nothing here knows of devices.

mod batch;
mod layout;
mod packer;
mod workers;

pub use batch::{Dataset, HostBatch, LeftOut};
pub use layout::{Axis, Budget, GAP, Length, Span};
pub use packer::plan;
pub use workers::{Loader, Position};
