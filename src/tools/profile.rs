//! `myxtts profile`: where the time of a step goes, and what to do about it.

use super::measure::{DeviceUse, RunMeasurement};
use super::verdict::{bottleneck, verdict, well};
use host::telemetry::Spread;
use host::tools::report::{Finding, FindingsReport, Section, by_cost};
use serde_json::{Value, json};

/// What was measured, what it means, and what to do.
pub fn report(measured: &RunMeasurement) -> FindingsReport {
    let setup = &measured.setup;
    let title = format!(
        "{} steps of the {} model ({:.1} M parameters), {} frames a batch; data on {}, model on {}",
        measured.steps,
        setup.model_size,
        setup.parameters as f64 / 1e6,
        setup.frames_per_batch,
        setup.data_device,
        setup.model_device
    );
    FindingsReport {
        sections: sections(measured, &[]),
        figures: serde_json::to_value(measured).unwrap_or(Value::Null),
        ..FindingsReport::new(title)
    }
}

/// Adds what watching cost, where it was measured: (milliseconds of a plain step, of a watched one).
pub fn with_overhead(mut report: FindingsReport, (plain_ms, watched_ms): (f64, f64)) -> FindingsReport {
    let share = watched_ms / plain_ms - 1.0;
    let mut section = Section::new("Cost of watching");
    section.row("a step", format!("{plain_ms:.3} ms plain, {watched_ms:.3} ms watched: {:+.2} %", share * 100.0));
    report.sections.push(section);
    report.figures["overhead"] = json!({ "plain_ms": plain_ms, "watched_ms": watched_ms, "share": share });
    report
}

/// Figures of a run, then what they say. Other reports on a run use them too. `known`: what was found before it began.
pub fn sections(measured: &RunMeasurement, known: &[Finding]) -> Vec<Section> {
    let mut sections = vec![times(measured), loader(measured), devices(measured), whole(measured)];
    sections.push(judgement(measured, known));
    sections
}

fn times(measured: &RunMeasurement) -> Section {
    let (stages, step_ms) = (&measured.stages, measured.step_ms.mean);
    let batches = measured.setup.accumulate as f64;
    let mut section = Section::new("Time of a step (mean ± deviation, share of the step; stages overlap)");
    let mut row = |name: &str, time: Spread, each: f64| {
        let text = time.known().map(|time| {
            format!(
                "{:>9.2} ± {:.2} ms {:>5.1} %",
                time.mean * each,
                time.std() * each,
                time.mean * each / step_ms * 100.0
            )
        });
        section.row(name, text.unwrap_or_else(|| "        –  (the data device is the CPU)".into()));
    };
    row("data load: the feed waits", stages.load_wait_ms, batches);
    row("copy to the data device", stages.to_device_ms, batches);
    row("preprocess on the data device", stages.features_ms, batches);
    row("transfer to the model device", stages.transfer_ms, batches);
    row("training", stages.compute_ms, 1.0);
    row("idle: no batch is there", stages.starved_ms, 1.0);
    row("idle: nobody asks for one", stages.gap_ms, 1.0);
    row("the whole step", measured.step_ms, 1.0);
    section
}

fn loader(measured: &RunMeasurement) -> Section {
    let (loader, setup) = (&measured.loader, &measured.setup);
    let mut section = Section::new("Loader");
    let mean = |spread: Spread| spread.known().map_or("–".into(), |spread| format!("{:.2}", spread.mean));
    section.row(
        "a batch takes a worker",
        format!(
            "{} ms: {} on a core, {} for bytes, {} at locks, {} for a core",
            mean(loader.batch_ms),
            mean(loader.ran_ms),
            mean(loader.disk_ms),
            mean(loader.locked_ms),
            mean(loader.queued_ms)
        ),
    );
    let busy = format!("{}, {:.1} % of their time at work", setup.workers, loader.busy * 100.0);
    section.row("workers", if setup.workers == 0 { "none: batches are made when asked for".into() } else { busy });
    if let Some(feed) = measured.feed {
        let shares = format!(
            "at work {:.1} %, waits for the loader {:.1} %, for room {:.1} % of the time",
            feed.busy * 100.0,
            feed.waits_for_loader * 100.0,
            feed.waits_for_room * 100.0
        );
        section.row("feed", shares);
        let ring = format!(
            "{:.1} of {} batches ready on average, empty {:.1} % of the time",
            feed.mean_ready,
            setup.slots,
            feed.empty * 100.0
        );
        section.row("ring", ring);
    }
    section
}

