//! What a run tells while it runs: figures for files, a line for the terminal, warnings for both.

use super::learning::LastLearned;
use super::memory::MemoryMonitor;
use super::metrics::MetricsWriter;
use super::step::{self, Learner, Step};
use super::step_times::StepTimes;
use super::straggler::RankLog;
use super::warnings::Warnings;
use super::{RunOutcome, note};
use crate::feed::{Feed, FeedReading};
use crate::optimizer::ParameterGroup;
use crate::run::timeline::{TimeAxis, Timeline};
use crate::run::{
    Done, LoaderTimes, MemoryUsage, Observation, Observer, Progress, Pulse, RunContext, StageTimes, Steadiness,
    feed_queued,
};
use anyhow::Result;
use host::config::{Config, LogEvery};
use host::error::hinted;
use host::machine::{mib, thread_time};
use host::run_log::{Event, EventKind, EventLog};
use host::telemetry::console;
use host::telemetry::cpu::{HostClock, HostLoad};
use host::telemetry::gpu::{GpuReading, Sampler};
use host::telemetry::lines::{LineInterval, Lines};
use host::telemetry::status::{Figures, clock_time};
use host::telemetry::window::StepSummary;
use indicatif::{HumanCount, ProgressBar};
use std::path::Path;
use std::time::{Duration, Instant};

/// Steps that are not like the rest: lazy set-up, then capture.
const WARM_UP_STEPS: u64 = 6;
/// Pages are shown the last steps this often at most, and so many of them.
const PULSE: Duration = Duration::from_millis(500);
const SHOWN_STEPS: usize = 16;
/// Clocks of devices are told from their zero by numbers of 24 bits, so it is set anew.
const AXIS: Duration = Duration::from_secs(60);
/// A run is judged this often at most.
const JUDGE: Duration = Duration::from_secs(2);
/// Columns that the bar takes of a line, its name and its spaces included.
const BAR_COLUMNS: usize = 23;
/// Columns of a line where no terminal says.
const USUAL_COLUMNS: usize = 80;

/// Writes the figures of a run to its log files and shows the newest of them.
pub struct Log<'a> {
    /// None where another rank writes.
    pub metrics: Option<MetricsWriter>,
    config: &'a Config,
    bar: &'a ProgressBar,
    watch: &'a dyn Fn(&Progress),
    step_times: StepTimes,
    memory: MemoryMonitor,
    names: Names,
    rate: f64,
    feed_before: FeedReading,
    gpus: Option<Sampler>,
    /// The last readings that held samples: a window may be shorter than the sampler's period.
    gpu_readings: Vec<GpuReading>,
    /// Whether one GPU has both roles, so that there is one reading.
    shared: bool,
    steps: u64,
    /// The others' figures, where there are several ranks.
    ranks: Option<RankLog>,
    learned: LastLearned,
    /// When the program began; taken once the first step was told.
    began: Option<Instant>,
    proposed: bool,
    /// Whether it was said how long the run takes.
    time_told: bool,
    failures_told: usize,
    /// Passes over the corpus, the one under way included.
    epoch: u64,
    /// Lines that stay, and whether they are said or only written to the log file.
    lines: Lines,
    says_lines: bool,
    warnings: Warnings,
    host_before: Option<HostClock>,
    /// When the loader was last looked at, and how long its threads had worked until then.
    loader_before: (Instant, u64),
    context: RunContext<'a>,
    /// What happens, for its file; none where another rank writes.
    events: Option<EventLog>,
    observer: Option<&'a dyn Observer>,
    live: Live,
    /// Where and how well the model's parameters are: their number.
    parameters: usize,
}

/// What is remembered for those who look.
struct Live {
    /// Zero of the clocks of the last steps' picture, and when it was set.
    axis: Option<(TimeAxis, Instant)>,
    pulsed: Instant,
    feed_before: FeedReading,
    judged: Instant,
    /// Step up to which the last judgement went.
    judged_step: u64,
    /// What was found last, and what was said last.
    found: Option<&'static str>,
    said: Option<Option<&'static str>>,
    /// Time of the training thread that looking cost, since when.
    spent: Duration,
    since: Instant,
}

