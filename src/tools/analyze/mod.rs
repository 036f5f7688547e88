//! The data path without a model: how fast each stage could go alone, which one caps the rest, whether a step would
//! wait for it, and what would help. What would help is found by trying it.

mod stages;

pub use stages::{BuildTimes, DrainTimes, StepWaits, TextTimes, build, over};

use super::measure::Pipeline;
use crate::feed::name;
use crate::run::RunContext;
use anyhow::Result;
use host::config::CacheContent;
use host::corpus::Utterances;
use host::telemetry::Spread;
use host::tools::report::{Finding, FindingsReport, Section, counted};
use serde::Serialize;
use serde_json::json;
use tch::Device;

/// A step that waits for a larger share of the time has a pipeline that is worth mending.
const IDLE: f64 = 0.01;
const MUCH_IDLE: f64 = 0.1;
/// Where the path could do much more, a wait up to this share is the system's, which wakes threads when it likes.
const LATE: f64 = 0.05;
/// Waits that vary more come in fits.
const UNSTEADY_CV: f64 = 0.3;
/// A change that brings less is noise.
const GAIN: f64 = 1.1;
/// The data path should be able to do this much more than the step takes.
const RESERVE: f64 = 1.5;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct AnalyzeOptions {
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Clips that are turned into features again, to see what that takes.
    pub clips: usize,
}

/// Milliseconds of a training step, and whether they were measured or given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepTime {
    pub ms: f64,
    pub measured: bool,
}

/// Figures of the data path, each for a batch of the run's size.
#[derive(Debug, Serialize)]
pub struct Analysis {
    pub texts: TextTimes,
    pub built: BuildTimes,
    /// Whether features stay on disk for the next run.
    pub keeps_cache: bool,
    /// The loader alone, at the run's number of workers.
    pub load: DrainTimes,
    /// Workers of the loader; 0: batches are laid by whoever asks for them.
    pub workers: usize,
    /// Features alone, of a batch that stays: what the path would do if loading were free.
    pub features_ms: Spread,
    pub data_device: String,
    /// The whole path, from the cache.
    pub whole: DrainTimes,
    pub waiting: StepWaits,
    pub step: StepTime,
    /// Batches of one step.
    pub accumulate: u64,
    pub audio_seconds_per_batch: f64,
    pub corpus_seconds: f64,
    pub tried: TriedChanges,
}

/// Batches a second with something changed.
#[derive(Debug, Default, Serialize)]
pub struct TriedChanges {
    /// The loader alone, by number of workers.
    pub workers: Vec<(usize, f64)>,
    /// The whole path over the same clips, from samples and from mel frames; only where the data role is the CPU.
    pub contents: Option<[f64; 2]>,
    /// The whole path with features made on the CPU and on the model's GPU; only where there is one.
    pub places: Option<[f64; 2]>,
}

/// A step on a batch that stays, measured for about so long.
pub fn step_time(context: &RunContext, seconds: f64) -> Result<StepTime> {
    let (mut pipeline, _) = Pipeline::start(context)?;
    if context.roles.model.is_cuda() {
        pipeline.warm_up()?;
    }
    pipeline.stop_feed();
    let once_ms = pipeline.headspace(1)?;
    let more = (seconds * 1e3 / once_ms.max(1e-3)).clamp(1.0, 200.0) as u64;
    Ok(StepTime { ms: pipeline.headspace(more)?, measured: true })
}

/// `utterances`: of the whole corpus.
pub fn analyze(
    context: &RunContext,
    utterances: &Utterances,
    step: StepTime,
    options: AnalyzeOptions,
) -> Result<Analysis> {
    let AnalyzeOptions { seconds, clips } = options;
    let config = context.config;
    let every = utterances.len().div_ceil(clips.max(1)).max(1);
    let some: Utterances = utterances.iter().step_by(every).collect();
    let (built, cache) = stages::build(context, &some, config.data.cache_content)?;
    let texts = stages::texts(context, &some, &cache, seconds)?;
    let (workers, load) = stages::load(context, config.data.loader_workers(), seconds)?;
    let features_ms = stages::features(context, context.roles.data, seconds)?;
    let whole = stages::drain(context, seconds)?;
    let waiting = stages::waiting(context, step.ms / config.training.gradient_accumulation_steps as f64, seconds)?;
    let tried = try_changes(context, &some, cache, &whole, options)?;
    let batches = context.data.train.batches(&context.data.budget, config.training.seed);
    let train_seconds = context.data.train.seconds(config.data.sample_rate);
    Ok(Analysis {
        texts,
        built,
        keeps_cache: config.data.enable_caching,
        load,
        workers,
        features_ms,
        data_device: name(context.roles.data),
        whole,
        waiting,
        step,
        accumulate: config.training.gradient_accumulation_steps,
        audio_seconds_per_batch: train_seconds / batches.max(1) as f64,
        corpus_seconds: train_seconds,
        tried,
    })
}

