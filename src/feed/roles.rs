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

#[cfg(test)]
mod tests {
    use super::*;
    use host::config::Config;
    use std::path::Path;

    fn roles(training: &str) -> Result<Roles> {
        let config = Config::parse(&format!("training: {{{training}}}"), Path::new("a.yaml")).unwrap();
        Roles::resolve(&config.training)
    }

    /// Holds with and without a GPU.
    #[test]
    fn the_cpu_takes_both_roles_and_absent_gpus_none() {
        let cpu = Roles { data: Device::Cpu, model: Device::Cpu };
        assert_eq!(roles("device: cpu").unwrap(), cpu);
        assert_eq!(Roles::named("cpu").unwrap(), Device::Cpu);
        let error = roles("data_gpu: 61, model_gpu: 62").unwrap_err().to_string();
        assert!(error.starts_with("data_gpu asks for GPU 61"), "{error}");
        assert!(Roles::named("gpu").unwrap_err().to_string().contains("`gpu` is not known"));
    }

    #[test]
    fn devices_have_names_that_people_read() {
        assert_eq!([Device::Cpu, Device::Cuda(3)].map(name), ["CPU", "GPU 3"]);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn one_gpu_takes_both_roles_unless_the_data_role_is_the_cpus() {
        let gpu = Device::Cuda(0);
        assert_eq!(roles("device: auto").unwrap(), Roles { data: gpu, model: gpu });
        assert_eq!(roles("device: cuda, data_device: cpu").unwrap(), Roles { data: Device::Cpu, model: gpu });
        assert_eq!(roles("data_gpu: 0, model_gpu: 0").unwrap(), Roles { data: gpu, model: gpu });
        assert!(roles("device: 'cuda:61'").is_err());
    }
}
