//! Other programs have the cores.

use super::super::measure::RunMeasurement;
use super::shares::percent;
use host::tools::report::Finding;

/// Share of the time that a thread is ready and waits for a core.
const QUEUED: f64 = 0.15;
/// Share of the cores that other programs may use.
pub const OTHERS: f64 = 0.25;
/// Share of the time that a quota, or the host of a virtual machine, may take.
const STOLEN: f64 = 0.10;

pub const ADVICE: &str =
    "stop or move the other programs (`top` shows them), or give this run cores of its own (`taskset`)";

/// On a CPU that trains, the step itself waits for a core; else the makers of batches do.
pub fn contention(measured: &RunMeasurement) -> Option<Finding> {
    let host = measured.host?;
    let cost = match measured.setup.on_gpu {
        false => measured.queued_share?,
        true => (1.0 - measured.readiness) * measured.feed_queued_share?,
    };
    if cost <= QUEUED {
        return None;
    }
    if let Some(throttled) = host.throttled.filter(|share| *share > STOLEN) {
        let fact = format!("a quota held this run's threads back for {} of the time", percent(throttled));
        return Some(Finding::problem("cpu-quota", cost, fact, "raise the CPU quota of this container"));
    }
    if host.stolen > STOLEN {
        let fact = format!("the host of this virtual machine took {} of its core time away", percent(host.stolen));
        return Some(Finding::problem("cpu-stolen", cost, fact, "ask for cores that are not shared"));
    }
    (host.others > OTHERS).then(|| {
        let fact = format!(
            "other programs use {} of the cores, and threads of this run waited for one {} of the time",
            percent(host.others),
            percent(cost)
        );
        Finding::problem("cpu-contended", cost, fact, ADVICE)
    })
}
