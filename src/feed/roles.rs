//! Which device prepares batches and which one trains. Roles, not numbers: they may be two GPUs, one, or the CPU.

use anyhow::Result;
use host::config::{self, devices};
use tch::Device;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roles {
    pub data: Device,
    pub model: Device,
}

impl Roles {
    /// Devices that the config asks for, or an error that lists what is there.
    pub fn resolve(config: &config::Training) -> Result<Roles> {
        let chosen = devices::choose(config, &TorchGpus)?;
        Ok(Roles { data: device(chosen.data), model: device(chosen.model) })
    }

    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub fn named(name: &str) -> Result<Device> {
        Ok(device(devices::named(name, &TorchGpus)?))
    }
}

/// The GPU of a rank on this machine for which none is named. `or_cpu`: none, where none can be used.
pub fn gpu_of_local_rank(local_rank: usize, or_cpu: bool) -> Result<Option<usize>> {
    if or_cpu && devices::Gpus::count(&TorchGpus).is_err() {
        return Ok(None);
    }
    Ok(Some(devices::of_local_rank(local_rank, &TorchGpus)?))
}

/// GPUs that LibTorch can use.
struct TorchGpus;

impl devices::Gpus for TorchGpus {
    fn count(&self) -> Result<usize> {
        torchx::cuda::load()?;
        Ok(torchx::cuda::device_count())
    }

    fn name(&self, index: usize) -> Result<String> {
        Ok(torchx::cuda::facts(Device::Cuda(index))?.name)
    }
}

fn device(gpu: Option<usize>) -> Device {
    gpu.map_or(Device::Cpu, Device::Cuda)
}

/// A device as people read it.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(gpu) => format!("GPU {gpu}"),
        _ => "CPU".into(),
    }
}
