//! What the GPUs do, as the driver (NVML) tells: a thread of its own asks five times a second.
//!
//! A GPU is named by its PCI address, which CUDA and NVML agree on; their numbers differ under `CUDA_VISIBLE_DEVICES`
//! and `CUDA_DEVICE_ORDER`. `torchx::cuda::facts` gives the address of a CUDA device.

use super::gpu_processes::{OtherProcesses, ProcessWatch};
use super::spread::Spread;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(200);

/// What one GPU did since the last reading. A figure that the driver does not tell has count 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    /// Share of time with a kernel running, 0 to 1. One small kernel at a time counts as 1.
    pub busy: Spread,
    /// Share of time that the memory was read or written.
    pub memory_busy: Spread,
    /// By all processes.
    pub memory_used_mib: Spread,
    /// From the host to the card.
    pub pcie_rx_mb_per_second: Spread,
    pub pcie_tx_mb_per_second: Spread,
    pub sm_mhz: Spread,
    pub power_watts: Spread,
    pub temperature_celsius: Spread,
    /// Why clocks were held down at any time, in words.
    pub throttle: Vec<&'static str>,
    /// Who else is on it; absent where the driver does not tell.
    pub others: Option<OtherProcesses>,
}

#[derive(Clone, Debug, Default)]
struct Sample {
    busy: Option<f64>,
    memory_busy: Option<f64>,
    memory_used_mib: Option<f64>,
    pcie_rx_mb_per_second: Option<f64>,
    pcie_tx_mb_per_second: Option<f64>,
    sm_mhz: Option<f64>,
    power_watts: Option<f64>,
    temperature_celsius: Option<f64>,
    throttle: Vec<&'static str>,
    others: Option<OtherProcesses>,
}

impl GpuReading {
    fn add(&mut self, sample: Sample) {
        let figures = [
            (&mut self.busy, sample.busy),
            (&mut self.memory_busy, sample.memory_busy),
            (&mut self.memory_used_mib, sample.memory_used_mib),
            (&mut self.pcie_rx_mb_per_second, sample.pcie_rx_mb_per_second),
            (&mut self.pcie_tx_mb_per_second, sample.pcie_tx_mb_per_second),
            (&mut self.sm_mhz, sample.sm_mhz),
            (&mut self.power_watts, sample.power_watts),
            (&mut self.temperature_celsius, sample.temperature_celsius),
        ];
        for (spread, figure) in figures {
            figure.into_iter().for_each(|figure| spread.add(figure));
        }
        self.others = sample.others.or(self.others);
        let fresh: Vec<_> = sample.throttle.into_iter().filter(|reason| !self.throttle.contains(reason)).collect();
        self.throttle.extend(fresh);
    }
}

/// Asks until it is dropped.
pub struct Sampler {
    readings: Arc<Mutex<Vec<GpuReading>>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Sampler {
    /// The error says why there is nothing to ask: a run goes on without these figures.
    pub fn start(pci_addresses: &[String]) -> Result<Sampler, String> {
        let nvml = Nvml::init().map_err(|e| no_gpu(&e))?;
        for address in pci_addresses {
            nvml.device_by_pci_bus_id(address.as_str()).map_err(|e| format!("GPU {address}: {e}"))?;
        }
        let mut gpus: Vec<(String, ProcessWatch)> =
            pci_addresses.iter().map(|at| (at.clone(), ProcessWatch::default())).collect();
        let ask = move || gpus.iter_mut().map(|(at, processes)| sample(&nvml, at, processes)).collect();
        Ok(Self::spawn(pci_addresses.len(), PERIOD, ask))
    }

    fn spawn(gpus: usize, period: Duration, mut ask: impl FnMut() -> Vec<Sample> + Send + 'static) -> Sampler {
        let readings = Arc::new(Mutex::new(vec![GpuReading::default(); gpus]));
        let shared = readings.clone();
        let (stop, stopped) = channel();
        let work = move || {
            // Asked for outside the lock: the driver measures PCIe traffic for 20 ms per call.
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let samples = ask();
                let mut readings = shared.lock().expect("no holder of this lock panics");
                readings.iter_mut().zip(samples).for_each(|(reading, sample)| reading.add(sample));
            }
        };
        Sampler { readings, thread: Some((stop, std::thread::spawn(work))) }
    }

