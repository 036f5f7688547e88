//! `myxtts diagnose`: what the machine has, what stands in the way of a run on it, and a short real run to see.

mod gpus;
mod host_load;

pub use gpus::{MachineSurvey, look_at_gpus};
pub use host_load::{DiskSpeed, look_at_disk, look_at_host};

use super::measure::RunMeasurement;
use super::profile;
use super::verdict::SHARED;
use host::tools::report::{Finding, FindingsReport, Section};
use serde_json::{Value, json};

/// A disk that gives this many times what training reads has a reserve.
const RESERVE: f64 = 2.0;

/// Sections of the machine, then those of the run if there was one.
pub fn report(
    machine: Vec<Section>,
    disk: Option<DiskSpeed>,
    measured: Option<&RunMeasurement>,
    figures: Value,
) -> FindingsReport {
    let mut report = FindingsReport {
        sections: machine,
        figures,
        ..FindingsReport::new("diagnosis of this machine, and of a short run")
    };
    report.sections.extend(disk.map(|disk| disk_section(&disk, measured)));
    if let Some(measured) = measured {
        let shared: Vec<Finding> =
            report.findings().into_iter().filter(|finding| finding.code == SHARED).cloned().collect();
        report.sections.extend(profile::sections(measured, &shared));
        report.figures["run"] = serde_json::to_value(measured).unwrap_or(Value::Null);
    }
    report.figures["disk"] = json!(disk);
    report
}

/// Bytes of sound that training takes in a second, if nothing were in memory.
fn demand(measured: &RunMeasurement) -> f64 {
    let setup = &measured.setup;
    setup.bytes_per_batch as f64 * setup.accumulate as f64 / (measured.stages.compute_ms.mean / 1e3).max(1e-9)
}

fn disk_section(disk: &DiskSpeed, measured: Option<&RunMeasurement>) -> Section {
    let mut section = Section::new("Disk");
    let cold = match disk.cold_mb_per_second {
        Some(speed) => format!("{speed:.0} MB/s after the system was asked to forget them (posix_fadvise)"),
        None => "not measured: the system keeps these files in memory".into(),
    };
    section.row("recordings, cold", cold);
    let warm = format!(
        "{:.0} MB/s from memory ({} files, {:.1} MB)",
        disk.warm_mb_per_second,
        disk.files,
        disk.bytes as f64 / 1e6
    );
    section.row("recordings, warm", warm);
    let Some(demand_mb) = measured.map(|measured| demand(measured) / 1e6) else { return section };
    section.row("training takes", format!("{demand_mb:.1} MB/s at most, once in memory none of it from disk"));
    section.findings.extend(disk.cold_mb_per_second.map(|speed| judge_disk(speed, demand_mb)));
    section
}

/// Pure, for the table of tests: the first pass over a corpus comes from disk.
fn judge_disk(cold_mb: f64, demand_mb: f64) -> Finding {
    if cold_mb >= demand_mb * RESERVE {
        let fact = format!("the disk gives {:.0} times what training takes", cold_mb / demand_mb.max(1e-9));
        return Finding::good("disk", fact);
    }
    let fact =
        format!("the disk gives {cold_mb:.0} MB/s and training takes {demand_mb:.0} MB/s until the cache is in memory");
    let advice = "put the cache (`cache_dir`) on a local SSD; what fits into memory is read once";
    Finding::warning("slow-disk-reads", 0.0, fact, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::tools::report::Grade;

    #[test]
    fn a_disk_is_slow_against_what_training_takes() {
        assert_eq!(judge_disk(500.0, 20.0).grade, Grade::Good);
        let slow = judge_disk(30.0, 20.0);
        assert_eq!((slow.code, slow.grade), ("slow-disk-reads", Grade::Warning));
    }
}