impl Live {
    fn new() -> Self {
        let now = Instant::now();
        Live {
            axis: None,
            pulsed: now,
            feed_before: FeedReading::default(),
            judged: now,
            judged_step: 0,
            found: None,
            said: None,
            spent: Duration::ZERO,
            since: now,
        }
    }
}

/// Names of what a step reads from its device, in that order.
struct Names {
    losses: &'static [&'static str],
    /// How many of the losses, from the first, make up the sum.
    summed: usize,
    norms: Vec<String>,
}

impl<'a> Log<'a> {
    pub fn create<L: Learner>(
        context: &RunContext<'a>,
        log_dir: &Path,
        step: &Step<L>,
        resumed_at: Option<u64>,
        expected_steps: u64,
    ) -> Result<Self> {
        let config = context.config;
        let writes = context.ranks.is_none_or(|ranks| ranks.is_first());
        let mut metrics = writes.then(|| MetricsWriter::create(log_dir, resumed_at)).transpose()?;
        if let Some(metrics) = &mut metrics {
            metrics.text("config", resumed_at.unwrap_or(0), &format!("```yaml\n{}```", config.to_yaml()))?;
        }
        // What cannot be written here is found when figures are.
        let events = writes.then(|| EventLog::create(log_dir, resumed_at).ok()).flatten();
        let norm = |name: &str| if name == "model" { "gradient_norm".into() } else { format!("{name}_gradient_norm") };
        Ok(Log {
            metrics,
            config,
            bar: context.bar,
            watch: context.watch,
            step_times: StepTimes::of(context, WARM_UP_STEPS),
            memory: MemoryMonitor::new(context.roles, context.caps),
            names: Names {
                losses: step.learner.loss_names(),
                summed: step.learner.summed(),
                norms: step.groups.iter().map(|group| norm(group.name)).collect(),
            },
            rate: 0.0,
            feed_before: FeedReading::default(),
            gpus: gpu_sampler(context).ok(),
            gpu_readings: Vec::new(),
            shared: context.roles.data == context.roles.model,
            steps: expected_steps,
            ranks: context.ranks.map(|ranks| RankLog::new(ranks.clone())),
            learned: LastLearned::new(resumed_at.unwrap_or(0)),
            began: Some(context.began),
            proposed: false,
            time_told: false,
            failures_told: 0,
            epoch: 1,
            lines: Lines::new(match config.training.log_every.unwrap_or(LogEvery::USUAL) {
                LogEvery::Steps(steps) => LineInterval::Steps(steps),
                LogEvery::Seconds(seconds) => LineInterval::Time(Duration::from_secs(seconds)),
            }),
            says_lines: context.says_lines || config.training.log_every.is_some(),
            warnings: Warnings::default(),
            host_before: HostClock::read(),
            loader_before: (Instant::now(), 0),
            context: *context,
            events,
            observer: context.observer,
            live: Live::new(),
            parameters: step.groups.iter().map(ParameterGroup::len).sum(),
        })
    }

    /// Takes note of a step that was queued.
    pub fn stepped(&mut self, step: u64, done: Done, rate: f64) {
        self.rate = rate;
        self.epoch = done.deliveries.last().map_or(self.epoch, |delivery| delivery.resume_at.epoch + 1);
        self.step_times.add(step, done);
    }

    /// Says that held-out speech was listened to. `compared`: name and value of the part that counts, or of the whole.
    pub fn validated(&mut self, step: u64, loss: f64, (name, compared): (&str, f64), is_best: bool) {
        let part = if compared == loss { String::new() } else { format!(", {name} {compared:.4}") };
        let best = if is_best { ", the lowest so far" } else { "" };
        let text = format!("held-out loss {loss:.3}{part}{best}");
        self.line(&format!("step {step}: {text}"));
        self.event(step, if is_best { EventKind::Best } else { EventKind::Validated }, text);
    }