fn try_changes(
    context: &RunContext,
    some: &Utterances,
    cache: host::cache::Cache,
    whole: &DrainTimes,
    AnalyzeOptions { seconds, .. }: AnalyzeOptions,
) -> Result<TriedChanges> {
    let cores = host::machine::cores();
    let numbers = std::iter::successors(Some(1), |number| Some(number * 2)).take_while(|number| *number < cores);
    let workers = numbers
        .chain([cores])
        .map(|number| stages::load(context, number, seconds / 2.0))
        .map(|tried| tried.map(|(workers, drained)| (workers, drained.batches_per_second)));
    let workers = workers.collect::<Result<Vec<_>>>()?;
    let rate = |cache| -> Result<f64> {
        let data = stages::over(context, cache)?;
        Ok(stages::drain(&RunContext { data: &data, ..*context }, seconds)?.batches_per_second)
    };
    let on_cpu = context.roles.data == Device::Cpu;
    let contents = match context.config.data.cache_content {
        CacheContent::Pcm if on_cpu => {
            let mel = stages::build(context, some, CacheContent::Mel)?.1;
            Some([rate(cache)?, rate(mel)?])
        }
        _ => None,
    };
    let places = match (context.roles.model, on_cpu) {
        (Device::Cpu, _) => None,
        (gpu, true) => Some([
            whole.batches_per_second,
            stages::drain(&stages::with_data_on(context, gpu), seconds)?.batches_per_second,
        ]),
        (_, false) => Some([
            stages::drain(&stages::with_data_on(context, Device::Cpu), seconds)?.batches_per_second,
            whole.batches_per_second,
        ]),
    };
    Ok(TriedChanges { workers, contents, places })
}

/// A stage that every batch passes, and how many a second it could let through.
#[derive(Clone, Debug, PartialEq)]
struct Ceiling {
    code: &'static str,
    name: String,
    batches_per_second: f64,
    said: String,
}

impl Analysis {
    /// Batches a second that training takes.
    fn needed(&self) -> f64 {
        1e3 / self.step.ms * self.accumulate as f64
    }

    /// Who lays batches.
    fn loaders(&self) -> String {
        if self.workers == 0 { "the thread that asks".into() } else { counted(self.workers, "worker") }
    }

    fn ceilings(&self) -> Vec<Ceiling> {
        let by = |code, name: String, spread: Spread| {
            let spread = spread.known()?;
            let said = format!("{} a batch, CV {:.2}", ms(spread.mean), spread.cv());
            Some(Ceiling { code, name, batches_per_second: 1e3 / spread.mean.max(1e-6), said })
        };
        let load = Ceiling {
            code: "slow-load",
            name: format!("load, {}", self.loaders()),
            batches_per_second: self.load.batches_per_second,
            said: format!("{} of one a batch, CV {:.2}", ms(self.load.load_ms.mean), self.load.load_ms.cv()),
        };
        let others = [
            by("slow-copy", "copy to the data device".into(), self.whole.copy_ms),
            by("slow-features", format!("features on {}", self.data_device), self.features_ms),
            by("slow-transfer", "transfer to the model device".into(), self.whole.transfer_ms),
        ];
        [load].into_iter().chain(others.into_iter().flatten()).collect()
    }

    /// The slowest stage.
    fn cap(&self) -> Ceiling {
        let order = |a: &Ceiling, b: &Ceiling| a.batches_per_second.total_cmp(&b.batches_per_second);
        self.ceilings().into_iter().min_by(order).expect("loading is always there")
    }

