//! Commands that look at a machine or a corpus and report.

pub mod bench;
pub mod bench_synth;
pub mod check;
pub mod devices;
pub mod diagnose;
pub mod eval;
pub mod measure;
pub mod profile;
pub mod report;
pub mod timeline;
pub mod verdict;
