//! What every run of the pipeline stands on, whether it trains, measures or diagnoses: its context, its loader, its feed.

mod batches;
mod delays;
mod observe;
mod progress;
pub mod timeline;
mod times;

pub use batches::{batch_on, means_over, mel_stats};
pub use delays::delaying;
pub use observe::{Done, Judgement, Observation, Observer, Pulse, Wishes};
pub use progress::{MemoryUsage, Progress};
pub use times::{LoaderTimes, StageTimes, Steadiness, feed_queued};

use crate::feed::{self, Caps, Features, Feed, MelStats, Producer, Purpose, Role, Roles};
use crate::ranks::Ranks;
use anyhow::Result;
use host::config::{Config, Data, Precision, Training};
use host::dataset::TrainingData;
use host::error::Interrupted;
use host::loader::{self, BlockLayout, Budget, Lanes, Loader, Position, Share};
use host::machine::{MIB, mib};
use host::simulate::Hook;
use host::telemetry::console;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tch::{Device, Kind};

/// Config, data, devices and clocks of a run, whatever it trains.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub config: &'a Config,
    pub data: &'a TrainingData,
    pub roles: Roles,
    pub caps: Caps,
    pub bar: &'a ProgressBar,
    pub stop: &'a AtomicBool,
    /// When the program began, for the time to the first step.
    pub began: Instant,
    /// What every stage of the run calls at its moments.
    pub hook: &'a Hook,
    /// Nobody sees a bar: how the run goes is said in lines.
    pub says_lines: bool,
    /// Gets the figures of the run whenever they are logged.
    pub watch: &'a dyn Fn(&Progress),
    /// Looks at the run, and may ask for something.
    pub observer: Option<&'a dyn Observer>,
    /// Those that train together with this process.
    pub ranks: Option<&'a Arc<Ranks>>,
}

impl<'a> RunContext<'a> {
    /// A run that nothing slows down and nobody but its log watches.
    pub fn new(
        config: &'a Config,
        data: &'a TrainingData,
        (roles, caps): (Roles, Caps),
        bar: &'a ProgressBar,
        stop: &'a AtomicBool,
        began: Instant,
    ) -> Self {
        let (hook, watch): (_, &dyn Fn(&Progress)) = (&Hook::NONE, &|_| ());
        RunContext {
            config,
            data,
            roles,
            caps,
            bar,
            stop,
            began,
            hook,
            says_lines: false,
            watch,
            observer: None,
            ranks: None,
        }
    }

    /// An error once somebody has asked to stop: for measurements, which save nothing.
    pub fn go_on(&self) -> Result<(), Interrupted> {
        if self.stop.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }

    /// The part of the batches that this process takes.
    pub fn share(&self) -> Share {
        self.ranks.map_or(Share::WHOLE, |ranks| Share { rank: ranks.me.rank, ranks: ranks.me.size })
    }

    /// Threads that the loader begins with: ranks of one machine share its cores, unless a number was given.
    fn loader_workers(&self) -> usize {
        let (workers, given) = (self.config.data.loader_workers(), self.config.data.num_workers.is_some());
        match self.ranks {
            Some(ranks) if !given => workers.min((workers / ranks.neighbours().count()).max(1)),
            _ => workers,
        }
    }

    /// Steps that the schedule and the progress bar count to. Epochs differ by a batch or so; the end is decided elsewhere.
    pub fn expected_steps(&self) -> u64 {
        let (training, data) = (&self.config.training, self.data);
        let batches = training.gradient_accumulation_steps * self.share().ranks as u64;
        let by_epochs = |epochs: u64| {
            let epoch = data.train.batches(&data.budget, training.seed) as u64;
            (epoch * epochs).div_ceil(batches).max(1)
        };
        training.steps.into_iter().chain(training.epochs.map(by_epochs)).min().unwrap_or(u64::MAX)
    }
}

/// Has LibTorch choose kernels as the settings ask: for a training, and for whatever shall time the same ones. Call it
/// before a GPU is opened.
pub fn choose_kernels(training: &Training) -> Result<(), torchx::Error> {
    if training.deterministic_kernels {
        return torchx::require_deterministic();
    }
    // Shapes are fixed: it pays to try all of cuDNN's convolutions once. What wins may change from run to run, and trying needs
    // memory for the hungriest of them.
    tch::Cuda::cudnn_set_benchmark(!training.enable_memory_isolation);
    Ok(())
}

