//! Settings for this machine and corpus, each chosen by trying: sizes of batches until memory is full, precision, graphs,
//! what the cache keeps, workers, depths, and where features are made.

mod dry_run;
mod search;
mod two_gpus;
mod write;

pub use dry_run::{HostLimit, SAME, Trial};
pub use search::Found;
pub use two_gpus::{Predicted, Times};
pub use write::{Choice, yaml};

use super::analyze::{build, over};
use super::report::{Finding, Report, Section};
use crate::config::{CacheContent, Config};
use crate::corpus::Utterance;
use crate::feed::{Roles, name};
use crate::loader::{Budget, GAP};
use crate::train::Surroundings;
use anyhow::{Context, Result, bail, ensure};
use dry_run::{dry_run, dry_run_over, shortage};
use search::{Attempt, Bounds, End, search};
use serde::Serialize;
use serde_json::json;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tch::Device;

/// An epoch should have so many steps at least.
const STEPS_OF_AN_EPOCH: usize = 8;
/// A worker that is at work for more of its time has no reserve for a slow batch.
const BUSY: f64 = 0.7;
/// Above it batches are ready when they are wanted.
const READY: f64 = 0.995;
const DEEPEST: usize = 8;
/// A machine whose steps vary more has something else to do.
const UNSTEADY_CV: f64 = 0.15;
/// Clips that are turned into features again to compare what a cache may keep.
const COMPARED_CLIPS: usize = 64;
/// Above what was seen: kernels that validation alone runs, fragments.
const HEADROOM: f64 = 1.25;
const LEAST_CAP_MIB: u64 = 256;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Of all trials together, about.
    pub seconds: f64,
    /// Of each, once it is warm.
    pub trial_seconds: f64,
    /// Sizes of batches.
    pub trials: usize,
    /// Compare with the settings as they were.
    pub verify: bool,
    /// On a CPU, which has no caps of its own.
    pub host_limit: Option<HostLimit>,
}

/// What came out.
pub struct Tuned {
    pub config: Config,
    pub choices: Vec<Choice>,
    pub found: Found,
    pub chosen: Trial,
    pub tried: Vec<Comparison>,
    pub gpus: Gpus,
    /// Before and after, each with speech a second; before is absent where it did not fit.
    pub verified: Option<(Option<Trial>, Trial)>,
    on_gpu: bool,
    asked_frames: usize,
    seconds: f64,
}

/// Two ways of one setting, at the same size of batch.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub setting: String,
    /// (value, seconds of speech a second), what is kept first.
    pub kept: (String, f64),
    pub left: (String, f64),
}

/// What is known about using two GPUs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gpus {
    pub count: usize,
    /// From the times measured on one; absent on a CPU.
    pub predicted: Option<Predicted>,
    /// Seconds of speech a second with a GPU for each role; absent where there is one.
    pub producer_consumer: Option<f64>,
}

/// `utterances`: of the whole corpus.
pub fn configure(around: &Surroundings, utterances: &[Utterance], options: Options) -> Result<Tuned> {
    let bench = Bench::new(around, options);
    let mut config = without_brakes(around.config);
    let mut choices = unbraked(around.config, &config);
    let asked_frames = asked(around);
    let found = bench.sizes(&config, asked_frames)?;
    let Some(knee) = found.knee(asked_frames).cloned() else {
        let (frames, why) = found.too_large.clone().unwrap_or((asked_frames, "no size was tried".into()));
        bail!(
            "not even {frames} frames a batch fit: {why}\nhint: a smaller `size`, `enable_gradient_checkpointing: true`, \
             shorter clips (`max_mel_frames`) or larger caps"
        );
    };
    config.data.frame_budget = Some(knee.frames);
    choices.push(Choice::new("data.frame_budget", knee.frames, size_reason(&found, &knee, asked_frames)));
    let mut chosen = knee;
    let mut tried = bench.step_settings(&mut config, &mut chosen, &mut choices)?;
    tried.extend(bench.content(&mut config, &chosen, utterances, &mut choices)?);
    bench.depths(&mut config, &mut chosen, &mut choices)?;
    choices.push(workers(&mut config, &chosen));
    caps(&mut config, around, &chosen, &mut choices);
    let gpus = bench.gpus(&mut config, &mut chosen, &mut choices)?;
    let verified = if options.verify { Some(bench.verify(&config)?) } else { None };
    let on_gpu = around.roles.model.is_cuda();
    let seconds = bench.began.elapsed().as_secs_f64();
    Ok(Tuned { config, choices, found, chosen, tried, gpus, verified, on_gpu, asked_frames, seconds })
}