    /// Since the last call, one for each address, in order.
    pub fn read(&self) -> Vec<GpuReading> {
        let mut readings = self.readings.lock().expect("no holder of this lock panics");
        readings.iter_mut().map(std::mem::take).collect()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

fn sample(nvml: &Nvml, address: &str, processes: &mut ProcessWatch) -> Sample {
    let Ok(device) = nvml.device_by_pci_bus_id(address) else { return Sample::default() };
    let busy = device.utilization_rates().ok();
    let pcie = |counter| device.pcie_throughput(counter).ok().map(|kb| f64::from(kb) / 1e3);
    Sample {
        busy: busy.as_ref().map(|busy| f64::from(busy.gpu) / 100.0),
        memory_busy: busy.as_ref().map(|busy| f64::from(busy.memory) / 100.0),
        memory_used_mib: device.memory_info().ok().map(|memory| memory.used as f64 / f64::from(1 << 20)),
        pcie_rx_mb_per_second: pcie(PcieUtilCounter::Receive),
        pcie_tx_mb_per_second: pcie(PcieUtilCounter::Send),
        sm_mhz: device.clock_info(Clock::SM).ok().map(f64::from),
        power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        throttle: device.current_throttle_reasons().map_or(Vec::new(), throttle_words),
        others: processes.others(&device),
    }
}

/// An idle card and clocks that the user chose are no throttling.
fn throttle_words(reasons: ThrottleReasons) -> Vec<&'static str> {
    let words = [
        (ThrottleReasons::SW_POWER_CAP, "power cap"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat, in hardware"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::SYNC_BOOST, "another GPU of its boost group"),
    ];
    words.into_iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, word)| word).collect()
}

/// Why NVML cannot be asked.
pub(crate) fn no_gpu(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            "no NVIDIA driver on this machine (libnvidia-ml.so.1 is not there)".to_owned()
        }
        NvmlError::DriverNotLoaded => "the NVIDIA driver is installed, but not loaded".to_owned(),
        other => format!("the NVIDIA driver does not answer: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_driver_is_a_reason_and_not_a_failure() {
        assert!(no_gpu(&NvmlError::LibraryNotFound).starts_with("no NVIDIA driver"));
        assert!(no_gpu(&NvmlError::DriverNotLoaded).contains("not loaded"));
        assert!(no_gpu(&NvmlError::NoPermission).contains("does not answer"));
        if let Err(reason) = Sampler::start(&["ffff:ff:1f.0".to_owned()]) {
            assert!(!reason.is_empty());
        }
    }

    #[test]
    fn a_reading_gathers_samples_and_skips_what_is_unknown() {
        let mut reading = GpuReading::default();
        for (busy, throttle) in [(0.9, vec![]), (1.0, vec!["heat"]), (0.8, vec!["heat", "power cap"])] {
            reading.add(Sample { busy: Some(busy), throttle, ..Sample::default() });
        }
        assert!((reading.busy.mean - 0.9).abs() < 1e-12 && reading.busy.min == 0.8 && reading.busy.max == 1.0);
        assert_eq!(reading.power_watts.known(), None);
        assert_eq!(reading.throttle, ["heat", "power cap"]);
    }

    #[test]
    fn the_thread_samples_every_gpu_and_reading_starts_anew() {
        let (asked, answers) = channel();
        let mut call = 0.0;
        let sampler = Sampler::spawn(2, Duration::from_millis(1), move || {
            call += 1.0;
            let _ = asked.send(());
            vec![Sample { power_watts: Some(call), ..Sample::default() }, Sample::default()]
        });
        (0..4).for_each(|_| answers.recv().unwrap()); // so three samples at least are in
        let first = sampler.read();
        assert!(first.len() == 2 && first[0].power_watts.count >= 3 && first[0].power_watts.min == 1.0);
        assert_eq!(first[1], GpuReading::default());
        (0..2).for_each(|_| answers.recv().unwrap());
        let second = sampler.read();
        assert!(second[0].power_watts.known().is_none_or(|watts| watts.min > first[0].power_watts.max));
        drop(sampler);
        while answers.recv().is_ok() {} // ends only if the thread has
    }

    #[test]
    fn idle_is_no_throttling() {
        assert!(throttle_words(ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING).is_empty());
        assert_eq!(throttle_words(ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP), ["power cap"]);
    }
}
