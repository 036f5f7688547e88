//! What this machine computes with: GPUs as the NVIDIA driver (NVML) reports them, the paths between them, and the CPU.

use crate::config::devices::Gpus;
use crate::machine::{MIB, kib_field};
use crate::telemetry::gpu::no_gpu;
use anyhow::{Context, bail};
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use serde::Serialize;
use std::cell::OnceCell;
use std::{env, fmt, fs};

/// What this machine computes with. A figure that the driver or the system does not tell is `None`.
#[derive(Debug, Default, Serialize)]
pub struct Survey {
    pub cpu: Cpu,
    pub driver: Option<Driver>,
    /// By PCI address, the order of `nvidia-smi`.
    pub gpus: Vec<Gpu>,
    pub links: Vec<Link>,
    /// Why there are no GPUs.
    pub reason: Option<String>,
}

impl Survey {
    /// The path between two GPUs, in either order.
    pub fn link(&self, a: u32, b: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.gpus == [a, b] || link.gpus == [b, a])
    }

    /// A GPU under its number here, and under that of `--data-gpu` and `--model-gpu` where it is another.
    pub fn name(&self, gpu: u32) -> String {
        match self.gpus.iter().find(|known| known.index == gpu).map(|known| known.cuda_index) {
            Some(Some(number)) if number != gpu as usize => {
                format!("GPU {gpu} ({number} for --data-gpu and --model-gpu)")
            }
            Some(None) => format!("GPU {gpu} (hidden by CUDA_VISIBLE_DEVICES)"),
            _ => format!("GPU {gpu}"),
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub struct Cpu {
    pub name: Option<String>,
    /// Cores that this process may use.
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
    /// Its number for CUDA, and so for `--data-gpu` and `--model-gpu`; absent where `CUDA_VISIBLE_DEVICES` hides it.
    pub cuda_index: Option<usize>,
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
    pub path: LinkPath,
    /// How `path` does for copying batches, in words.
    pub meaning: &'static str,
}

/// The longest stretch between two GPUs, under the names of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LinkPath {
    /// NVLink, which `nvidia-smi` shows as NV1, NV2 … by the number of links.
    Nv,
    Psb,
    Pix,
    Pxb,
    Phb,
    Node,
    Sys,
}

impl LinkPath {
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

impl LinkPath {
    /// Whether copies between the two would be better avoided.
    pub fn is_slow(self) -> bool {
        matches!(self, Self::Node | Self::Sys)
    }
}

impl From<TopologyLevel> for LinkPath {
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

/// A GPU that CUDA shows to this process.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaGpu {
    /// Its number for CUDA.
    pub index: usize,
    /// Its number for the driver, which [`Survey`] uses; an instance of a GPU (MIG) has none.
    pub driver_index: Option<u32>,
    pub name: String,
    pub total_mib: u64,
    pub free_mib: u64,
    /// Whether it has units for bf16: Ampere was the first.
    pub has_bf16: bool,
}

/// Under CUDA's number, and the driver's where it is another.
impl fmt::Display for CudaGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.index)?;
        match self.driver_index.filter(|number| *number as usize != self.index) {
            Some(number) => write!(f, " ({number} for nvidia-smi)"),
            None => Ok(()),
        }
    }
}

/// GPUs that CUDA shows to this process, as the driver alone knows them. It is asked at the first use.
#[derive(Default)]
pub struct DriverGpus(OnceCell<Result<Vec<CudaGpu>, String>>);

impl DriverGpus {
    pub fn get(&self, index: usize) -> Option<&CudaGpu> {
        self.all().ok()?.get(index)
    }

    fn all(&self) -> Result<&[CudaGpu], &str> {
        let gpus = || Nvml::init().map_err(|error| no_gpu(&error)).and_then(|nvml| cuda_gpus(&nvml));
        self.0.get_or_init(gpus).as_deref().map_err(String::as_str)
    }
}

impl Gpus for DriverGpus {
    fn count(&self) -> anyhow::Result<usize> {
        match self.all() {
            Ok([]) => bail!("the NVIDIA driver offers no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES"),
            Ok(gpus) => Ok(gpus.len()),
            Err(reason) => bail!("{reason}"),
        }
    }

