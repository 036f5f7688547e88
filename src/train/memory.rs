//! Memory by role while a run goes on: figures, leaks, and the way out where a cap is reached.

use crate::feed::{Caps, Feed, OnDataDevice, Role, Roles};
use crate::run::MemoryUsage;
use host::config::Config;
use host::error::{Hint, WithHint};
use host::machine::{MIB, mib};
use host::telemetry::leak::{LeakDetector, LeakSettings, MemoryGrowth, host_bytes};
use std::fmt;
use tch::Device;

/// Above what a run was seen to need: kernels that validation alone runs, fragments.
const HEADROOM: f64 = 1.25;

/// Watches the memory of both roles and of the host while a run goes on.
pub struct MemoryMonitor {
    roles: Roles,
    caps: Caps,
    /// One for each memory that is watched; `None` is the host's.
    detectors: Vec<(Option<Role>, LeakDetector)>,
}

impl MemoryMonitor {
    pub fn new(roles: Roles, caps: Caps) -> Self {
        let detector = |name, role, device: Device| {
            let limit = caps.of(role).map(|mib| mib * MIB).or_else(|| total_bytes(device));
            device.is_cuda().then(|| (Some(role), LeakDetector::new(name, limit, LeakSettings::DEVICE)))
        };
        let data = if caps.shared { None } else { detector("data", Role::Data, roles.data) };
        let model = detector("model", Role::Model, roles.model);
        let host = (None, LeakDetector::new("host", None, LeakSettings::HOST));
        MemoryMonitor { roles, caps, detectors: data.into_iter().chain(model).chain([host]).collect() }
    }

    /// What is in use now. Costs some microseconds.
    pub fn usage(&self, feed: &Feed) -> MemoryUsage {
        let stats = |device: Device| {
            let stats = torchx::memory::stats(device).ok()?;
            Some((stats.allocated_bytes as u64, stats.peak_allocated_bytes as u64))
        };
        let model = stats(self.roles.model);
        if !self.caps.shared {
            return MemoryUsage { data: stats(self.roles.data), model, host: host_bytes() };
        }
        // One allocator for both roles: the data role's buffers are made once, and are known.
        let data = model.map(|_| feed.device_bytes());
        let rest = |(now, peak): (u64, u64)| {
            let (fixed, most) = data.unwrap_or_default();
            (now.saturating_sub(fixed), peak.saturating_sub(most))
        };
        MemoryUsage { data, model: model.map(rest), host: host_bytes() }
    }

    /// A role whose memory grows step by step.
    pub fn observe(&mut self, step: u64, usage: &MemoryUsage) -> Option<MemoryGrowth> {
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
    pub fn proposal(&self, usage: &MemoryUsage) -> Option<String> {
        let ((_, data), (_, model)) = (usage.data?, usage.model?);
        let cap_mib = |bytes: u64| ((mib(bytes) * HEADROOM) as u64).max(256).next_multiple_of(64);
        self.caps.proposed.then(|| {
            format!(
                "memory: the data role took {:.0} MiB and the model role {:.0} MiB at most; \
                 --data-gpu-memory {} --model-gpu-memory {} would do",
                mib(data),
                mib(model),
                cap_mib(data),
                cap_mib(model)
            )
        })
    }

    /// An error for want of a GPU's memory becomes [`OutOfMemory`], with its figures and the ways out.
    pub fn explain(&self, error: anyhow::Error, config: &Config) -> anyhow::Error {
        let Some(shortage) = self.shortage(&error) else { return error };
        let cause: Result<(), _> = Err(error);
        let hint = cause.hint(shortage.ways_out(config)).unwrap_err();
        OutOfMemory { shortage, hint }.into()
    }

    fn shortage(&self, error: &anyhow::Error) -> Option<Shortage> {
        let asked_bytes = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(torchx::Error::OutOfMemory { on_gpu: true, asked_bytes, .. }) => Some(*asked_bytes),
            _ => None,
        })?;
        let role = if error.is::<OnDataDevice>() { Role::Data } else { Role::Model };
        let device = if role == Role::Data { self.roles.data } else { self.roles.model };
        let on_card = device.is_cuda().then(|| torchx::cuda::facts(device).ok()).flatten();
        let free_mib = on_card.map(|facts| mib(facts.free_bytes));
        let cap_mib = self.caps.of(role).filter(|_| card_has_room(free_mib, asked_bytes));
        Some(Shortage {
            role,
            shared: self.caps.shared,
            cap_mib,
            limit_mib: cap_mib.map(|mib| mib as f64).or(total_bytes(device).map(mib)),
            free_mib: free_mib.filter(|_| cap_mib.is_none()),
            used_mib: torchx::memory::stats(device).map_or(0.0, |stats| mib(stats.allocated_bytes as u64)),
            asked_mib: asked_bytes.map(mib),
        })
    }
}

/// A run ended because a role had no room left on its GPU.
#[derive(Debug, thiserror::Error)]
#[error("{shortage}")]
pub struct OutOfMemory {
    pub shortage: Shortage,
    #[source]
    hint: Hint,
}