fn devices(measured: &RunMeasurement) -> Section {
    let mut section = Section::new("Devices");
    for device in &measured.devices {
        let name = format!("{}, {}", device.name, device.roles);
        section.row(name, device_figures(device));
    }
    if let Some(kernels) = &measured.kernels {
        let text = format!(
            "{:.1} % of the time (CUPTI), {:.0} a step of {:.1} µs",
            kernels.busy * 100.0,
            kernels.per_step,
            kernels.mean_us
        );
        section.row("kernels run", text);
    }
    if let Some(host) = measured.host {
        let text = format!(
            "this run {:.0} %, other programs {:.0} %, taken by the host {:.0} % of {}",
            host.own * 100.0,
            host.others * 100.0,
            host.stolen * 100.0,
            host.cores
        );
        section.row("cores", text);
    }
    section
}

fn device_figures(device: &DeviceUse) -> String {
    let spread = |spread: Spread, scale: f64| {
        spread.known().map(|spread| format!("{:.0} ± {:.0}", spread.mean * scale, spread.std() * scale))
    };
    let busy = match (&device.not_measured, spread(device.busy, 100.0)) {
        (Some(why), _) => format!("utilisation and memory not measured: {why}"),
        (None, busy) => format!("busy {} %", busy.unwrap_or_else(|| "–".into())),
    };
    let memory = spread(device.memory_used_mib, 1.0).map(|used| {
        let total = device.memory_total_mib.map_or(String::new(), |total| format!(" of {total:.0}"));
        format!("{used}{total} MiB in use by all programs")
    });
    let peak = device.peak_mib.map(|peak| {
        let cap = device.cap_mib.map_or(String::new(), |cap| format!(" (cap {cap:.0})"));
        format!("{peak:.0} MiB at most by this run{cap}")
    });
    let power = spread(device.power_watts, 1.0).map(|watts| format!("{watts} W"));
    let clocks = spread(device.sm_mhz, 1.0).map(|mhz| format!("{mhz} MHz"));
    let held = (!device.throttle.is_empty()).then(|| format!("clocks held down: {}", device.throttle.join(", ")));
    [Some(busy), memory, peak, power, clocks, held].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn whole(measured: &RunMeasurement) -> Section {
    let mut section = Section::new("Pipeline");
    section
        .row("data readiness", format!("{:.2} %", measured.readiness * 100.0))
        .row(
            "step ÷ headspace",
            format!(
                "{:.3} (a step on a batch that stays takes {:.2} ms)",
                measured.step_ms.mean / measured.headspace_ms.max(1e-9),
                measured.headspace_ms
            ),
        )
        .row(
            "step-time CV",
            format!(
                "{:.1} % (median {:.2}, 99th percentile {:.2} ms); training alone {:.1} %",
                measured.step_ms.cv() * 100.0,
                measured.step_p50_ms,
                measured.step_p99_ms,
                measured.own_step.ms.cv() * 100.0
            ),
        )
        .row("padding", format!("{:.1} % of the frames", measured.padding_share * 100.0))
        .row("throughput", format!("{:.0} seconds of speech a second", measured.audio_seconds_per_second))
        .row(
            "start to first step",
            format!(
                "{:.1} s, of which {:.1} s building the cache",
                measured.first_step_s, measured.building.seconds.wall
            ),
        );
    section
}

/// What is wrong, and what was looked at and is not.
fn judgement(measured: &RunMeasurement, known: &[Finding]) -> Section {
    let mut found = verdict(measured);
    // Told already.
    found.retain(|finding| known.iter().all(|known| known.code != finding.code));
    let mut all: Vec<Finding> = found.iter().chain(known).cloned().collect();
    all.sort_by(by_cost);
    let mut section = Section::new(bottleneck(measured, &all));
    section.findings.extend(well(measured, &found));
    section.findings.extend(found);
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_says_so() {
        let device = DeviceUse { not_measured: Some("no NVIDIA driver".into()), ..DeviceUse::default() };
        assert_eq!(device_figures(&device), "utilisation and memory not measured: no NVIDIA driver");
        let busy = DeviceUse { busy: [0.9, 1.0].into_iter().collect(), ..DeviceUse::default() };
        assert_eq!(device_figures(&busy), "busy 95 ± 5 %");
    }

    #[test]
    fn the_cost_of_watching_is_a_share_of_a_plain_step() {
        let report = with_overhead(FindingsReport { figures: json!({}), ..FindingsReport::new("x") }, (10.0, 10.05));
        assert!(report.to_string().contains("+0.50 %"), "{report}");
        assert!((report.figures["overhead"]["share"].as_f64().unwrap() - 0.005).abs() < 1e-9);
    }
}