/// Frames a batch as it was asked for; of a padded one, without the padding.
fn asked(around: &Surroundings) -> usize {
    let (data, batch_size) = (around.data, around.config.data.batch_size);
    if data.budget.padded { Budget::packed(data.train.lengths(), batch_size).frames } else { data.budget.frames }
}

/// Switches that no measurement needs to decide: off, the device waits for what could be done beside it.
fn without_brakes(config: &Config) -> Config {
    let mut config = config.clone();
    let data = &mut config.data;
    (data.use_native_loading, data.prefetch_to_gpu, data.enhanced_gpu_prefetch) = (true, true, true);
    (data.optimize_cpu_gpu_overlap, data.pad_to_fixed_length) = (true, false);
    data.pipeline_buffer_size = data.pipeline_buffer_size.max(3);
    config
}

fn unbraked(before: &Config, after: &Config) -> Vec<Choice> {
    let reason = "as in every trial: packed batches, made beside the step";
    let switches = [
        ("data.use_native_loading", before.data.use_native_loading, after.data.use_native_loading),
        ("data.prefetch_to_gpu", before.data.prefetch_to_gpu, after.data.prefetch_to_gpu),
        ("data.enhanced_gpu_prefetch", before.data.enhanced_gpu_prefetch, after.data.enhanced_gpu_prefetch),
        ("data.optimize_cpu_gpu_overlap", before.data.optimize_cpu_gpu_overlap, after.data.optimize_cpu_gpu_overlap),
        ("data.pad_to_fixed_length", before.data.pad_to_fixed_length, after.data.pad_to_fixed_length),
    ];
    switches.into_iter().filter(|(_, old, new)| old != new).map(|(key, _, new)| Choice::new(key, new, reason)).collect()
}

fn size_reason(found: &Found, knee: &Trial, asked: usize) -> String {
    let rate = knee.audio_seconds_per_second;
    let (fastest, largest) = (found.fastest().unwrap_or(knee), found.trials.last().unwrap_or(knee));
    let memory = knee.peak_mib.map_or(String::new(), |mib| format!(", {mib:.0} MiB at most"));
    let beyond = match (largest.frames > knee.frames, fastest.frames == knee.frames) {
        (true, _) => {
            let gain = (largest.audio_seconds_per_second / rate - 1.0) * 100.0;
            format!("; {} frames fit too and give {gain:+.0} %", largest.frames)
        }
        (false, true) => "; the largest that was tried is the fastest".into(),
        (false, false) => format!("; {} frames are no faster by more than {:.0} %", fastest.frames, SAME * 100.0),
    };
    let before = if knee.asked < asked { format!("; {asked} were asked for") } else { String::new() };
    format!("{rate:.0} s of speech a second at {:.1} ms a step{memory}{beyond}{before}", knee.step_ms)
}

/// As many as leave each some reserve.
fn workers(config: &mut Config, chosen: &Trial) -> Choice {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let batch_ms = chosen.step_ms / config.training.gradient_accumulation_steps as f64;
    let share = chosen.load_ms / batch_ms.max(1e-6);
    let number = ((share / BUSY).ceil() as usize).clamp(1, cores);
    config.data.num_workers = Some(number);
    let reason = format!(
        "a worker lays a batch in {:.2} ms, training takes one every {batch_ms:.1} ms: {} at work {:.1} % of the time",
        chosen.load_ms,
        if number == 1 { "one is".into() } else { format!("each of {number} is") },
        share / number as f64 * 100.0
    );
    Choice::new("data.num_workers", number, reason)
}

/// Caps that the trial would have kept to, where they were left to the program.
fn caps(config: &mut Config, around: &Surroundings, chosen: &Trial, choices: &mut Vec<Choice>) {
    let training = &mut config.training;
    let (Some(peak), true) = (chosen.peak_mib, around.caps.proposed && around.caps.shared) else { return };
    let model = ((peak * HEADROOM) as u64).max(LEAST_CAP_MIB).next_multiple_of(64);
    (training.data_gpu_memory, training.model_gpu_memory) = (Some(LEAST_CAP_MIB), Some(model));
    let reason = format!("both roles together took {peak:.0} MiB, and a quarter more");
    choices.push(Choice::new("training.data_gpu_memory", LEAST_CAP_MIB, reason.clone()));
    choices.push(Choice::new("training.model_gpu_memory", model, reason));
}