    fn name(&self, index: usize) -> anyhow::Result<String> {
        Ok(self.get(index).context("there is no such GPU")?.name.clone())
    }
}

/// A device as `CUDA_VISIBLE_DEVICES` names it.
#[derive(Clone, Debug, PartialEq)]
enum Visible {
    /// The driver's number of a GPU.
    Gpu(u32),
    /// The UUID of an instance of one (MIG).
    Instance(String),
}

fn cuda_gpus(nvml: &Nvml) -> Result<Vec<CudaGpu>, String> {
    let gpus = shown(nvml).map_err(|error| no_gpu(&error))?.into_iter().enumerate();
    Ok(gpus.map_while(|(index, device)| cuda_gpu(nvml, index, &device).ok()).collect())
}

/// What CUDA shows to this process, in the order of its numbers.
fn shown(nvml: &Nvml) -> Result<Vec<Visible>, NvmlError> {
    let uuid = |index| nvml.device_by_index(index).and_then(|gpu| gpu.uuid()).unwrap_or_default();
    let uuids: Vec<String> = (0..nvml.device_count()?).map(uuid).collect();
    Ok(visible(env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), &uuids))
}

/// `CUDA_DEVICE_ORDER`, where it has CUDA number GPUs otherwise than by PCI address: by speed, which the driver does not tell.
pub fn other_order() -> Option<String> {
    env::var("CUDA_DEVICE_ORDER").ok().filter(|order| order != "PCI_BUS_ID")
}

/// Devices in the order in which CUDA numbers them, given `CUDA_VISIBLE_DEVICES` and the UUIDs of all GPUs by PCI address:
/// the program has CUDA count by address too, unless `CUDA_DEVICE_ORDER` is set. After `_parse_visible_devices` of
/// PyTorch's `torch/cuda/__init__.py`: the list ends at the first entry that is none, and one that is there twice empties it.
fn visible(listed: Option<&str>, uuids: &[String]) -> Vec<Visible> {
    let Some(listed) = listed else { return (0..uuids.len() as u32).map(Visible::Gpu).collect() };
    let mut devices = Vec::new();
    for entry in listed.split(',').map(str::trim) {
        let Some(device) = listed_device(entry, listed.trim_start(), uuids) else { break };
        if devices.contains(&device) {
            return Vec::new();
        }
        devices.push(device);
    }
    if matches!(devices[..], [Visible::Instance(_), ..]) {
        devices.truncate(1); // CUDA shows one instance to a process
    }
    devices
}

/// All entries are of the kind of the first: numbers, UUIDs of GPUs, or of instances.
fn listed_device(entry: &str, listed: &str, uuids: &[String]) -> Option<Visible> {
    if listed.starts_with("MIG-") {
        return entry.starts_with("MIG-").then(|| Visible::Instance(entry.to_owned()));
    }
    let mut alike = (0..uuids.len() as u32).filter(|&gpu| uuids[gpu as usize].starts_with(entry));
    if listed.starts_with("GPU-") {
        // The beginning of a UUID will do, where it is of one GPU only.
        let gpu = alike.next().filter(|_| entry.starts_with("GPU-") && alike.next().is_none());
        return gpu.map(Visible::Gpu);
    }
    // As `strtoul` reads: digits, whatever stands behind them.
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let gpu: u32 = digits[..end].parse().ok()?;
    ((gpu as usize) < uuids.len()).then_some(Visible::Gpu(gpu))
}

fn cuda_gpu(nvml: &Nvml, index: usize, visible: &Visible) -> Result<CudaGpu, NvmlError> {
    let (device, driver_index) = match visible {
        Visible::Gpu(gpu) => (nvml.device_by_index(*gpu)?, Some(*gpu)),
        Visible::Instance(uuid) => (nvml.device_by_uuid(uuid.as_str())?, None),
    };
    let memory = device.memory_info()?;
    // Instances do not tell; GPUs that have any are at least Ampere.
    let has_bf16 = device.cuda_compute_capability().map_or(driver_index.is_none(), |capability| capability.major >= 8);
    let (total_mib, free_mib) = (memory.total / MIB, memory.free / MIB);
    Ok(CudaGpu { index, driver_index, name: device.name()?, total_mib, free_mib, has_bf16 })
}

