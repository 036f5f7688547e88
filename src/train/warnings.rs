//! Warnings of a run: each is said once, with its cause and what to do about it, and again only when the cause is another.

use host::telemetry::cpu::HostLoad;
use host::telemetry::gpu_processes::OtherProcesses;
use host::telemetry::status::Figures;
use std::collections::BTreeMap;

/// Share of the cores that other programs may use before they are a cause.
const OTHERS: f64 = 0.25;
/// Share of the core time that a quota, or the host of a virtual machine, may take.
const STOLEN: f64 = 0.10;

/// What was said so far: the cause that each warning had.
#[derive(Default)]
pub struct Warnings(BTreeMap<&'static str, String>);

impl Warnings {
    /// What is to be said of these steps.
    pub fn of_steps(&mut self, told: &Figures, host: Option<HostLoad>) -> Vec<String> {
        let others = told.model_gpu.as_ref().and_then(|gpu| gpu.others);
        let shared = others.and_then(|others| self.shared(&others));
        let unsteady = (told.window.unsteady == Some(true)).then(|| self.unsteady(told, others, host)).flatten();
        shared.into_iter().chain(unsteady).collect()
    }

    /// Somebody came to the card, or the last has left it.
    fn shared(&mut self, others: &OtherProcesses) -> Option<String> {
        let number = others.processes;
        let before = self.0.insert("gpu-shared", number.to_string());
        if before.as_deref() == Some(number.to_string().as_str()) {
            return None;
        }
        let (are, them) = if number == 1 { (" is", "it") } else { ("es are", "them") };
        match number {
            // At the first look, that is no news.
            0 => before.map(|_| "no other process is on the GPU that trains any more".into()),
            _ => Some(format!(
                "{number} other process{are} on the GPU that trains ({} MiB): steps take turns with {them}; stop {them}, \
                 or choose another GPU with --model-gpu and --data-gpu (`myxtts devices` shows them)",
                others.mib
            )),
        }
    }

    fn unsteady(&mut self, told: &Figures, others: Option<OtherProcesses>, host: Option<HostLoad>) -> Option<String> {
        let (cause, remedy) = cause(told, others, host);
        let step_ms = &told.window.step_ms;
        self.is_new("unsteady", cause.kind.to_owned()).then(|| {
            format!(
                "step times vary by {:.0} %: {:.1} to {:.1} ms around {:.1} ms; {}; {remedy}",
                step_ms.cv() * 100.0,
                step_ms.min,
                step_ms.max,
                step_ms.mean,
                cause.fact
            )
        })
    }

    /// Whether a warning was not said yet, or with another cause.
    fn is_new(&mut self, code: &'static str, cause: String) -> bool {
        self.0.insert(code, cause.clone()) != Some(cause)
    }
}

struct Cause {
    kind: &'static str,
    fact: String,
}

/// Why steps vary, the surest first; and what to do about it.
fn cause(told: &Figures, others: Option<OtherProcesses>, host: Option<HostLoad>) -> (Cause, &'static str) {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let of = |kind, fact, remedy| (Cause { kind, fact }, remedy);
    if let Some(others) = others.filter(|others| others.processes > 0) {
        let fact = format!("another process is on the GPU that trains ({} MiB)", others.mib);
        return of("gpu-shared", fact, "stop it, or choose another GPU with --model-gpu and --data-gpu");
    }
    let hot: Vec<&str> =
        told.model_gpu.iter().flat_map(|gpu| gpu.throttle.clone()).filter(|r| *r != "power cap").collect();
    if !hot.is_empty() {
        return of(
            "throttled",
            format!("the GPU holds its clocks down: {}", hot.join(", ")),
            "see to its cooling and power",
        );
    }
    if told.window.readiness < 1.0 - STOLEN {
        let fact =
            format!("batches are late, and steps wait for them {} of the time", percent(1.0 - told.window.readiness));
        return of("late-batches", fact, "`myxtts profile` says which stage is slow");
    }
    let throttled = host.and_then(|host| host.throttled).filter(|share| *share > STOLEN);
    if let Some(share) = throttled {
        let fact = format!("a quota held this run's threads back for {} of the time", percent(share));
        return of("cpu-quota", fact, "raise the CPU quota of this container");
    }
    match host {
        Some(host) if host.stolen > STOLEN => {
            let fact = format!("the host of this virtual machine took {} of its core time", percent(host.stolen));
            of("cpu-stolen", fact, "ask for cores that are not shared")
        }
        Some(host) if host.others > OTHERS => {
            let fact = format!("other programs use {} of the cores", percent(host.others));
            of("cpu-contended", fact, "stop or move them, or give this run cores of its own (`taskset`)")
        }
        _ => of(
            "unknown",
            "nothing that can be seen from here explains it".into(),
            "`myxtts diagnose` looks for the cause",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::telemetry::gpu::GpuReading;
    use host::telemetry::window::StepSummary;

    fn told(unsteady: bool, others: Option<usize>) -> Figures {
        let others = others.map(|processes| OtherProcesses { processes, mib: 900, busy_before: 0.0 });
        Figures {
            step: 100,
            steps: 1000,
            epoch: 1,
            loss: 1.0,
            window: StepSummary {
                step_ms: [5.0, 5.0, 20.0].into_iter().collect(),
                p50_ms: 5.0,
                p99_ms: 20.0,
                readiness: 1.0,
                utterances_per_second: 1.0,
                audio_seconds_per_second: 1.0,
                padding_share: 0.0,
                unsteady: Some(unsteady),
            },
            eta: None,
            model_gpu: Some(GpuReading { others, ..GpuReading::default() }),
            data_gpu: None,
            memory_mib: Vec::new(),
        }
    }

    fn load(others: f64) -> Option<HostLoad> {
        let (memory_stall, io_stall, throttled) = (None, None, None);
        Some(HostLoad { cores: 2, own: 0.5, others, stolen: 0.0, memory_stall, io_stall, throttled })
    }

    #[test]
    fn a_warning_is_said_once_and_again_when_its_cause_is_another() {
        let mut warnings = Warnings::default();
        let mut said = |unsteady, others: f64| warnings.of_steps(&told(unsteady, None), load(others)).join("");
        assert_eq!(said(false, 0.0), "");
        let first = said(true, 0.0);
        assert!(first.starts_with("step times vary by 71 %: 5.0 to 20.0 ms around 10.0 ms"), "{first}");
        assert!(first.ends_with("`myxtts diagnose` looks for the cause"), "{first}");
        for unsteady in [true, false, true, true, false, true] {
            assert_eq!(said(unsteady, 0.0), "", "it is known");
        }
        assert!(said(true, 0.6).contains("other programs use 60 % of the cores; stop or move them"));
        assert_eq!(said(true, 0.7), "", "a little more of the same");
    }

    #[test]
    fn another_process_on_the_card_is_named_when_it_comes_and_when_it_goes() {
        let mut warnings = Warnings::default();
        let mut said = |unsteady, others| warnings.of_steps(&told(unsteady, Some(others)), None);
        assert!(said(false, 0).is_empty());
        let came = said(true, 1);
        assert!(
            came[0]
                .starts_with("1 other process is on the GPU that trains (900 MiB): steps take turns with it; stop it"),
            "{came:?}"
        );
        assert!(came[1].contains("another process is on the GPU that trains"), "{came:?}");
        assert!(said(true, 1).is_empty());
        assert!(said(true, 2)[0].starts_with("2 other processes are on the GPU"));
        assert_eq!(said(false, 0), ["no other process is on the GPU that trains any more"]);
    }

    #[test]
    fn a_card_that_nobody_shares_is_no_news() {
        let mut warnings = Warnings::default();
        assert!((0..3).all(|_| warnings.of_steps(&told(false, Some(0)), None).is_empty()));
    }
}
