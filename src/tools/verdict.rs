//! From what was measured to what is wrong: a pure function, so that a table of planted problems can hold it to account.
//!
//! A stage is blamed for the time that the model device stood idle, not for being slow: what is hidden behind training
//! costs nothing. Shares are of the time of a step, from the end of one to the end of the next.

use super::measure::{LoaderTimes, Measured};
use host::telemetry::Spread;
use host::tools::report::{Finding, by_cost, counted};

/// Above or below these, a share is worth a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The feed waits for the loader.
    pub load: f64,
    pub transfer: f64,
    pub data_busy: f64,
    /// Of training itself.
    pub training: f64,
    pub model_busy: f64,
    pub cv: f64,
    /// The model device stands idle for want of a batch; on a CPU all stages share the cores, so more is normal.
    pub starved: f64,
    pub starved_on_cpu: f64,
    /// It stands idle because nobody asked for the next batch.
    pub gap: f64,
    /// A thread is ready and waits for a core while other programs have them.
    pub queued: f64,
    pub others: f64,
    pub stolen: f64,
    pub padding: f64,
    pub refused: f64,
    pub memory: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            load: 0.20,
            transfer: 0.15,
            data_busy: 0.80,
            training: 0.50,
            model_busy: 0.70,
            cv: 0.30,
            starved: 0.05,
            starved_on_cpu: 0.15,
            gap: 0.10,
            queued: 0.15,
            others: 0.25,
            stolen: 0.10,
            padding: 0.25,
            refused: 0.05,
            memory: 0.95,
        }
    }
}

/// Steps of more than one and a half times the median that make a habit of it.
const LONG_STEPS: usize = 3;
/// Fewer steps say nothing about steadiness.
const STEPS_TO_JUDGE: u64 = 8;
/// Workers below this share of their time at work have time left.
const WORKERS_BUSY: f64 = 0.7;
/// Part of a worker's time that is reason enough.
const MOST: f64 = 0.5;
/// A lock costs every worker but the one that holds it, so two workers lose half at most.
const LOCKED: f64 = 0.3;
/// Seconds of a core for one text, and for one second of sound, that are out of proportion.
const SLOW_TEXT_S: f64 = 20e-3;
const SLOW_SOUND_S: f64 = 0.05;
/// Seconds of waiting for one recording.
const SLOW_READ_S: f64 = 10e-3;
/// What happens once is held against the first hour of a run.
const HOUR_S: f64 = 3600.0;

/// Everything that is wrong, the costliest first; nothing where nothing is.
pub fn verdict(measured: &Measured, thresholds: &Thresholds) -> Vec<Finding> {
    let view = View { m: measured, t: thresholds };
    let mut found = view.starving();
    found.extend(view.gaps());
    found.extend(view.launches());
    found.extend(view.jitter());
    found.extend(view.contention());
    found.extend(view.padding());
    found.extend(view.corpus());
    found.extend(view.building());
    found.extend(view.devices());
    found.extend(view.training(&found));
    found.sort_by(by_cost);
    found
}

/// An error that ended the run, if it is one that a setting decides on.
pub fn of_error(error: &anyhow::Error, caps: bool) -> Option<Finding> {
    let text = error.chain().map(ToString::to_string).find(|text| text.contains("no room left"))?;
    let (fact, hint) = text.split_once("\nhint: ").unwrap_or((&text, "a smaller --batch-size"));
    let code = if caps { "cap-too-small" } else { "out-of-memory" };
    Some(Finding::problem(code, 1.0, fact, hint))
}

/// What limits the speed of this run, in one sentence.
pub fn bottleneck(measured: &Measured, findings: &[Finding]) -> String {
    let of_time =
        |code: &str| !matches!(code, "damaged-clips" | "clips-left-out" | "nothing-held-out" | "memory-tight");
    match findings.iter().find(|finding| of_time(finding.code) && finding.cost > 0.0) {
        Some(first) => format!("bottleneck: {} ({:.0} % of the time)", first.code, first.cost * 100.0),
        None => format!(
            "bottleneck: training itself, as it should be; a step takes {:.2} of the time it takes without data to wait for",
            measured.step_ms.mean / measured.headspace_ms.max(1e-9)
        ),
    }
}

