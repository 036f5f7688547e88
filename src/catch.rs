//! LibTorch's exceptions as errors: `tch` panics where LibTorch throws.

use host::catch_panic;

/// Runs `work`. A LibTorch exception in it, such as running out of memory, comes back as an error and prints nothing;
/// other panics go on.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, torchx::Error> {
    catch_panic(|panic| torchx::exception(panic).is_some(), work)
        .map_err(|panic| torchx::exception(&*panic).expect("no other panic is caught"))
}
