//! Memory by role while a run goes on: figures, leaks, and the way out where a cap is reached.

use crate::feed::{Caps, DATA_ROLE, Feed, Role, Roles};
use host::config::Config;
use host::telemetry::leak::{LeakDetector, LeakSettings, MemoryGrowth, host_bytes};
use tch::Device;

const MIB: f64 = (1u64 << 20) as f64;
/// Above what a run was seen to need: kernels that validation alone runs, fragments.
const HEADROOM: f64 = 1.25;

pub struct Watch {
    roles: Roles,
    caps: Caps,
    /// By whose memory they watch; `None` is the host's.
    detectors: Vec<(Option<Role>, LeakDetector)>,
}

/// Bytes in use now and at most, by role; absent on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub data: Option<(u64, u64)>,
    pub model: Option<(u64, u64)>,
    pub host: Option<u64>,
}

impl Watch {
    pub fn new(roles: Roles, caps: Caps) -> Self {
        let detector = |name, role, device: Device| {
            let limit = caps.of(role).map(|mib| mib << 20).or_else(|| total_bytes(device));
            device.is_cuda().then(|| (Some(role), LeakDetector::new(name, limit, LeakSettings::DEVICE)))
        };
        let data = if caps.shared { None } else { detector("data", Role::Data, roles.data) };
        let model = detector("model", Role::Model, roles.model);
        let host = (None, LeakDetector::new("host", None, LeakSettings::HOST));
        Watch { roles, caps, detectors: data.into_iter().chain(model).chain([host]).collect() }
    }

    /// Costs some microseconds.
    pub fn usage(&self, feed: &Feed) -> Usage {
        let stats = |device: Device| {
            let stats = torchx::memory::stats(device).ok()?;
            Some((stats.allocated_bytes as u64, stats.peak_allocated_bytes as u64))
        };
        let model = stats(self.roles.model);
        if !self.caps.shared {
            return Usage { data: stats(self.roles.data), model, host: host_bytes() };
        }
        // One allocator for both roles: the data role's buffers are made once, and are known.
        let data = model.map(|_| feed.device_bytes());
        let rest = |(now, peak): (u64, u64)| {
            let (fixed, most) = data.unwrap_or_default();
            (now.saturating_sub(fixed), peak.saturating_sub(most))
        };
        Usage { data, model: model.map(rest), host: host_bytes() }
    }

    /// A role whose memory grows step by step.
    pub fn observe(&mut self, step: u64, usage: &Usage) -> Option<MemoryGrowth> {
        let find = |(role, detector): &mut (Option<Role>, LeakDetector)| {
            let bytes = match role {
                Some(Role::Data) => usage.data?.0,
                Some(Role::Model) => usage.model?.0,
                None => usage.host?,
            };
            detector.observe(step, bytes)
        };
        self.detectors.iter_mut().find_map(find)
    }

    /// Caps that the run so far would have kept to, when it was left to the program to choose them.
    pub fn proposal(&self, usage: &Usage) -> Option<String> {
        let ((_, data), (_, model)) = (usage.data?, usage.model?);
        let mib = |bytes: u64| ((bytes as f64 / MIB * HEADROOM) as u64).max(256).next_multiple_of(64);
        self.caps.proposed.then(|| {
            format!(
                "memory: the data role took {:.0} MiB and the model role {:.0} MiB at most; \
                 --data-gpu-memory {} --model-gpu-memory {} would do",
                data as f64 / MIB,
                model as f64 / MIB,
                mib(data),
                mib(model)
            )
        })
    }

    /// The way out of the one failure that everybody meets, with its figures.
    pub fn explain(&self, error: anyhow::Error, config: &Config) -> anyhow::Error {
        let Some(text) = error.chain().map(ToString::to_string).find(|text| text.contains("out of memory")) else {
            return error;
        };
        let role = if error.chain().any(|cause| cause.to_string() == DATA_ROLE) { Role::Data } else { Role::Model };
        let device = if role == Role::Data { self.roles.data } else { self.roles.model };
        let used = torchx::memory::stats(device).map_or(0, |stats| stats.allocated_bytes) as f64 / MIB;
        let limit = self.caps.of(role).map(|mib| mib as f64).or(total_bytes(device).map(|bytes| bytes as f64 / MIB));
        let shortage =
            Shortage { role, asked_mib: asked_mib(&text), used_mib: used, limit_mib: limit, caps: self.caps };
        error.context(shortage.told(config))
    }
}