/// Starts the loader alone, from a position on.
pub fn start_loader(context: &RunContext, from: Position) -> Result<Loader, loader::Error> {
    let RunContext { config, data, roles, hook, .. } = *context;
    let settings = &config.data;
    let options = loader::LoaderOptions {
        seed: config.training.seed,
        from,
        share: context.share(),
        lanes: context.ranks.map_or(Lanes::ONE, |ranks| Lanes::of_machines(&ranks.machine_names())),
        workers: context.loader_workers(),
        depth: settings.prefetch_depth(),
        in_flight: host::loader::COPIES_IN_FLIGHT,
        ordered: settings.deterministic,
        allocate: feed::allocate(roles.data),
        max_failures: settings.max_failures.of(data.train.lengths().len()),
        hook: hook.clone(),
    };
    Loader::start(data.train.clone(), data.budget, options)
}

/// Starts loader, features and ring, from a position on.
pub fn start_feed(context: &RunContext, from: Position, stats: MelStats, purpose: Purpose) -> Result<Feed> {
    let RunContext { config, roles, hook, .. } = *context;
    let settings = &config.data;
    let loader = start_loader(context, from)?;
    let layout = Arc::new(loader.layout().clone());
    let slots = slots_that_fit(context, &layout, purpose);
    let features = Features::new(config, layout, stats, purpose, roles.data)?;
    let overlap = settings.optimize_cpu_gpu_overlap && slots > 0;
    let producer = Producer::new(Arc::new(loader), features, roles, overlap, hook.clone())?;
    let feed = Feed::start(producer, slots)?;
    feed.warm_up(Duration::from_secs_f64(config.training.model_start_delay));
    Ok(feed)
}

/// Part of the free memory that batches may wait in; the rest is the step's.
const RING_SHARE: u64 = 4;

/// Slots of the ring: those that were asked for, or as many as there is room for, which is said.
fn slots_that_fit(context: &RunContext, layout: &BlockLayout, purpose: Purpose) -> usize {
    let RunContext { config, roles, .. } = context;
    let (wanted, bytes) = (ring_slots(&config.data), slot_bytes(config, layout, purpose));
    let Some(free) = free_bytes(context).filter(|_| wanted > 1) else { return wanted };
    let slots = wanted.min((free / RING_SHARE / bytes).max(1) as usize);
    if slots < wanted {
        let (each, free) = (mib(bytes), mib(free));
        note(
            context.bar,
            &format!(
                "note: pipeline_buffer_size {wanted}: {slots} batches of {each:.1} MiB fit into a quarter of the \
                 {free:.0} MiB that are free on {}, so the ring has {slots}",
                feed::name(roles.model)
            ),
        );
    }
    slots
}

/// What is free for the model role: of its cap, of its GPU, or of the host's memory.
fn free_bytes(context: &RunContext) -> Option<u64> {
    let RunContext { roles, caps, .. } = context;
    if !roles.model.is_cuda() {
        return host::machine::available_bytes();
    }
    let used = torchx::memory::stats(roles.model).ok()?;
    match caps.of(Role::Model) {
        Some(cap) => Some((cap * MIB).saturating_sub(used.allocated_bytes as u64)),
        None => Some(
            torchx::cuda::facts(roles.model).ok()?.free_bytes
                + (used.reserved_bytes - used.allocated_bytes).max(0) as u64,
        ),
    }
}

/// Memory of one batch on the model device.
fn slot_bytes(config: &Config, layout: &BlockLayout, purpose: Purpose) -> u64 {
    let Budget { frames, tokens, .. } = layout.budget;
    let samples = if matches!(purpose, Purpose::Voice) { 0 } else { layout.hop_samples };
    let values = frames * (config.model.n_mels as usize + samples) + frames + tokens;
    (layout.tables.bytes + values * size_of::<f32>()).max(1) as u64
}

/// Writes a line above the bar. Not `bar.println`, which is silent where no bar is drawn.
pub fn note(bar: &ProgressBar, text: &str) {
    bar.suspend(|| console::say(text));
}

/// Number of batches that wait on the model device; 0: each is made when it is asked for.
pub fn ring_slots(settings: &Data) -> usize {
    match (settings.prefetch_to_gpu, settings.enhanced_gpu_prefetch) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => settings.pipeline_buffer_size,
    }
}

/// Kind of the activations on a device.
pub fn activation_kind(training: &Training, device: Device) -> Result<Kind> {
    if !training.mixed_precision || !device.is_cuda() {
        return Ok(Kind::Float);
    }
    Ok(match training.precision {
        Precision::Bf16 => Kind::BFloat16,
        Precision::Auto if torchx::cuda::facts(device)?.has_bf16() => Kind::BFloat16,
        Precision::Auto | Precision::F16 => Kind::Half,
    })
}

/// Name of that kind; f32 where it cannot be told.
pub fn activations(training: &Training, device: Device) -> &'static str {
    match activation_kind(training, device) {
        Ok(Kind::BFloat16) => "bf16",
        Ok(Kind::Half) => "f16",
        _ => "f32",
    }
}
