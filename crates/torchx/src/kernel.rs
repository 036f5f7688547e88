//! CUDA kernels from source, compiled at run time by NVRTC for the very device they run on.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{LazyLock, Mutex, PoisonError};

use tch::{Device, Tensor};

use crate::cuda;
use crate::error::Error;
use crate::ffi::check;
use crate::shim::{RawKernel, api};

pub struct Kernel {
    kernel: RawKernel,
    device: Device,
}

// SAFETY: never written after it is made; a loaded function may be launched from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// What a kernel takes: a tensor's first element as a pointer, or a number.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    Tensor(&'a Tensor),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A struct of as many words, by value.
    Words(&'a [u64]),
}

impl Kernel {
    /// Compiles CUDA C++ that needs no headers; `name` is an `extern "C" __global__` function in it. Takes tens of
    /// milliseconds. When the source does not compile, the error holds the compiler's log.
    pub fn compile(source: &str, name: &str, device: Device) -> Result<Kernel, Error> {
        let [kernel] = Kernel::compile_all(source, [name], device)?;
        Ok(kernel)
    }

    /// Several functions of one source, which is compiled once.
    pub fn compile_all<const N: usize>(source: &str, names: [&str; N], device: Device) -> Result<[Kernel; N], Error> {
        Ok(compile(source, names, device)?.map(|kernel| Kernel { kernel, device }))
    }

    /// The same, compiled once for each device and kept for good: for functions that have nowhere to hold a kernel.
    pub fn shared(source: &'static str, name: &'static str, device: Device) -> Result<&'static Kernel, Error> {
        type Kernels = HashMap<(&'static str, &'static str, i32), &'static Kernel>;
        static KERNELS: LazyLock<Mutex<Kernels>> = LazyLock::new(Default::default);
        let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (source, name, cuda::index(device)?);
        if let Some(&kernel) = kernels.get(&key) {
            return Ok(kernel);
        }
        let kernel = Box::leak(Box::new(Kernel::compile(source, name, device)?));
        kernels.insert(key, kernel);
        Ok(kernel)
    }

    /// Queues the kernel on the device's current stream, so it can be part of a graph.
    ///
    /// Tensors must be contiguous and on the kernel's device. Their count and the types are the caller's to match with
    /// the source: CUDA cannot check them, and a kernel that writes out of bounds spoils other tensors on the device.
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3], shared_bytes: u32, args: &[Arg]) -> Result<(), Error> {
        let slots = args.iter().map(|arg| self.slot(arg)).collect::<Result<Vec<u64>, Error>>()?;
        let place = |(arg, slot): (&Arg, &u64)| match arg {
            Arg::Words(words) => words.as_ptr().cast(),
            _ => std::ptr::from_ref(slot).cast(),
        };
        let pointers: Vec<*const c_void> = args.iter().zip(&slots).map(place).collect();
        // SAFETY: a live kernel, three numbers each, and one pointer per argument to a value that outlives the call:
        // CUDA copies them.
        check(unsafe {
            (api()?.kernel_launch)(self.kernel, grid.as_ptr(), block.as_ptr(), shared_bytes, pointers.as_ptr())
        })
    }

    /// The argument in a slot of its own: CUDA reads as many bytes as the parameter has (its hosts are little-endian).
    fn slot(&self, arg: &Arg) -> Result<u64, Error> {
        Ok(match arg {
            Arg::Tensor(tensor) if tensor.device() != self.device || !tensor.is_contiguous() => {
                let (device, kernel) = (tensor.device(), self.device);
                return Err(Error::Argument(format!(
                    "kernel argument: a tensor of shape {:?} on {device:?}: it must be contiguous and on {kernel:?}",
                    tensor.size()
                )));
            }
            Arg::Tensor(tensor) => tensor.data_ptr() as u64,
            Arg::I32(value) => u64::from(value.cast_unsigned()),
            Arg::I64(value) => value.cast_unsigned(),
            Arg::F32(value) => u64::from(value.to_bits()),
            Arg::F64(value) => value.to_bits(),
            Arg::Words(_) => 0, // which lie elsewhere
        })
    }
}

/// The functions called `names`, each to be freed by `kernel_free`, or never.
pub(crate) fn compile<const N: usize>(source: &str, names: [&str; N], device: Device) -> Result<[RawKernel; N], Error> {
    let text = |text| CString::new(text).map_err(|_| Error::Argument(format!("kernel {}: NUL byte", names[0])));
    let source = text(source)?;
    let names = names.iter().map(|name| text(name)).collect::<Result<Vec<CString>, Error>>()?;
    let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let mut kernels = [std::ptr::null_mut(); N];
    // SAFETY: NUL-terminated strings, their count, an index that exists, and room for as many kernels.
    check(unsafe {
        (api()?.kernel_compile)(source.as_ptr(), pointers.as_ptr(), N, cuda::index(device)?, kernels.as_mut_ptr())
    })?;
    Ok(kernels)
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: made by `kernel_compile`, and freed once.
            unsafe { (api.kernel_free)(self.kernel) }
        }
    }
}
