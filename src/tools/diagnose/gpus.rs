//! GPUs: driver, links, the paths between them, who else is there, and how far the process is from them.

use crate::tools::verdict::SHARED;
use host::machine::{MIB, cpu_list, own_cpus};
use host::telemetry::gpu_processes::OtherProcesses;
use host::tools::devices::{self, Gpu, Survey};
use host::tools::report::{Finding, Section};
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;

/// The machine as it was before this program touched its GPUs.
#[derive(Debug, Default, Serialize)]
pub struct MachineSurvey {
    pub survey: Survey,
    #[serde(rename = "guests")]
    pub other_programs: Vec<OtherPrograms>,
    /// NUMA nodes whose cores this process may use.
    pub nodes: BTreeSet<u32>,
}

/// Other programs on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OtherPrograms {
    pub gpu: u32,
    pub processes: usize,
    pub mib: u64,
    pub utilisation_percent: u32,
}

impl MachineSurvey {
    pub fn look() -> Self {
        MachineSurvey {
            survey: devices::survey(),
            other_programs: other_programs().unwrap_or_default(),
            nodes: own_nodes(),
        }
    }
}

/// `wanted`: GPUs that the run uses, by index. `asked_for`: the config names a GPU. `usable`: LibTorch can use one; or
/// why not.
pub fn look_at_gpus(
    before: &MachineSurvey,
    wanted: &[u32],
    asked_for: bool,
    usable: Result<(), String>,
) -> Vec<Section> {
    let mut section = Section::new("GPUs");
    let survey = &before.survey;
    if let Some(reason) = &survey.reason {
        section.row("GPUs", format!("none: {reason}"));
        section.findings.push(match asked_for {
            true => Finding::problem(
                "no-gpu",
                1.0,
                "the configuration asks for a GPU and there is none",
                "`--device cpu` trains without one",
            ),
            false => Finding::good("cpu", "the run is on the CPU; nothing below is about GPUs"),
        });
        return vec![section];
    }
    if let Some(driver) = &survey.driver {
        let cuda = driver.cuda.as_deref().unwrap_or("unknown");
        section.row("driver", format!("NVIDIA {}, CUDA up to {cuda}", driver.version));
    }
    for gpu in &survey.gpus {
        section.row(survey.name(gpu.index), described(gpu));
    }
    section.findings.extend(usable.err().map(|why| {
        let advice = "scripts/libtorch.sh sets LibTorch up with CUDA; `--device cpu` trains without";
        Finding::problem("gpu-unusable", 1.0, format!("GPUs are there and LibTorch cannot use them: {why}"), advice)
    }));
    let of_run = |gpu: &&Gpu| wanted.contains(&gpu.index);
    for gpu in survey.gpus.iter().filter(of_run) {
        let name = survey.name(gpu.index);
        section.findings.extend(narrow(gpu, &name));
        section.findings.extend(far(gpu, &name, &before.nodes));
    }
    section.findings.extend(
        before
            .other_programs
            .iter()
            .filter(|programs| wanted.contains(&programs.gpu))
            .filter_map(|programs| shared(programs, &survey.name(programs.gpu))),
    );
    section.findings.extend(apart(survey, wanted));
    if section.findings.is_empty() {
        section.findings.push(Finding::good("gpus", "no other program is on them, links have all their lanes"));
    }
    vec![section]
}

