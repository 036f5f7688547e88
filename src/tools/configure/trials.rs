//! Trials of settings: each changes one thing, within a time that is given.

use super::dry_run::{dry_run, dry_run_over, shortage};
use super::search::{Attempt, Bounds, search};
use super::side_by_side::side_by_side;
use super::{BatchTimes, ChosenSetting, HostLimit, SettingComparison, SizeSearch, Trial, TuneOptions, TwoGpus};
use crate::feed::Roles;
use crate::run::RunContext;
use crate::tools::analyze::{build, over};
use crate::tools::peak_host_mib;
use anyhow::{Context, Result};
use host::config::{CacheContent, Config, GpuList};
use host::corpus::Utterances;
use host::loader::{Budget, GAP};
use std::cell::Cell;
use std::time::Instant;
use tch::Device;

/// An epoch should have so many steps at least.
const STEPS_OF_AN_EPOCH: usize = 8;
/// Above it batches are ready when they are wanted.
const READY: f64 = 0.995;
const DEEPEST: usize = 8;
/// Steps of a trial with all GPUs side by side.
const SIDE_BY_SIDE_STEPS: u64 = 50;
/// More GPUs must bring at least this share, for they cost at least as much.
const NOTICEABLE: f64 = 0.05;
/// Clips that are turned into features again to compare what a cache may keep.
const COMPARED_CLIPS: usize = 64;

/// A setting that is on or off: its key, the name people know, and where it is.
type Switch = (&'static str, &'static str, fn(&mut Config) -> &mut bool);

/// Where trials are run, and until when.
pub struct Trials<'a> {
    context: &'a RunContext<'a>,
    options: TuneOptions,
    pub began: Instant,
    /// Memory of the process before the first trial.
    resting_mib: f64,
    /// Frames, seconds and MiB of the last trial: what the next one would need.
    last: Cell<Option<(usize, f64, f64)>>,
}

impl<'a> Trials<'a> {
    pub fn new(context: &'a RunContext, options: TuneOptions) -> Self {
        let resting_mib = peak_host_mib().unwrap_or(0.0);
        Trials { context, options, began: Instant::now(), resting_mib, last: Cell::new(None) }
    }

    fn is_late(&self, takes_s: f64) -> bool {
        self.began.elapsed().as_secs_f64() + takes_s > self.options.seconds
    }

    fn budget(&self, frames: usize) -> Budget {
        Budget::of_frames(self.context.data.train.lengths(), frames)
    }

