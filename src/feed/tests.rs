//! The feed against itself: what the ring delivers is what one thread makes, whatever runs beside it.

use super::producer::Slot;
use super::route::Route;
use super::*;
use host::config::{Config, LongClips};
use host::corpus::Utterance;
use host::loader::{Budget, COPIES_IN_FLIGHT, ClipLimits, Dataset, Loader, Position};
use host::simulate::{Delays, Hook, Moment};
use host::text::Tokenizer;
use host::{audio, cache};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use tch::{Device, Kind, Tensor};

const CPU: Roles = Roles { data: Device::Cpu, model: Device::Cpu };
const STATS: MelStats = MelStats { mean: -5.0, std: 2.0 };

fn config() -> Config {
    let mut config = Config::default();
    config.data.sample_rate = 16_000;
    config
}

const CLIPS: usize = 12;

/// A cache of a few short clips of three speakers, the last clip the only one of its own.
fn dataset() -> (tempfile::TempDir, Arc<Dataset>) {
    let dir = tempfile::tempdir().unwrap();
    let utterance = |clip: usize| {
        let audio = dir.path().join(format!("{clip}.wav"));
        // Every clip has a period of its own, so that each can be told from its values.
        let wave: Vec<f32> = (0..1600 * (1 + clip % 5)).map(|at| (at % (61 + 2 * clip)) as f32 / 256.0 - 0.1).collect();
        audio::write_wav(&audio, &wave, 16_000).unwrap();
        let speaker = if clip == CLIPS - 1 { "alone" } else { ["even", "odd"][clip % 2] };
        let language = Some(["de", "en"][clip % 2].into());
        Utterance { id: clip.to_string(), audio: audio.into(), text: "a".into(), speaker: speaker.into(), language }
    };
    let utterances: Vec<Utterance> = (0..CLIPS).map(utterance).collect();
    let mut config = config();
    config.data.cache_dir = Some(dir.path().join("cache"));
    (config.data.trim_silence, config.data.normalize_audio) = (false, false);
    let tokenizer = Tokenizer::fit(utterances.iter().map(|u| (u.text.as_str(), u.language.as_deref().unwrap())));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (cache, _) =
        cache::open(&utterances.into_iter().collect(), &tokenizer, &config, &|_| (), &stop, &Hook::NONE).unwrap();
    let limits =
        ClipLimits { max_frames: 100, max_characters: 9, long_clips: LongClips::Refuse, speed: 0.0, shuffle_shards: 1 };
    let (dataset, _) = Dataset::new(cache, &tokenizer, &limits).unwrap();
    (dir, Arc::new(dataset))
}

fn options(workers: usize) -> host::loader::LoaderOptions {
    host::loader::LoaderOptions {
        seed: 9,
        share: host::loader::Share::WHOLE,
        lanes: host::loader::Lanes::ONE,
        from: Position::default(),
        workers,
        depth: 3,
        in_flight: 1,
        ordered: true,
        allocate: host::loader::PlainBlock::allocate(),
        max_failures: 0,
        hook: Hook::default(),
    }
}

fn producer(dataset: &Arc<Dataset>, roles: Roles, workers: usize, hook: Hook, config: &Config) -> Producer {
    routed(dataset, (roles, Route::of(roles).unwrap()), workers, hook, config)
}

fn routed(
    dataset: &Arc<Dataset>,
    (roles, route): (Roles, Route),
    workers: usize,
    hook: Hook,
    config: &Config,
) -> Producer {
    let budget = Budget::packed(dataset.lengths(), 3);
    let (allocate, in_flight) = (allocate(roles.data), COPIES_IN_FLIGHT);
    let options = host::loader::LoaderOptions { allocate, in_flight, hook: hook.clone(), ..options(workers) };
    let loader = Loader::start(dataset.clone(), budget, options).unwrap();
    let features =
        Features::new(config, Arc::new(loader.layout().clone()), STATS, Purpose::PredictedMel, roles.data).unwrap();
    Producer::by_route(route, Arc::new(loader), features, roles, workers > 0, hook).unwrap()
}

