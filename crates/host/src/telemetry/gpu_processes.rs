//! Who else is on a GPU. The driver lists processes by their number outside of any container, so a program in one does not
//! find itself by its own number: it is then the one that was not there before it began.

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// The GPUs, by the driver's number, as they were before this program used one.
static BEFORE: OnceLock<BTreeMap<u32, Before>> = OnceLock::new();

#[derive(Clone, Debug, Default)]
struct Before {
    processes: BTreeSet<u32>,
    busy: f64,
}

/// Other programs on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OtherProcesses {
    pub processes: usize,
    /// Memory that they hold, where the driver tells.
    pub mib: u64,
    /// Share of the time that kernels ran before this program began: theirs.
    pub busy_before: f64,
}

impl OtherProcesses {
    /// Share of the time that a program loses which takes turns with them.
    pub fn cost(&self) -> f64 {
        self.busy_before / (1.0 + self.busy_before)
    }
}

/// Takes note of who is there. To be called before the first use of a GPU; later calls change nothing.
pub fn remember_processes() {
    BEFORE.get_or_init(|| {
        let Ok(nvml) = Nvml::init() else { return BTreeMap::new() };
        let gpu = |index: u32| {
            let device = nvml.device_by_index(index).ok()?;
            let busy = device.utilization_rates().map_or(0.0, |rates| f64::from(rates.gpu) / 100.0);
            Some((index, Before { processes: listed(&device).into_keys().collect(), busy }))
        };
        (0..nvml.device_count().unwrap_or(0)).filter_map(gpu).collect()
    });
}

/// Tells this program from the others on one GPU.
#[derive(Default)]
pub(super) struct ProcessWatch {
    own: Option<BTreeSet<u32>>,
}

impl ProcessWatch {
    /// Others that are on the GPU now; nothing where the driver lists nobody, not even this program.
    pub fn others(&mut self, device: &Device) -> Option<OtherProcesses> {
        let before = device.index().ok().and_then(|index| BEFORE.get()?.get(&index).cloned());
        self.others_in(&listed(device), before.unwrap_or_default())
    }

    fn others_in(&mut self, listed: &BTreeMap<u32, u64>, before: Before) -> Option<OtherProcesses> {
        if listed.is_empty() {
            return None;
        }
        let own = self.own.get_or_insert_with(|| own(listed, &before.processes, std::process::id()));
        let others: Vec<u64> = listed.iter().filter(|(pid, _)| !own.contains(pid)).map(|(_, mib)| *mib).collect();
        let busy_before = if others.is_empty() { 0.0 } else { before.busy };
        Some(OtherProcesses { processes: others.len(), mib: others.iter().sum(), busy_before })
    }
}

/// Numbers that this program has for the driver.
fn own(listed: &BTreeMap<u32, u64>, before: &BTreeSet<u32>, id: u32) -> BTreeSet<u32> {
    match listed.contains_key(&id) {
        true => [id].into(),
        false => listed.keys().copied().filter(|pid| !before.contains(pid)).collect(),
    }
}

/// Processes that compute on a GPU, with their memory in MiB.
fn listed(device: &Device) -> BTreeMap<u32, u64> {
    let mib = |memory| match memory {
        UsedGpuMemory::Used(bytes) => bytes >> 20,
        UsedGpuMemory::Unavailable => 0,
    };
    let processes = device.running_compute_processes().unwrap_or_default();
    processes.into_iter().map(|process| (process.pid, mib(process.used_gpu_memory))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_container_this_program_is_the_one_that_was_not_there() {
        let before = Before { processes: [7].into(), busy: 0.9 };
        let mut watch = ProcessWatch::default();
        let mut others = |pids: &[u32]| {
            watch
                .others_in(&pids.iter().map(|pid| (*pid, 100)).collect(), before.clone())
                .map(|others| others.processes)
        };
        assert_eq!(others(&[]), None, "the driver tells nothing");
        assert_eq!(others(&[7, 41]), Some(1));
        assert_eq!(others(&[41]), Some(0));
        assert_eq!(others(&[41, 50, 51]), Some(2), "who comes later is another");
    }

    #[test]
    fn outside_a_container_it_has_its_own_number() {
        let id = std::process::id();
        let listed = [(id, 300), (id + 1, 200)].into();
        let others = ProcessWatch::default().others_in(&listed, Before::default()).unwrap();
        assert_eq!((others.processes, others.mib), (1, 200));
    }

    #[test]
    fn two_that_are_always_busy_have_half_of_the_time_each() {
        let cost = |busy_before| OtherProcesses { busy_before, ..Default::default() }.cost();
        assert_eq!((cost(0.0), cost(1.0)), (0.0, 0.5));
    }
}
