//! How a finished batch gets from the data device into a slot on the model device.

use super::batch::Batch;
use super::roles::Roles;
use std::fmt;
use tch::{Device, Tensor};
use torchx::stream::{copy_async, empty_pinned};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Both roles on one device.
    Local,
    /// GPU to GPU over the bus or NVLink, without the host.
    Peer,
    /// Through pinned host memory: two GPUs that cannot reach each other, or a CPU and a GPU.
    Staged,
}

impl Route {
    pub fn of(roles: Roles) -> Result<Route, torchx::Error> {
        Ok(match (roles.data, roles.model) {
            (data, model) if data == model => Route::Local,
            (Device::Cuda(_), Device::Cuda(_)) if torchx::cuda::can_access_peer(roles.model, roles.data)? => {
                Route::Peer
            }
            _ => Route::Staged,
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "on one device",
            Self::Peer => "from GPU to GPU (peer access)",
            Self::Staged => "through pinned host memory",
        })
    }
}

/// Pinned host memory of one batch, made at the first use and used again.
#[derive(Default)]
pub struct StagingBuffers(Vec<Tensor>);

impl StagingBuffers {
    /// Copies the batch to host memory. From a GPU this is queued on its current stream.
    pub fn load(&mut self, batch: &Batch) -> Result<(), torchx::Error> {
        let tensors = batch.tensors();
        if self.0.is_empty() {
            let room = |tensor: &&Tensor| empty_pinned(&tensor.size(), tensor.kind());
            self.0 = tensors.iter().map(room).collect::<Result<_, _>>()?;
        }
        self.0.iter_mut().zip(tensors).try_for_each(|(host, tensor)| copy_async(host, tensor))
    }

    /// Copies host memory into the slot, on its device's current stream.
    pub fn unload(&self, slot: &Batch) -> Result<(), torchx::Error> {
        self.0.iter().zip(slot.tensors()).try_for_each(|(host, tensor)| copy_async(&mut tensor.shallow_clone(), host))
    }
}