/// Everything in a batch, on the CPU, as numbers.
fn values(batch: &Batch) -> Vec<Tensor> {
    batch.tensors().into_iter().map(|tensor| tensor.to_device(Device::Cpu).to_kind(Kind::Float).copy()).collect()
}

fn take(feed: &mut Feed, count: usize) -> Vec<Vec<Tensor>> {
    let mut input = None;
    let mut next = || {
        feed.next(&mut input).unwrap();
        values(input.as_ref().unwrap())
    };
    (0..count).map(|_| next()).collect()
}

/// What one thread makes, one batch after the other.
fn reference(dataset: &Arc<Dataset>, count: usize) -> Vec<Vec<Tensor>> {
    take(&mut Feed::start(producer(dataset, CPU, 0, Hook::default(), &config()), 0).unwrap(), count)
}

fn assert_close(found: &[Vec<Tensor>], wanted: &[Vec<Tensor>], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for (number, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        for (part, (a, b)) in found.iter().zip(wanted).enumerate() {
            let error = if a.numel() == 0 { 0.0 } else { (a - b).abs().max().double_value(&[]) };
            assert!(error <= tolerance, "batch {number}, tensor {part}: off by {error}");
        }
    }
}

#[test]
fn a_ring_delivers_what_one_thread_makes_however_slow_a_stage_is() {
    let (_dir, dataset) = dataset();
    let wanted = reference(&dataset, 10);
    let ms = Duration::from_millis;
    let slow = [
        Delays::default(),
        Delays { load: ms(4), ..Delays::default() },
        Delays { features: ms(4), ..Delays::default() },
        Delays { transfer: ms(4), ..Delays::default() },
    ];
    for (index, delays) in slow.into_iter().enumerate() {
        for slots in [1, 3] {
            let mut feed = Feed::start(producer(&dataset, CPU, 1 + index, delays.hook(), &config()), slots).unwrap();
            assert_close(&take(&mut feed, 10), &wanted, 0.0);
        }
    }
}

#[test]
fn a_slot_is_not_touched_while_it_is_read() {
    let (_dir, dataset) = dataset();
    let wanted = reference(&dataset, 12);
    let mut made = producer(&dataset, CPU, 2, Hook::default(), &config());
    made.poison_slots();
    let mut feed = Feed::start(made, 2).unwrap();
    assert_close(&take(&mut feed, 12), &wanted, 0.0);
}

/// The next batch's features are made while the step sleeps: that is what the ring is for.
#[test]
fn batches_are_made_during_the_step() {
    let (_dir, dataset) = dataset();
    let delays = Delays { features: Duration::from_millis(10), ..Delays::default() };
    let mut feed = Feed::start(producer(&dataset, CPU, 2, delays.hook(), &config()), 3).unwrap();
    let (mut input, mut last_end, mut overlapped) = (None, None::<Event>, 0);
    for _ in 0..8 {
        let delivery = feed.next(&mut input).unwrap();
        let made_before = |end: &Event| delivery.trace.features.start.ms_until(end).is_some_and(|ms| ms > 0.0);
        overlapped += usize::from(last_end.as_ref().is_some_and(made_before));
        sleep(Duration::from_millis(20));
        last_end = Some(Event::now(Device::Cpu).unwrap());
    }
    assert!(overlapped >= 6, "{overlapped} of 7 batches were begun before the step before them had ended");
}

#[test]
fn a_feed_that_fails_is_an_error_and_no_hang() {
    let (_dir, dataset) = dataset();
    let hook = Hook::new(|moment| assert!(moment != Moment::OpenClip(7), "planted"));
    let mut feed = Feed::start(producer(&dataset, CPU, 2, hook, &config()), 3).unwrap();
    let mut input = None;
    let error = (0..20).find_map(|_| feed.next(&mut input).err()).expect("the planted clip is in every epoch");
    assert!(format!("{error:#}").contains("planted"), "{error:#}");
    assert!(feed.next(&mut input).is_err());
}

