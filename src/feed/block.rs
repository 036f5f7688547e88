//! Host memory for the loader: pinned where a GPU reads it.

use crate::loader::{Allocate, Block};
use std::any::Any;
use std::sync::Arc;
use tch::Device;
use torchx::HostBytes;

impl Block for HostBytes {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// What the loader takes its blocks from, for a data role on `device`.
pub fn allocate(device: Device) -> Allocate {
    Arc::new(move |bytes| match HostBytes::new(bytes, device.is_cuda()) {
        Ok(block) => Ok(Box::new(block)),
        Err(error) => Err(error.to_string()),
    })
}

/// The tensor of a block that `allocate` made.
pub fn block_tensor(block: &dyn Block) -> &tch::Tensor {
    block.as_any().downcast_ref::<HostBytes>().expect("the feed's loader has the feed's blocks").tensor()
}
