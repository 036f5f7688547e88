//! What the server has done, as Prometheus reads it (text format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Seconds; from what feels instant to what nobody waits for.
const SECONDS: &[f64] = &[0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4];
const RATIOS: &[f64] = &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

/// Counters, gauges and histograms of one server.
pub struct Metrics {
    /// Answers by route and status.
    answers: Mutex<BTreeMap<(String, u16), u64>>,
    /// Requests that were accepted and not spoken to their end, by reason.
    cut: Mutex<BTreeMap<&'static str, u64>>,
    /// Requests turned away because the queue was full.
    pub rejected: AtomicU64,
    /// Requests begun and not done.
    pub in_flight: AtomicU64,
    audio_seconds: Mutex<f64>,
    pub passes: AtomicU64,
    pub request_seconds: Histogram,
    pub first_audio_seconds: Histogram,
    pub real_time_factor: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            answers: Mutex::default(),
            cut: Mutex::default(),
            rejected: AtomicU64::default(),
            in_flight: AtomicU64::default(),
            audio_seconds: Mutex::default(),
            passes: AtomicU64::default(),
            request_seconds: Histogram::new(SECONDS),
            first_audio_seconds: Histogram::new(SECONDS),
            real_time_factor: Histogram::new(RATIOS),
        }
    }
}

impl Metrics {
    pub fn answered(&self, route: &str, status: u16) {
        *held(&self.answers).entry((route.to_owned(), status)).or_default() += 1;
    }

    pub fn cut(&self, reason: &'static str) {
        *held(&self.cut).entry(reason).or_default() += 1;
    }

    pub fn spoken(&self, seconds: f64) {
        *held(&self.audio_seconds) += seconds;
    }

    /// All figures in Prometheus' text format. `accepted`: requests that hold a place in the queue.
    pub fn text(&self, accepted: usize) -> String {
        let mut page = Page::default();
        page.head("requests_total", "counter", "Answers by route and status code");
        for ((route, status), count) in held(&self.answers).iter() {
            page.line("requests_total", &format!("{{route=\"{route}\",code=\"{status}\"}}"), *count as f64);
        }
        page.head("cut_total", "counter", "Accepted requests that were not spoken to their end, by reason");
        for (reason, count) in held(&self.cut).iter() {
            page.line("cut_total", &format!("{{reason=\"{reason}\"}}"), *count as f64);
        }
        let counts = [
            ("rejected_total", "counter", "Requests turned away with 429, the queue being full", &self.rejected),
            ("in_flight", "gauge", "Requests being spoken", &self.in_flight),
            ("passes_total", "counter", "Forward passes, each of a clause of several requests", &self.passes),
        ];
        for (name, kind, help, value) in counts {
            page.single(name, kind, help, value.load(Ordering::Relaxed) as f64);
        }
        let waiting = (accepted as u64).saturating_sub(self.in_flight.load(Ordering::Relaxed));
        page.single("queue_depth", "gauge", "Requests accepted and not begun", waiting as f64);
        page.single("audio_seconds_total", "counter", "Seconds of speech made", *held(&self.audio_seconds));
        page.histogram("request_seconds", "From acceptance to the last sample", &self.request_seconds);
        page.histogram("first_audio_seconds", "From acceptance to the first sample", &self.first_audio_seconds);
        page.histogram(
            "real_time_factor",
            "Time from the first turn to the last sample ÷ seconds of speech",
            &self.real_time_factor,
        );
        if let Some(bytes) = resident_bytes() {
            page.single("resident_bytes", "gauge", "Memory of the process", bytes as f64);
        }
        page.text
    }
}

/// How many observations fell at or below each bound.
pub struct Histogram {
    bounds: &'static [f64],
    tally: Mutex<Tally>,
}

#[derive(Clone, Default)]
struct Tally {
    /// One a bound, each counting its own bucket alone.
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Histogram { bounds, tally: Mutex::new(Tally { buckets: vec![0; bounds.len()], ..Tally::default() }) }
    }

    pub fn observe(&self, value: f64) {
        let mut tally = held(&self.tally);
        if let Some(at) = self.bounds.iter().position(|&bound| value <= bound) {
            tally.buckets[at] += 1;
        }
        tally.count += 1;
        tally.sum += value;
    }
}

/// Every name begins with `myxtts_`.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP myxtts_{name} {help}\n# TYPE myxtts_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.text, "myxtts_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.line(name, "", value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let (tally, mut below) = (held(&histogram.tally).clone(), 0);
        for (bound, count) in histogram.bounds.iter().zip(&tally.buckets) {
            below += count;
            self.line(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), below as f64);
        }
        self.line(&format!("{name}_bucket"), "{le=\"+Inf\"}", tally.count as f64);
        self.line(&format!("{name}_sum"), "", tally.sum);
        self.line(&format!("{name}_count"), "", tally.count as f64);
    }
}

/// Counters stay usable whatever happened to a thread that held them.
fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truth: the exposition format's own example of a histogram, whose buckets add up.
    #[test]
    fn buckets_add_up_and_end_in_the_count() {
        let metrics = Metrics::default();
        metrics.answered("/v1/audio/speech", 200);
        metrics.answered("/v1/audio/speech", 200);
        [0.02, 0.3, 1e6].into_iter().for_each(|seconds| metrics.request_seconds.observe(seconds));
        let text = metrics.text(0);
        for line in [
            "myxtts_requests_total{route=\"/v1/audio/speech\",code=\"200\"} 2",
            "myxtts_request_seconds_bucket{le=\"0.025\"} 1",
            "myxtts_request_seconds_bucket{le=\"0.2\"} 1",
            "myxtts_request_seconds_bucket{le=\"0.4\"} 2",
            "myxtts_request_seconds_bucket{le=\"102.4\"} 2",
            "myxtts_request_seconds_bucket{le=\"+Inf\"} 3",
            "myxtts_request_seconds_count 3",
            "# TYPE myxtts_request_seconds histogram",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
        }
    }
}
