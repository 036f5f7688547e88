//! What can go wrong with a cache, and with a single clip of it.

use crate::error::Hint;
use crate::storage;
use arrow_schema::ArrowError;
use serde::Serialize;
use std::fmt::{self, Write};
use std::io;
use std::path::{Path, PathBuf};

/// Failures that an error message spells out.
const NAMED_FAILURES: usize = 5;
const CHECK: &str = "`myxtts check DIR` lists every unreadable clip";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Arrow { path: PathBuf, source: ArrowError },
    #[error("{}: clip `{}` is not as it was written, so the file was deleted", .0.display(), .1)]
    Damaged(PathBuf, String, #[source] Hint),
    #[error("{}: the recording of clip `{}` has changed since its features were made", .0.display(), .1)]
    Outdated(PathBuf, String, #[source] Hint),
    #[error("{}: {}", .0.display(), .1)]
    Durations(PathBuf, String, #[source] Hint),
    #[error("{}: cannot be read back", path.display())]
    Unreadable { path: PathBuf },
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// A shard of a bucket: its name, and what is wrong.
    #[error("{0}: {1}")]
    Shard(String, String),
    #[error("{}: {}", .0.display(), .1)]
    Place(PathBuf, String, #[source] Hint),
    #[error("worker threads: {0}")]
    Workers(io::Error),
    #[error("{} clips failed, and `max_failures` allows {}:{}", .0.len(), .1, list(.0))]
    TooManyFailures(Vec<Failure>, usize, #[source] Hint),
    #[error("all {} clips failed:{}", .0.len(), list(.0))]
    NothingUsable(Vec<Failure>, #[source] Hint),
    #[error("interrupted; {built} new clips are kept, the next run goes on from there")]
    Interrupted { built: usize },
}

impl Error {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Error::Io { path: path.to_owned(), source }
    }

    pub(super) fn arrow(path: &Path, source: ArrowError) -> Self {
        match source {
            ArrowError::IoError(_, source) => Error::io(path, source),
            source => Error::Arrow { path: path.to_owned(), source },
        }
    }

    pub(super) fn damaged(path: PathBuf, id: &str) -> Self {
        Error::Damaged(path, id.to_owned(), Hint::new("start again; what is missing is then made again"))
    }

    pub(super) fn outdated(path: &Path, id: &str) -> Self {
        let hint = Hint::new("start again; what has changed is then made again");
        Error::Outdated(path.to_owned(), id.to_owned(), hint)
    }

    pub(super) fn no_bucket(path: &Path) -> Self {
        let hint = Hint::new("name a bucket with --cache-dir s3://…, or take local_cache away");
        Error::Place(path.to_owned(), "local_cache is for features that lie in a bucket".into(), hint)
    }

    /// The local part of a bucket is too small for what a run needs at a time.
    pub(super) fn small_store(path: &Path, bytes: u64, needed: u64) -> Self {
        let what = format!("{} bytes for features are too few: three windows of shards take {needed}", bytes);
        Error::Place(
            path.to_owned(),
            what,
            Hint::new(
                "raise --local-cache-size, or lower `shuffle_shards` or, for features that are yet to be built, `shard_size`",
            ),
        )
    }

    pub(super) fn durations(path: &Path, what: &str) -> Self {
        let hint = Hint::new("`myxtts align --checkpoint DIR` finds them, or train with `--durations search`");
        Error::Durations(path.to_owned(), what.to_owned(), hint)
    }

    pub(super) fn too_many(failures: Vec<Failure>, max_failures: usize) -> Self {
        Error::TooManyFailures(failures, max_failures, Hint::new(CHECK))
    }

    pub(super) fn nothing_usable(failures: Vec<Failure>) -> Self {
        Error::NothingUsable(failures, Hint::new(CHECK))
    }
}

/// A clip that has no features, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub id: String,
    pub path: PathBuf,
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// The first of them, a line each.
pub(crate) fn list(failures: &[Failure]) -> String {
    let mut text = String::new();
    for failure in failures.iter().take(NAMED_FAILURES) {
        let _ = write!(text, "\n  {failure}");
    }
    if failures.len() > NAMED_FAILURES {
        let _ = write!(text, "\n  and {} more", failures.len() - NAMED_FAILURES);
    }
    text
}
