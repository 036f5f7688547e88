//! The same numbers from the same inputs, run after run.

use crate::error::Error;
use crate::ffi::{check, torchx_is_deterministic, torchx_set_deterministic, torchx_set_tf32, torchx_set_tf32_products};

/// From now on LibTorch takes algorithms whose result does not depend on the order of threads, and refuses operations
/// that have none. Call it before CUDA is opened: cuBLAS reads its workspace setting once.
pub fn require_deterministic() -> Result<(), Error> {
    // SAFETY: called at the start of a run, before threads that could read the environment.
    unsafe { std::env::set_var("CUBLAS_WORKSPACE_CONFIG", ":4096:8") };
    // SAFETY: takes a flag.
    check(unsafe { torchx_set_deterministic(true) })
}

/// Whether LibTorch takes such algorithms now.
pub fn is_deterministic() -> bool {
    // SAFETY: reads a flag.
    unsafe { torchx_is_deterministic() }
}

/// Convolutions in f32 keep all bits of their factors; cuDNN otherwise rounds them to ten. Slower.
pub fn require_full_f32() -> Result<(), Error> {
    // SAFETY: takes a flag.
    check(unsafe { torchx_set_tf32(false) })
}

/// Runs `work`, whose products of f32 on CUDA round their factors to ten bits, for the tensor cores: for a backward pass, whose
/// gradients are noisier than that anyway. A setting of the whole process.
pub fn with_rounded_products<T>(work: impl FnOnce() -> T) -> Result<T, Error> {
    struct Exact;
    impl Drop for Exact {
        fn drop(&mut self) {
            // SAFETY: takes a flag.
            let _ = check(unsafe { torchx_set_tf32_products(false) });
        }
    }
    // SAFETY: takes a flag.
    check(unsafe { torchx_set_tf32_products(true) })?;
    let _exact = Exact;
    Ok(work())
}
