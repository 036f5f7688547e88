//! Commands that look at a machine or a corpus and report.

pub mod analyze;
pub mod bench_pipeline;
pub mod bench_scale;
pub mod bench_synth;
pub mod configure;
pub mod diagnose;
pub mod eval;
pub mod fix;
pub mod live;
pub mod measure;
pub mod profile;
pub mod verdict;

/// Memory that this process had at most, in MiB, as Linux counts it.
fn peak_host_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_a_peak() {
        assert!(super::peak_host_mib().is_some_and(|mib| mib > 1.0));
    }
}