/// Memory of a GPU when there was no room left.
#[derive(Clone, Copy, Debug)]
pub struct Shortage {
    /// The role that asked for more.
    pub role: Role,
    /// Both roles are on this GPU: cap and use are theirs together.
    pub shared: bool,
    /// The cap that was reached; absent where none is set, or the card was full before.
    pub cap_mib: Option<u64>,
    /// The cap, else the card's memory.
    pub limit_mib: Option<f64>,
    /// Memory of the card that nobody has, where no cap was reached.
    pub free_mib: Option<f64>,
    pub used_mib: f64,
    pub asked_mib: Option<f64>,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shared {
            true => write!(f, "the data and model roles, which share a GPU, have")?,
            false => write!(f, "the {} role has", self.role)?,
        }
        let kind = if self.cap_mib.is_some() { "cap" } else { "GPU" };
        let limit = self.limit_mib.map_or_else(|| "the GPU's memory".into(), |mib| format!("{mib:.0} MiB"));
        let free = self.free_mib.map_or_else(String::new, |mib| format!(" of which {mib:.0} are free"));
        let asked = self.asked_mib.map_or_else(|| "more".into(), |mib| format!("{mib:.0} MiB more"));
        write!(
            f,
            " no room left: {kind} {limit}{free}, {:.0} MiB in use, {asked} asked for; the last checkpoint is intact",
            self.used_mib
        )
    }
}

impl Shortage {
    fn ways_out(&self, config: &Config) -> String {
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
        if let Some(mib) = self.cap_mib {
            let more = ((mib as f64 + self.asked_mib.unwrap_or(0.0)) * 1.5) as u64;
            ways.push(format!("--{}-gpu-memory {}", self.role, more.next_multiple_of(64)));
        }
        if ways.is_empty() {
            ways.push("a GPU with more memory".into());
        }
        ways.join(", or ")
    }

    /// Activations grow with the batch; what was in use and asked for is at least what it needs.
    fn batch_that_fits(&self, batch_size: usize) -> Option<usize> {
        let needed = self.used_mib + self.asked_mib.unwrap_or(0.0);
        let share = (self.limit_mib? / needed.max(1.0)).min(1.0) * 0.5;
        (batch_size > 1).then(|| ((batch_size as f64 * share) as usize).max(1))
    }
}

/// Whether a request failed at a cap rather than at the card. LibTorch keeps what it holds of the card when a request fails,
/// so what is free now was free then; where nobody tells, a cap is what is reached first.
fn card_has_room(free_mib: Option<f64>, asked_bytes: Option<u64>) -> bool {
    free_mib.is_none_or(|free| free >= asked_bytes.map_or(0.0, mib))
}

fn total_bytes(device: Device) -> Option<u64> {
    device.is_cuda().then(|| torchx::cuda::facts(device).ok()).flatten().map(|facts| facts.total_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use host::error::Explained;

    /// What LibTorch throws where a card is full.
    fn gpu_is_full() -> torchx::Error {
        let said = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB";
        tch::TchError::Torch(said.into()).into()
    }

    fn monitor(caps: Caps) -> MemoryMonitor {
        MemoryMonitor::new(Roles { data: Device::Cpu, model: Device::Cpu }, caps)
    }

    const CAPS: Caps = Caps { data_mib: Some(1024), model_mib: Some(4096), shared: false, proposed: false };

    #[test]
    fn a_shortage_names_role_cap_use_request_and_ways_out() {
        let short = monitor(CAPS).shortage(&gpu_is_full().into()).unwrap();
        let shortage = Shortage { used_mib: 3900.0, ..short };
        let told = shortage.to_string();
        assert!(
            told.starts_with("the model role has no room left: cap 4096 MiB, 3900 MiB in use, 1536 MiB more"),
            "{told}"
        );
        let told = shortage.ways_out(&Config::default());
        assert!(told.contains("--batch-size 12 (now 32) with --grad-accum 3"), "{told}");
        assert!(told.contains("enable_gradient_checkpointing") && told.contains("--model-gpu-memory 8448"), "{told}");
    }

    #[test]
    fn a_full_card_is_no_cap_that_is_too_small() {
        assert!(card_has_room(Some(9_000.0), Some(1536 * MIB)) && card_has_room(None, Some(1)));
        assert!(!card_has_room(Some(200.0), Some(1536 * MIB)));
        let full = monitor(Caps::default()).shortage(&gpu_is_full().into()).unwrap();
        let full = Shortage { limit_mib: Some(24_000.0), free_mib: Some(200.0), used_mib: 900.0, ..full };
        let told = full.to_string();
        assert!(told.contains("GPU 24000 MiB of which 200 are free, 900 MiB in use, 1536 MiB more"), "{told}");
        assert!(!full.ways_out(&Config::default()).contains("-gpu-memory"), "a larger cap would not help");
    }

    #[test]
    fn an_error_for_want_of_memory_is_explained_and_any_other_is_not() {
        let error = Err::<(), _>(gpu_is_full()).context(OnDataDevice).unwrap_err();
        let error = monitor(CAPS).explain(error, &Config::default());
        let shortage = error.downcast_ref::<OutOfMemory>().unwrap().shortage;
        assert_eq!((shortage.role, shortage.cap_mib, shortage.asked_mib), (Role::Data, Some(1024), Some(1536.0)));
        let Explained { fact, hints } = Explained::of(error.as_ref());
        assert!(fact.ends_with("intact: making a batch on the data device: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.81 GiB"), "{fact}");
        assert!(hints.len() == 1 && hints[0].ends_with("--data-gpu-memory 3840"), "{hints:?}");
        let other = monitor(CAPS).explain(anyhow::anyhow!("disk full"), &Config::default());
        assert!(!other.is::<OutOfMemory>());
    }
}
