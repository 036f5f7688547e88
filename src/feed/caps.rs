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
        let data = mib(config.data_gpu_memory, roles.data, 1)?;
        let model = mib(config.model_gpu_memory, roles.model, 2)?;
        if shared {
            cap(roles.model, data + model, "data and model")?;
        } else {
            cap(roles.data, data, "data")?;
            cap(roles.model, model, "model")?;
        }
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

/// A cap in MiB; where none is given, `thirds` of what is free on the device.
fn mib(given: Option<MemoryCap>, device: Device, thirds: u64) -> Result<u64> {
    let facts = torchx::cuda::facts(device)?;
    Ok(given.map_or(facts.free_bytes / MIB * thirds / 3, |cap| cap.mib(facts.total_bytes / MIB)))
}

fn cap(device: Device, mib: u64, role: &str) -> Result<()> {
    torchx::memory::set_cap_mib(device, mib)
        .with_context(|| format!("memory cap of the {role} role on {}", name(device)))
}
