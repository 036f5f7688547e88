//! `myxtts devices`: the GPUs, the paths between them, and the CPU.

use host::tools::devices::{self, Cpu, Gpu, LinkPath, Pcie, Survey};
use host::tools::report::counted;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

const UNKNOWN: &str = "-";

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// A machine without GPUs is an answer, not a failure.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let survey = devices::survey();
    let text = if args.json { serde_json::to_string_pretty(&survey)? + "\n" } else { page(&survey) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn page(survey: &Survey) -> String {
    let mut parts = vec![format!("CPU   {}\n", cpu(&survey.cpu))];
    let driver = survey.driver.as_ref().map(|driver| {
        let cuda = driver.cuda.as_deref().unwrap_or("unknown");
        format!("GPUs  {}, NVIDIA driver {}, CUDA up to {cuda}\n", survey.gpus.len(), driver.version)
    });
    match &survey.reason {
        Some(reason) => parts.push(format!("GPUs  none: {reason}\n      Training and synthesis run on the CPU.\n")),
        None => parts.extend(driver),
    }
    if !survey.gpus.is_empty() {
        parts.push(format!("\n{}{}{}", columns(&gpu_rows(&survey.gpus)), remarks(&survey.gpus), numbers(survey)));
    }
    let usable: Vec<String> = survey.gpus.iter().filter_map(|gpu| Some(gpu.cuda_index?.to_string())).collect();
    if usable.len() > 1 {
        parts.push(format!("  To train on all of them side by side: --model-gpu {}\n", usable.join(",")));
    }
    if !survey.links.is_empty() {
        parts.push(format!("\nPaths between GPUs\n{}{}", columns(&link_rows(survey)), legend(survey)));
    }
    parts.concat()
}

fn cpu(cpu: &Cpu) -> String {
    let cores = cpu.cores.map(|cores| counted(cores, "core"));
    let memory = cpu.memory_total_bytes.map(|total| {
        let free = cpu.memory_available_bytes.map(|free| format!(", {} GiB available", gib(free)));
        format!("{} GiB memory{}", gib(total), free.unwrap_or_default())
    });
    [cpu.name.clone(), cores, memory].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn gpu_rows(gpus: &[Gpu]) -> Vec<Vec<String>> {
    let head = ["GPU", "name", "total GiB", "used", "free", "busy", "PCIe now", "PCIe max", "NUMA", "PCI address"];
    let rows = gpus.iter().map(|gpu| {
        let memory = |bytes: Option<u64>| bytes.map_or(UNKNOWN.to_owned(), gib);
        vec![
            gpu.index.to_string(),
            gpu.name.clone(),
            memory(gpu.memory.as_ref().map(|m| m.total_bytes)),
            memory(gpu.memory.as_ref().map(|m| m.used_bytes)),
            memory(gpu.memory.as_ref().map(|m| m.free_bytes)),
            gpu.utilisation_percent.map_or(UNKNOWN.to_owned(), |percent| format!("{percent} %")),
            pcie(&gpu.pcie),
            pcie(&gpu.pcie_max),
            gpu.numa_node.map_or(UNKNOWN.to_owned(), |node| node.to_string()),
            gpu.pci.clone().unwrap_or(UNKNOWN.to_owned()),
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect()
}

/// What the PCIe figures mean where they differ: missing lanes stay missing, a lower generation is an idle card's rest.
fn remarks(gpus: &[Gpu]) -> String {
    let links = || gpus.iter().filter_map(|gpu| Some((gpu.index, gpu.pcie.as_ref()?, gpu.pcie_max.as_ref()?)));
    let narrow = links().filter(|(_, now, max)| now.lanes < max.lanes).map(|(index, now, max)| {
        format!(
            "  GPU {index} uses {} of {} PCIe lanes: copies to it are slower than they could be\n",
            now.lanes, max.lanes
        )
    });
    let resting = links().any(|(_, now, max)| now.generation < max.generation);
    let rest = resting.then(|| "  An idle GPU lowers its PCIe generation; it rises under load\n".to_owned());
    narrow.chain(rest).collect()
}

/// Where flags number GPUs otherwise than this page: by `CUDA_VISIBLE_DEVICES`.
fn numbers(survey: &Survey) -> String {
    let other = survey.gpus.iter().filter(|gpu| gpu.cuda_index != Some(gpu.index as usize));
    other.map(|gpu| format!("  {}\n", survey.name(gpu.index))).collect()
}

fn link_rows(survey: &Survey) -> Vec<Vec<String>> {
    let names = || survey.gpus.iter().map(|gpu| format!("GPU {}", gpu.index));
    let head = std::iter::once(String::new()).chain(names()).collect();
    let rows = survey.gpus.iter().map(|from| {
        let cells = survey.gpus.iter().map(|to| match from.index == to.index {
            true => "X".to_owned(),
            false => survey.link(from.index, to.index).map_or(UNKNOWN.to_owned(), |link| code(link.path)),
        });
        std::iter::once(format!("GPU {}", from.index)).chain(cells).collect()
    });
    std::iter::once(head).chain(rows).collect()
}

fn legend(survey: &Survey) -> String {
    let present: BTreeSet<LinkPath> = survey.links.iter().map(|link| link.path).collect();
    present.into_iter().map(|path| format!("  {:<4}  {}\n", code(path), path.meaning())).collect()
}

fn code(path: LinkPath) -> String {
    format!("{path:?}").to_uppercase()
}

fn pcie(link: &Option<Pcie>) -> String {
    link.as_ref().map_or(UNKNOWN.to_owned(), |link| format!("gen{} x{}", link.generation, link.lanes))
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

/// Two spaces before each column; columns of figures are set to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |col: usize| rows.iter().map(|row| row[col].chars().count()).max().unwrap_or(0);
    let figures = |cell: &str| cell == UNKNOWN || cell.trim_end_matches(" %").parse::<f64>().is_ok();
    let right = |col: usize| rows.iter().skip(1).all(|row| figures(&row[col]));
    let shape: Vec<(usize, bool)> = (0..count).map(|col| (width(col), right(col))).collect();
    let cell = |(text, (width, right)): (&String, &(usize, bool))| match right {
        true => format!("  {text:>width$}"),
        false => format!("  {text:<width$}"),
    };
    let line = |row: &Vec<String>| row.iter().zip(&shape).map(cell).collect::<String>().trim_end().to_owned() + "\n";
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::tools::devices::{Driver, Link, Memory};

    const GIB: u64 = 1 << 30;

    fn gpu(index: u32, lanes: u32, generation: u32) -> Gpu {
        Gpu {
            index,
            cuda_index: Some(index as usize),
            name: "NVIDIA GeForce RTX 4090".to_owned(),
            pci: Some(format!("0000:0{}:00.0", index + 1)),
            memory: Some(Memory { total_bytes: 24 * GIB, used_bytes: GIB / 2, free_bytes: 47 * GIB / 2 }),
            utilisation_percent: Some(7 + 90 * index),
            pcie: Some(Pcie { generation, lanes }),
            pcie_max: Some(Pcie { generation: 4, lanes: 16 }),
            numa_node: (index == 1).then_some(0),
        }
    }

    fn two_gpus() -> Survey {
        Survey {
            cpu: Cpu {
                name: Some("AMD Ryzen 9 7950X".to_owned()),
                cores: Some(32),
                memory_total_bytes: Some(64 * GIB),
                memory_available_bytes: Some(60 * GIB),
            },
            driver: Some(Driver { version: "580.65.06".to_owned(), cuda: Some("13.0".to_owned()) }),
            gpus: vec![gpu(0, 16, 1), gpu(1, 8, 4)],
            links: vec![Link { gpus: [0, 1], path: LinkPath::Phb, meaning: LinkPath::Phb.meaning() }],
            reason: None,
        }
    }

    #[test]
    fn two_gpus_make_an_aligned_page() {
        let expected = "\
CPU   AMD Ryzen 9 7950X, 32 cores, 64.0 GiB memory, 60.0 GiB available
GPUs  2, NVIDIA driver 580.65.06, CUDA up to 13.0

  GPU  name                     total GiB  used  free  busy  PCIe now  PCIe max  NUMA  PCI address
    0  NVIDIA GeForce RTX 4090       24.0   0.5  23.5   7 %  gen1 x16  gen4 x16     -  0000:01:00.0
    1  NVIDIA GeForce RTX 4090       24.0   0.5  23.5  97 %  gen4 x8   gen4 x16     0  0000:02:00.0
  GPU 1 uses 8 of 16 PCIe lanes: copies to it are slower than they could be
  An idle GPU lowers its PCIe generation; it rises under load
  To train on all of them side by side: --model-gpu 0,1

Paths between GPUs
         GPU 0  GPU 1
  GPU 0  X      PHB
  GPU 1  PHB    X
  PHB   through the CPU's PCIe host bridge: good
";
        assert_eq!(page(&two_gpus()), expected);
    }

    #[test]
    fn a_gpu_that_tells_nothing_is_still_listed() {
        let lost = Gpu { index: 2, cuda_index: None, name: "not readable: gpu is lost".to_owned(), ..Gpu::default() };
        let mut survey = two_gpus();
        survey.gpus.push(lost);
        let page = page(&survey);
        assert!(page.contains("not readable: gpu is lost          -     -     -     -"), "{page}");
        assert!(page.contains("  GPU 2  -      -      X\n"), "{page}");
        assert!(page.contains("  GPU 2 (hidden by CUDA_VISIBLE_DEVICES)\n"), "{page}");
    }

    #[test]
    fn without_a_driver_the_page_says_so() {
        let survey = Survey { reason: Some("no NVIDIA driver".to_owned()), ..Survey::default() };
        let page = page(&survey);
        assert!(page.contains("GPUs  none: no NVIDIA driver\n") && page.contains("run on the CPU"), "{page}");
        assert!(!page.contains("Paths"));
    }

    #[test]
    fn json_has_an_empty_list_and_the_reason() {
        let survey = Survey { reason: Some("no NVIDIA driver".to_owned()), ..Survey::default() };
        let json = serde_json::to_value(&survey).unwrap();
        assert_eq!((&json["gpus"], &json["reason"]), (&serde_json::json!([]), &serde_json::json!("no NVIDIA driver")));
        let json = serde_json::to_value(two_gpus()).unwrap();
        assert_eq!(json["links"][0]["path"], "PHB");
        assert_eq!(json["gpus"][1]["memory"]["total_bytes"], 24 * GIB);
    }
}
