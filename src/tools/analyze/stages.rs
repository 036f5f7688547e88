//! Each stage of the data path by itself, then all together, then with a pause in the place of a step.

use crate::feed::{Delivery, Features, Interval, MelStats, Purpose, Roles, allocate, block_tensor};
use crate::run::{RunContext, start_feed, start_loader};
use anyhow::{Context, Result};
use host::cache::{self, BuildSeconds};
use host::config::CacheContent;
use host::corpus::Utterances;
use host::dataset::TrainingData;
use host::loader::{Budget, ClipLimits, Dataset, Position};
use host::simulate::Moment;
use host::telemetry::Spread;
use host::text::Tokenizer;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tch::Device;

/// Batches before anything is measured: memory is allocated and touched for the first time.
const WARM_UP_BATCHES: usize = 4;
/// However fast a stage is, more would tell nothing new.
const MOST_BATCHES: usize = 2_000;

/// Milliseconds of one text.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TextTimes {
    pub cold_ms: Spread,
    pub cached_ms: Spread,
}

/// Recordings turned into features, as the first run does it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BuildTimes {
    pub clips: usize,
    pub audio_seconds: f64,
    pub workers: usize,
    pub work: BuildSeconds,
}

impl BuildTimes {
    pub fn audio_seconds_per_second(&self) -> f64 {
        self.audio_seconds / self.work.wall.max(1e-9)
    }
}

/// Batches taken as fast as they come.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DrainTimes {
    pub batches_per_second: f64,
    /// Milliseconds from one batch to the next.
    pub gap_ms: Spread,
    /// Milliseconds of one worker for a batch.
    pub load_ms: Spread,
    pub copy_ms: Spread,
    pub features_ms: Spread,
    pub transfer_ms: Spread,
}

/// What a step of some length would wait for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepWaits {
    pub step_ms: f64,
    pub wait_ms: Spread,
    pub idle_share: f64,
}

/// Ends a measurement when its time is over, or when it has seen enough.
struct Clock {
    start: Instant,
    seconds: f64,
    turns: usize,
}

impl Clock {
    fn start(seconds: f64) -> Self {
        Clock { start: Instant::now(), seconds, turns: 0 }
    }

    /// Whether to measure once more: at least twice, so that there is something to compare.
    fn goes_on(&mut self) -> bool {
        self.turns += 1;
        self.turns <= 2 || (self.start.elapsed().as_secs_f64() < self.seconds && self.turns <= MOST_BATCHES)
    }
}

/// A small cache of its own, made and forgotten: what the first run does to every clip.
pub fn build(
    context: &RunContext,
    utterances: &Utterances,
    content: CacheContent,
) -> Result<(BuildTimes, cache::Cache)> {
    let mut config = context.config.clone();
    (config.data.enable_caching, config.data.cache_content) = (false, content);
    let (tokenizer, quiet) = (&context.data.tokenizer, |_| ());
    let (cache, report) = cache::open(utterances, tokenizer, &config, &quiet, context.stop, context.hook)?;
    let workers = config.data.reading_workers();
    Ok((BuildTimes { clips: report.built, audio_seconds: report.seconds, workers, work: report.work }, cache))
}

/// Tokens made of each text, and tokens taken out of the cache.
pub fn texts(context: &RunContext, utterances: &Utterances, cache: &cache::Cache, seconds: f64) -> Result<TextTimes> {
    context.go_on()?;
    let tokenizer: &Tokenizer = &context.data.tokenizer;
    let fallback = &context.config.data.language;
    let (mut cold_ms, mut cached_ms) = (Spread::default(), Spread::default());
    let mut clock = Clock::start(seconds);
    for utterance in utterances.iter().take_while(|_| clock.goes_on()) {
        let start = Instant::now();
        context.hook.at(Moment::EncodeText);
        let language = tokenizer.language(utterance.text, utterance.language.unwrap_or(fallback));
        let _ = std::hint::black_box(tokenizer.encode(utterance.text, language)?);
        cold_ms.add(ms(start.elapsed()));
    }
    for index in 0..cache.len() {
        // Checked against its checksum once; from then on a clip is a look into mapped memory.
        cache.clip(index)?;
        let start = Instant::now();
        let _ = std::hint::black_box(cache.clip(index)?.tokens.to_vec());
        cached_ms.add(ms(start.elapsed()));
    }
    Ok(TextTimes { cold_ms, cached_ms })
}

/// The loader alone: batches in host memory that nobody uses; and the workers that it then had. `workers`: 0 has whoever asks
/// for a batch lay it.
pub fn load(context: &RunContext, workers: usize, seconds: f64) -> Result<(usize, DrainTimes)> {
    context.go_on()?;
    let mut config = context.config.clone();
    (config.data.use_native_loading, config.data.num_workers) = (workers > 0, Some(workers.max(1)));
    let loader = start_loader(&RunContext { config: &config, ..*context }, Position::default())?;
    let take = || -> Result<Duration> {
        let batch = loader.next().context("every loader worker has ended")??;
        let wall = batch.timing.wall;
        loader.recycle(batch.block);
        Ok(wall)
    };
    // What lies ready was made before the clock started.
    (0..WARM_UP_BATCHES + config.data.prefetch_depth()).try_for_each(|_| take().map(drop))?;
    let (mut drained, mut clock, mut last) = (DrainTimes::default(), Clock::start(seconds), Instant::now());
    let start = last;
    while clock.goes_on() {
        drained.load_ms.add(ms(take()?));
        drained.gap_ms.add(ms(last.elapsed()));
        last = Instant::now();
    }
    drained.batches_per_second = drained.gap_ms.count as f64 / start.elapsed().as_secs_f64();
    Ok((loader.status().workers, drained))
}

