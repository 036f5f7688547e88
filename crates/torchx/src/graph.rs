//! CUDA graphs: a step captured once and replayed costs one launch instead of thousands.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tch::Device;

use crate::cuda;
use crate::error::{Error, without_backtrace};
use crate::ffi::check;
use crate::panic::panic_text;
use crate::shim::{PoolId, RawGraph, api};
use crate::stream::Stream;

/// Memory that several graphs share. Safe when they are replayed in the order they were captured in, one at a time.
/// LibTorch ends a pool with the last graph in it: capture what shares one while an earlier graph is alive.
pub struct Pool {
    device: i32,
    id: PoolId,
}

impl Pool {
    pub fn new(device: Device) -> Result<Pool, Error> {
        let device = cuda::index(device)?;
        let mut id = PoolId::default();
        // SAFETY: an index that exists, and room for one id.
        check(unsafe { (api()?.pool_new)(device, &mut id) })?;
        Ok(Pool { device, id })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: made by `pool_new`, and released once; graphs that use it hold it by themselves. Nothing can be
            // done about a failure here.
            let _ = check(unsafe { (api.pool_free)(self.device, self.id) });
        }
    }
}

/// Work of one device, captured: it reads and writes the same memory in every replay.
pub struct Graph(RawGraph);

// SAFETY: a graph is replayed on the current stream of whatever thread asks; not `Sync`, so by one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `work` queues on `device`, and hands back what it returns: tensors to read after a replay.
    ///
    /// Nothing is run. `work` must not wait for the GPU (read a value, copy to unpinned memory), must have run before
    /// (libraries set themselves up on the first run), and nothing of that run's autograd graph may still be alive.
    /// Random numbers follow the device's generator: each replay draws new ones, and a new seed counts from the next
    /// replay on. Without a `pool` the graph gets memory of its own. A failure or a panic in `work` ends the capture
    /// and comes back as the error; the device stays usable.
    pub fn capture<T, E>(
        device: Device,
        pool: Option<&Pool>,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Graph, T), Error>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        // Capture refuses the default stream; and work queued on other streams must be done, for it cannot wait.
        let _guard = Stream::from_pool(device, false)?.guard()?;
        cuda::synchronize(device)?;
        let graph = Graph::begin(pool)?;
        let outcome = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: a live graph in capture, on the thread and stream that it began on.
        let ended = check(unsafe { (api()?.graph_end)(graph.0) });
        match outcome {
            Ok(Ok(value)) => ended.map(|()| (graph, value)).map_err(|e| Error::capture(&e.to_string())),
            Ok(Err(error)) => Err(Error::capture(&chain(&*error.into()))),
            Err(panic) => Err(Error::capture(&panic_text(&*panic))),
        }
    }

    /// Queues the whole graph on the current stream of its device.
    pub fn replay(&self) -> Result<(), Error> {
        // SAFETY: a live graph whose capture went well.
        check(unsafe { (api()?.graph_replay)(self.0) })
    }

    fn begin(pool: Option<&Pool>) -> Result<Graph, Error> {
        let mut graph = std::ptr::null_mut();
        let id = pool.map_or(PoolId::default(), |pool| pool.id);
        // SAFETY: the zero id asks for a pool of its own; the graph goes back through `graph_free`.
        check(unsafe { (api()?.graph_begin)(id, &mut graph) }).map_err(|e| Error::capture(&e.to_string()))?;
        Ok(Graph(graph))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: made by `graph_begin`, and freed once. Nothing can be done about a failure here.
            let _ = check(unsafe { (api.graph_free)(self.0) });
        }
    }
}

/// The error with its causes, each without C++ frames.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let texts: Vec<String> = causes.map(|cause| without_backtrace(&cause.to_string()).to_owned()).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_joined() {
        let inner = std::io::Error::other("the fact\nException raised from x.cpp:3");
        assert_eq!(chain(&Error::Torch("thing".into())), "thing");
        assert_eq!(chain(&inner), "the fact");
    }
}
