//! The model device itself: gaps between steps, small kernels, unsteady steps, clocks and memory.

use super::super::measure::{DeviceUse, RunMeasurement};
use super::shares::{ms, percent};
use super::starving::STARVED;
use host::tools::report::{Finding, counted};

/// Share of the time that the model device stands idle because nobody asks for the next batch.
const GAP: f64 = 0.10;
/// Share of the time that a kernel should run.
const MODEL_BUSY: f64 = 0.70;
/// Coefficient of variation of the step alone.
pub const CV: f64 = 0.30;
/// Code of the finding that other programs are on the GPU.
pub const SHARED: &str = "gpu-shared";
/// Steps of more than one and a half times the median that make a habit of it.
const LONG_STEPS: usize = 3;
/// Fewer steps say nothing about steadiness.
const STEPS_TO_JUDGE: u64 = 8;
/// Share of the cap, or of the card's memory, that is close to its end.
const MEMORY: f64 = 0.95;

/// Batches are there, and nobody asks for them.
pub fn gaps(measured: &RunMeasurement) -> Option<Finding> {
    let (gap, share) = (measured.stages.gap_ms, measured.gap_share());
    (share > GAP).then(|| {
        let fact = format!(
            "between steps the model device stands idle for {}, {} of the time, though batches are there",
            ms(gap),
            percent(share)
        );
        let advice = "let the training thread do less between steps: raise `log_step`, `val_step` and `save_step`";
        Finding::problem("host-gaps", share, fact, advice)
    })
}

/// The device waits for the host to launch kernels, or runs too small ones.
pub fn launches(measured: &RunMeasurement) -> Option<Finding> {
    let Some(kernels) = &measured.kernels else { return low_utilisation(measured) };
    let idle = 1.0 - measured.readiness + measured.gap_share();
    let lost = 1.0 - kernels.busy - idle;
    if kernels.busy >= MODEL_BUSY || lost < 1.0 - MODEL_BUSY - STARVED {
        return None;
    }
    let fact = format!(
        "a kernel runs {} of the time though batches are there: {:.0} kernels a step of {:.1} µs each",
        percent(kernels.busy),
        kernels.per_step,
        kernels.mean_us
    );
    Some(match measured.setup.graphs {
        false => {
            let advice = "set `enable_graphs: true`: the whole step becomes one launch";
            Finding::problem("launch-bound", lost, fact, advice)
        }
        true => Finding::warning("tiny-batches", lost, fact, "raise --batch-size: larger kernels, fewer gaps"),
    })
}

/// Where no kernel was traced, the driver's word is all there is.
fn low_utilisation(measured: &RunMeasurement) -> Option<Finding> {
    let busy = measured.devices.iter().find(|device| device.roles.contains("model"))?.busy.known()?;
    (busy.mean < MODEL_BUSY && !measured.is_starving()).then(|| {
        let fact = format!("the driver sees the model device busy {} of the time", percent(busy.mean));
        Finding::warning("low-utilisation", 1.0 - busy.mean, fact, "raise --batch-size, and see `enable_graphs`")
    })
}

pub fn jitter(measured: &RunMeasurement) -> Option<Finding> {
    let own = measured.own_step;
    let cost = 1.0 - own.p50_ms / own.ms.mean.max(1e-9);
    let judged = own.ms.count >= STEPS_TO_JUDGE && own.long_steps >= LONG_STEPS;
    (judged && own.ms.cv() > CV && cost > 0.0).then(|| {
        let fact = format!(
            "training itself varies by {}: {} of {} steps take more than one and a half times the median of {:.1} ms",
            percent(own.ms.cv()),
            own.long_steps,
            own.ms.count,
            own.p50_ms
        );
        let advice = "batches are alike, so something else uses the model device: `myxtts diagnose` looks for it";
        Finding::problem("jittery-steps", cost, fact, advice)
    })
}

/// Other programs are on the model's card, and kernels take turns.
pub fn shared(measured: &RunMeasurement) -> Option<Finding> {
    let device = measured.devices.iter().find(|device| device.roles.contains("model"))?;
    let others = device.others.filter(|others| others.processes > 0)?;
    let fact = format!(
        "{} is shared with {}, which hold {} MiB and kept it busy {} of the time before this run",
        device.name,
        counted(others.processes, "other program"),
        others.mib,
        percent(others.busy_before)
    );
    Some(Finding::warning(
        SHARED,
        others.cost(),
        fact,
        "stop them, or choose another GPU with --data-gpu and --model-gpu",
    ))
}

/// A card at its power cap does what it can; for any other reason it should not be slowed.
pub fn throttled(measured: &RunMeasurement) -> Vec<Finding> {
    let throttled = |device: &DeviceUse| {
        let hot: Vec<&str> = device.throttle.iter().copied().filter(|reason| *reason != "power cap").collect();
        let fact = || format!("{} held its clocks down during the run: {}", device.name, hot.join(", "));
        (!hot.is_empty()).then(|| Finding::problem("throttled", 0.0, fact(), "see to its cooling and its power supply"))
    };
    measured.devices.iter().filter_map(throttled).collect()
}

pub fn memory_tight(measured: &RunMeasurement) -> Vec<Finding> {
    let tight = |device: &DeviceUse| {
        let capped = device.peak_mib.zip(device.cap_mib).map(|(peak, cap)| (peak, cap, "of its cap of"));
        let used = device.memory_used_mib.known().map(|used| used.max);
        let full = capped.or(used.zip(device.memory_total_mib).map(|(used, total)| (used, total, "of")));
        let (used, limit, of) = full.filter(|(used, limit, _)| *used > MEMORY * limit)?;
        let fact = format!("{} had {used:.0} {of} {limit:.0} MiB in use", device.name);
        let advice = "leave some room: a smaller --batch-size, or a larger cap";
        Some(Finding::warning("memory-tight", 0.0, fact, advice))
    };
    measured.devices.iter().filter_map(tight).collect()
}