    pub fn sizes(&self, config: &Config, asked: usize) -> Result<SizeSearch> {
        let lengths = self.context.data.train.lengths();
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
        self.context.go_on()?;
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
        self.context.bar.set_message(format!("{frames} frames a batch"));
        let trial = match dry_run(self.context, config, self.budget(frames), self.options.trial_seconds) {
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
        self.options.host_limit.filter(|_| !self.context.roles.model.is_cuda())
    }

    /// Runs other settings; nothing where they do not fit or there is no time.
    fn try_out(&self, context: &RunContext, config: &Config, like: &Trial) -> Result<Option<Trial>> {
        context.go_on()?;
        if self.is_late(like.wall_s) {
            return Ok(None);
        }
        match dry_run(context, config, self.budget(like.frames), self.options.trial_seconds) {
            Ok(trial) => Ok(Some(Trial { asked: like.asked, ..trial })),
            Err(error) => shortage(&error).map(|_| None).ok_or(error),
        }
    }

    /// Tries precision and graph capture, each the other way round.
    pub fn step_settings(
        &self,
        config: &mut Config,
        chosen: &mut Trial,
        choices: &mut Vec<ChosenSetting>,
    ) -> Result<Vec<SettingComparison>> {
        if !self.context.roles.model.is_cuda() {
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
            self.context.bar.set_message(format!("{setting}: {flipped}"));
            let Some(trial) = self.try_out(self.context, &other, chosen)? else { continue };
            let (now, then) = (chosen.audio_seconds_per_second, trial.audio_seconds_per_second);
            let (mut kept, mut left) = (((!flipped).to_string(), now), (flipped.to_string(), then));
            if trial.is_faster_than(chosen) {
                std::mem::swap(&mut kept, &mut left);
                (*config, *chosen) = (other, trial);
            }
            let reason = format!("{:.0} s of speech a second; {}: {:.0}", kept.1, left.0, left.1);
            choices.push(ChosenSetting::new(key, kept.0 == "true", reason));
            compared.push(SettingComparison { setting: setting.into(), kept, left });
        }
        Ok(compared)
    }

    /// Where the CPU makes features: are frames on disk faster than samples?
    pub fn content(
        &self,
        config: &mut Config,
        chosen: &Trial,
        utterances: &Utterances,
        choices: &mut Vec<ChosenSetting>,
    ) -> Result<Option<SettingComparison>> {
        let augments = config.data.augment_noise_snr_db.is_some() || config.data.augment_pitch_semitones > 0.0;
        let asked = config.data.cache_content == CacheContent::Pcm && self.context.roles.data == Device::Cpu;
        if !asked || augments || self.is_late(2.0 * chosen.wall_s) {
            return Ok(None);
        }
        self.context.bar.set_message("cache_content: mel");
        let every = utterances.len().div_ceil(COMPARED_CLIPS).max(1);
        let some: Utterances = utterances.iter().step_by(every).collect();
        let sized = self.context.data.with_budget(self.budget(chosen.frames));
        let context = RunContext { data: &sized, ..*self.context };
        let run = |content: CacheContent| -> Result<Trial> {
            let data = over(&context, build(&context, &some, content)?.1)?;
            dry_run_over(self.context, config, &data, self.options.trial_seconds)
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
        choices.push(ChosenSetting::new("data.cache_content", kept.0.clone(), reason));
        Ok(Some(SettingComparison { setting: format!("cache_content ({} clips)", some.len()), kept, left }))
    }

    /// Tries deeper queues while the step waits and they help.
    pub fn depths(&self, config: &mut Config, chosen: &mut Trial, choices: &mut Vec<ChosenSetting>) -> Result<()> {
        config.data.prefetch_buffer_size = Some(config.data.prefetch_depth());
        while chosen.readiness < READY && config.data.prefetch_depth() < DEEPEST {
            let mut deeper = config.clone();
            deeper.data.prefetch_buffer_size = Some((config.data.prefetch_depth() * 2).min(DEEPEST));
            deeper.data.pipeline_buffer_size = config.data.pipeline_buffer_size.max(4);
            self.context.bar.set_message(format!("{} batches ahead", deeper.data.prefetch_depth()));
            match self.try_out(self.context, &deeper, chosen)? {
                Some(trial) if trial.is_faster_than(chosen) => {
                    (*config, *chosen) = (deeper, trial);
                }
                _ => break,
            }
        }
        let reason = format!("batches were ready {:.1} % of the time", chosen.readiness * 100.0);
        choices.push(ChosenSetting::new("data.prefetch_buffer_size", config.data.prefetch_depth(), reason.clone()));
        choices.push(ChosenSetting::new("data.pipeline_buffer_size", config.data.pipeline_buffer_size, reason));
        Ok(())
    }

    /// Tries a GPU of its own for the data role.
    pub fn gpus(&self, config: &mut Config, chosen: &mut Trial, choices: &mut Vec<ChosenSetting>) -> Result<TwoGpus> {
        let (count, roles) = (torchx::cuda::device_count(), self.context.roles);
        let Device::Cuda(model) = roles.model else {
            return Ok(TwoGpus { count, predicted: None, producer_consumer: None, side_by_side: None });
        };
        let times = BatchTimes {
            step_ms: chosen.step_ms / config.training.gradient_accumulation_steps as f64,
            headspace_ms: chosen.headspace_ms / config.training.gradient_accumulation_steps as f64,
            features_ms: chosen.features_ms + chosen.copy_ms + chosen.transfer_ms,
            batch_bytes: (chosen.frames as i64 * config.model.n_mels * 4) as f64,
            parameters: chosen.parameters,
        };
        let predicted = Some(times.predict());
        let other = (0..count).find(|gpu| *gpu != model);
        let (Some(other), true) = (other, roles.data == roles.model && config.training.data_gpu.is_none()) else {
            return Ok(TwoGpus { count, predicted, producer_consumer: None, side_by_side: None });
        };
        self.context.bar.set_message(format!("data on GPU {other}"));
        let apart = RunContext { roles: Roles { data: Device::Cuda(other), ..roles }, ..*self.context };
        let pair = self.try_out(&apart, config, chosen)?;
        let producer_consumer = pair.as_ref().map(|trial| trial.audio_seconds_per_second);
        if let Some(pair) = pair.filter(|pair| pair.is_faster_than(chosen)) {
            let gain = pair.audio_seconds_per_second / chosen.audio_seconds_per_second;
            let reason = format!("×{gain:.2} of one GPU in both roles, measured");
            (config.training.data_gpu, config.training.model_gpu) = (Some(other), Some(model.into()));
            choices.push(ChosenSetting::new("training.data_gpu", other, reason.clone()));
            choices.push(ChosenSetting::new("training.model_gpu", model, reason));
            *chosen = pair;
        }
        self.context.bar.set_message(format!("{count} GPUs side by side"));
        let all = GpuList::try_from((0..count).collect::<Vec<_>>()).map_err(anyhow::Error::msg)?;
        let tried = side_by_side(config, Some(all.clone()), count, SIDE_BY_SIDE_STEPS);
        if let Ok(ranks) = &tried
            && ranks.audio_seconds_per_second > chosen.audio_seconds_per_second * (1.0 + NOTICEABLE)
        {
            let gain = ranks.audio_seconds_per_second / chosen.audio_seconds_per_second;
            let reason = format!("{count} ranks side by side: ×{gain:.2}, measured");
            choices.retain(|choice| !matches!(choice.key, "training.data_gpu" | "training.model_gpu"));
            choices.push(ChosenSetting::new("training.model_gpu", serde_json::to_value(&all)?, reason));
            (config.training.data_gpu, config.training.model_gpu) = (None, Some(all));
        }
        let side_by_side =
            Some(tried.map(|ranks| ranks.audio_seconds_per_second).map_err(|error| format!("{error:#}")));
        Ok(TwoGpus { count, predicted, producer_consumer, side_by_side })
    }

    /// Runs the settings as they were and as they are now.
    pub fn verify(&self, tuned: &Config) -> Result<(Option<Trial>, Trial)> {
        let seconds = 2.0 * self.options.trial_seconds;
        self.context.bar.set_message("verifying: before");
        let before = match dry_run(self.context, self.context.config, self.context.data.budget, seconds) {
            Ok(trial) => Some(trial),
            Err(error) => shortage(&error).map(|_| None).ok_or(error)?,
        };
        self.context.bar.set_message("verifying: after");
        let frames = tuned.data.frame_budget.context("a tuned config has a frame budget")?;
        // The cache of this run holds what it held before.
        let mut config = tuned.clone();
        config.data.cache_content = self.context.config.data.cache_content;
        let roles = match (tuned.training.data_gpu, &tuned.training.model_gpu) {
            (Some(data), Some(model)) => Roles { data: Device::Cuda(data), model: Device::Cuda(model.first()) },
            _ => self.context.roles,
        };
        let after = dry_run(&RunContext { roles, ..*self.context }, &config, self.budget(frames), seconds)?;
        Ok((before, after))
    }
}
