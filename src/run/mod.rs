//! What every run of the pipeline stands on, whether it trains, measures or diagnoses: its context, its loader, its feed.

mod batches;
mod delays;
mod progress;

pub use batches::{batch_on, means_over, mel_stats};
pub use delays::delaying;
pub use progress::{MemoryUsage, Progress};

use crate::feed::{self, Caps, Features, Feed, MelStats, Producer, Purpose, Roles};
use crate::ranks::Ranks;
use anyhow::Result;
use host::config::{Config, Data, Precision, Training};
use host::dataset::TrainingData;
use host::loader::{self, Loader, Position, Share};
use host::simulate::Hook;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
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
    /// Gets the figures of the run whenever they are logged.
    pub watch: &'a dyn Fn(&Progress),
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
        RunContext { config, data, roles, caps, bar, stop, began, hook: &Hook::NONE, watch: &|_| (), ranks: None }
    }

    /// The part of the batches that this process takes.
    pub fn share(&self) -> Share {
        self.ranks.map_or(Share::WHOLE, |ranks| Share { rank: ranks.me.rank, ranks: ranks.me.size })
    }

    /// Steps that the schedule and the progress bar count to. Epochs differ by a batch or so; the end is decided elsewhere.
    pub fn expected_steps(&self) -> u64 {
        let (training, data) = (&self.config.training, self.data);
        let epoch = loader::plan(data.train.lengths(), &data.budget, training.seed, 0).len() as u64;
        let batches = training.gradient_accumulation_steps * self.share().ranks as u64;
        let by_epochs = (epoch * training.epochs).div_ceil(batches).max(1);
        training.steps.map_or(by_epochs, |steps| steps.min(by_epochs))
    }
}

/// Has LibTorch choose kernels as the settings ask: for a training, and for whatever shall time the same ones. Call it
/// before a GPU is opened.
pub fn choose_kernels(training: &Training) -> Result<(), torchx::Error> {
    if training.deterministic_kernels { torchx::require_deterministic() } else { Ok(()) }
}

/// Starts the loader alone, from a position on.
pub fn start_loader(context: &RunContext, from: Position) -> Result<Loader, loader::Error> {
    let RunContext { config, data, roles, hook, .. } = *context;
    let settings = &config.data;
    let options = loader::LoaderOptions {
        seed: config.training.seed,
        from,
        share: context.share(),
        workers: settings.loader_workers(),
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
    let slots = ring_slots(settings);
    let layout = Arc::new(loader.layout().clone());
    let features = Features::new(config, layout, stats, purpose, roles.data)?;
    let overlap = settings.optimize_cpu_gpu_overlap && slots > 0;
    let producer = Producer::new(Arc::new(loader), features, roles, overlap, hook.clone())?;
    let feed = Feed::start(producer, slots)?;
    feed.warm_up(Duration::from_secs_f64(config.training.model_start_delay));
    Ok(feed)
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
