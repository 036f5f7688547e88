//! Host memory: whether it stays when it is freed, and a block that threads fill and the GPU reads by itself.

use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::stream::empty_pinned;

/// Bytes that are a tensor at the same time: written as a slice, copied to a device as a tensor. At least 64-byte
/// aligned, as LibTorch's allocators give it.
pub struct HostBytes {
    tensor: Tensor,
}

// SAFETY: plain host memory that this value owns alone: `tensor()` lends it out, and never a clone that outlives it.
unsafe impl Send for HostBytes {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    /// `pinned`: page-locked, so that copies to a GPU run beside the host. Slow to make: once, then use it again.
    pub fn new(len: usize, pinned: bool) -> Result<HostBytes, Error> {
        let shape = [len as i64];
        let tensor = match pinned {
            true => empty_pinned(&shape, Kind::Uint8)?,
            false => Tensor::f_empty(shape, (Kind::Uint8, Device::Cpu))?,
        };
        Ok(HostBytes { tensor })
    }

    /// The same memory as a tensor: `[len]`, u8. A copy from it that was queued must be over before it is written again.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a contiguous u8 tensor on the CPU of this many elements, alive as long as `self`.
        unsafe { std::slice::from_raw_parts(self.tensor.data_ptr().cast(), self.tensor.numel()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` makes it the only Rust reference.
        unsafe { std::slice::from_raw_parts_mut(self.tensor.data_ptr().cast(), self.tensor.numel()) }
    }
}

/// From now on freed memory stays with the process. Operations take and free blocks of megabytes all the time; by default
/// each goes back to the kernel, which then clears it, page by page, for the next: a tenth of the time of a step on the CPU.
/// Call it before there are threads.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the allocator. It refuses what it cannot have, and then all is as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_tensor_are_the_same_memory() {
        let mut block = HostBytes::new(16, false).unwrap();
        block.bytes_mut().copy_from_slice(&[7; 16]);
        block.bytes_mut()[8..12].copy_from_slice(&3i32.to_le_bytes());
        let words = block.tensor().view_dtype(Kind::Int);
        assert_eq!(words.int64_value(&[2]), 3);
        assert_eq!(block.bytes()[0], 7);
        assert_eq!(block.bytes().as_ptr() as usize % 64, 0);
    }
}
