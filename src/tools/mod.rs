//! Commands that look at a machine or a corpus and report.

pub mod analyze;
pub mod bench;
pub mod check;
pub mod devices;
pub mod report;
pub mod validate;
