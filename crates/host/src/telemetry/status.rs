//! A run's figures for people and for programs: one line for a terminal, and names with numbers for logs.

use super::gpu::GpuReading;
use super::spread::Spread;
use super::window::StepSummary;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub step: u64,
    /// Where the run ends.
    pub steps: u64,
    /// Passes over the corpus, the one under way included.
    pub epoch: u64,
    pub loss: f64,
    pub window: StepSummary,
    pub eta: Option<Duration>,
    pub model_gpu: Option<GpuReading>,
    /// `None` where one GPU has both roles.
    pub data_gpu: Option<GpuReading>,
    /// Memory in use, by role.
    pub memory_mib: Vec<(&'static str, f64)>,
}

/// (model's name, data's name, figure) of each figure of a GPU.
type GpuFigure = (&'static str, &'static str, fn(&GpuReading) -> Option<f64>);
const GPU_FIGURES: [GpuFigure; 10] = [
    ("model_gpu_busy", "data_gpu_busy", |gpu| mean(gpu.busy)),
    ("model_gpu_busy_std", "data_gpu_busy_std", |gpu| gpu.busy.known().map(|busy| busy.std())),
    ("model_gpu_memory_busy", "data_gpu_memory_busy", |gpu| mean(gpu.memory_busy)),
    ("model_gpu_memory_used_mib", "data_gpu_memory_used_mib", |gpu| gpu.memory_used_mib.known().map(|mib| mib.max)),
    ("model_gpu_pcie_rx_mb_per_second", "data_gpu_pcie_rx_mb_per_second", |gpu| mean(gpu.pcie_rx_mb_per_second)),
    ("model_gpu_pcie_tx_mb_per_second", "data_gpu_pcie_tx_mb_per_second", |gpu| mean(gpu.pcie_tx_mb_per_second)),
    ("model_gpu_sm_mhz", "data_gpu_sm_mhz", |gpu| mean(gpu.sm_mhz)),
    ("model_gpu_power_watts", "data_gpu_power_watts", |gpu| mean(gpu.power_watts)),
    ("model_gpu_temperature_celsius", "data_gpu_temperature_celsius", |gpu| mean(gpu.temperature_celsius)),
    ("model_gpu_throttled", "data_gpu_throttled", |gpu| Some(f64::from(!gpu.throttle.is_empty()))),
];

fn mean(spread: Spread) -> Option<f64> {
    spread.known().map(|spread| spread.mean)
}

impl Figures {
    /// At most `columns` wide: what matters least is left out first.
    pub fn line(&self, columns: usize) -> String {
        let mut parts = self.parts();
        while width(&parts) > columns && parts.len() > 1 {
            let least = parts.iter().map(|(importance, _)| *importance).min();
            parts.retain(|(importance, _)| Some(*importance) != least);
        }
        join(&parts).chars().take(columns).collect()
    }

    /// All of it, for a file that is read later: a line that stays.
    pub fn whole_line(&self) -> String {
        let mut parts = self.parts();
        parts.insert(1, (0, format!("epoch {}", self.epoch)));
        if !self.memory_mib.is_empty() {
            let roles = self.memory_mib.iter().map(|(role, mib)| format!("{role} {}", thousands(*mib)));
            let at = parts.len() - usize::from(self.eta.is_some());
            parts.insert(at, (0, format!("memory {} MiB", roles.collect::<Vec<_>>().join(", "))));
        }
        join(&parts)
    }

    /// (importance, text), as they stand in the line. No importance twice.
    fn parts(&self) -> Vec<(u8, String)> {
        let window = &self.window;
        let mut parts = vec![
            (10, format!("step {}/{}", self.step, self.steps)),
            (9, format!("loss {:.3}", self.loss)),
            (8, format!("{:.1} ms ±{:.0} %", window.step_ms.mean, window.step_ms.cv() * 100.0)),
            (6, format!("ready {:.1} %", window.readiness * 100.0)),
        ];
        let of = |gpu: &Option<GpuReading>, figure: fn(&GpuReading) -> Spread| gpu.as_ref().map(figure).and_then(mean);
        let busy = |name, share| format!("{name} {:.0} %", share * 100.0);
        parts.extend(of(&self.model_gpu, |gpu| gpu.busy).map(|share| (5, busy("GPU", share))));
        parts.extend(of(&self.model_gpu, |gpu| gpu.power_watts).map(|watts| (2, format!("{watts:.0} W"))));
        parts.extend(of(&self.data_gpu, |gpu| gpu.busy).map(|share| (1, busy("data GPU", share))));
        parts.push((4, format!("{} audio-s/s", thousands(window.audio_seconds_per_second))));
        parts.push((3, format!("pad {:.1} %", window.padding_share * 100.0)));
        parts.extend(self.eta.map(|eta| (7, format!("ETA {}", clock_time(eta)))));
        parts
    }

