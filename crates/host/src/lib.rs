//! MyXTTS above the device boundary: everything from a folder of recordings to batches in host memory. Nothing here
//! knows of tensors, so it builds and is tested on a machine that has no LibTorch.
//!
//! Folders depend one way, from the bottom up; `tests/layers.rs` holds them to it:
//!
//! ```text
//! error rng machine catch_panic onnx → bundled → config ranks telemetry simulate storage → corpus audio → recording text →
//! recogniser cache → loader → dataset → tools
//! ```

pub mod audio;
pub mod bundled;
pub mod cache;
mod catch_panic;
pub mod config;
pub mod corpus;
pub mod dataset;
pub mod error;
pub mod loader;
pub mod machine;
pub mod onnx;
pub mod ranks;
pub mod recogniser;
pub mod recording;
pub mod rng;
pub mod run_log;
pub mod simulate;
mod spill;
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

/// The Python of the tests, where it has a package: the one that `make test` makes, else the machine's. Where there is none
/// that is said, and the test is skipped.
#[doc(hidden)]
pub fn test_python(package: &str) -> Option<std::ffi::OsString> {
    const VARIABLE: &str = "MYXTTS_TEST_PYTHON";
    let given = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let python = given.clone().unwrap_or_else(|| "python3".into());
    let has = std::process::Command::new(&python).args(["-c", &format!("import {package}")]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(given.is_none(), "{VARIABLE} has no {package}");
    skipped(&format!("no Python with {package}; scripts/test-python.sh makes one"));
    None
}
