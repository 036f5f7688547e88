//! The feed waits for the loader: what keeps its workers?

use super::super::measure::RunMeasurement;
use super::cores;
use super::shares::{mean, ms, percent};
use host::telemetry::Spread;
use host::tools::report::{Finding, counted};

/// Workers below this share of their time at work have time left.
const WORKERS_BUSY: f64 = 0.7;
/// Part of a worker's time that is reason enough.
pub const MOST: f64 = 0.5;
/// A lock costs every worker but the one that holds it, so two workers lose half at most.
const LOCKED: f64 = 0.3;

/// The first reason that applies; at the end nothing is left but the work itself.
pub fn late(measured: &RunMeasurement, cost: f64) -> Finding {
    let load = Load::of(measured, cost);
    let reasons = [
        Load::no_workers,
        Load::lock_bound,
        Load::shallow_prefetch,
        Load::unknown,
        Load::slow_disk,
        Load::contended,
        Load::few_workers,
    ];
    reasons.iter().find_map(|reason| reason(&load)).unwrap_or_else(|| load.slow_decode())
}

struct Load<'a> {
    measured: &'a RunMeasurement,
    cost: f64,
    /// How long the feed waits, and a worker takes: what every finding begins with.
    waits: String,
    /// Workers that would keep up on cores of their own; what they wait for now is another matter.
    needed: usize,
    cores: usize,
}

impl<'a> Load<'a> {
    fn of(measured: &'a RunMeasurement, cost: f64) -> Self {
        let waits = format!(
            "the feed waits for batches {} of the time; one takes a worker {}",
            percent(measured.share(measured.stages.load_wait_ms)),
            ms(measured.loader.batch_ms)
        );
        let each_ms = measured.own_step.ms.mean / measured.setup.accumulate as f64;
        let needed = (mean(measured.loader.ran_ms) / each_ms.max(1e-9) / WORKERS_BUSY).ceil() as usize;
        let cores = measured.host.map_or(0, |host| host.cores);
        Load { measured, cost, waits, needed, cores }
    }

    /// Part of a worker's time for a batch.
    fn part(&self, spread: Spread) -> f64 {
        mean(spread) / mean(self.measured.loader.batch_ms).max(1e-9)
    }

    fn problem(&self, code: &'static str, more: &str, advice: impl Into<String>) -> Finding {
        Finding::problem(code, self.cost, format!("{}{more}", self.waits), advice)
    }

    fn no_workers(&self) -> Option<Finding> {
        let none = self.measured.setup.workers == 0;
        none.then(|| self.problem("no-workers", ", and no worker makes them ahead", "set `use_native_loading: true`"))
    }

    fn lock_bound(&self) -> Option<Finding> {
        let locked = self.part(self.measured.loader.locked_ms);
        (locked > LOCKED).then(|| {
            let advice =
                "more workers will not help; take fewer, and report this: batches should not need the lock for long";
            let more = format!(", of which {} at a lock that another worker holds", percent(locked));
            self.problem("lock-bound", &more, advice)
        })
    }

    fn shallow_prefetch(&self) -> Option<Finding> {
        let (loader, setup) = (&self.measured.loader, &self.measured.setup);
        (loader.busy < WORKERS_BUSY).then(|| {
            let more = format!(
                " (± {}), and the workers are at work {} of the time: batches come unevenly and too few lie ready",
                percent(loader.batch_ms.cv()),
                percent(loader.busy)
            );
            let (depth, slots) = ((setup.depth * 4).max(8), setup.slots.max(3));
            let advice = format!("--prefetch-buffer-size {depth} (now {}) --buffer-size {slots}", setup.depth);
            self.problem("shallow-prefetch", &more, advice)
        })
    }

    fn unknown(&self) -> Option<Finding> {
        self.measured.loader.ran_ms.known().is_none().then(|| {
            let advice = "try more --num-workers, then `myxtts analyze`";
            self.problem("slow-load", "; where that goes could not be measured here", advice)
        })
    }

    fn slow_disk(&self) -> Option<Finding> {
        let loader = &self.measured.loader;
        let share = self.part(loader.disk_ms);
        (share > MOST).then(|| {
            let clip_ms = mean(loader.disk_ms) / loader.utterances.max(1.0);
            let more = format!(", of which {} waiting for bytes: {clip_ms:.1} ms a clip", percent(share));
            let advice = "put the cache (`cache_dir`) on a local disk, or give the machine memory enough to hold it";
            self.problem("slow-disk", &more, advice)
        })
    }

    fn contended(&self) -> Option<Finding> {
        let queued = self.part(self.measured.loader.queued_ms);
        (self.needed <= self.measured.setup.workers && queued > MOST).then(|| {
            let more = format!(", of which {} waiting for a core", percent(queued));
            self.problem("cpu-contended", &more, cores::ADVICE)
        })
    }

    fn few_workers(&self) -> Option<Finding> {
        let (workers, needed) = (self.measured.setup.workers, self.needed);
        (needed > workers && needed <= self.cores).then(|| {
            let more = format!("; {} cannot keep up, {needed} would", counted(workers, "worker"));
            self.problem("few-workers", &more, format!("--num-workers {needed} (now {workers})"))
        })
    }

    fn slow_decode(&self) -> Finding {
        let more = format!(
            ", of which {:.1} ms is a core's work: {} cores would be needed and {} are there",
            mean(self.measured.loader.ran_ms),
            self.needed,
            self.cores
        );
        let advice = "make clips cheaper to read: recordings as WAV at the training rate, or `cache_content: mel`";
        self.problem("slow-decode", &more, advice)
    }
}