    /// For TensorBoard and JSON lines: stable names; a figure that is not known is left out.
    pub fn scalars(&self) -> Vec<(&'static str, f64)> {
        let window = &self.window;
        let mut scalars = vec![
            ("loss", self.loss),
            ("step_ms", window.step_ms.mean),
            ("step_ms_std", window.step_ms.std()),
            ("step_ms_min", window.step_ms.min),
            ("step_ms_max", window.step_ms.max),
            ("step_ms_p50", window.p50_ms),
            ("step_ms_p99", window.p99_ms),
            ("step_cv", window.step_ms.cv()),
            ("data_readiness", window.readiness),
            ("utterances_per_second", window.utterances_per_second),
            ("audio_seconds_per_second", window.audio_seconds_per_second),
            ("padding_share", window.padding_share),
        ];
        scalars.extend(self.eta.map(|eta| ("eta_seconds", eta.as_secs_f64())));
        let model = self.model_gpu.iter().flat_map(|gpu| GPU_FIGURES.map(|(name, _, figure)| (name, figure(gpu))));
        let data = self.data_gpu.iter().flat_map(|gpu| GPU_FIGURES.map(|(_, name, figure)| (name, figure(gpu))));
        scalars.extend(model.chain(data).filter_map(|(name, figure)| Some((name, figure?))));
        scalars
    }
}

fn join(parts: &[(u8, String)]) -> String {
    parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" · ")
}

fn width(parts: &[(u8, String)]) -> usize {
    join(parts).chars().count()
}

/// 11600.4 → "11,600"
fn thousands(figure: f64) -> String {
    let digits = format!("{:.0}", figure.max(0.0));
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// "0:38", "12:05", "3:07:00"
pub fn clock_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn figures() -> Figures {
        let gpu = |busy: f64, watts: f64| GpuReading {
            busy: [busy].into_iter().collect(),
            power_watts: [watts].into_iter().collect(),
            ..GpuReading::default()
        };
        Figures {
            step: 1200,
            steps: 6000,
            epoch: 3,
            loss: 0.8421,
            window: StepSummary {
                step_ms: [7.938, 8.262].into_iter().collect(),
                p50_ms: 8.1,
                p99_ms: 8.26,
                readiness: 0.998,
                utterances_per_second: 2100.0,
                audio_seconds_per_second: 11_600.4,
                padding_share: 0.019,
                unsteady: Some(false),
            },
            eta: Some(Duration::from_millis(38_900)),
            model_gpu: Some(gpu(0.97, 612.0)),
            data_gpu: Some(gpu(0.31, 140.0)),
            memory_mib: vec![("data", 120.4), ("model", 2300.0), ("host", 904.0)],
        }
    }

    #[test]
    fn the_whole_line() {
        let one = Figures { data_gpu: None, ..figures() };
        let line = "step 1200/6000 · loss 0.842 · 8.1 ms ±2 % · ready 99.8 % · GPU 97 % · 612 W · 11,600 audio-s/s · \
                    pad 1.9 % · ETA 0:38";
        assert_eq!(one.line(120), line);
        assert!(figures().line(200).contains("GPU 97 % · 612 W · data GPU 31 % · 11,600"));
    }

    #[test]
    fn a_line_that_stays_has_epoch_and_memory() {
        let one = Figures { data_gpu: None, model_gpu: None, ..figures() };
        let line = "step 1200/6000 · epoch 3 · loss 0.842 · 8.1 ms ±2 % · ready 99.8 % · 11,600 audio-s/s · pad 1.9 % · \
                    memory data 120, model 2,300, host 904 MiB · ETA 0:38";
        assert_eq!(one.whole_line(), line);
    }

    #[test]
    fn a_narrow_terminal_gets_what_matters_most() {
        let line = "step 1200/6000 · loss 0.842 · 8.1 ms ±2 % · ready 99.8 % · GPU 97 % · ETA 0:38";
        assert_eq!(figures().line(80), line);
        assert_eq!(figures().line(30), "step 1200/6000 · loss 0.842");
        assert_eq!(figures().line(10), "step 1200/");
        let widths = (0..200).map(|columns| (columns, figures().line(columns).chars().count()));
        assert!(widths.clone().all(|(columns, width)| width <= columns));
        assert!(widths.clone().zip(widths.skip(1)).all(|(a, b)| a.1 <= b.1), "more room never shows less");
    }

    #[test]
    fn names_are_snake_case_and_used_once() {
        let scalars = figures().scalars();
        let names: HashSet<_> = scalars.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), scalars.len());
        assert!(
            names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        );
        assert!(scalars.contains(&("data_gpu_power_watts", 140.0)) && scalars.contains(&("model_gpu_busy", 0.97)));
        assert!(!names.contains("model_gpu_sm_mhz"), "not known, so left out");
        let cpu = Figures { model_gpu: None, data_gpu: None, eta: None, ..figures() };
        assert!(cpu.scalars().iter().all(|(name, _)| !name.contains("gpu")) && !cpu.line(120).contains("GPU"));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0.4, 999.0, 1000.0, 1_234_567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        let times = [0, 59, 60, 3599, 3600, 90_061].map(|seconds| clock_time(Duration::from_secs(seconds)));
        assert_eq!(times, ["0:00", "0:59", "1:00", "59:59", "1:00:00", "25:01:01"]);
    }
}