/// A setting that is on or off: its key, the name people know, and where it is.
type Switch = (&'static str, &'static str, fn(&mut Config) -> &mut bool);

/// Where trials are run, and until when.
struct Bench<'a> {
    around: &'a Surroundings<'a>,
    options: Options,
    began: Instant,
    /// Memory of the process before the first trial, and the last trial: what the next one would need.
    resting_mib: f64,
    last: Cell<Option<(usize, f64, f64)>>,
}

impl<'a> Bench<'a> {
    fn new(around: &'a Surroundings, options: Options) -> Self {
        let resting_mib = dry_run::peak_host_mib().unwrap_or(0.0);
        Bench { around, options, began: Instant::now(), resting_mib, last: Cell::new(None) }
    }

    fn is_late(&self, takes_s: f64) -> bool {
        self.began.elapsed().as_secs_f64() + takes_s > self.options.seconds
    }

    fn budget(&self, frames: usize) -> Budget {
        Budget::of_frames(self.around.data.train.lengths(), frames)
    }

    fn sizes(&self, config: &Config, asked: usize) -> Result<Found> {
        let lengths = self.around.data.train.lengths();
        let longest = lengths.iter().map(|length| length.frames).max().unwrap_or(1);
        let total: usize = lengths.iter().map(|length| length.frames + GAP).sum();
        let least = (longest + GAP).next_multiple_of(64);
        let most = (total / STEPS_OF_AN_EPOCH).max(asked).max(least);
        let bounds = Bounds { least, most, trials: self.options.trials };
        let mut found = search(asked, bounds, |frames| self.size(config, frames))?;
        // One below what was asked for shows whether less would do.
        let half = (asked / 2).max(least);
        if found.trials.first().is_some_and(|smallest| smallest.asked > half)
            && let Attempt::Fits(trial) = self.size(config, half)?
        {
            found.trials.insert(0, *trial);
        }
        Ok(found)
    }

    fn size(&self, config: &Config, frames: usize) -> Result<Attempt> {
        ensure!(!self.around.stop.load(Ordering::Relaxed), "interrupted; nothing was written");
        if let Some((before, wall_s, mib)) = self.last.get() {
            let times = frames as f64 / before as f64;
            if self.is_late(wall_s * times.max(1.0)) {
                return Ok(Attempt::OutOfTime);
            }
            let foreseen = self.resting_mib + (mib - self.resting_mib).max(0.0) * times;
            if let Some(limit) = self.limit().filter(|limit| times > 1.0 && foreseen > limit.mib) {
                let why = format!(
                    "would take about {foreseen:.0} of {:.0} MiB, by what {before} frames took; not tried",
                    limit.mib
                );
                return Ok(Attempt::TooLarge(why));
            }
        }
        self.around.bar.set_message(format!("{frames} frames a batch"));
        let trial = match dry_run(self.around, config, self.budget(frames), self.options.trial_seconds) {
            Ok(trial) => Trial { asked: frames, ..trial },
            Err(error) => return shortage(&error).map(Attempt::TooLarge).ok_or(error),
        };
        let peak = trial.peak_mib.unwrap_or(0.0);
        self.last.set(Some((frames, trial.wall_s, peak)));
        match self.limit().filter(|limit| peak > limit.mib) {
            Some(limit) => Ok(Attempt::TooLarge(format!("took {peak:.0} MiB, and {:.0} are there to take", limit.mib))),
            None => Ok(Attempt::Fits(Box::new(trial))),
        }
    }

    /// A GPU's allocator says by itself when it is full.
    fn limit(&self) -> Option<HostLimit> {
        self.options.host_limit.filter(|_| !self.around.roles.model.is_cuda())
    }

    /// Nothing where it does not fit or there is no time.
    fn try_out(&self, around: &Surroundings, config: &Config, like: &Trial) -> Result<Option<Trial>> {
        ensure!(!around.stop.load(Ordering::Relaxed), "interrupted; nothing was written");
        if self.is_late(like.wall_s) {
            return Ok(None);
        }
        match dry_run(around, config, self.budget(like.frames), self.options.trial_seconds) {
            Ok(trial) => Ok(Some(Trial { asked: like.asked, ..trial })),
            Err(error) => shortage(&error).map(|_| None).ok_or(error),
        }
    }