struct Shortage {
    role: Role,
    asked_mib: Option<f64>,
    used_mib: f64,
    limit_mib: Option<f64>,
    caps: Caps,
}

impl Shortage {
    fn told(&self, config: &Config) -> String {
        let (role, used) = (self.role, self.used_mib);
        let both = if self.caps.shared { "data and model roles, which share a GPU, have" } else { "role has" };
        let who = if self.caps.shared { format!("the {both}") } else { format!("the {role} {both}") };
        let limit = self.limit_mib.map_or_else(|| "the GPU's memory".into(), |mib| format!("{mib:.0} MiB"));
        let kind = if self.caps.of(role).is_some() { "cap" } else { "GPU" };
        let asked = self.asked_mib.map_or_else(|| "more".into(), |mib| format!("{mib:.0} MiB more"));
        let mut ways = vec![];
        if let Some(batch) = self.batch_that_fits(config.data.batch_size) {
            let parts = config.data.batch_size.div_ceil(batch) as u64 * config.training.gradient_accumulation_steps;
            let now = config.data.batch_size;
            ways.push(format!("--batch-size {batch} (now {now}) with --grad-accum {parts} for the same step"));
        }
        if self.role == Role::Model && !config.model.enable_gradient_checkpointing {
            let layers = config.model.decoder_layers;
            ways.push(format!("`enable_gradient_checkpointing: true`, which keeps 1 decoder layer of {layers}"));
        }
        if let Some(mib) = self.caps.of(role) {
            let more = ((mib as f64 + self.asked_mib.unwrap_or(0.0)) * 1.5) as u64;
            ways.push(format!("--{role}-gpu-memory {}", more.next_multiple_of(64)));
        }
        format!(
            "{who} no room left: {kind} {limit}, {used:.0} MiB in use, {asked} asked for; the last checkpoint is \
             intact\nhint: {}",
            ways.join(", or ")
        )
    }

    /// Activations grow with the batch; what was in use and asked for is at least what it needs.
    fn batch_that_fits(&self, batch_size: usize) -> Option<usize> {
        let needed = self.used_mib + self.asked_mib.unwrap_or(0.0);
        let share = (self.limit_mib? / needed.max(1.0)).min(1.0) * 0.5;
        (batch_size > 1).then(|| ((batch_size as f64 * share) as usize).max(1))
    }
}

fn total_bytes(device: Device) -> Option<u64> {
    device.is_cuda().then(|| torchx::cuda::facts(device).ok()).flatten().map(|facts| facts.total_bytes)
}

/// LibTorch says "Tried to allocate 20.00 MiB".
fn asked_mib(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("Tried to allocate ")?;
    let mut words = rest.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    Some(match words.next()?.trim_end_matches(['.', ',']) {
        "GiB" => number * 1024.0,
        "MiB" => number,
        "KiB" => number / 1024.0,
        _ => number / MIB,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_role_cap_use_request_and_ways_out() {
        let text = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB";
        assert_eq!(asked_mib(text), Some(1536.0));
        let caps = Caps { data_mib: Some(1024), model_mib: Some(4096), shared: false, proposed: false };
        let asked_mib = asked_mib(text);
        let shortage = Shortage { role: Role::Model, asked_mib, used_mib: 3900.0, limit_mib: Some(4096.0), caps };
        let told = shortage.told(&Config::default());
        assert!(
            told.starts_with("the model role has no room left: cap 4096 MiB, 3900 MiB in use, 1536 MiB more"),
            "{told}"
        );
        assert!(told.contains("--batch-size 12 (now 32) with --grad-accum 3"), "{told}");
        assert!(told.contains("enable_gradient_checkpointing") && told.contains("--model-gpu-memory 8448"), "{told}");
    }
}
