use super::super::measure::{CorpusCounts, DeviceUse, KernelUse, RunMeasurement, RunSettings};
use super::{bottleneck, of_error, verdict};
use crate::feed::{Caps, Roles};
use crate::train::MemoryMonitor;
use host::config::Config;
use host::telemetry::Spread;
use host::telemetry::cpu::HostLoad;
use host::telemetry::gpu_processes::OtherProcesses;
use tch::{Device, TchError};

fn spread(ms: f64) -> Spread {
    [ms, ms].into_iter().collect()
}

/// A GPU that never waits.
fn good() -> RunMeasurement {
    let mut measured = RunMeasurement {
        setup: RunSettings {
            workers: 4,
            depth: 8,
            slots: 3,
            accumulate: 1,
            on_gpu: true,
            data_on_gpu: true,
            graphs: true,
            ..RunSettings::default()
        },
        corpus: CorpusCounts { clips: 1000, held_out: 50, ..CorpusCounts::default() },
        step_ms: spread(10.0),
        headspace_ms: 9.9,
        readiness: 0.999,
        kernels: Some(KernelUse { busy: 0.95, per_step: 1500.0, mean_us: 6.0 }),
        host: Some(HostLoad {
            cores: 16,
            own: 0.1,
            others: 0.0,
            stolen: 0.0,
            memory_stall: None,
            io_stall: None,
            throttled: None,
        }),
        queued_share: Some(0.0),
        feed_queued_share: Some(0.0),
        ..RunMeasurement::default()
    };
    measured.stages.compute_ms = spread(9.9);
    measured.stages.features_ms = spread(1.0);
    measured.stages.transfer_ms = spread(0.1);
    measured
}

fn codes(measured: &RunMeasurement) -> Vec<&'static str> {
    verdict(measured).iter().map(|finding| finding.code).collect()
}

#[test]
fn a_good_run_has_no_finding() {
    assert!(codes(&good()).is_empty());
    assert!(bottleneck(&good(), &[]).contains("training itself"));
}

#[test]
fn what_is_hidden_costs_nothing_but_a_full_data_device_is_told() {
    let mut measured = good();
    measured.stages.transfer_ms = spread(4.0);
    assert!(codes(&measured).is_empty());
    measured.stages.features_ms = spread(9.0);
    assert_eq!(codes(&measured), ["data-device-saturated"]);
    (measured.setup.data_on_gpu, measured.setup.on_gpu, measured.kernels) = (false, false, None);
    assert!(codes(&measured).is_empty(), "on a CPU the roles take turns");
}

#[test]
fn gpus_are_told_from_their_kernels_clocks_and_memory() {
    let mut measured = good();
    measured.setup.graphs = false;
    measured.kernels = Some(KernelUse { busy: 0.3, per_step: 3700.0, mean_us: 2.0 });
    assert_eq!(codes(&measured), ["launch-bound"]);
    measured.setup.graphs = true;
    assert_eq!(codes(&measured), ["tiny-batches"]);
    let mut measured = good();
    measured.devices = vec![DeviceUse {
        throttle: vec!["heat", "power cap"],
        peak_mib: Some(990.0),
        cap_mib: Some(1000.0),
        ..DeviceUse::default()
    }];
    assert_eq!(codes(&measured), ["throttled", "memory-tight"]);
    measured.devices[0] = DeviceUse { throttle: vec!["power cap"], ..DeviceUse::default() };
    assert!(codes(&measured).is_empty(), "a card at its power cap does what it can");
}

#[test]
fn a_card_that_others_use_is_the_bottleneck_and_training_is_not() {
    let mut measured = good();
    let others = OtherProcesses { processes: 1, mib: 900, busy_before: 0.9 };
    measured.devices = vec![DeviceUse { roles: "data and model".into(), others: Some(others), ..DeviceUse::default() }];
    assert_eq!(codes(&measured), ["gpu-shared"]);
    let said = bottleneck(&measured, &verdict(&measured));
    assert_eq!(said, "bottleneck: gpu-shared (47 % of the time)");
    measured.devices[0].others = Some(OtherProcesses::default());
    assert!(codes(&measured).is_empty(), "nobody else is there");
}

#[test]
fn a_starving_gpu_is_the_fault_of_the_longest_stage() {
    let mut measured = good();
    (measured.readiness, measured.step_ms, measured.kernels) = (0.4, spread(25.0), None);
    measured.stages.to_device_ms = spread(24.0);
    assert_eq!(codes(&measured), ["slow-copy"]);
    measured.stages.to_device_ms = Spread::default();
    measured.stages.features_ms = spread(24.0);
    measured.setup.data_on_gpu = false;
    assert_eq!(codes(&measured)[0], "cpu-features");
}

#[test]
fn a_gpu_without_a_ring_waits_unseen() {
    let mut measured = good();
    (measured.setup.slots, measured.step_ms) = (0, spread(16.0));
    measured.stages.features_ms = spread(6.0);
    assert_eq!(codes(&measured), ["no-prefetch"]);
}

#[test]
fn an_error_for_want_of_memory_is_a_finding() {
    let explained = |caps| {
        let full = torchx::Error::from(TchError::Torch("CUDA out of memory. Tried to allocate 1.50 GiB".into()));
        let roles = Roles { data: Device::Cpu, model: Device::Cpu };
        MemoryMonitor::new(roles, caps).explain(full.into(), &Config::default())
    };
    let caps = Caps { data_mib: Some(1024), model_mib: Some(4096), shared: false, proposed: false };
    let finding = of_error(&explained(caps)).unwrap();
    assert_eq!(finding.code, "cap-too-small");
    assert!(finding.fact.starts_with("the model role has no room left: cap 4096 MiB"), "{}", finding.fact);
    assert!(finding.advice.unwrap().ends_with("--model-gpu-memory 8448"));
    assert_eq!(of_error(&explained(Caps::default())).unwrap().code, "out-of-memory");
    assert!(of_error(&anyhow::anyhow!("disk full")).is_none());
}
