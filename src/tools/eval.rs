//! x
pub mod cepstra;
pub mod pitch;
pub mod warp;
pub mod words;