    /// Says that a checkpoint was written.
    pub fn saved(&mut self, step: u64, checkpoint: &Path) {
        self.line(&format!("step {step}: saved {}", checkpoint.display()));
        self.event(step, EventKind::Saved, format!("saved {}", checkpoint.display()));
    }

    /// Something that is wrong: said, and written down.
    fn warning(&mut self, step: u64, text: &str) {
        note(self.bar, &format!("warning: {text}"));
        self.event(step, EventKind::Warning, text);
    }

    /// Writes down what happened, and shows it to whoever looks.
    pub fn event(&mut self, step: u64, kind: EventKind, text: impl Into<String>) {
        let Some(events) = &mut self.events else { return };
        let event = Event::now(step, kind, text);
        let _ = events.add(&event); // figures cannot be written either then, and that is told
        self.observer.iter().for_each(|observer| observer.event(&event));
    }

    /// Writes notes down that somebody made on a page; whether a checkpoint was asked for.
    pub fn wishes(&mut self, step: u64) -> bool {
        let Some(observer) = self.observer else { return false };
        let wishes = observer.wishes();
        wishes.notes.into_iter().for_each(|text| self.event(step, EventKind::Note, text));
        wishes.save
    }

    /// Shows the last steps to whoever looks; nothing where nobody does.
    pub fn pulse(&mut self, feed: &Feed, step: u64) {
        let now = Instant::now();
        let Some(observer) = self.observer.filter(|_| now - self.live.pulsed >= PULSE) else { return };
        if !observer.is_watched() {
            return;
        }
        let began = thread_time();
        self.live.pulsed = now;
        if self.live.axis.as_ref().is_none_or(|(_, set)| now - *set > AXIS) {
            self.live.axis = TimeAxis::begin(self.context.roles).ok().map(|axis| (axis, now));
        }
        let Some((axis, _)) = &self.live.axis else { return };
        let spans = Timeline::of(axis, &self.step_times.ended(SHOWN_STEPS)).spans;
        let reading = feed.reading();
        let times = reading.map(|now| now.since(&self.live.feed_before));
        self.live.feed_before = reading.unwrap_or_default();
        let loader_ready = feed.loader().status().ready;
        observer.pulse(&Pulse { step, spans: &spans, feed: times, loader_ready });
        self.live.spent += thread_time() - began;
    }

    /// What keeps the run from going faster, written down when it changes: the same must be found twice, because a moment
    /// proves nothing.
    fn judge(&mut self, told: &Figures, stages: &StageTimes, host: Option<HostLoad>, usage: &MemoryUsage, feed: &Feed) {
        let Some(observer) = self.observer.filter(|_| self.live.judged.elapsed() >= JUDGE) else { return };
        let began = thread_time();
        let steps = self.step_times.since(self.live.judged_step);
        let wall_ms = told.window.step_ms.mean * steps.len() as f64;
        let queued = steps.iter().map(|step| step.1.ran.map(|ran| ran.queued)).sum::<Option<Duration>>();
        let loader = feed.loader();
        let seen = Observation {
            step: told.step,
            summary: &told.window,
            stages,
            own_step: Steadiness::of(&steps),
            loader: LoaderTimes::of(&steps, loader.status().workers, Duration::from_secs_f64(wall_ms / 1e3)),
            feed: feed.reading().map(|now| now.since(&self.feed_before)),
            gpus: &self.gpu_readings,
            host,
            queued_share: queued.map(|queued| (queued.as_secs_f64() * 1e3 / wall_ms.max(1e-9)).min(1.0)),
            feed_queued_share: feed_queued(&steps),
            memory: *usage,
            failures: loader.failures().iter().map(ToString::to_string).collect(),
            parameters: self.parameters,
            route: feed.route().to_string(),
        };
        let judgement = observer.judge(&self.context, &seen);
        self.live.judged_step = told.step;
        self.live.judged = Instant::now();
        let is_certain = std::mem::replace(&mut self.live.found, judgement.code) == judgement.code;
        if is_certain && self.live.said != Some(judgement.code) {
            self.live.said = Some(judgement.code);
            let kind = if judgement.code.is_some() { EventKind::Verdict } else { EventKind::Well };
            self.event(told.step, kind, judgement.text);
        }
        self.live.spent += thread_time() - began;
    }