/// A run that cannot begin says so, however long it would wait for a full ring.
#[test]
fn a_feed_that_fails_at_once_is_noticed_at_once() {
    let (_dir, dataset) = dataset();
    let hook = Hook::new(|moment| assert!(!matches!(moment, Moment::OpenClip(_)), "planted"));
    let mut feed = Feed::start(producer(&dataset, CPU, 2, hook, &config()), 3).unwrap();
    let start = std::time::Instant::now();
    assert_eq!(feed.warm_up(Duration::from_secs(60)), None);
    assert!(start.elapsed() < Duration::from_secs(30), "waited {:?} for batches that never come", start.elapsed());
    let error = feed.next(&mut None).map(drop).unwrap_err();
    assert!(format!("{error:#}").contains("planted"), "{error:#}");
}

#[test]
fn the_time_of_the_feed_is_accounted_for() {
    let (_dir, dataset) = dataset();
    let delays = Delays { load: Duration::from_millis(15), ..Delays::default() };
    let mut feed = Feed::start(producer(&dataset, CPU, 1, delays.hook(), &config()), 2).unwrap();
    let before = feed.reading().unwrap();
    take(&mut feed, 10);
    let times = feed.reading().unwrap().since(&before);
    // The loader is the slow stage, so the feed waits for it and the ring is empty most of the time.
    assert!(times.waits_for_loader > times.busy && times.waits_for_loader > times.waits_for_room, "{times:?}");
    assert!(times.empty > 0.5, "{times:?}");
}

fn run(dataset: &Arc<Dataset>, config: &Config) -> Vec<Vec<Tensor>> {
    take(&mut Feed::start(producer(dataset, CPU, 0, Hook::default(), config), 0).unwrap(), 4)
}

/// A recording whose frames are its own positions comes out with positions that are as far apart as it is fast.
#[test]
fn speed_changes_the_number_of_frames_and_nothing_else() {
    let mut config = config();
    config.data.augment_speed = 0.2;
    let span = |start, len| host::loader::Span { start, len };
    let frames = Tensor::arange(40, (Kind::Float, Device::Cpu)).unsqueeze(1);
    // 10 recorded frames spoken in 8, and 12 in 15.
    let spans = [span(0, 8), span(20, 15)];
    let mut batch = Batch::by_hand(&[span(0, 1), span(2, 1)], &spans, &[1; 4], &[0, 0], frames.shallow_clone());
    batch.source_lens = Tensor::from_slice(&[10i32, 12]);
    let spoken = augment::Augment::new(&config, &MelStats::identity(), Device::Cpu).speed(&frames, &batch);
    for (frame, wanted) in [(0, 0.0), (4, 5.0), (7, 8.75), (20, 20.0), (25, 24.0), (34, 31.0)] {
        let found = spoken.double_value(&[frame, 0]);
        assert!((found - wanted).abs() < 1e-4, "frame {frame}: {found}, not {wanted}");
    }
}

#[test]
fn augmentation_depends_on_the_seed_and_the_place_alone() {
    let (_dir, dataset) = dataset();
    let mut config = config();
    (config.data.augment_noise_snr_db, config.data.augment_pitch_semitones) = (Some(20.0), 2.0);
    let (first, again, plain) = (run(&dataset, &config), run(&dataset, &config), reference(&dataset, 4));
    assert_close(&first, &again, 0.0);
    let (mel, plain_mel) = (&first[0][1], &plain[0][1]);
    assert!((mel - plain_mel).abs().max().double_value(&[]) > 0.05);
}

/// Features that are late on the GPU's own clock: a lane that does not wait for them reads what is not there yet.
fn late_features(gpu: Device) -> Hook {
    let weight = std::sync::Mutex::new(Tensor::randn([4096, 4096], (Kind::Float, gpu)) / 64.0);
    Hook::new(move |moment| {
        if moment == Moment::MakeFeatures {
            let weight = weight.lock().unwrap();
            let _ = (0..4).fold(weight.copy(), |x, _| x.matmul(&weight));
        }
    })
}

