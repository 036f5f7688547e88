//! Is there CUDA here, and what are its devices?

use std::ffi::{CStr, c_char};

use tch::Device;

use crate::error::Error;
use crate::ffi::check;
use crate::shim::{self, api, shim};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub index: usize,
    pub name: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    pub pci_bus_id: String,
}

impl Facts {
    /// Ampere was the first with units for it.
    pub fn has_bf16(&self) -> bool {
        self.compute_capability.0 >= 8
    }
}

/// Opens libtorch_cuda, once; later calls give the same answer. The error says what is missing.
///
/// Call it before anything else of `tch`: LibTorch looks for CUDA once, at the first seeding or the first backward, and
/// then never again.
///
/// Devices are numbered by PCI bus, as `nvidia-smi` does, unless `CUDA_DEVICE_ORDER` is set already.
pub fn load() -> Result<(), Error> {
    shim().map(drop)
}

pub fn is_available() -> bool {
    load().is_ok()
}

/// 0 where there is no CUDA; [`load`] says why.
pub fn device_count() -> usize {
    shim().map_or(0, |shim| shim.device_count)
}

/// Opens a context on the device, which costs it some hundred MiB; so ask only about devices that will be used.
pub fn facts(device: Device) -> Result<Facts, Error> {
    let index = index(device)?;
    let mut raw = std::mem::MaybeUninit::<shim::Facts>::zeroed();
    // SAFETY: `facts` fills in the whole struct when it goes well; all-zero is a valid value of it besides.
    let raw = unsafe {
        check((api()?.facts)(index, raw.as_mut_ptr()))?;
        raw.assume_init()
    };
    Ok(Facts {
        index: index as usize,
        name: text(&raw.name),
        total_bytes: raw.total_bytes,
        free_bytes: raw.free_bytes,
        compute_capability: (raw.major as u32, raw.minor as u32),
        pci_bus_id: text(&raw.pci_bus_id),
    })
}

/// Whether `device` can read the memory of `peer` without going through the host.
pub fn can_access_peer(device: Device, peer: Device) -> Result<bool, Error> {
    let mut yes = 0;
    // SAFETY: `can_access_peer` writes one i32.
    check(unsafe { (api()?.can_access_peer)(index(device)?, index(peer)?, &mut yes) })?;
    Ok(yes != 0)
}

/// Blocks until everything queued on the device is done.
pub fn synchronize(device: Device) -> Result<(), Error> {
    // SAFETY: takes an index that exists.
    check(unsafe { (api()?.synchronize)(index(device)?) })
}

/// The number of a CUDA device that exists.
pub(crate) fn index(device: Device) -> Result<i32, Error> {
    let count = shim()?.device_count;
    match device {
        Device::Cuda(index) if index < count => Ok(index as i32),
        Device::Cuda(index) => Err(Error::NoSuchDevice { device: format!("cuda:{index}"), count }),
        other => Err(Error::NoSuchDevice { device: format!("{other:?}").to_lowercase(), count }),
    }
}

fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unavailable;
    use std::io::Write;

    #[test]
    fn a_machine_without_a_driver_says_so() {
        if std::path::Path::new("/proc/driver/nvidia/version").exists() {
            // Past the harness, which swallows what tests that pass print.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED a_machine_without_a_driver_says_so: there is an NVIDIA driver");
            return;
        }
        let error = load().unwrap_err();
        let Error::Unavailable(reason) = &error else { panic!("{error}") };
        assert!(
            matches!(reason, Unavailable::NoDriver(_) | Unavailable::NoGpu(_) | Unavailable::BuiltWithout),
            "{error}"
        );
        assert_eq!(load().unwrap_err(), error);
        assert!(!is_available());
        assert_eq!(device_count(), 0);
        assert_eq!(facts(Device::Cuda(0)).unwrap_err(), error);
    }
}
