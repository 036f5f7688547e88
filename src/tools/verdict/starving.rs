//! The model device waits for batches: which stage makes it wait?

use super::super::measure::RunMeasurement;
use super::loading;
use super::shares::{ms, percent};
use host::tools::report::Finding;

/// Share of the time without a batch; on a CPU all stages share the cores, so more is normal.
pub const STARVED: f64 = 0.05;
pub const STARVED_ON_CPU: f64 = 0.15;
/// Share of a step that the feed waits for the loader.
const LOAD: f64 = 0.20;
/// Share of a step that a copy, or the way to the model device, takes.
const TRANSFER: f64 = 0.15;
/// Share of a step that the data device is at work.
const DATA_BUSY: f64 = 0.80;

/// Findings that say why the model device waits.
pub const CODES: [&str; 12] = [
    "no-prefetch",
    "no-workers",
    "lock-bound",
    "shallow-prefetch",
    "slow-load",
    "slow-disk",
    "few-workers",
    "slow-decode",
    "slow-copy",
    "cpu-features",
    "data-device-saturated",
    "slow-transfer",
];

/// A stage of the way to the model device, with its share of a step.
struct Stage {
    share: f64,
    limit: f64,
    /// Its finding at a cost.
    blame: fn(&RunMeasurement, f64) -> Finding,
}

/// The stage with the largest share is blamed, and each above its own limit.
pub fn waits(measured: &RunMeasurement) -> Vec<Finding> {
    let stages = stages(measured);
    let sum: f64 = stages.iter().map(|stage| stage.share).sum();
    let most = stages.iter().map(|stage| stage.share).fold(0.0, f64::max);
    if !measured.is_starving() || sum == 0.0 {
        return saturated(measured).into_iter().collect();
    }
    if measured.setup.slots == 0 {
        return no_prefetch(measured, &stages, sum, most);
    }
    let starved = measured.starved();
    let blamed = stages.iter().filter(|stage| stage.share == most || stage.share > stage.limit);
    blamed.map(|stage| (stage.blame)(measured, starved * stage.share / sum)).collect()
}

fn stages(measured: &RunMeasurement) -> [Stage; 4] {
    let times = &measured.stages;
    [
        Stage { share: measured.share(times.load_wait_ms), limit: LOAD, blame: loading::late },
        Stage { share: measured.share(times.to_device_ms), limit: TRANSFER, blame: copy },
        Stage { share: measured.share(times.features_ms), limit: DATA_BUSY, blame: features },
        Stage { share: measured.share(times.transfer_ms), limit: TRANSFER, blame: transfer },
    ]
}

/// Without a ring all stages stand in the way of the step; with one, the longest at most.
fn no_prefetch(measured: &RunMeasurement, stages: &[Stage], sum: f64, most: f64) -> Vec<Finding> {
    let (compute, starved) = (measured.compute_share(), measured.starved());
    let hidden = sum.min(compute);
    let fact = format!(
        "every batch is made while the model device stands idle for it: {} of a step; ahead of the step, {} would be hidden",
        percent(starved),
        percent(hidden)
    );
    let mut found = vec![Finding::problem("no-prefetch", hidden, fact, "set `prefetch_to_gpu: true`")];
    if sum > compute {
        let worst = stages.iter().find(|stage| stage.share == most);
        found.extend(worst.map(|stage| (stage.blame)(measured, (sum - compute).min(starved - hidden).max(0.0))));
    }
    found
}

/// Nobody waits yet, but the data device has no reserve. On a CPU the roles share cores and take turns anyway.
fn saturated(measured: &RunMeasurement) -> Option<Finding> {
    let busy = measured.share(measured.stages.to_device_ms) + measured.share(measured.stages.features_ms);
    (measured.setup.data_on_gpu && busy > DATA_BUSY).then(|| features(measured, 0.0))
}

fn copy(measured: &RunMeasurement, cost: f64) -> Finding {
    let copy = measured.stages.to_device_ms;
    let fact = format!(
        "the copy to {} takes {}, {} of a step",
        measured.setup.data_device,
        ms(copy),
        percent(measured.share(copy))
    );
    Finding::problem("slow-copy", cost, fact, "`myxtts diagnose` compares the PCIe link with what the card can do")
}

fn features(measured: &RunMeasurement, cost: f64) -> Finding {
    let (setup, features) = (&measured.setup, measured.stages.features_ms);
    let fact = format!(
        "features on {} take {}, {} of a step",
        setup.data_device,
        ms(features),
        percent(measured.share(features))
    );
    if setup.on_gpu && !setup.data_on_gpu {
        return Finding::problem("cpu-features", cost, fact, "`data_device: auto` makes them on the GPU");
    }
    let advice = match setup.data_on_gpu {
        true => "leave out augmentation that is not needed, or give the data role a GPU of its own",
        false => "`cache_content: mel` makes features once; or leave out augmentation that is not needed",
    };
    match cost > 0.0 {
        true => Finding::problem("data-device-saturated", cost, fact, advice),
        false => Finding::warning("data-device-saturated", cost, fact + "; nobody waits for it yet", advice),
    }
}

fn transfer(measured: &RunMeasurement, cost: f64) -> Finding {
    let (setup, transfer) = (&measured.setup, measured.stages.transfer_ms);
    let fact = format!(
        "the way to the model device ({}) takes {}, {} of a step",
        setup.route,
        ms(transfer),
        percent(measured.share(transfer))
    );
    let advice = match setup.data_device == setup.model_device {
        true => "nothing should be slow here; `myxtts diagnose` looks for other users of this device",
        false => "let both roles use one GPU, or two that can reach each other (`myxtts devices`)",
    };
    Finding::problem("slow-transfer", cost, fact, advice)
}