    /// Precision and graph capture, each the other way round.
    fn step_settings(
        &self,
        config: &mut Config,
        chosen: &mut Trial,
        choices: &mut Vec<Choice>,
    ) -> Result<Vec<Comparison>> {
        if !self.around.roles.model.is_cuda() {
            return Ok(Vec::new());
        }
        let switches: [Switch; 2] = [
            ("training.mixed_precision", "mixed_precision", |config| &mut config.training.mixed_precision),
            ("training.enable_xla", "enable_graphs", |config| &mut config.training.enable_xla),
        ];
        let mut compared = Vec::new();
        for (key, setting, switch) in switches {
            let mut other = config.clone();
            let flipped = !*switch(&mut other);
            *switch(&mut other) = flipped;
            self.around.bar.set_message(format!("{setting}: {flipped}"));
            let Some(trial) = self.try_out(self.around, &other, chosen)? else { continue };
            let (now, then) = (chosen.audio_seconds_per_second, trial.audio_seconds_per_second);
            let (mut kept, mut left) = (((!flipped).to_string(), now), (flipped.to_string(), then));
            if trial.is_faster_than(chosen) {
                std::mem::swap(&mut kept, &mut left);
                (*config, *chosen) = (other, trial);
            }
            let reason = format!("{:.0} s of speech a second; {}: {:.0}", kept.1, left.0, left.1);
            choices.push(Choice::new(key, kept.0 == "true", reason));
            compared.push(Comparison { setting: setting.into(), kept, left });
        }
        Ok(compared)
    }

    /// Where the CPU makes features: are frames on disk faster than samples?
    fn content(
        &self,
        config: &mut Config,
        chosen: &Trial,
        utterances: &[Utterance],
        choices: &mut Vec<Choice>,
    ) -> Result<Option<Comparison>> {
        let augments = config.data.augment_noise_snr_db.is_some() || config.data.augment_pitch_semitones > 0.0;
        let asked = config.data.cache_content == CacheContent::Pcm && self.around.roles.data == Device::Cpu;
        if !asked || augments || self.is_late(2.0 * chosen.wall_s) {
            return Ok(None);
        }
        self.around.bar.set_message("cache_content: mel");
        let every = utterances.len().div_ceil(COMPARED_CLIPS).max(1);
        let some: Vec<Utterance> = utterances.iter().step_by(every).cloned().collect();
        let sized = self.around.data.with_budget(self.budget(chosen.frames));
        let around = Surroundings { data: &sized, ..*self.around };
        let run = |content: CacheContent| -> Result<Trial> {
            let data = over(&around, build(&around, &some, content)?.1)?;
            dry_run_over(self.around, config, &data, self.options.trial_seconds)
        };
        let (pcm, mel) = (run(CacheContent::Pcm)?, run(CacheContent::Mel)?);
        let takes_mel = mel.is_faster_than(&pcm);
        let named = |name: &str, trial: &Trial| (name.to_owned(), trial.audio_seconds_per_second);
        let (pcm, mel) = (named("pcm", &pcm), named("mel", &mel));
        let (kept, left) = if takes_mel { (mel, pcm) } else { (pcm, mel) };
        if takes_mel {
            config.data.cache_content = CacheContent::Mel;
        }
        let note = if takes_mel { "; a vocoder needs pcm" } else { "" };
        let reason =
            format!("{:.0} s of speech a second over {} clips; {}: {:.0}{note}", kept.1, some.len(), left.0, left.1);
        choices.push(Choice::new("data.cache_content", kept.0.clone(), reason));
        Ok(Some(Comparison { setting: format!("cache_content ({} clips)", some.len()), kept, left }))
    }