    pub fn report(&self) -> FindingsReport {
        let sections = vec![self.text(), self.audio(), self.stages(), self.efficiency(), self.changes()];
        let title = format!(
            "The data path without a model: {:.1} s of speech a batch, features on {}",
            self.audio_seconds_per_batch, self.data_device
        );
        FindingsReport { sections, figures: json!(self), ..FindingsReport::new(title) }
    }

    fn text(&self) -> Section {
        let TextTimes { cold_ms, cached_ms } = self.texts;
        let mut section = Section::new("Text");
        section
            .row("a text, made", format!("{} ± {} ({} texts)", ms(cold_ms.mean), ms(cold_ms.std()), cold_ms.count))
            .row("a text, cached", format!("{} ± {}", ms(cached_ms.mean), ms(cached_ms.std())));
        let BuildTimes { work, clips, .. } = self.built;
        if !self.keeps_cache && work.text > work.sound + work.read {
            let per_clip = |seconds: f64| ms(seconds * 1e3 / clips.max(1) as f64);
            let fact = format!(
                "texts take {} of a core each, sound {}",
                per_clip(work.text),
                per_clip(work.sound + work.read)
            );
            let advice = "set `enable_caching: true`, so that it is done once; `tokenizer: characters` is faster";
            section.findings.push(Finding::warning("slow-text", 0.0, fact, advice));
        }
        section
    }

    fn audio(&self) -> Section {
        let BuildTimes { clips, work, workers, .. } = self.built;
        let (read, sound) = (work.read * 1e3 / clips.max(1) as f64, work.sound * 1e3 / clips.max(1) as f64);
        let mut section = Section::new("Audio");
        section
            .row(
                "a recording, made",
                format!("{} to read, {} to decode and level, of a core ({clips} clips)", ms(read), ms(sound)),
            )
            .row(
                "made",
                format!(
                    "{:.0} s of speech a second by {}",
                    self.built.audio_seconds_per_second(),
                    counted(workers, "worker")
                ),
            )
            .row(
                "a batch, cached",
                format!(
                    "{} ± {}, CV {:.2}",
                    ms(self.load.gap_ms.mean),
                    ms(self.load.gap_ms.std()),
                    self.load.gap_ms.cv()
                ),
            )
            .row(
                "cached",
                format!(
                    "{:.0} s of speech a second by {}",
                    self.load.batches_per_second * self.audio_seconds_per_batch,
                    self.loaders()
                ),
            );
        section
    }

    fn stages(&self) -> Section {
        let mut section = Section::new("How fast each stage could go alone");
        for ceiling in self.ceilings() {
            section.row(ceiling.name, format!("{} ({})", rate(ceiling.batches_per_second), ceiling.said));
        }
        section.row("all together", rate(self.whole.batches_per_second));
        let (cap, needed) = (self.cap(), self.needed());
        let fact = format!(
            "{} caps the data path; training takes {}, {:.1} times less",
            cap.name,
            rate(needed),
            self.whole.batches_per_second / needed
        );
        if self.whole.batches_per_second >= needed {
            section.findings.push(Finding::good("ceiling", fact));
        }
        section
    }

    fn efficiency(&self) -> Section {
        let StepWaits { wait_ms, idle_share, step_ms } = self.waiting;
        let mut section = Section::new("Would a step wait?");
        let how = if self.step.measured { "measured on a batch that stays" } else { "given with --step-ms" };
        section
            .row("a step", format!("{} ({how}); here a pause of that length, which takes no core", ms(step_ms)))
            .row("its wait for a batch", format!("{} ± {}", ms(wait_ms.mean), ms(wait_ms.std())))
            .row("idle share", format!("{:.1} %", idle_share * 100.0));
        section.findings.push(self.idle());
        section
    }

