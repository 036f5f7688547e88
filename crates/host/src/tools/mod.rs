//! Commands that look at a machine, a configuration or a corpus, and need no tensor for it.

pub mod check;
pub mod devices;
pub mod report;
pub mod sample_corpus;
pub mod validate;
