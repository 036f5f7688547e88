//! From what was measured to what is wrong: pure functions, so that a table of planted problems can hold them to account.
//!
//! A stage is blamed for the time that the model device stood idle, not for being slow: what is hidden behind training
//! costs nothing. Shares are of the time of a step, from the end of one to the end of the next.
//!
//! A new finding is a function in one of these files with its limit beside it, its call below, a planted problem in
//! tests/diagnosis.rs, and a row of the table in docs/diagnosis.md.

mod cores;
mod corpus;
mod device;
mod loading;
mod shares;
mod starving;
#[cfg(test)]
mod tests;

pub use device::SHARED;

use super::measure::RunMeasurement;
use crate::train::OutOfMemory;
use host::error::Explained;
use host::tools::report::{Finding, by_cost};
use shares::percent;

/// Training that has less of the time is worth a word where nothing else was found.
const TRAINING: f64 = 0.50;

/// Everything that is wrong, the costliest first; nothing where nothing is.
pub fn verdict(measured: &RunMeasurement) -> Vec<Finding> {
    let mut found = starving::waits(measured);
    found.extend(device::gaps(measured));
    found.extend(device::launches(measured));
    found.extend(device::jitter(measured));
    found.extend(cores::contention(measured));
    found.extend(corpus::padding(measured));
    found.extend(corpus::damaged(measured));
    found.extend(corpus::left_out(measured));
    found.extend(corpus::nothing_held_out(measured));
    found.extend(corpus::cold_cache(measured));
    found.extend(device::shared(measured));
    found.extend(device::throttled(measured));
    found.extend(device::memory_tight(measured));
    found.extend(unexplained(measured, &found));
    found.sort_by(by_cost);
    found
}

/// What was looked at and is well.
pub fn well(measured: &RunMeasurement, found: &[Finding]) -> Vec<Finding> {
    let none_of = |codes: &[&str]| !found.iter().any(|finding| codes.contains(&finding.code));
    let is_fed = !found.iter().any(|finding| finding.cost > 0.0 && starving::CODES.contains(&finding.code));
    let ready = is_fed.then(|| {
        let fact =
            format!("batches are there when the model asks for them: readiness {:.1} %", measured.readiness * 100.0);
        Finding::good("ready", fact)
    });
    let steady = none_of(&["jittery-steps", "cpu-contended", "cpu-stolen"]).then(|| {
        let fact = format!("training is steady: CV {:.2}, limit {:.2}", measured.own_step.ms.cv(), device::CV);
        Finding::good("steady", fact)
    });
    let packed = none_of(&["padding-waste"]).then(|| {
        let fact = format!("{:.0} % of the computed frames hold speech", (1.0 - measured.padding_share) * 100.0);
        Finding::good("packed", fact)
    });
    [ready, steady, packed].into_iter().flatten().collect()
}

/// What limits the speed of this run, in one sentence.
pub fn bottleneck(measured: &RunMeasurement, found: &[Finding]) -> String {
    let of_time = |finding: &&Finding| finding.cost > 0.0 && !corpus::OF_CLIPS.contains(&finding.code);
    match found.iter().find(of_time) {
        Some(first) => format!("bottleneck: {} ({:.0} % of the time)", first.code, first.cost * 100.0),
        None => format!(
            "bottleneck: training itself, as it should be; a step takes {:.2} of the time it takes without data to wait for",
            measured.step_ms.mean / measured.headspace_ms.max(1e-9)
        ),
    }
}

/// An error that ended the run, if it is one that a setting decides on.
pub fn of_error(error: &anyhow::Error) -> Option<Finding> {
    let OutOfMemory { shortage, .. } = error.downcast_ref()?;
    let code = if shortage.cap_mib.is_some() { "cap-too-small" } else { "out-of-memory" };
    Some(Finding::problem(code, 1.0, shortage.to_string(), Explained::of(error.as_ref()).advice()))
}

/// Most of the time is lost, and nothing that was found says to what.
fn unexplained(measured: &RunMeasurement, found: &[Finding]) -> Option<Finding> {
    let compute = measured.compute_share();
    let told: f64 = found.iter().map(|finding| finding.cost).sum();
    (compute < TRAINING && told < (1.0 - compute) / 2.0).then(|| {
        let fact = format!("training takes {} of the time, and no stage explains the rest", percent(compute));
        Finding::warning("unexplained-idle", 1.0 - compute - told, fact, "look at a trace: --trace out.json")
    })
}
