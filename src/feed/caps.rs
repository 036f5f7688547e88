//! Hard memory caps of the roles, from the first allocation on.

use super::roles::{Roles, name};
use anyhow::{Context, Result};
use host::config::{MemoryCap, Training};
use host::error::hinted;
use host::machine::MIB;
use std::fmt;
use tch::Device;

/// Most memory that each role may take of its GPU, in MiB; absent where it may take what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    pub data_mib: Option<u64>,
    pub model_mib: Option<u64>,
    /// Both roles on one GPU: the sum is what holds.
    pub shared: bool,
    /// Chosen from free memory: worth a better proposal once a step has been measured.
    pub proposed: bool,
}

impl Caps {
    /// Sets the caps that the config asks for; those it leaves out are shares of what is free.
    pub fn apply(config: &Training, roles: Roles) -> Result<Caps> {
        let caps = Self::of_config(config, roles, memory_mib)?;
        let (Some(data), Some(model)) = (caps.data_mib, caps.model_mib) else { return Ok(caps) };
        if caps.shared {
            cap(roles.model, data + model, "data and model")?;
        } else {
            cap(roles.data, data, "data")?;
            cap(roles.model, model, "model")?;
        }
        Ok(caps)
    }

    /// `memory_mib`: free and in all, of a device.
    fn of_config(config: &Training, roles: Roles, memory_mib: impl Fn(Device) -> Result<(u64, u64)>) -> Result<Caps> {
        let shared = roles.data == roles.model;
        if !config.enable_memory_isolation {
            return Ok(Caps { shared, ..Caps::default() });
        }
        for (role, device) in [("data", roles.data), ("model", roles.model)] {
            if !device.is_cuda() {
                let fact = format!("enable_memory_isolation caps GPU memory, and the {role} role runs on the CPU");
                return Err(hinted(fact, "leave it out"));
            }
        }
        let mib = |given: Option<MemoryCap>, device, thirds| {
            let (free, total) = memory_mib(device)?;
            Ok::<_, anyhow::Error>(given.map_or(free * thirds / 3, |cap| cap.mib(total)))
        };
        let data = mib(config.data_gpu_memory, roles.data, 1)?;
        let model = mib(config.model_gpu_memory, roles.model, 2)?;
        let proposed = config.data_gpu_memory.is_none() || config.model_gpu_memory.is_none();
        Ok(Caps { data_mib: Some(data), model_mib: Some(model), shared, proposed })
    }

    /// MiB that a role may take of its device; where both roles share one, what they may take together.
    pub fn of(&self, role: Role) -> Option<u64> {
        match (self.shared, role) {
            (true, _) => Some(self.data_mib? + self.model_mib?),
            (false, Role::Data) => self.data_mib,
            (false, Role::Model) => self.model_mib,
        }
    }
}

/// What a device does in a run: make batches, or train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Data,
    Model,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Model => "model",
        })
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(data), Some(model)) = (self.data_mib, self.model_mib) else { return f.write_str("no memory caps") };
        let how = if self.proposed { ", from what is free" } else { "" };
        write!(f, "memory caps: data {data} MiB, model {model} MiB{how}")?;
        if self.shared {
            write!(f, "; one GPU in both roles, so the sum of {} MiB holds", data + model)?;
        }
        Ok(())
    }
}

/// Free memory of a device and all of it.
fn memory_mib(device: Device) -> Result<(u64, u64)> {
    let facts = torchx::cuda::facts(device)?;
    Ok((facts.free_bytes / MIB, facts.total_bytes / MIB))
}

fn cap(device: Device, mib: u64, role: &str) -> Result<()> {
    torchx::memory::set_cap_mib(device, mib)
        .with_context(|| format!("memory cap of the {role} role on {}", name(device)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::config::Config;
    use std::path::Path;

    const ONE: Roles = Roles { data: Device::Cuda(0), model: Device::Cuda(0) };
    const TWO: Roles = Roles { data: Device::Cuda(1), model: Device::Cuda(0) };

    /// On cards of 12,000 MiB, of which 9,000 (the first) and 3,000 MiB are free.
    fn caps(training: &str, roles: Roles) -> Result<Caps> {
        let config = Config::parse(&format!("training: {{{training}}}"), Path::new("a.yaml")).unwrap();
        let free = |device| if device == Device::Cuda(0) { 9_000 } else { 3_000 };
        Caps::of_config(&config.training, roles, |device| Ok((free(device), 12_000)))
    }

    #[test]
    fn without_isolation_nothing_is_capped() {
        for (roles, shared) in [(ONE, true), (TWO, false)] {
            assert_eq!(caps("", roles).unwrap(), Caps { shared, ..Caps::default() });
        }
        assert_eq!((Caps::default().to_string().as_str(), Caps::default().of(Role::Model)), ("no memory caps", None));
    }

    #[test]
    fn caps_that_are_left_out_are_shares_of_what_is_free() {
        let left = caps("enable_memory_isolation: true", ONE).unwrap();
        assert_eq!(left, Caps { data_mib: Some(3_000), model_mib: Some(6_000), shared: true, proposed: true });
        let left = caps("enable_memory_isolation: true", TWO).unwrap();
        assert_eq!(left, Caps { data_mib: Some(1_000), model_mib: Some(6_000), shared: false, proposed: true });
        let one = caps("enable_memory_isolation: true, data_gpu_memory: 512", TWO).unwrap();
        assert_eq!((one.data_mib, one.model_mib, one.proposed), (Some(512), Some(6_000), true));
        let share = caps("enable_memory_isolation: true, data_gpu_memory: 0.25, model_gpu_memory: 2048", TWO).unwrap();
        assert_eq!((share.data_mib, share.model_mib, share.proposed), (Some(3_000), Some(2_048), false));
    }

    #[test]
    fn on_one_card_the_sum_holds_and_on_two_each_its_own() {
        let given = "enable_memory_isolation: true, data_gpu_memory: 512, model_gpu_memory: 2048";
        let (one, two) = (caps(given, ONE).unwrap(), caps(given, TWO).unwrap());
        assert_eq!([Role::Data, Role::Model].map(|role| one.of(role)), [Some(2_560); 2]);
        assert_eq!([Role::Data, Role::Model].map(|role| two.of(role)), [Some(512), Some(2_048)]);
        assert_eq!(two.to_string(), "memory caps: data 512 MiB, model 2048 MiB");
        assert!(one.to_string().ends_with("; one GPU in both roles, so the sum of 2560 MiB holds"), "{one}");
    }

    #[test]
    fn a_role_on_the_cpu_cannot_be_capped() {
        let from_cpu = Roles { data: Device::Cpu, ..ONE };
        let error = caps("enable_memory_isolation: true", from_cpu).unwrap_err();
        assert!(error.to_string().contains("the data role runs on the CPU"), "{error}");
    }
}