    /// Deeper queues while the step waits and they help.
    fn depths(&self, config: &mut Config, chosen: &mut Trial, choices: &mut Vec<Choice>) -> Result<()> {
        config.data.prefetch_buffer_size = Some(config.data.prefetch_depth());
        while chosen.readiness < READY && config.data.prefetch_depth() < DEEPEST {
            let mut deeper = config.clone();
            deeper.data.prefetch_buffer_size = Some((config.data.prefetch_depth() * 2).min(DEEPEST));
            deeper.data.pipeline_buffer_size = config.data.pipeline_buffer_size.max(4);
            self.around.bar.set_message(format!("{} batches ahead", deeper.data.prefetch_depth()));
            match self.try_out(self.around, &deeper, chosen)? {
                Some(trial) if trial.is_faster_than(chosen) => {
                    (*config, *chosen) = (deeper, trial);
                }
                _ => break,
            }
        }
        let reason = format!("batches were ready {:.1} % of the time", chosen.readiness * 100.0);
        choices.push(Choice::new("data.prefetch_buffer_size", config.data.prefetch_depth(), reason.clone()));
        choices.push(Choice::new("data.pipeline_buffer_size", config.data.pipeline_buffer_size, reason));
        Ok(())
    }

    /// Which GPUs for which role.
    fn gpus(&self, config: &mut Config, chosen: &mut Trial, choices: &mut Vec<Choice>) -> Result<Gpus> {
        let (count, roles) = (torchx::cuda::device_count(), self.around.roles);
        let Device::Cuda(model) = roles.model else {
            return Ok(Gpus { count, predicted: None, producer_consumer: None });
        };
        let times = Times {
            step_ms: chosen.step_ms / config.training.gradient_accumulation_steps as f64,
            headspace_ms: chosen.headspace_ms / config.training.gradient_accumulation_steps as f64,
            features_ms: chosen.features_ms + chosen.copy_ms + chosen.transfer_ms,
            batch_bytes: (chosen.frames as i64 * config.model.n_mels * 4) as f64,
            parameters: chosen.parameters,
        };
        let predicted = Some(times.predict());
        let other = (0..count).find(|gpu| *gpu != model);
        let (Some(other), true) = (other, roles.data == roles.model && config.training.data_gpu.is_none()) else {
            return Ok(Gpus { count, predicted, producer_consumer: None });
        };
        self.around.bar.set_message(format!("data on GPU {other}"));
        let apart = Surroundings { roles: Roles { data: Device::Cuda(other), ..roles }, ..*self.around };
        let pair = self.try_out(&apart, config, chosen)?;
        let producer_consumer = pair.as_ref().map(|trial| trial.audio_seconds_per_second);
        if let Some(pair) = pair.filter(|pair| pair.is_faster_than(chosen)) {
            let gain = pair.audio_seconds_per_second / chosen.audio_seconds_per_second;
            let reason = format!("×{gain:.2} of one GPU in both roles, measured");
            (config.training.data_gpu, config.training.model_gpu) = (Some(other), Some(model));
            choices.push(Choice::new("training.data_gpu", other, reason.clone()));
            choices.push(Choice::new("training.model_gpu", model, reason));
            *chosen = pair;
        }
        Ok(Gpus { count, predicted, producer_consumer })
    }

    /// As it was and as it is now.
    fn verify(&self, tuned: &Config) -> Result<(Option<Trial>, Trial)> {
        let seconds = 2.0 * self.options.trial_seconds;
        self.around.bar.set_message("verifying: before");
        let before = match dry_run(self.around, self.around.config, self.around.data.budget, seconds) {
            Ok(trial) => Some(trial),
            Err(error) => shortage(&error).map(|_| None).ok_or(error)?,
        };
        self.around.bar.set_message("verifying: after");
        let frames = tuned.data.frame_budget.context("a tuned config has a frame budget")?;
        // The cache of this run holds what it held before.
        let mut config = tuned.clone();
        config.data.cache_content = self.around.config.data.cache_content;
        let roles = match (tuned.training.data_gpu, tuned.training.model_gpu) {
            (Some(data), Some(model)) => Roles { data: Device::Cuda(data), model: Device::Cuda(model) },
            _ => self.around.roles,
        };
        let after = dry_run(&Surroundings { roles, ..*self.around }, &config, self.budget(frames), seconds)?;
        Ok((before, after))
    }
}

impl Tuned {
    pub fn report(&self) -> Report {
        let mut sections = vec![self.sizes(), self.settings(), self.two_gpus(), self.chosen_values()];
        sections.extend(self.before_and_after());
        let figures = json!({
            "trials": self.found.trials,
            "too_large": self.found.too_large,
            "chosen": self.chosen,
            "choices": self.choices,
            "tried": self.tried,
            "gpus": self.gpus,
            "before": self.verified.as_ref().map(|(before, _)| before),
            "after": self.verified.as_ref().map(|(_, after)| after),
            "seconds": self.seconds,
        });
        Report { sections, figures, ..Report::new(format!("Settings found by trying, in {:.0} s", self.seconds)) }
    }