/// Features alone, of one batch that stays on the device: milliseconds.
pub fn features(context: &RunContext, device: Device, seconds: f64) -> Result<Spread> {
    context.go_on()?;
    let (config, data) = (context.config, context.data);
    let layout = Arc::new(data.train.layout(&data.budget));
    let features = Features::new(config, layout.clone(), MelStats::identity(), Purpose::Voice, device)?;
    let block = allocate(device)(layout.bytes).map_err(anyhow::Error::msg)?;
    let plan = data.train.plan(&data.budget, config.training.seed, 0, 0);
    let host = data.train.batch(plan.batch(0), &layout, block, [0, 0, 0])?;
    crate::catch(|| -> Result<Spread> {
        let staged = block_tensor(&*host.block).to_device(device);
        let once = || -> Result<f64> {
            let (_, span) = Interval::of(device, || {
                context.hook.at(Moment::MakeFeatures);
                Ok::<_, torchx::Error>(tch::no_grad(|| features.batch(&staged, &host.position)))
            })?;
            span.end.wait()?;
            span.ms().context("two events of one device")
        };
        (0..WARM_UP_BATCHES).try_for_each(|_| once().map(drop))?;
        let (mut spread, mut clock) = (Spread::default(), Clock::start(seconds));
        while clock.goes_on() {
            spread.add(once()?);
        }
        Ok(spread)
    })?
}

/// The whole data path, into a slot that nobody reads.
pub fn drain(context: &RunContext, seconds: f64) -> Result<DrainTimes> {
    context.go_on()?;
    let mut feed = start_feed(context, Position::default(), MelStats::identity(), Purpose::Voice)?;
    let mut input = None;
    let mut take = || crate::catch(|| feed.next(&mut input)).map_err(anyhow::Error::from).flatten();
    let ahead = context.config.data.prefetch_depth() + context.config.data.pipeline_buffer_size;
    for _ in 0..WARM_UP_BATCHES + ahead {
        take()?.arrived.wait()?;
    }
    let (mut drained, mut clock, mut last) = (DrainTimes::default(), Clock::start(seconds), Instant::now());
    let (start, mut deliveries): (_, Vec<Delivery>) = (last, Vec::new());
    while clock.goes_on() {
        deliveries.push(take()?);
        drained.gap_ms.add(ms(last.elapsed()));
        last = Instant::now();
    }
    deliveries.last().map(|delivery| delivery.arrived.wait()).transpose()?;
    drained.batches_per_second = deliveries.len() as f64 / start.elapsed().as_secs_f64();
    for Delivery { trace, .. } in &deliveries {
        drained.load_ms.add(ms(trace.timing.wall));
        trace.to_device.as_ref().and_then(Interval::ms).into_iter().for_each(|ms| drained.copy_ms.add(ms));
        trace.features.ms().into_iter().for_each(|ms| drained.features_ms.add(ms));
        trace.transfer.ms().into_iter().for_each(|ms| drained.transfer_ms.add(ms));
    }
    Ok(drained)
}

/// The whole data path with a pause of `step_ms` after every batch: what a step of that length would wait for.
pub fn waiting(context: &RunContext, step_ms: f64, seconds: f64) -> Result<StepWaits> {
    context.go_on()?;
    let mut feed = start_feed(context, Position::default(), MelStats::identity(), Purpose::Voice)?;
    let mut input = None;
    let mut step = || -> Result<f64> {
        let start = Instant::now();
        crate::catch(|| feed.next(&mut input)).map_err(anyhow::Error::from).flatten()?.arrived.wait()?;
        let waited = ms(start.elapsed());
        std::thread::sleep(Duration::from_secs_f64(step_ms / 1e3));
        Ok(waited)
    };
    // What filled the ring before the first step is spent first.
    let ahead = context.config.data.prefetch_depth() + context.config.data.pipeline_buffer_size;
    let mut clock = Clock::start(seconds / 2.0);
    let _ = (0..ahead).try_for_each(|_| if clock.goes_on() { step().map(drop) } else { Ok(()) });
    let (mut wait_ms, mut clock) = (Spread::default(), Clock::start(seconds));
    let start = Instant::now();
    while clock.goes_on() {
        wait_ms.add(step()?);
    }
    let idle_share = wait_ms.mean * wait_ms.count as f64 / ms(start.elapsed());
    Ok(StepWaits { step_ms, wait_ms, idle_share })
}

/// A data path over the clips of a small cache, in batches of the run's size.
pub fn over<'a>(context: &RunContext<'a>, cache: cache::Cache) -> Result<TrainingData> {
    let (config, data) = (context.config, context.data);
    let (train, _) = Dataset::new(cache, &data.tokenizer, &ClipLimits::of(config))?;
    anyhow::ensure!(!train.lengths().is_empty(), "none of the clips that were tried is within the limits of this run");
    let budget = if data.budget.padded { data.budget } else { Budget::of_frames(train.lengths(), data.budget.frames) };
    Ok(data.with(Arc::new(train), budget))
}

/// The run context with features made on another device.
pub fn with_data_on<'a>(context: &RunContext<'a>, data: Device) -> RunContext<'a> {
    RunContext { roles: Roles { data, ..context.roles }, ..*context }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
