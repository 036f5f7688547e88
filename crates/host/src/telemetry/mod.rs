//! What a run measures about itself: where its time goes, how steady its steps are, whether memory grows, what its GPUs
//! do. Imports nothing of the project, so the loader, the feed and the training loop can all use it.

pub mod console;
pub mod cpu;
pub mod gpu;
pub mod gpu_processes;
pub mod leak;
pub mod lines;
pub mod queue;
mod spread;
pub mod status;
pub mod window;

pub use spread::{Spread, median};
