//! What the devices of a run did, by the driver, the allocator and CUPTI.

use super::pipeline::TRACED_STEPS;
use crate::feed::{Role, name};
use crate::run::MemoryUsage;
use crate::run::RunContext;
use host::machine::mib;
use host::telemetry::Spread;
use host::telemetry::gpu::GpuReading;
use host::telemetry::gpu_processes::OtherProcesses;
use serde::Serialize;
use tch::Device;
use torchx::activity::Activity;

/// Kernels of the model device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelUse {
    /// Time with a kernel running over the time of a step without records.
    pub busy: f64,
    pub per_step: f64,
    pub mean_us: f64,
}

impl KernelUse {
    /// `step_ms`: of a step that was not traced.
    pub fn of(traced: &Activity, step_ms: f64) -> Self {
        KernelUse {
            // More than all of it comes out where another program's share of the GPU changed in between.
            busy: (traced.kernel_ns as f64 / 1e6 / TRACED_STEPS as f64 / step_ms).min(1.0),
            per_step: traced.kernels as f64 / TRACED_STEPS as f64,
            mean_us: traced.kernel_ns as f64 / 1e3 / (traced.kernels as f64).max(1.0),
        }
    }
}

/// One device of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceUse {
    pub name: String,
    pub roles: String,
    /// Share of the time that a kernel ran, by the driver.
    pub busy: Spread,
    /// Why the driver's figures are not there.
    pub not_measured: Option<String>,
    pub memory_used_mib: Spread,
    pub memory_total_mib: Option<f64>,
    /// Memory that this program's roles had at most.
    pub peak_mib: Option<f64>,
    pub cap_mib: Option<f64>,
    pub power_watts: Spread,
    pub sm_mhz: Spread,
    pub temperature_celsius: Spread,
    pub throttle: Vec<&'static str>,
    /// Other programs on it; absent where the driver does not tell.
    pub others: Option<OtherProcesses>,
}

/// The model's device first; one where both roles share it.
pub(super) fn devices(
    context: &RunContext,
    gpus: &Result<Vec<GpuReading>, String>,
    usage: &MemoryUsage,
) -> Vec<DeviceUse> {
    let roles = context.roles;
    let peak = |usage: Option<(u64, u64)>| usage.map(|(_, peak)| mib(peak));
    let both = |usage: &MemoryUsage| Some(peak(usage.model)? + peak(usage.data)?);
    let cap = |role| context.caps.of(role).map(|mib| mib as f64);
    let parts = match roles.data == roles.model {
        true => vec![(roles.model, "data and model", both(usage), cap(Role::Model))],
        false => vec![
            (roles.model, "model", peak(usage.model), cap(Role::Model)),
            (roles.data, "data", peak(usage.data), cap(Role::Data)),
        ],
    };
    let mut readings = gpus.iter().flatten();
    let device = |(device, role, peak_mib, cap_mib): (Device, &str, Option<f64>, Option<f64>)| {
        let reading = device.is_cuda().then(|| readings.next()).flatten().cloned();
        let not_measured = match (&reading, gpus) {
            (Some(_), _) => None,
            (None, Err(why)) if device.is_cuda() => Some(why.clone()),
            _ => Some("it is a CPU, see `cores`".to_owned()),
        };
        let reading = reading.unwrap_or_default();
        let facts = device.is_cuda().then(|| torchx::cuda::facts(device).ok()).flatten();
        DeviceUse {
            name: facts.as_ref().map_or_else(|| name(device), |facts| format!("{} ({})", name(device), facts.name)),
            roles: role.to_owned(),
            busy: reading.busy,
            not_measured,
            memory_used_mib: reading.memory_used_mib,
            memory_total_mib: facts.map(|facts| mib(facts.total_bytes)),
            peak_mib,
            cap_mib,
            power_watts: reading.power_watts,
            sm_mhz: reading.sm_mhz,
            temperature_celsius: reading.temperature_celsius,
            throttle: reading.throttle,
            others: reading.others,
        }
    };
    parts.into_iter().map(device).collect()
}