/// Asks the system and the driver.
pub fn survey() -> Survey {
    let gpus = Nvml::init().and_then(|nvml| survey_gpus(&nvml));
    let report = gpus.unwrap_or_else(|e| Survey { reason: Some(no_gpu(&e)), ..Survey::default() });
    Survey { cpu: survey_cpu(), ..report }
}

fn survey_gpus(nvml: &Nvml) -> Result<Survey, NvmlError> {
    let version = nvml.sys_driver_version()?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v)));
    let devices: Vec<_> = (0..nvml.device_count()?).map(|index| (index, nvml.device_by_index(index))).collect();
    let shown = shown(nvml)?;
    let number = |index: u32| shown.iter().position(|device| *device == Visible::Gpu(index));
    let gpus = devices.iter().map(|(index, device)| Gpu { cuda_index: number(*index), ..gpu(*index, device) });
    let gpus: Vec<Gpu> = gpus.collect();
    let reason = gpus.is_empty().then(|| format!("NVIDIA driver {version} is running, but finds no GPU"));
    Ok(Survey { driver: Some(Driver { version, cuda }), links: links(&devices), gpus, reason, ..Survey::default() })
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
        cuda_index: None,
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

fn path(first: &Device, second: &Device) -> Option<LinkPath> {
    if matches!(first.p2p_status(second, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok)) {
        return Some(LinkPath::Nv);
    }
    first.nvml().topology_common_ancestor(first, second).ok().map(LinkPath::from)
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

    /// Truth: what PyTorch's `_parse_visible_devices` and `_device_count_nvml` make of the same lists.
    #[test]
    fn visible_devices_are_those_of_cuda() {
        let uuids = ["GPU-aa11", "GPU-aa22", "GPU-bb33"].map(String::from);
        let seen = |listed: &str| -> Vec<u32> {
            let gpu = |device| if let Visible::Gpu(gpu) = device { gpu } else { panic!("{device:?}") };
            visible(Some(listed), &uuids).into_iter().map(gpu).collect()
        };
        assert_eq!(visible(None, &uuids), [0, 1, 2].map(Visible::Gpu));
        for (listed, gpus) in [
            ("2,0", &[2, 0][..]),
            (" 1 , 2", &[1, 2]),
            ("1gpu2,2ampere", &[1, 2]),
            ("", &[]),
            ("-1", &[]),
            ("NoDevFiles", &[]),
            ("0,3,1", &[0]),
            ("0,-1,1", &[0]),
            ("0,0", &[]),
            ("0,GPU-bb33", &[0]),
            ("GPU-bb33,GPU-aa1", &[2, 0]),
            ("GPU-aa", &[]),
            ("GPU-bb33,1", &[2]),
            ("GPU-bb33,GPU-bb", &[]),
            ("GPU-aa11,GPU-cc", &[0]),
        ] {
            assert_eq!(seen(listed), gpus, "{listed}");
        }
        let instances = visible(Some("MIG-1,MIG-2"), &uuids);
        assert_eq!(instances, [Visible::Instance("MIG-1".into())]);
    }

    #[test]
    fn a_gpu_that_cuda_numbers_otherwise_has_both_numbers() {
        let gpu = |index, cuda_index| Gpu { index, cuda_index, ..Gpu::default() };
        let survey = Survey { gpus: vec![gpu(0, None), gpu(1, Some(1)), gpu(2, Some(0))], ..Survey::default() };
        assert_eq!(survey.name(0), "GPU 0 (hidden by CUDA_VISIBLE_DEVICES)");
        assert_eq!(survey.name(1), "GPU 1");
        assert_eq!(survey.name(2), "GPU 2 (0 for --data-gpu and --model-gpu)");
        let name = "Some GPU".to_owned();
        let cuda = CudaGpu { index: 0, driver_index: Some(2), name, total_mib: 1, free_mib: 1, has_bf16: true };
        assert_eq!(cuda.to_string(), "GPU 0 (2 for nvidia-smi)");
        assert_eq!(CudaGpu { driver_index: Some(0), ..cuda }.to_string(), "GPU 0");
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
