//! Host memory for the loader: pinned where a GPU reads it.

use host::loader::{Allocate, Block};
use std::any::Any;
use std::sync::Arc;
use tch::Device;
use torchx::HostBytes;

/// A block that the data device can copy from without the host's help.
struct TensorBlock(HostBytes);

impl Block for TensorBlock {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What the loader takes its blocks from, for a data role on `device`.
pub fn allocate(device: Device) -> Allocate {
    Arc::new(move |bytes| match HostBytes::new(bytes, device.is_cuda()) {
        Ok(block) => Ok(Box::new(TensorBlock(block))),
        Err(error) => Err(error.to_string()),
    })
}

/// The tensor of a block that `allocate` made.
pub fn block_tensor(block: &dyn Block) -> &tch::Tensor {
    block.as_any().downcast_ref::<TensorBlock>().expect("the feed's loader has the feed's blocks").0.tensor()
}
