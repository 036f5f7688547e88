//! Commands that look at a machine or a corpus and report.

pub mod analyze;
pub mod bench;
pub mod bench_synth;
pub mod configure;
pub mod diagnose;
pub mod eval;
pub mod fix;
pub mod measure;
pub mod profile;
pub mod timeline;
pub mod verdict;
