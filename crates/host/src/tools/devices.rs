//! What this machine computes with: GPUs as the NVIDIA driver (NVML) reports them, the paths between them, and the CPU.

use crate::telemetry::gpu::no_gpu;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use serde::Serialize;
use std::fs;

/// A figure that the driver or the system does not tell is `None`.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub cpu: Cpu,
    pub driver: Option<Driver>,
    /// By PCI address, the order of `nvidia-smi` and of `--data-gpu` and `--model-gpu`.
    pub gpus: Vec<Gpu>,
    pub links: Vec<Link>,
    /// Why there are no GPUs.
    pub reason: Option<String>,
}

impl Report {
    /// Between two GPUs, in either order.
    pub fn link(&self, a: u32, b: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.gpus == [a, b] || link.gpus == [b, a])
    }
}

#[derive(Debug, Default, Serialize)]
pub struct Cpu {
    pub name: Option<String>,
    /// As many as this process may use.
    pub cores: Option<usize>,
    pub memory_total_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Driver {
    pub version: String,
    /// The newest CUDA that the driver runs.
    pub cuda: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Gpu {
    pub index: u32,
    pub name: String,
    pub pci: Option<String>,
    pub memory: Option<Memory>,
    pub utilisation_percent: Option<u32>,
    pub pcie: Option<Pcie>,
    pub pcie_max: Option<Pcie>,
    pub numa_node: Option<u32>,
}

#[derive(Debug, Serialize)]
pub struct Memory {
    pub total_bytes: u64,
    pub used_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Pcie {
    pub generation: u32,
    pub lanes: u32,
}

#[derive(Debug, Serialize)]
pub struct Link {
    pub gpus: [u32; 2],
    pub path: Path,
    /// How `path` does for copying batches, in words.
    pub meaning: &'static str,
}

/// The longest stretch between two GPUs, under the names of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Path {
    /// NVLink, which `nvidia-smi` shows as NV1, NV2 … by the number of links.
    Nv,
    Psb,
    Pix,
    Pxb,
    Phb,
    Node,
    Sys,
}

impl Path {
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Nv => "over NVLink: the fastest copies",
            Self::Psb => "on one board: fast",
            Self::Pix => "through one PCIe switch: fast, the CPU is not involved",
            Self::Pxb => "through several PCIe switches: fast, the CPU is not involved",
            Self::Phb => "through the CPU's PCIe host bridge: good",
            Self::Node => "through several host bridges of one NUMA node: fair",
            Self::Sys => "across NUMA nodes, through the link between CPUs: slow",
        }
    }
}

impl From<TopologyLevel> for Path {
    fn from(level: TopologyLevel) -> Self {
        match level {
            TopologyLevel::Internal => Self::Psb,
            TopologyLevel::Single => Self::Pix,
            TopologyLevel::Multiple => Self::Pxb,
            TopologyLevel::HostBridge => Self::Phb,
            TopologyLevel::Node => Self::Node,
            TopologyLevel::System => Self::Sys,
        }
    }
}

/// Asks the system and the driver.
pub fn survey() -> Report {
    let gpus = Nvml::init().and_then(|nvml| survey_gpus(&nvml));
    let report = gpus.unwrap_or_else(|e| Report { reason: Some(no_gpu(&e)), ..Report::default() });
    Report { cpu: survey_cpu(), ..report }
}

fn survey_gpus(nvml: &Nvml) -> Result<Report, NvmlError> {
    let version = nvml.sys_driver_version()?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v)));
    let devices: Vec<_> = (0..nvml.device_count()?).map(|index| (index, nvml.device_by_index(index))).collect();
    let gpus: Vec<Gpu> = devices.iter().map(|(index, device)| gpu(*index, device)).collect();
    let reason = gpus.is_empty().then(|| format!("NVIDIA driver {version} is running, but finds no GPU"));
    Ok(Report { driver: Some(Driver { version, cuda }), links: links(&devices), gpus, reason, ..Report::default() })
}

/// A GPU that cannot be opened (it fell off the bus, or access is denied) stays in the list under its index.
fn gpu(index: u32, device: &Result<Device, NvmlError>) -> Gpu {
    let device = match device {
        Ok(device) => device,
        Err(e) => return Gpu { index, name: format!("not readable: {e}"), ..Gpu::default() },
    };
    let pci = device.pci_info().ok().map(|pci| format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device));
    let pcie = |generation: Result<u32, _>, lanes: Result<u32, _>| {
        generation.and_then(|generation| lanes.map(|lanes| Pcie { generation, lanes })).ok()
    };
    let memory = device.memory_info().ok();
    Gpu {
        index,
        name: device.name().unwrap_or_else(|e| format!("unnamed: {e}")),
        memory: memory.map(|m| Memory { total_bytes: m.total, used_bytes: m.used, free_bytes: m.free }),
        utilisation_percent: device.utilization_rates().ok().map(|u| u.gpu),
        pcie: pcie(device.current_pcie_link_gen(), device.current_pcie_link_width()),
        pcie_max: pcie(device.max_pcie_link_gen(), device.max_pcie_link_width()),
        numa_node: pci.as_deref().and_then(numa_node),
        pci,
    }
}

/// The kernel says -1 where the machine has no NUMA nodes, or its firmware does not tell.
fn numa_node(pci: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node")).ok()?.trim().parse().ok()
}

fn links(devices: &[(u32, Result<Device, NvmlError>)]) -> Vec<Link> {
    let open: Vec<_> = devices.iter().filter_map(|(index, device)| Some((*index, device.as_ref().ok()?))).collect();
    let pairs = open.iter().enumerate().flat_map(|(i, a)| open[i + 1..].iter().map(move |b| (a, b)));
    pairs
        .filter_map(|((a, first), (b, second))| {
            let path = path(first, second)?;
            Some(Link { gpus: [*a, *b], path, meaning: path.meaning() })
        })
        .collect()
}

fn path(first: &Device, second: &Device) -> Option<Path> {
    if matches!(first.p2p_status(second, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok)) {
        return Some(Path::Nv);
    }
    first.nvml().topology_common_ancestor(first, second).ok().map(Path::from)
}

fn survey_cpu() -> Cpu {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Cpu {
        name: field(&cpuinfo, "model name").map(str::to_owned),
        cores: std::thread::available_parallelism().ok().map(usize::from),
        memory_total_bytes: kib_field(&meminfo, "MemTotal"),
        memory_available_bytes: kib_field(&meminfo, "MemAvailable"),
    }
}

/// The first `name : value` of a /proc file.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_by_exact_name() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some CPU @ 3.00GHz\nmodel name\t: other\n";
        assert_eq!(field(cpuinfo, "model name"), Some("Some CPU @ 3.00GHz"));
        let meminfo = "MemTotal:       16384000 kB\nMemFree:          100 kB\nHugePages_Total:       7\n";
        assert_eq!(kib_field(meminfo, "MemTotal"), Some(16_384_000 * 1024));
        assert_eq!(kib_field(meminfo, "MemAvailable"), None);
        assert_eq!(kib_field(meminfo, "HugePages_Total"), None);
    }

    /// Holds on every machine: either GPUs, or why there are none.
    #[test]
    fn the_survey_of_this_machine_is_whole() {
        let report = survey();
        assert_eq!(report.gpus.is_empty(), report.reason.is_some(), "{report:?}");
        assert!(report.cpu.cores.is_some_and(|cores| cores > 0));
        let pairs = report.gpus.len() * report.gpus.len().saturating_sub(1) / 2;
        assert!(report.links.len() <= pairs);
    }
}