fn described(gpu: &Gpu) -> String {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = gpu
        .memory
        .as_ref()
        .map(|memory| format!("{:.1} of {:.1} GiB free", gib(memory.free_bytes), gib(memory.total_bytes)));
    let link =
        gpu.pcie.as_ref().zip(gpu.pcie_max.as_ref()).map(|(now, max)| {
            format!("PCIe {}×{} (at most {}×{})", now.generation, now.lanes, max.generation, max.lanes)
        });
    let node = gpu.numa_node.map(|node| format!("NUMA node {node}"));
    [Some(gpu.name.clone()), memory, link, node].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Lanes do not come back under load; generations do, and are not judged on a card at rest.
fn narrow(gpu: &Gpu, name: &str) -> Option<Finding> {
    let (now, max) = (gpu.pcie.as_ref()?, gpu.pcie_max.as_ref()?);
    (now.lanes < max.lanes).then(|| {
        let fact = format!("{name} uses {} of {} PCIe lanes", now.lanes, max.lanes);
        Finding::warning("pcie-narrow", 0.0, fact, "seat the card in a slot with all lanes, or look for a worn riser")
    })
}

fn far(gpu: &Gpu, name: &str, nodes: &BTreeSet<u32>) -> Option<Finding> {
    let node = gpu.numa_node?;
    (!nodes.is_empty() && !nodes.contains(&node)).then(|| {
        let fact = format!("{name} is on NUMA node {node}, and this process may use cores of {nodes:?} only");
        Finding::warning(
            "numa-far",
            0.0,
            fact,
            format!("start it with `numactl --cpunodebind={node} --membind={node}`"),
        )
    })
}

fn shared(programs: &OtherPrograms, name: &str) -> Option<Finding> {
    (programs.processes > 0 || programs.utilisation_percent > 5).then(|| {
        let fact = format!(
            "{name} was in use before this run: {} other programs with {} MiB, {} % busy",
            programs.processes, programs.mib, programs.utilisation_percent
        );
        let busy_before = f64::from(programs.utilisation_percent) / 100.0;
        let cost = OtherProcesses { busy_before, ..OtherProcesses::default() }.cost();
        Finding::warning(SHARED, cost, fact, "stop them, or choose another GPU with --data-gpu and --model-gpu")
    })
}

/// What the path between the two GPUs of a run means for it.
fn apart(survey: &Survey, wanted: &[u32]) -> Option<Finding> {
    let &[a, b] = wanted else { return None };
    let link = survey.link(a, b)?;
    let name = format!("{:?}", link.path).to_uppercase();
    let fact = format!("{} and {} are {name} apart: {}", survey.name(a), survey.name(b), link.meaning);
    let advice = "choose two GPUs under one switch (`myxtts devices`), or let one do both";
    Some(match link.path.is_slow() {
        true => Finding::warning("gpus-apart", 0.0, fact, advice),
        false => Finding::good("path", fact),
    })
}

/// Asked for before this program uses a GPU, so all that is found is others'.
fn other_programs() -> Option<Vec<OtherPrograms>> {
    let nvml = Nvml::init().ok()?;
    let gpus = (0..nvml.device_count().ok()?).filter_map(|gpu| {
        let device = nvml.device_by_index(gpu).ok()?;
        let processes = device.running_compute_processes().unwrap_or_default();
        let bytes: u64 = processes
            .iter()
            .map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => bytes,
                UsedGpuMemory::Unavailable => 0,
            })
            .sum();
        let utilisation_percent = device.utilization_rates().map_or(0, |rates| rates.gpu);
        Some(OtherPrograms { gpu, processes: processes.len(), mib: bytes / MIB, utilisation_percent })
    });
    Some(gpus.collect())
}

/// Nodes with a core that this process may use; none where the system does not tell.
fn own_nodes() -> BTreeSet<u32> {
    let allowed = own_cpus();
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| -> Option<u32> {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cores = cpu_list(&fs::read_to_string(entry.path().join("cpulist")).ok()?);
        (!cores.is_disjoint(&allowed)).then_some(number)
    };
    entries.filter_map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::tools::devices::{Link, LinkPath as Path, Pcie};

    fn two_gpus(path: Path) -> MachineSurvey {
        let pcie = |lanes| Some(Pcie { generation: 5, lanes });
        let gpu = |index: u32| Gpu {
            index,
            cuda_index: Some(index as usize),
            name: "H200".into(),
            pcie: pcie(16),
            pcie_max: pcie(16),
            numa_node: Some(index),
            ..Gpu::default()
        };
        let links = vec![Link { gpus: [0, 1], path, meaning: path.meaning() }];
        let survey = Survey { gpus: vec![gpu(0), gpu(1)], links, ..Survey::default() };
        MachineSurvey { survey, other_programs: Vec::new(), nodes: [0, 1].into() }
    }

    fn codes(before: &MachineSurvey, wanted: &[u32]) -> Vec<&'static str> {
        let sections = look_at_gpus(before, wanted, true, Ok(()));
        sections.iter().flat_map(|section| &section.findings).map(|finding| finding.code).collect()
    }

    #[test]
    fn each_defect_of_a_machine_is_named() {
        assert_eq!(codes(&two_gpus(Path::Pix), &[0]), ["gpus"]);
        assert_eq!(codes(&two_gpus(Path::Pix), &[0, 1]), ["path"]);
        assert_eq!(codes(&two_gpus(Path::Sys), &[1, 0]), ["gpus-apart"]);
        let mut narrow = two_gpus(Path::Pix);
        narrow.survey.gpus[0].pcie = Some(Pcie { generation: 1, lanes: 8 });
        assert_eq!(codes(&narrow, &[0]), ["pcie-narrow"]);
        narrow.survey.gpus[0].pcie = Some(Pcie { generation: 1, lanes: 16 });
        assert_eq!(codes(&narrow, &[0]), ["gpus"], "a card at rest lowers its generation");
        let far = MachineSurvey { nodes: [0].into(), ..two_gpus(Path::Pix) };
        assert_eq!(codes(&far, &[1]), ["numa-far"]);
        let other_programs = vec![OtherPrograms { gpu: 0, processes: 1, mib: 900, utilisation_percent: 40 }];
        let shared = MachineSurvey { other_programs, ..two_gpus(Path::Pix) };
        assert_eq!(codes(&shared, &[0]), ["gpu-shared"]);
        assert_eq!(codes(&shared, &[1]), ["gpus"], "not the run's GPU");
    }

    #[test]
    fn no_gpu_is_a_fact_unless_one_was_asked_for() {
        let none = MachineSurvey {
            survey: Survey { reason: Some("no driver".into()), ..Survey::default() },
            ..MachineSurvey::default()
        };
        let code = |asked_for| look_at_gpus(&none, &[], asked_for, Err("x".into()))[0].findings[0].code;
        assert_eq!((code(false), code(true)), ("cpu", "no-gpu"));
    }
}
