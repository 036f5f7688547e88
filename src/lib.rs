//! MyXTTS: a text-to-speech trainer whose GPUs never wait.
//!
//! Data flows one way through these modules, and dependencies point the same way:
//!
//! ```text
//! corpus → text, audio → cache → loader │ feed → model, vocoder → train → synth
//!                        device boundary ┘  (left of it nothing imports tch)
//! ```
//!
//! `telemetry` measures a run and `simulate` slows it down; they import none of the others, and all may use them. `tools` reads all of them; `cli` calls
//! everything and nothing calls `cli`.

pub mod audio;
pub mod cache;
pub mod cli;
pub mod config;
pub mod corpus;
pub mod feed;
pub mod loader;
pub mod model;
mod picture;
mod rng;
pub mod serve;
pub mod simulate;
pub mod synth;
pub mod telemetry;
pub mod text;
pub mod tools;
pub mod train;
pub mod vocoder;