/// Every route with the lanes that it has between two devices, on one.
#[test]
#[ignore = "needs a GPU"]
fn two_roles_on_one_gpu_make_what_the_cpu_makes() {
    torchx::cuda::load().unwrap();
    let (_dir, dataset) = dataset();
    let wanted = reference(&dataset, 12);
    let gpu = Device::Cuda(0);
    let (one, from_cpu) = (Roles { data: gpu, model: gpu }, Roles { data: Device::Cpu, model: gpu });
    let ways = [(one, Route::Local), (one, Route::Peer), (one, Route::Staged), (from_cpu, Route::Staged)];
    for (roles, route) in ways {
        for hook in [Hook::default(), late_features(gpu)] {
            let mut made = routed(&dataset, (roles, route), 2, hook, &config());
            made.poison_slots();
            let mut feed = Feed::start(made, 3).unwrap();
            assert_close(&take(&mut feed, 12), &wanted, 1e-3);
        }
    }
}

/// Guards that were dropped in the wrong order would leave a lane current, and all that the thread does next on it.
#[test]
#[ignore = "needs a GPU"]
fn filling_a_slot_leaves_the_streams_of_the_thread_as_they_were() {
    torchx::cuda::load().unwrap();
    let (_dir, dataset) = dataset();
    let gpu = Device::Cuda(0);
    let own = torchx::Stream::from_pool(gpu, false).unwrap();
    for route in [Route::Local, Route::Peer, Route::Staged] {
        let roles = Roles { data: gpu, model: gpu };
        let mut made = routed(&dataset, (roles, route), 2, Hook::default(), &config());
        assert_eq!(made.has_lanes_of_two_devices(), route != Route::Local, "{route}");
        let mut slot = Slot::default();
        let _own = own.guard().unwrap();
        for _ in 0..3 {
            tch::no_grad(|| made.fill(&mut slot)).unwrap();
            assert_eq!(torchx::Stream::current(gpu).unwrap(), own, "{route}");
        }
    }
}

/// By the GPU's own clock: copy and features of a later batch lie inside an earlier step.
#[test]
#[ignore = "needs a GPU"]
fn transfers_overlap_the_step_on_a_gpu() {
    torchx::cuda::load().unwrap();
    let (_dir, dataset) = dataset();
    let gpu = Device::Cuda(0);
    let made = producer(&dataset, Roles { data: gpu, model: gpu }, 2, Hook::default(), &config());
    let mut feed = Feed::start(made, 3).unwrap();
    let (mut input, mut steps) = (None, Vec::new());
    let weight = Tensor::randn([4096, 4096], (Kind::Float, gpu));
    for _ in 0..12 {
        let delivery = feed.next(&mut input).unwrap();
        let work =
            || -> Result<Tensor, torchx::Error> { Ok((0..40).fold(weight.copy(), |x, _| x.matmul(&weight) / 64.0)) };
        let (_, step) = Interval::of(gpu, work).unwrap();
        steps.push((delivery.trace, step));
    }
    torchx::cuda::synchronize(gpu).unwrap();
    let inside = |later: &Interval, step: &Interval| {
        step.start.ms_until(&later.start).unwrap() > 0.0 && later.end.ms_until(&step.end).unwrap() > 0.0
    };
    let overlaps = |of: fn(&Trace) -> &Interval| {
        let later = |n: usize| steps.get(n + 1..).unwrap().iter().any(|(trace, _)| inside(of(trace), &steps[n].1));
        (0..steps.len() - 1).filter(|&n| later(n)).count()
    };
    let copies = overlaps(|trace| trace.to_device.as_ref().unwrap());
    let features = overlaps(|trace| &trace.features);
    assert!(copies >= 6 && features >= 6, "{copies} copies and {features} feature passes ran inside earlier steps");
}