    /// Share of the training thread's time that those who look have cost since the last figures; absent where nobody may.
    fn live_cost(&mut self) -> Option<(String, f64)> {
        self.observer?;
        let wall_s = self.live.since.elapsed().as_secs_f64();
        let spent = std::mem::take(&mut self.live.spent);
        self.live.since = Instant::now();
        Some(("live_cost".into(), spent.as_secs_f64() / wall_s.max(1e-9)))
    }

    /// A line that stays: above the bar where lines are said, else in the log file alone.
    fn line(&self, text: &str) {
        if self.says_lines { note(self.bar, text) } else { console::log(text) }
    }

    /// What follows `step` is not part of the next one's time.
    pub fn interrupt(&mut self, step: u64) {
        self.step_times.interrupt(step);
    }

    /// An error of a step, with the way out where a GPU's memory was full.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        self.memory.explain(error, self.config)
    }

    /// Writes the readings that have arrived. `wait`: all that were asked for. The inner result is about the files.
    pub fn read<L: Learner>(
        &mut self,
        step: &mut Step<L>,
        feed: &Feed,
        wait: bool,
        outcome: &mut RunOutcome,
    ) -> Result<Result<()>> {
        while let Some(reading) = crate::catch(|| step.poll(wait))?? {
            self.tell_first_step(reading.at);
            let loss = reading.means[..self.names.summed].iter().sum::<f64>();
            self.ensure_finite(loss, reading.at)?;
            if let Some(last) = self.learned.stuck(reading.at, reading.skipped_steps) {
                // A full GPU has no room for a step beside the captured one; then no name is said.
                let names = crate::catch(|| step.spoiled_parameters()).ok().and_then(Result::ok).unwrap_or_default();
                let some = names.iter().take(3).map(|name| format!(" {name}")).collect::<String>();
                let fact = format!(
                    "nothing was learned since step {last}: in every step gradients are not finite, now of {} parameters{some}",
                    names.len()
                );
                return Err(hinted(fact, self.lower_rate("a checkpoint of before that")));
            }
            outcome.first_loss.get_or_insert(loss);
            outcome.last_loss = Some(loss);
            let usage = self.memory.usage(feed);
            let figures = self.figures(&reading, loss, &usage, feed);
            self.warn(reading.at, &usage, feed);
            if let Some(Err(error)) = self.metrics.as_mut().map(|metrics| metrics.log(reading.at, &figures)) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    fn tell_first_step(&mut self, step: u64) {
        if let Some(began) = self.began.take() {
            note(self.bar, &format!("step {step} was done {:.1} s after the start", began.elapsed().as_secs_f64()));
        }
    }

    /// Says once, as soon as a step's time is known, how long the run takes.
    fn tell_time(&mut self, told: &Figures) {
        let Some(eta) = told.eta.filter(|_| !std::mem::replace(&mut self.time_told, true)) else { return };
        let (left, each) = (HumanCount(self.steps.saturating_sub(told.step)), told.window.step_ms.mean);
        let time = clock_time(eta);
        note(
            self.bar,
            &format!("time: {left} more steps take about {time} at {each:.1} ms each; validations come on top"),
        );
    }

    fn ensure_finite(&self, loss: f64, step: u64) -> Result<()> {
        if loss.is_finite() {
            return Ok(());
        }
        Err(hinted(
            format!("the loss is not finite at step {step}"),
            self.lower_rate("the last checkpoint, which is intact"),
        ))
    }

    fn lower_rate(&self, from: &str) -> String {
        format!("lower the learning rate (now {:.1e}) and go on with --resume from {from}", self.rate)
    }

    fn figures(
        &mut self,
        reading: &step::LossReading,
        loss: f64,
        usage: &MemoryUsage,
        feed: &Feed,
    ) -> Vec<(String, f64)> {
        let mut figures = vec![("loss".to_owned(), loss)];
        let names = self.names.losses.iter().map(|name| (*name).to_owned()).chain(self.names.norms.iter().cloned());
        figures.extend(names.zip(reading.means.iter().copied()));
        figures.push(("skipped_steps".into(), reading.skipped_steps as f64));
        figures.push(("learning_rate".into(), self.rate));
        figures.push(("epoch".into(), self.epoch as f64));
        if let Some((mut summary, stages)) = self.step_times.close(reading.at) {
            figures.extend(stage_figures(&stages));
            figures.extend(self.rank_figures(reading.at, &mut summary, &stages, reading.exchange_ms));
            let told = self.told(reading.at, loss, summary, usage);
            self.tell_time(&told);
            let host = self.warn_of_steps(&told);
            self.judge(&told, &stages, host, usage, feed);
            self.bar.set_message(told.line(status_columns()));
            if let Some(line) = self.lines.add(&told, Instant::now(), reading.at >= self.steps) {
                self.line(&line);
            }
            (self.watch)(&progress(&told, *usage));
            figures.extend(told.scalars().into_iter().skip(1).map(|(name, value)| (name.to_owned(), value)));
        }
        figures.extend(self.feed_figures(feed));
        figures.extend(memory_figures(usage));
        figures.extend(self.live_cost());
        if let Some(observer) = self.observer.filter(|observer| observer.is_watched()) {
            let began = thread_time();
            observer.figures(reading.at, &figures);
            self.live.spent += thread_time() - began;
        }
        figures
    }

    /// What the ranks come to together: `summary` is then of all of them.
    fn rank_figures(
        &mut self,
        step: u64,
        summary: &mut StepSummary,
        stages: &StageTimes,
        exchange_ms: f64,
    ) -> Vec<(String, f64)> {
        let Some(ranks) = &mut self.ranks else { return Vec::new() };
        // What cannot be asked of the store is the watch's affair.
        let Ok(Some(all)) = ranks.observe(summary, stages, exchange_ms, self.gpu_readings.first()) else {
            return Vec::new();
        };
        summary.audio_seconds_per_second = all.audio_seconds_per_second;
        all.finding.iter().for_each(|finding| self.warning(step, finding));
        all.figures
    }

    fn told(&mut self, step: u64, loss: f64, window: StepSummary, usage: &MemoryUsage) -> Figures {
        let left = self.steps.saturating_sub(step) as f64 * window.step_ms.mean / 1e3;
        let fresh = self.gpus.as_ref().map(Sampler::read).unwrap_or_default();
        if fresh.iter().any(|reading| reading.busy.known().is_some()) {
            self.gpu_readings = fresh;
        }
        let mut readings = self.gpu_readings.clone();
        let data_gpu = if self.shared || readings.len() < 2 { None } else { readings.pop() };
        let eta = Some(Duration::from_secs_f64(left));
        let now = |part: Option<(u64, u64)>| part.map(|(now, _)| now);
        let memory = [("data", now(usage.data)), ("model", now(usage.model)), ("host", usage.host)];
        let memory_mib = memory.into_iter().filter_map(|(role, bytes)| Some((role, mib(bytes?)))).collect();
        let (steps, epoch, model_gpu) = (self.steps, self.epoch, readings.pop());
        Figures { step, steps, epoch, loss, window, eta, model_gpu, data_gpu, memory_mib }
    }

    /// Says what disturbs the steps, where something does, and what to do about it.
    fn warn_of_steps(&mut self, told: &Figures) -> Option<HostLoad> {
        let host = HostClock::read();
        let load = host.zip(self.host_before).map(|(now, before)| now.since(&before));
        self.host_before = host;
        for warning in self.warnings.of_steps(told, load) {
            self.warning(told.step, &warning);
        }
        load
    }

    /// Shares of the feed thread's time, and how full the queues are.
    fn feed_figures(&mut self, feed: &Feed) -> Vec<(String, f64)> {
        let loader = feed.loader().status();
        let mut figures =
            vec![("loader/ready_batches", loader.ready as f64), ("loader/workers", loader.workers as f64)];
        let workers = loader.workers.max(1) as f64;
        let (now, (before, busy_ns)) = (Instant::now(), self.loader_before);
        let all_ns = now.saturating_duration_since(before).as_nanos() as f64 * workers;
        figures.push(("loader/busy", (loader.busy_ns.saturating_sub(busy_ns)) as f64 / all_ns.max(1.0)));
        self.loader_before = (now, loader.busy_ns);
        if let Some(now) = feed.reading() {
            let times = now.since(&self.feed_before);
            self.feed_before = now;
            figures.extend([
                ("feed/busy", times.busy),
                ("feed/blocked_on_empty", times.waits_for_loader),
                ("feed/blocked_on_full", times.waits_for_room),
                ("loader/blocked_on_full", times.loader_waits_for_room / workers),
                ("ring/mean_batches", times.mean_ready),
                ("ring/empty", times.empty),
            ]);
        }
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn warn(&mut self, step: u64, usage: &MemoryUsage, feed: &Feed) {
        if let Some(finding) = self.memory.observe(step, usage) {
            self.warning(step, &finding.to_string());
        }
        if !self.proposed && step > WARM_UP_STEPS {
            self.proposed = true;
            self.memory.proposal(usage).iter().for_each(|text| note(self.bar, text));
        }
        let failures = feed.loader().failures();
        for failure in &failures[self.failures_told..] {
            self.warning(step, &format!("{}: left out: {}", failure.path.display(), failure.reason));
        }
        self.failures_told = failures.len();
    }
}

fn progress(figures: &Figures, memory: MemoryUsage) -> Progress {
    let window = &figures.window;
    Progress {
        step: figures.step,
        steps: figures.steps,
        loss: figures.loss,
        step_ms: window.step_ms.mean,
        step_cv: window.step_ms.cv(),
        data_readiness: window.readiness,
        audio_seconds_per_second: window.audio_seconds_per_second,
        memory,
    }
}

fn stage_figures(stages: &StageTimes) -> Vec<(String, f64)> {
    let spreads = [
        ("stage/load_wait_ms", stages.load_wait_ms),
        ("stage/host_to_device_ms", stages.to_device_ms),
        ("stage/features_ms", stages.features_ms),
        ("stage/device_to_device_ms", stages.transfer_ms),
        ("stage/compute_ms", stages.compute_ms),
        ("stage/starved_ms", stages.starved_ms),
        ("stage/gap_ms", stages.gap_ms),
        ("wait_ms", stages.host_wait_ms),
    ];
    spreads.into_iter().filter_map(|(name, spread)| Some((name.to_owned(), spread.known()?.mean))).collect()
}

fn status_columns() -> usize {
    let width = terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0));
    width.unwrap_or(USUAL_COLUMNS).saturating_sub(BAR_COLUMNS)
}

/// The driver's view of the run's GPUs: model first; or why there is none.
pub fn gpu_sampler(context: &RunContext) -> Result<Sampler, String> {
    let address = |device| torchx::cuda::facts(device).ok().map(|facts| facts.pci_bus_id);
    let mut addresses: Vec<String> =
        [context.roles.model, context.roles.data].into_iter().filter_map(address).collect();
    addresses.dedup();
    match addresses.is_empty() {
        true => Err("the run uses no GPU".into()),
        false => Sampler::start(&addresses),
    }
}

fn memory_figures(usage: &MemoryUsage) -> Vec<(String, f64)> {
    let of = |name: &str, bytes: Option<u64>| Some((name.to_owned(), mib(bytes?)));
    let parts = [
        of("memory/data_mib", usage.data.map(|(now, _)| now)),
        of("memory/data_peak_mib", usage.data.map(|(_, peak)| peak)),
        of("memory/model_mib", usage.model.map(|(now, _)| now)),
        of("memory/model_peak_mib", usage.model.map(|(_, peak)| peak)),
        of("memory/host_mib", usage.host),
    ];
    parts.into_iter().flatten().collect()
}
