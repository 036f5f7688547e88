//! What ends a run's supply of batches.

use crate::cache::{Failure, list};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Where one batch is made by itself, its clips must be sound.
    #[error("{0}")]
    Clip(Failure),
    #[error(
        "{} clips failed while training, and `max_failures` allows {max_failures}:{}\nhint: start again; the cache \
         then makes again what is damaged",
        failures.len(),
        list(failures)
    )]
    TooManyFailures { failures: Vec<Failure>, max_failures: usize },
    #[error(
        "no memory for a batch of {mib} MiB: {reason}\nhint: lower `prefetch_buffer_size`, `num_workers` or `batch_size`"
    )]
    Memory { mib: usize, reason: String },
    #[error("cannot start a thread that makes batches: {0}\nhint: lower `num_workers`")]
    Thread(std::io::Error),
    #[error("a thread that makes batches ended: {0}\nhint: go on with --resume")]
    Ended(String),
}