    fn idle(&self) -> Finding {
        let idle = self.waiting.idle_share;
        let spare = self.whole.batches_per_second >= self.needed() * RESERVE;
        if idle <= if spare { LATE } else { IDLE } {
            return Finding::good(
                "ready",
                format!("batches are ready: {:.1} % of the time is waited for", idle * 100.0),
            );
        }
        let cap = self.cap();
        let fits = spare && self.load.gap_ms.cv() > UNSTEADY_CV;
        let (code, fact, advice) = match fits {
            true => (
                "unsteady-loading",
                format!(
                    "the path is fast enough on average, yet a step would idle {:.0} % of the time: batches come in fits",
                    idle * 100.0
                ),
                match self.workers {
                    0 => "set `use_native_loading: true`, so that batches are laid ahead".to_owned(),
                    _ => "raise `prefetch_buffer_size` and `pipeline_buffer_size`".to_owned(),
                },
            ),
            false => (
                cap.code,
                format!(
                    "a step of {} would idle {:.0} % of the time: {} gives {}, training takes {}",
                    ms(self.step.ms),
                    idle * 100.0,
                    cap.name,
                    rate(cap.batches_per_second),
                    rate(self.needed())
                ),
                self.advice(cap.code),
            ),
        };
        if idle > MUCH_IDLE {
            Finding::problem(code, idle, fact, advice)
        } else {
            Finding::warning(code, idle, fact, advice)
        }
    }

    /// Only what was tried and helped.
    fn advice(&self, code: &str) -> String {
        let best = self.tried.workers.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let more = best.filter(|(number, rate)| *number > self.workers && *rate >= self.load.batches_per_second * GAIN);
        match (code, more) {
            ("slow-load", Some((number, faster))) => {
                let native = if self.workers == 0 { "`use_native_loading: true` and " } else { "" };
                format!("set {native}`num_workers: {number}`: loading then gave {}", rate(faster))
            }
            ("slow-load", None) => {
                "more workers did not help: look for another program on these cores, or a slow disk".into()
            }
            ("slow-features", _) => match (self.tried.places, self.tried.contents) {
                (Some([cpu, gpu]), _) if gpu >= cpu * GAIN && self.data_device == "CPU" => {
                    format!(
                        "set `data_device: auto`: on the GPU the whole path gave {} instead of {}",
                        rate(gpu),
                        rate(cpu)
                    )
                }
                (_, Some([pcm, mel])) if mel >= pcm * GAIN => {
                    format!("set `cache_content: mel`: the whole path then gave {} instead of {}", rate(mel), rate(pcm))
                }
                _ => "nothing that was tried made features faster; a GPU of their own would (`--data-gpu`)".into(),
            },
            _ => "see `myxtts devices`: lanes and generation of the PCIe link, and the path between the GPUs".into(),
        }
    }

    fn changes(&self) -> Section {
        let mut section = Section::new("What would change it, tried here");
        let (cold, cached) =
            (self.built.audio_seconds_per_second(), self.whole.batches_per_second * self.audio_seconds_per_batch);
        let synthetic = 1e3 / self.features_ms.mean.max(1e-6) * self.audio_seconds_per_batch;
        section
            .row(
                "if loading were free",
                format!("{synthetic:.0} s of speech a second (features of one batch again and again)"),
            )
            .row("from the cache", format!("{cached:.0} s of speech a second"))
            .row(
                "from recordings",
                format!(
                    "{cold:.0} s of speech a second: the first run prepares {:.1} min of speech in about {:.1} s",
                    self.corpus_seconds / 60.0,
                    self.corpus_seconds / cold.max(1e-9)
                ),
            );
        let workers = self.tried.workers.iter().map(|(number, speed)| format!("{number}: {}", rate(*speed)));
        section.row("workers", format!("{}, loading alone", workers.collect::<Vec<_>>().join(" · ")));
        if let Some([pcm, mel]) = self.tried.contents {
            section.row("cache_content", format!("pcm: {} · mel: {} (×{:.2})", rate(pcm), rate(mel), mel / pcm));
        }
        section.row(
            "features",
            match self.tried.places {
                Some([cpu, gpu]) => format!("on the CPU: {} · on the GPU: {}", rate(cpu), rate(gpu)),
                None => "on a GPU: not tried, there is none".into(),
            },
        );
        section
    }
}

fn rate(batches_per_second: f64) -> String {
    format!("{batches_per_second:.*} batches/s", usize::from(batches_per_second < 100.0))
}

fn ms(ms: f64) -> String {
    if ms < 0.1 { format!("{:.1} µs", ms * 1e3) } else { format!("{ms:.2} ms") }
}
