//! MyXTTS: a text-to-speech trainer whose GPUs never wait. The command `myxtts` is built on this library, and other
//! programs may be: open a corpus, train on it and watch the run, speak.
//!
//! ```no_run
//! use myxtts::{Config, Corpus, Voice, train};
//! use std::ops::ControlFlow;
//!
//! # fn main() -> anyhow::Result<()> {
//! let corpus = Corpus::open("recordings", Config::default())?;
//! let outcome = train(&corpus, "voice", |progress| {
//!     println!("step {}: loss {:.3}, {:.1} ms a step", progress.step, progress.loss, progress.step_ms);
//!     if progress.loss < 0.5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
//! })?;
//! Voice::load(outcome.checkpoint, None)?.speak("Hello there.")?.write_wav("hello.wav")?;
//! # Ok(())
//! # }
//! ```
//!
//! LibTorch computes with OpenMP, whose threads spin while they wait for each other. Beside other programs on the same
//! cores that costs a hundredfold: start your program with `OMP_WAIT_POLICY=PASSIVE`, as the command `myxtts` does by itself.
//!
//! Every setting of `configs/default.yaml` is a field of [`Config`]; `Config::parse` reads YAML. Errors are
//! [`anyhow::Error`]s; `myxtts::Explained::of` takes one apart into what is wrong and what to do about it.

mod api;
mod catch;
mod checkpoint;
mod commands;
mod export;
mod feed;
mod model;
mod optimizer;
mod picture;
mod ranks;
mod run;
mod serve;
mod synth;
mod tools;
mod train;
mod vocoder;

pub use api::{Corpus, Speech, Voice, train};
pub use host::config::Config;
pub use host::error::Explained;
pub use run::{MemoryUsage, Progress};
pub use train::{BestCheckpoint, RunOutcome};

use catch::catch;

/// The program `myxtts-torch`.
#[doc(hidden)]
pub use commands::main;

/// What a test reaches into that measures time, and so must run alone, as a program of its own.
#[doc(hidden)]
pub mod internal {
    pub use crate::feed::{Caps, Roles};
    pub use crate::run::{RunContext, delaying};
    pub use crate::tools::measure::{RunMeasurement, run as measure};
    pub use crate::tools::verdict::{of_error, verdict};
}