    fn sizes(&self) -> Section {
        let mut section = Section::new("Sizes of batches");
        let fastest = self.found.fastest().map(|trial| trial.frames);
        let chosen = self.config.data.frame_budget;
        for trial in &self.found.trials {
            let memory = trial.peak_mib.map_or(String::new(), |mib| format!(" · {mib:.0} MiB"));
            let marks = [(chosen == Some(trial.frames), "chosen"), (fastest == Some(trial.frames), "fastest")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| format!(" · {mark}")).collect();
            let figures =
                format!("{:.0} s of speech a second · {:.1} ms a step", trial.audio_seconds_per_second, trial.step_ms);
            section.row(format!("{} frames", trial.frames), figures + &memory + &marks);
        }
        if let Some((frames, why)) = &self.found.too_large {
            section.row(format!("{frames} frames"), format!("too large: {why}"));
        }
        let (code, end) = match self.found.end {
            End::Memory => ("largest", "memory sets the limit"),
            End::Corpus => (
                "largest",
                "an epoch of this corpus would have fewer than eight steps beyond that, so nothing larger was tried",
            ),
            End::Trials => ("largest", "as many as were to be tried"),
            End::Time => ("time", "the time was over before memory was full: --seconds allows more"),
        };
        section.findings.push(Finding::good(code, end));
        let cvs = self.found.trials.iter().map(|trial| trial.step_cv);
        let unsteady = cvs.fold(0.0, f64::max);
        if unsteady > UNSTEADY_CV {
            let fact =
                format!("steps of one size varied by up to {:.0} %: only larger differences count", unsteady * 100.0);
            let advice = "try again with nothing else on the machine, and more --seconds";
            section.findings.push(Finding::warning("unsteady", 0.0, fact, advice));
        }
        if let Some(trial) = self
            .found
            .trials
            .iter()
            .find(|trial| Some(trial.frames) == chosen)
            .filter(|trial| trial.asked < self.asked_frames)
        {
            let fact =
                format!("{} frames a batch instead of {}: a step sees less speech", trial.frames, self.asked_frames);
            let parts = self.asked_frames.div_ceil(trial.frames);
            let advice = format!("`gradient_accumulation_steps: {parts}` makes steps as large as before");
            section.findings.push(Finding::warning("smaller-batch", 0.0, fact, advice));
        }
        section
    }

    fn settings(&self) -> Section {
        let mut section = Section::new("Other settings, both ways");
        for Comparison { setting, kept, left } in &self.tried {
            let speech = |(value, rate): &(String, f64)| format!("{value}: {rate:.0} s of speech a second");
            section.row(setting.clone(), format!("{} · {}", speech(kept), speech(left)));
        }
        if !self.on_gpu {
            section.row("precision, graphs", "not tried: a CPU computes in f32, and has no graphs");
        }
        section
    }

    fn two_gpus(&self) -> Section {
        let mut section = Section::new("One GPU or two?");
        let Some(predicted) = self.gpus.predicted else {
            section.row("here", "there is no GPU, so nothing about one was measured; with one, this command says whether two would help");
            return section;
        };
        let line = |ms: f64, gain: f64, how: &str| format!("{ms:.2} ms a batch, ×{gain:.2} ({how})");
        section.row("one", line(predicted.one_ms, 1.0, "measured"));
        let pair = match self.gpus.producer_consumer {
            Some(rate) => format!(
                "{rate:.0} s of speech a second, measured; predicted ×{:.2}",
                predicted.producer_consumer_gain()
            ),
            None => line(
                predicted.producer_consumer_ms,
                predicted.producer_consumer_gain(),
                "predicted from the times measured on one",
            ),
        };
        section.row("producer and consumer", pair);
        let parallel = line(
            predicted.data_parallel_ms,
            predicted.data_parallel_gain(),
            "predicted, at 25 GB/s between the cards; this version does not offer it",
        );
        section.row("two side by side", parallel);
        section.findings.push(Finding::good("two-gpus", format!("{} (a prediction)", predicted.answer())));
        section
    }

    fn chosen_values(&self) -> Section {
        let mut section = Section::new("Chosen");
        for Choice { key, value, reason } in &self.choices {
            let name = key.split_once('.').map_or(*key, |(_, name)| name);
            section.row(format!("{name}: {value}"), reason.clone());
        }
        section
    }

