//! MyXTTS: a text-to-speech trainer whose GPUs never wait.

mod catch;
pub mod checkpoint;
pub mod commands;
pub mod feed;
pub mod model;
mod optimizer;
mod picture;
pub mod run;
pub mod serve;
pub mod synth;
pub mod tools;
pub mod train;
pub mod vocoder;

use catch::catch;
