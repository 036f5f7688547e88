//! Which device prepares batches and which one trains. Roles, not numbers: they may be two GPUs, one, or the CPU.

use anyhow::Result;
use host::config::{self, DataDevice};
use host::error::{Hint, WithHint, hinted};
use tch::Device;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roles {
    pub data: Device,
    pub model: Device,
}

impl Roles {
    /// What the config asks for, or an error that lists what is there. Only `auto` chooses by itself.
    pub fn resolve(config: &config::Training) -> Result<Roles> {
        if let (Some(data), Some(model)) = (config.data_gpu, config.model_gpu) {
            return Ok(Roles { data: gpu(data, "data_gpu")?, model: gpu(model, "model_gpu")? });
        }
        let model = Self::named(&config.device)?;
        let data = if config.data_device == DataDevice::Cpu { Device::Cpu } else { model };
        Ok(Roles { data, model })
    }

    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub fn named(device: &str) -> Result<Device> {
        let index = match device {
            "cpu" => return Ok(Device::Cpu),
            "auto" if torchx::cuda::is_available() => 0,
            "auto" => return Ok(Device::Cpu),
            "cuda" => 0,
            name => name.strip_prefix("cuda:").and_then(|digits| digits.parse().ok()).ok_or_else(|| {
                hinted(format!("device `{name}` is not known"), "accepted are auto, cpu, cuda and cuda:N")
            })?,
        };
        gpu(index, "device")
    }
}

/// The config asks for a GPU that this process cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{key} asks for GPU {index}{why}")]
pub struct GpuAbsent {
    /// The config key that asks for it.
    key: &'static str,
    index: usize,
    why: String,
    #[source]
    hint: Hint,
}

fn gpu(index: usize, key: &'static str) -> Result<Device> {
    torchx::cuda::load().map_err(|error| {
        let (remedy, without) = (error.remedy(), "`--device cpu` trains without one");
        let cause: Result<(), _> = Err(error);
        let hint = match remedy {
            Some(remedy) => cause.hint(remedy).hint(without),
            None => cause.hint(without),
        };
        GpuAbsent { key, index, why: ", and no GPU can be used".into(), hint: hint.unwrap_err() }
    })?;
    let count = torchx::cuda::device_count();
    if index >= count {
        let names: Vec<String> = (0..count)
            .map(|gpu| Ok(format!("{gpu}: {}", torchx::cuda::facts(Device::Cuda(gpu))?.name)))
            .collect::<Result<_, torchx::Error>>()?;
        let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
        let hint = Hint::new("`myxtts devices` shows them all");
        return Err(GpuAbsent { key, index, why: format!("; GPUs that are there: {there}"), hint }.into());
    }
    Ok(Device::Cuda(index))
}

/// A device as people read it.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(gpu) => format!("GPU {gpu}"),
        _ => "CPU".into(),
    }
}
