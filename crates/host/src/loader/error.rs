//! What ends a run's supply of batches.

use crate::cache::{Failure, list};
use crate::error::Hint;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Where one batch is made by itself, its clips must be sound.
    #[error("{0}")]
    Clip(Failure),
    #[error("{} clips failed while training, and `max_failures` allows {}:{}", .0.len(), .1, list(.0))]
    TooManyFailures(Vec<Failure>, usize, #[source] Hint),
    #[error("no memory for a batch of {0} MiB: {1}")]
    Memory(usize, String, #[source] Hint),
    #[error("cannot start a thread that makes batches: {0}")]
    Thread(io::Error, #[source] Hint),
    #[error("a thread that makes batches ended: {0}")]
    Ended(String, #[source] Hint),
}

impl Error {
    pub(super) fn too_many(failures: Vec<Failure>, max_failures: usize) -> Self {
        let hint = Hint::new("start again; the cache then makes again what is damaged");
        Error::TooManyFailures(failures, max_failures, hint)
    }

    pub(super) fn memory(mib: usize, reason: String) -> Self {
        Error::Memory(mib, reason, Hint::new("lower `prefetch_buffer_size`, `num_workers` or `batch_size`"))
    }

    pub(super) fn thread(error: io::Error) -> Self {
        Error::Thread(error, Hint::new("lower `num_workers`"))
    }

    pub(super) fn ended(reason: &str) -> Self {
        Error::Ended(reason.to_owned(), Hint::new("go on with --resume"))
    }
}
