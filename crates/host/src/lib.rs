//! MyXTTS above the device boundary: everything from a folder of recordings to batches in host memory. Nothing here
//! knows of tensors, so it builds and is tested on a machine that has no LibTorch.
//!
//! Folders depend one way, from the bottom up; `tests/layers.rs` holds them to it:
//!
//! ```text
//! error rng machine catch_panic → config ranks telemetry simulate storage → corpus text audio → cache → loader → dataset → tools
//! ```

pub mod audio;
pub mod cache;
mod catch_panic;
pub mod config;
pub mod corpus;
pub mod dataset;
pub mod error;
pub mod loader;
pub mod machine;
pub mod ranks;
pub mod rng;
pub mod simulate;
pub mod storage;
pub mod telemetry;
pub mod text;
pub mod tools;

pub use catch_panic::catch_panic;

/// Says that a test cannot be run here. Written past the harness, which swallows what tests that pass print: `make test`
/// counts these lines.
#[doc(hidden)]
pub fn skipped(why: &str) {
    use std::io::Write;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}