struct View<'a> {
    m: &'a Measured,
    t: &'a Thresholds,
}

/// A stage of the way to the model device, with its share of a step.
struct Part {
    share: f64,
    limit: f64,
    finding: fn(&View, f64) -> Finding,
}

impl View<'_> {
    /// Of a time that every batch takes.
    fn share(&self, each: Spread) -> f64 {
        mean(each) * self.m.setup.accumulate as f64 / self.m.step_ms.mean.max(1e-9)
    }

    /// Less what is lost because others have the cores: that is a finding of its own.
    fn starved(&self) -> f64 {
        let taken = self.m.host.filter(|host| host.others > self.t.others).and(self.m.feed_queued_share);
        self.idle() * (1.0 - taken.unwrap_or(0.0))
    }

    /// For want of a batch. A GPU without a ring is given batch and step in one go and waits for the one by itself, which
    /// the host does not see; what a step takes beyond its own time tells.
    fn idle(&self) -> f64 {
        let Measured { setup, step_ms, headspace_ms, readiness, .. } = self.m;
        let unseen = match setup.on_gpu && setup.slots == 0 {
            true => 1.0 - headspace_ms / step_ms.mean.max(1e-9),
            false => 0.0,
        };
        unseen.max(1.0 - readiness)
    }

    fn is_starving(&self) -> bool {
        self.starved() > if self.m.setup.on_gpu { self.t.starved } else { self.t.starved_on_cpu }
    }

    fn gap_share(&self) -> f64 {
        mean(self.m.stages.gap_ms) / self.m.step_ms.mean.max(1e-9)
    }

    /// Of one step, without waiting.
    fn compute_share(&self) -> f64 {
        mean(self.m.stages.compute_ms) / self.m.step_ms.mean.max(1e-9)
    }

    fn parts(&self) -> [Part; 4] {
        let stages = &self.m.stages;
        [
            Part { share: self.share(stages.load_wait_ms), limit: self.t.load, finding: |view, cost| view.load(cost) },
            Part {
                share: self.share(stages.to_device_ms),
                limit: self.t.transfer,
                finding: |view, cost| view.copy(cost),
            },
            Part {
                share: self.share(stages.features_ms),
                limit: self.t.data_busy,
                finding: |view, cost| view.features(cost),
            },
            Part {
                share: self.share(stages.transfer_ms),
                limit: self.t.transfer,
                finding: |view, cost| view.transfer(cost),
            },
        ]
    }

    /// The model device waits for batches: which stage makes it wait?
    fn starving(&self) -> Vec<Finding> {
        let parts = self.parts();
        let sum: f64 = parts.iter().map(|part| part.share).sum();
        let most = parts.iter().map(|part| part.share).fold(0.0, f64::max);
        if !self.is_starving() || sum == 0.0 {
            return self.saturated();
        }
        if self.m.setup.slots == 0 {
            return self.no_ring(&parts, sum, most);
        }
        let starved = self.starved();
        let blamed = parts.iter().filter(|part| part.share == most || part.share > part.limit);
        blamed.map(|part| (part.finding)(self, starved * part.share / sum)).collect()
    }

    /// Without a ring all stages stand in the way of the step; with one, the longest at most.
    fn no_ring(&self, parts: &[Part], sum: f64, most: f64) -> Vec<Finding> {
        let compute = self.compute_share();
        let hidden = sum.min(compute);
        let fact = format!(
            "every batch is made while the model device stands idle for it: {} of a step; ahead of the step, {} would be hidden",
            percent(self.starved()),
            percent(hidden)
        );
        let mut found = vec![Finding::problem("no-prefetch", hidden, fact, "set `prefetch_to_gpu: true`")];
        if sum > compute {
            let worst = parts.iter().find(|part| part.share == most);
            found.extend(worst.map(|part| (part.finding)(self, (sum - compute).min(self.starved() - hidden).max(0.0))));
        }
        found
    }

    /// Nobody waits yet, but the data device has no reserve. On a CPU the roles share cores and take turns anyway.
    fn saturated(&self) -> Vec<Finding> {
        let busy = self.share(self.m.stages.to_device_ms) + self.share(self.m.stages.features_ms);
        let near = self.m.setup.data_on_gpu && busy > self.t.data_busy;
        near.then(|| self.features(0.0)).into_iter().collect()
    }

    fn load(&self, cost: f64) -> Finding {
        let Measured { loader, setup, .. } = self.m;
        let LoaderTimes { batch_ms, ran_ms, queued_ms, locked_ms, disk_ms, busy, utterances } = *loader;
        let batch = mean(batch_ms).max(1e-9);
        let part = |spread: Spread| mean(spread) / batch;
        let waits = format!(
            "the feed waits for batches {} of the time; one takes a worker {}",
            percent(self.share(self.m.stages.load_wait_ms)),
            ms(batch_ms)
        );
        if setup.workers == 0 {
            let fact = format!("{waits}, and no worker makes them ahead");
            return Finding::problem("no-workers", cost, fact, "set `use_native_loading: true`");
        }
        if part(locked_ms) > LOCKED {
            let fact = format!("{waits}, of which {} at a lock that another worker holds", percent(part(locked_ms)));
            let advice =
                "more workers will not help; take fewer, and report this: batches should not need the lock for long";
            return Finding::problem("lock-bound", cost, fact, advice);
        }
        if busy < WORKERS_BUSY {
            let fact = format!(
                "{waits} (± {}), and the workers are at work {} of the time: batches come unevenly and too few lie ready",
                percent(batch_ms.cv()),
                percent(busy)
            );
            let (depth, slots) = ((setup.depth * 4).max(8), setup.slots.max(3));
            let advice = format!("--prefetch-buffer-size {depth} (now {}) --buffer-size {slots}", setup.depth);
            return Finding::problem("shallow-prefetch", cost, fact, advice);
        }
        if ran_ms.known().is_none() {
            let fact = format!("{waits}; where that goes could not be measured here");
            return Finding::problem("slow-load", cost, fact, "try more --num-workers, then `myxtts analyze`");
        }
        if part(disk_ms) > MOST {
            let clip = mean(disk_ms) / utterances.max(1.0);
            let fact = format!("{waits}, of which {} waiting for bytes: {clip:.1} ms a clip", percent(part(disk_ms)));
            let advice = "put the cache (`cache_dir`) on a local disk, or give the machine memory enough to hold it";
            return Finding::problem("slow-disk", cost, fact, advice);
        }
        // On cores of their own; what they wait for now is another matter.
        let each_ms = self.m.own_step.ms.mean / setup.accumulate as f64;
        let needed = (mean(ran_ms) / each_ms.max(1e-9) / WORKERS_BUSY).ceil() as usize;
        let cores = self.m.host.map_or(0, |host| host.cores);
        if needed <= setup.workers && part(queued_ms) > MOST {
            let fact = format!("{waits}, of which {} waiting for a core", percent(part(queued_ms)));
            return Finding::problem("cpu-contended", cost, fact, self.contention_advice());
        }
        if needed > setup.workers && needed <= cores {
            let fact = format!("{waits}; {} cannot keep up, {needed} would", counted(setup.workers, "worker"));
            let advice = format!("--num-workers {needed} (now {})", setup.workers);
            return Finding::problem("few-workers", cost, fact, advice);
        }
        let fact = format!(
            "{waits}, of which {:.1} ms is a core's work: {needed} cores would be needed and {cores} are there",
            mean(ran_ms)
        );
        let advice = "make clips cheaper to read: recordings as WAV at the training rate, or `cache_content: mel`";
        Finding::problem("slow-decode", cost, fact, advice)
    }

    fn copy(&self, cost: f64) -> Finding {
        let copy = self.m.stages.to_device_ms;
        let fact = format!(
            "the copy to {} takes {}, {} of a step",
            self.m.setup.data_device,
            ms(copy),
            percent(self.share(copy))
        );
        Finding::problem("slow-copy", cost, fact, "`myxtts diagnose` compares the PCIe link with what the card can do")
    }

    fn features(&self, cost: f64) -> Finding {
        let (setup, features) = (&self.m.setup, self.m.stages.features_ms);
        let fact = format!(
            "features on {} take {}, {} of a step",
            setup.data_device,
            ms(features),
            percent(self.share(features))
        );
        if setup.on_gpu && !setup.data_on_gpu {
            let advice = "`data_device: auto` makes them on the GPU";
            return Finding::problem("cpu-features", cost, fact, advice);
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

    fn transfer(&self, cost: f64) -> Finding {
        let (setup, transfer) = (&self.m.setup, self.m.stages.transfer_ms);
        let fact = format!(
            "the way to the model device ({}) takes {}, {} of a step",
            setup.route,
            ms(transfer),
            percent(self.share(transfer))
        );
        let advice = match setup.data_device == setup.model_device {
            true => "nothing should be slow here; `myxtts diagnose` looks for other users of this device",
            false => "let both roles use one GPU, or two that can reach each other (`myxtts devices`)",
        };
        Finding::problem("slow-transfer", cost, fact, advice)
    }

    /// Batches are there, and nobody asks for them.
    fn gaps(&self) -> Option<Finding> {
        let (gap, share) = (self.m.stages.gap_ms, self.gap_share());
        (share > self.t.gap).then(|| {
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
    fn launches(&self) -> Option<Finding> {
        let (setup, idle) = (&self.m.setup, 1.0 - self.m.readiness + self.gap_share());
        let Some(kernels) = &self.m.kernels else { return self.low_utilisation() };
        let lost = 1.0 - kernels.busy - idle;
        if kernels.busy >= self.t.model_busy || lost < 1.0 - self.t.model_busy - self.t.starved {
            return None;
        }
        let fact = format!(
            "a kernel runs {} of the time though batches are there: {:.0} kernels a step of {:.1} µs each",
            percent(kernels.busy),
            kernels.per_step,
            kernels.mean_us
        );
        Some(match setup.graphs {
            false => {
                let advice = "set `enable_graphs: true`: the whole step becomes one launch";
                Finding::problem("launch-bound", lost, fact, advice)
            }
            true => Finding::warning("tiny-batches", lost, fact, "raise --batch-size: larger kernels, fewer gaps"),
        })
    }

    /// Where no kernel was traced, the driver's word is all there is.
    fn low_utilisation(&self) -> Option<Finding> {
        let busy = self.m.devices.iter().find(|device| device.roles.contains("model"))?.busy.known()?;
        (busy.mean < self.t.model_busy && !self.is_starving()).then(|| {
            let fact = format!("the driver sees the model device busy {} of the time", percent(busy.mean));
            Finding::warning("low-utilisation", 1.0 - busy.mean, fact, "raise --batch-size, and see `enable_graphs`")
        })
    }

    fn jitter(&self) -> Option<Finding> {
        let own = self.m.own_step;
        let cost = 1.0 - own.p50_ms / own.ms.mean.max(1e-9);
        let judged = own.ms.count >= STEPS_TO_JUDGE && own.long_steps >= LONG_STEPS;
        (judged && own.ms.cv() > self.t.cv && cost > 0.0).then(|| {
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

    /// Other programs have the cores. On a CPU that trains, the step itself waits; else the makers of batches do.
    fn contention(&self) -> Option<Finding> {
        let host = self.m.host?;
        let cost = match self.m.setup.on_gpu {
            false => self.m.queued_share?,
            true => (1.0 - self.m.readiness) * self.m.feed_queued_share?,
        };
        if cost <= self.t.queued {
            return None;
        }
        if host.throttled.is_some_and(|share| share > self.t.stolen) {
            let fact = format!(
                "a quota held this run's threads back for {} of the time",
                percent(host.throttled.unwrap_or(0.0))
            );
            return Some(Finding::problem("cpu-quota", cost, fact, "raise the CPU quota of this container"));
        }
        if host.stolen > self.t.stolen {
            let fact = format!("the host of this virtual machine took {} of its core time away", percent(host.stolen));
            return Some(Finding::problem("cpu-stolen", cost, fact, "ask for cores that are not shared"));
        }
        (host.others > self.t.others).then(|| {
            let fact = format!(
                "other programs use {} of the cores, and threads of this run waited for one {} of the time",
                percent(host.others),
                percent(cost)
            );
            Finding::problem("cpu-contended", cost, fact, self.contention_advice())
        })
    }

    fn contention_advice(&self) -> &'static str {
        "stop or move the other programs (`top` shows them), or give this run cores of its own (`taskset`)"
    }

    fn padding(&self) -> Option<Finding> {
        let share = self.m.padding_share;
        (share > self.t.padding).then(|| {
            let cost = share * self.compute_share();
            let fact = format!("{} of the frames that are computed hold no speech", percent(share));
            let advice = match self.m.setup.padded {
                true => "leave out `pad_to_fixed_length` (--disable-static-shapes packs clips end to end)",
                false => "a batch is too large for this corpus: lower --batch-size, or refuse the few longest clips with --max-mel-frames",
            };
            Finding::problem("padding-waste", cost, fact, advice)
        })
    }

    fn corpus(&self) -> Vec<Finding> {
        let corpus = &self.m.corpus;
        let damaged = corpus.damaged + self.m.failures.len();
        let share =
            |count: usize| count as f64 / (corpus.clips + corpus.held_out + corpus.refused + damaged).max(1) as f64;
        let mut found = Vec::new();
        if damaged > 0 {
            let fact =
                format!("{} cannot be used, {} of the corpus", counted(damaged, "clip"), percent(share(damaged)));
            found.push(Finding::warning(
                "damaged-clips",
                share(damaged),
                fact,
                "`myxtts check DIR` lists them with reasons",
            ));
        }
        if share(corpus.refused) > self.t.refused {
            let fact = format!(
                "the limits leave out {}, {} of the corpus",
                counted(corpus.refused, "clip"),
                percent(share(corpus.refused))
            );
            let advice = "raise --max-mel-frames and --max-text-length, or cut clips with --long-clips split";
            found.push(Finding::warning("clips-left-out", share(corpus.refused), fact, advice));
        }
        if corpus.held_out == 0 {
            let advice =
                "hold some clips out (`val_split: 0.05`, or --val-data), or nobody sees when training overfits";
            found.push(Finding::warning("nothing-held-out", 0.0, "no clip is held out for validation", advice));
        }
        found
    }

    /// What had to be made before the first step.
    fn building(&self) -> Option<Finding> {
        let building = self.m.building;
        let (clips, seconds) = (building.built + building.encoded, building.seconds);
        if clips == 0 {
            return None;
        }
        let cost = (seconds.wall / HOUR_S).min(1.0);
        let all = (seconds.read + seconds.sound + seconds.text).max(1e-9);
        let each = |sum: f64| sum / clips as f64;
        let fact = |what: &str, each: f64| {
            format!(
                "building the cache took {:.1} s before the first step, mostly {what}: {:.1} ms a clip",
                seconds.wall,
                each * 1e3
            )
        };
        let known = self.m.corpus.clips + self.m.corpus.held_out + self.m.corpus.refused;
        let audio_s = building.audio_seconds * building.built as f64 / known.max(building.built).max(1) as f64;
        if seconds.text > MOST * all && each(seconds.text) > SLOW_TEXT_S {
            let advice = "the next run has these texts in the cache; `tokenizer: characters` needs no phonemes";
            return Some(Finding::warning("slow-text", cost, fact("for text", each(seconds.text)), advice));
        }
        if seconds.read > MOST * all && each(seconds.read) > SLOW_READ_S {
            let advice = "the next run has these clips in the cache; copy the corpus to a local disk before a rebuild";
            return Some(Finding::warning("slow-disk", cost, fact("for reading", each(seconds.read)), advice));
        }
        if seconds.sound > MOST * all && seconds.sound > SLOW_SOUND_S * audio_s {
            let advice = "the next run has these clips in the cache; WAV at the training rate is the cheapest to read";
            return Some(Finding::warning("slow-decode", cost, fact("for decoding", each(seconds.sound)), advice));
        }
        let fact = format!(
            "{} had to be made for the cache: {:.1} s before the first step",
            counted(clips, "clip"),
            seconds.wall
        );
        let advice =
            "the next run finds them (unless `enable_caching: false`); `myxtts prepare DIR` makes them beforehand";
        Some(Finding::warning("cold-cache", cost, fact, advice))
    }

    fn devices(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for device in &self.m.devices {
            let hot: Vec<&str> = device.throttle.iter().copied().filter(|reason| *reason != "power cap").collect();
            if !hot.is_empty() {
                let fact = format!("{} held its clocks down during the run: {}", device.name, hot.join(", "));
                found.push(Finding::problem("throttled", 0.0, fact, "see to its cooling and its power supply"));
            }
            let full = device.peak_mib.zip(device.cap_mib).map(|(peak, cap)| (peak, cap, "of its cap of"));
            let used = device.memory_used_mib.known().map(|used| used.max);
            let full = full.or(used.zip(device.memory_total_mib).map(|(used, total)| (used, total, "of")));
            if let Some((used, limit, of)) = full.filter(|(used, limit, _)| *used > self.t.memory * limit) {
                let fact = format!("{} had {used:.0} {of} {limit:.0} MiB in use", device.name);
                let advice = "leave some room: a smaller --batch-size, or a larger cap";
                found.push(Finding::warning("memory-tight", 0.0, fact, advice));
            }
        }
        found
    }

    /// Most of the time is lost, and nothing above says to what.
    fn training(&self, found: &[Finding]) -> Option<Finding> {
        let compute = self.compute_share();
        let told: f64 = found.iter().map(|finding| finding.cost).sum();
        (compute < self.t.training && told < (1.0 - compute) / 2.0).then(|| {
            let fact = format!("training takes {} of the time, and no stage explains the rest", percent(compute));
            Finding::warning("unexplained-idle", 1.0 - compute - told, fact, "look at a trace: --trace out.json")
        })
    }
}

fn mean(spread: Spread) -> f64 {
    spread.known().map_or(0.0, |spread| spread.mean)
}

fn ms(spread: Spread) -> String {
    format!("{:.1} ms", mean(spread))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Corpus, DeviceUse, Kernels, Setup};
    use super::*;
    use host::telemetry::cpu::HostLoad;

    fn spread(ms: f64) -> Spread {
        [ms, ms].into_iter().collect()
    }

    /// A GPU that never waits.
    fn good() -> Measured {
        let mut measured = Measured {
            setup: Setup {
                workers: 4,
                depth: 8,
                slots: 3,
                accumulate: 1,
                on_gpu: true,
                data_on_gpu: true,
                graphs: true,
                ..Setup::default()
            },
            corpus: Corpus { clips: 1000, held_out: 50, ..Corpus::default() },
            step_ms: spread(10.0),
            headspace_ms: 9.9,
            readiness: 0.999,
            kernels: Some(Kernels { busy: 0.95, per_step: 1500.0, mean_us: 6.0 }),
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
            ..Measured::default()
        };
        measured.stages.compute_ms = spread(9.9);
        measured.stages.features_ms = spread(1.0);
        measured.stages.transfer_ms = spread(0.1);
        measured
    }

    fn codes(measured: &Measured) -> Vec<&'static str> {
        verdict(measured, &Thresholds::default()).iter().map(|finding| finding.code).collect()
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
        measured.kernels = Some(Kernels { busy: 0.3, per_step: 3700.0, mean_us: 2.0 });
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
        let text = "the model role has no room left: cap 512 MiB, 480 MiB in use\nhint: --model-gpu-memory 1024";
        let finding = of_error(&anyhow::anyhow!("x").context(text), true).unwrap();
        assert_eq!((finding.code, finding.advice.as_deref()), ("cap-too-small", Some("--model-gpu-memory 1024")));
        assert_eq!(of_error(&anyhow::anyhow!(text), false).unwrap().code, "out-of-memory");
        assert!(of_error(&anyhow::anyhow!("disk full"), true).is_none());
    }
}
