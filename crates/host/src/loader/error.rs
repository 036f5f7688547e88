//! What ends a run's supply of batches.

use crate::cache::{Failure, list};
use crate::error::Hint;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Where one batch is made by itself, its clips must be sound.
    #[error("{0}")]
    Clip(Failure),
    #[error(
        "{} clips failed while training, and `max_failures` allows {max_failures}:{}",
        failures.len(),
        list(failures)
    )]
    TooManyFailures {
        failures: Vec<Failure>,
        max_failures: usize,
        #[source]
        hint: Hint,
    },
    #[error("no memory for a batch of {mib} MiB: {reason}")]
    Memory {
        mib: usize,
        reason: String,
        #[source]
        hint: Hint,
    },
    #[error("cannot start a thread that makes batches: {error}")]
    Thread {
        error: io::Error,
        #[source]
        hint: Hint,
    },
    #[error("a thread that makes batches ended: {reason}")]
    Ended {
        reason: String,
        #[source]
        hint: Hint,
    },
}

impl Error {
    pub(super) fn too_many(failures: Vec<Failure>, max_failures: usize) -> Self {
        let hint = Hint::new("start again; the cache then makes again what is damaged");
        Error::TooManyFailures { failures, max_failures, hint }
    }

    pub(super) fn memory(mib: usize, reason: String) -> Self {
        let hint = Hint::new("lower `prefetch_buffer_size`, `num_workers` or `batch_size`");
        Error::Memory { mib, reason, hint }
    }

    pub(super) fn thread(error: io::Error) -> Self {
        Error::Thread { error, hint: Hint::new("lower `num_workers`") }
    }

    pub(super) fn ended(reason: &str) -> Self {
        Error::Ended { reason: reason.to_owned(), hint: Hint::new("go on with --resume") }
    }
}
