//! The caching allocator of each CUDA device: a hard cap, and what is in use.

use tch::Device;

use crate::cuda;
use crate::error::Error;
use crate::ffi::check;
use crate::shim::api;

const MIB: u64 = 1 << 20;

/// `reserved` is what the allocator took from the card, `allocated` what tensors occupy of that.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub allocated_bytes: i64,
    pub peak_allocated_bytes: i64,
    pub reserved_bytes: i64,
    pub peak_reserved_bytes: i64,
}

/// From now on this process gets at most `cap_mib` of the device for tensors; more is an out-of-memory error, however
/// much is free. The CUDA context and the libraries' own memory come on top.
pub fn set_cap_mib(device: Device, cap_mib: u64) -> Result<(), Error> {
    let index = cuda::index(device)?;
    let total_bytes = cuda::facts(device)?.total_bytes;
    let total_mib = total_bytes / MIB;
    if !(1..=total_mib).contains(&cap_mib) {
        return Err(Error::Cap { device: index as usize, cap_mib, total_mib });
    }
    let fraction = (cap_mib * MIB) as f64 / total_bytes as f64;
    // SAFETY: an index that exists; LibTorch checks the fraction.
    check(unsafe { (api()?.set_memory_fraction)(index, fraction) })
}

pub fn stats(device: Device) -> Result<Stats, Error> {
    let mut stats = Stats::default();
    // SAFETY: an index that exists, and room for the C++ struct that this one mirrors.
    check(unsafe { (api()?.memory_stats)(cuda::index(device)?, &mut stats) })?;
    Ok(stats)
}

/// The peaks start again from what is in use now.
pub fn reset_peak(device: Device) -> Result<(), Error> {
    // SAFETY: an index that exists.
    check(unsafe { (api()?.reset_peak)(cuda::index(device)?) })
}

/// Gives what no tensor occupies back to the cards, all of them. Waits for the GPU: not for use inside a step.
pub fn empty_cache() -> Result<(), Error> {
    // SAFETY: takes nothing.
    check(unsafe { (api()?.empty_cache)() })
}