    fn before_and_after(&self) -> Option<Section> {
        let (before, after) = self.verified.as_ref()?;
        let mut section = Section::new("Before and after");
        let Some(before) = before else {
            section.row("before", "did not fit into memory");
            section.row("after", format!("{:.0} s of speech a second", after.audio_seconds_per_second));
            section.findings.push(Finding::good("verified", "it runs now"));
            return Some(section);
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut row = |name: &str, of: &dyn Fn(&Trial) -> String| {
            section.row(name, format!("{} → {}", of(before), of(after)));
        };
        row("speech a second", &|trial| format!("{:.0} s", trial.audio_seconds_per_second));
        row("a step", &|trial| format!("{:.1} ms", trial.step_ms));
        row("frames a batch", &|trial| trial.frames.to_string());
        row("batches ready", &|trial| percent(trial.readiness));
        row("padding", &|trial| percent(trial.padding_share));
        row("memory", &|trial| trial.peak_mib.map_or("–".into(), |mib| format!("{mib:.0} MiB")));
        if self.config.data.cache_content == CacheContent::Mel {
            section
                .row("cache_content", "both from the cache as it is; the one with mel frames is built by the next run");
        }
        let gain = after.audio_seconds_per_second / before.audio_seconds_per_second;
        section.findings.push(match (after.is_faster_than(before), before.is_faster_than(after)) {
            (true, _) => Finding::good("verified", format!("×{gain:.2} speech a second")),
            (_, false) => Finding::good("verified", format!("×{gain:.2}: no difference that is more than chance")),
            (_, true) => Finding::warning(
                "slower",
                1.0 - gain,
                format!("×{gain:.2}: slower than before"),
                "run it again with nothing else on the machine; otherwise keep your settings",
            ),
        });
        Some(section)
    }
}

/// What the file says above its settings.
pub fn head(tuned: &Tuned, roles: Roles) -> Vec<String> {
    let on = if roles.data == roles.model {
        name(roles.model)
    } else {
        format!("{} and {}", name(roles.data), name(roles.model))
    };
    let speed = tuned.verified.as_ref().map_or(&tuned.chosen, |(_, after)| after).audio_seconds_per_second;
    vec![
        format!("Written by `myxtts configure` on {on}: {speed:.0} seconds of speech a second when it was tried."),
        "Each value stands beside the measurement it was chosen by. A flag wins over it.".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{self, sample};
    use crate::feed::Caps;
    use crate::simulate::Delays;
    use crate::train::{self, Known};
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    const TINY: &str = "
model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, decoder_heads: 2, voice_dim: 32}
training: {device: cpu}
data: {batch_size: 4, num_workers: 1, enable_caching: false, tokenizer: characters}
";

    /// Every size takes more than there is: each is tried, stepped back from, and the last word says what to do.
    #[test]
    fn a_limit_that_nothing_fits_into_is_stepped_back_from_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let corpus_dir = dir.path().join("corpus");
        let options = sample::Options { clips: 8, voice: sample::Voice::Formant, ..sample::Options::default() };
        sample::write(&corpus_dir, &options, &|_| std::ops::ControlFlow::Continue(())).unwrap();
        let mut config = Config::parse(TINY, Path::new("a.yaml")).unwrap();
        config.data.dataset_path = Some(corpus_dir.clone());
        let (stop, bar) = (AtomicBool::new(false), indicatif::ProgressBar::hidden());
        let data = train::prepare(&config, Known::Nothing, &|_| (), &stop).unwrap();
        let (roles, caps) = (Roles { data: Device::Cpu, model: Device::Cpu }, Caps::default());
        let (began, delays) = (Instant::now(), Delays::default());
        let around = Surroundings { config: &config, data: &data, roles, caps, bar: &bar, stop: &stop, began, delays };
        let host_limit = Some(HostLimit { mib: 1.0 });
        let options = Options { seconds: 60.0, trial_seconds: 0.01, trials: 12, verify: false, host_limit };
        let utterances = corpus::read(&corpus_dir, &corpus::Options::default()).unwrap().utterances;
        let error = configure(&around, &utterances, options).err().expect("nothing fits").to_string();
        assert!(error.starts_with("not even ") && error.contains("MiB, and 1 are there"), "{error}");
        assert!(error.contains("enable_gradient_checkpointing"), "{error}");
    }
}
