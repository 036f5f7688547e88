//! Short runs on a small corpus: durations that are searched and frozen, and what held-out speech is made of.

use super::align::SetAligner;
use super::{RunStart, StepTimes, begin_voice, samples, vocoder};
use crate::checkpoint::RunState;
use crate::feed::{Caps, Event, Features, Interval, MelStats, Purpose, Roles};
use crate::model::Voice;
use crate::run::{Done, RunContext, batch_on, start_feed};
use host::cache::durations::{self, Aligned};
use host::config::{self, Config};
use host::dataset::{KnownTokenizer, TrainingData, prepare};
use host::loader::{Dataset, Position};
use host::tools::sample_corpus;
use indicatif::ProgressBar;
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

const CLIPS: usize = 12;
const STATS: MelStats = MelStats { mean: -5.0, std: 2.0 };
static NEVER: AtomicBool = AtomicBool::new(false);

/// A small corpus, and what it takes to train on it. The seed is what `batch_on` draws with.
struct Case {
    _dir: tempfile::TempDir,
    config: Config,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = sample_corpus::SampleCorpusOptions {
            clips: CLIPS,
            seed: 1,
            rate_hz: 22_050,
            voice: sample_corpus::SampleVoice::Formant,
        };
        sample_corpus::write(&dir.path().join("corpus"), &options, &|_| ControlFlow::Continue(())).unwrap();
        let text = "model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, \
                    decoder_heads: 2}\n\
                    training: {seed: 0, optimization_level: basic, device: cpu}\n\
                    data: {batch_size: 4, num_workers: 1, val_split: 0.2, tokenizer: characters, language: en}";
        let mut config = Config::parse(text, Path::new("a.yaml")).unwrap();
        config.data.dataset_path = Some(dir.path().join("corpus"));
        config.data.cache_dir = Some(dir.path().join("cache"));
        Case { _dir: dir, config }
    }

    fn prepare(&self, durations: config::Durations) -> TrainingData {
        let mut config = self.config.clone();
        config.data.durations = durations;
        prepare(&config, KnownTokenizer::Nothing, &|_| (), &NEVER, &host::simulate::Hook::NONE).unwrap()
    }

    fn context<'a>(&'a self, data: &'a TrainingData, bar: &'a ProgressBar, device: Device) -> RunContext<'a> {
        let (roles, caps) = (Roles { data: device, model: device }, Caps::default());
        RunContext::new(&self.config, data, (roles, caps), bar, &NEVER, Instant::now())
    }

    /// What a voice finds in all clips, written into the cache.
    fn align(&self, data: &TrainingData, voice: &Voice) -> Vec<Aligned> {
        let (mut aligned, bar) = (Vec::new(), ProgressBar::hidden());
        for train in [&data.train].into_iter().chain(&data.validation) {
            let part = data.with(train.clone(), data.budget);
            let aligner = SetAligner { context: &self.context(&part, &bar, Device::Cpu), voice, stats: STATS };
            assert!(tch::no_grad(|| aligner.align(&mut aligned)).unwrap().is_empty());
        }
        durations::write(&self.config, &data.tokenizer, "a".into(), &aligned, &NEVER).unwrap();
        aligned
    }

    fn voice(&self, data: &TrainingData) -> (VarStore, Voice) {
        let store = VarStore::new(Device::Cpu);
        let tokenizer = &data.tokenizer;
        let (vocabulary, languages) = (tokenizer.vocab_size(), tokenizer.languages().len());
        let voice = Voice::new(&store.root(), &self.config.model, vocabulary, languages, Kind::Float).unwrap();
        (store, voice)
    }

    fn features(&self, data: &TrainingData) -> Features {
        let layout = Arc::new(data.train.layout(&data.budget));
        Features::new(&self.config, layout, STATS, Purpose::Voice, Device::Cpu).unwrap()
    }
}

#[test]
fn frozen_durations_are_those_of_the_search_bit_for_bit_and_so_are_the_losses() {
    tch::set_num_threads(1);
    let case = Case::new();
    let searching = case.prepare(config::Durations::Search);
    let (_store, voice) = case.voice(&searching);
    let aligned = case.align(&searching, &voice);
    assert_eq!(aligned.len(), CLIPS, "training and validation");
    let frozen = case.prepare(config::Durations::Frozen);
    assert_eq!(frozen.durations.as_ref().unwrap().about().checkpoint, "a");
    let (plain, known) = (case.features(&searching), case.features(&frozen));
    for (number, clips) in frozen.train.plan(&frozen.budget, 0, 0, 0).iter().enumerate() {
        let (_, searched) = batch_on(&plain, &searching.train, clips, number as u64).unwrap();
        let (_, held) = batch_on(&known, &frozen.train, clips, number as u64).unwrap();
        assert!(searched.token_of_frame.is_none());
        tch::no_grad(|| {
            assert_eq!(held.token_of_frame.as_ref().unwrap(), &voice.align(&searched));
            // What depends on no draw; the flow's loss follows from the same path (`known_durations_replace_the_search`).
            let (by_search, by_file) = (voice.losses(&searched), voice.losses(&held));
            assert_eq!((by_file.prior, by_file.duration), (by_search.prior, by_search.duration));
        });
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_step_with_frozen_durations_equals_the_eager_one() {
    torchx::cuda::load().unwrap();
    torchx::require_full_f32().unwrap();
    let mut case = Case::new();
    let searching = case.prepare(config::Durations::Search);
    let (_store, voice) = case.voice(&searching);
    case.align(&searching, &voice);
    let data = case.prepare(config::Durations::Frozen);
    let mut losses = |captured: bool| -> Vec<Vec<f64>> {
        case.config.training.enable_xla = captured;
        let bar = ProgressBar::hidden();
        let context = case.context(&data, &bar, Device::Cuda(0));
        let (mut step, state) = begin_voice(&context, &RunStart::Fresh).unwrap();
        let mut feed = start_feed(&context, Position::default(), state.mel_stats, Purpose::Voice).unwrap();
        let mut run = |number| {
            step.run(&mut feed, number, 1e-3).unwrap();
            step.request_reading(number).unwrap();
            step.poll(true).unwrap().unwrap().means
        };
        let losses = (0..10).map(&mut run).collect();
        assert!(step.is_settled());
        losses
    };
    let (eager, captured) = (losses(false), losses(true));
    for (step, (eager, captured)) in eager.iter().zip(&captured).enumerate() {
        for (eager, captured) in eager.iter().zip(captured) {
            let error = (eager - captured).abs();
            assert!(error <= 5e-3 * eager.abs().max(1e-3), "step {step}: eager {eager}, captured {captured}");
        }
    }
}

#[test]
fn what_runs_between_steps_is_not_their_time() {
    let case = Case::new();
    let (data, bar) = (case.prepare(config::Durations::Search), ProgressBar::hidden());
    let mut times = StepTimes::of(&case.context(&data, &bar, Device::Cpu), 0);
    let pause = Duration::from_millis(60);
    for number in 1..=9 {
        let now = || Event::now(Device::Cpu).unwrap();
        let span = Interval { start: now(), end: now() };
        times.add(number, Done { deliveries: Vec::new(), part_ends: Vec::new(), span, ran: None });
        if number % 3 == 0 {
            std::thread::sleep(pause);
            // A validation and the checkpoint behind it.
            times.interrupt(number);
            times.interrupt(number);
        }
    }
    let (summary, _) = times.close(9).unwrap();
    assert_eq!(summary.step_ms.count, 6, "two steps follow another between breaks");
    assert!(summary.step_ms.max < pause.as_secs_f64() * 1e3, "{:?}", summary.step_ms);
}

/// The step that trains by default, with narrow copies of the weights, and on a GPU with gradients made aside and all of it one
/// graph, learns what the plainest one does: f32, operation by operation.
fn both_steps_learn_alike(device: Device) {
    let mut case = Case::new();
    let model = &mut case.config.model;
    // What the fused operations take: attention in bf16 has a kernel for heads of 64 channels.
    (model.text_dim, model.decoder_dim) = (64, 128);
    let data = case.prepare(config::Durations::Search);
    let mut loss = |mixed: bool| -> f64 {
        let training = &mut case.config.training;
        (training.mixed_precision, training.enable_xla) = (mixed, mixed);
        let bar = ProgressBar::hidden();
        let context = case.context(&data, &bar, device);
        let (mut step, state) = begin_voice(&context, &RunStart::Fresh).unwrap();
        let mut feed = start_feed(&context, Position::default(), state.mel_stats, Purpose::Voice).unwrap();
        let mut means = Vec::new();
        for number in 1..=LEARNING_STEPS {
            step.run(&mut feed, number, 1e-3).unwrap();
            if number % LAST_STEPS == 0 {
                step.request_reading(number).unwrap();
                means = step.poll(true).unwrap().unwrap().means;
            }
        }
        means[..3].iter().sum()
    };
    let (plain, mixed) = (loss(false), loss(true));
    assert!((mixed - plain).abs() < 0.15 * plain, "after {LEARNING_STEPS} steps {plain} in f32, {mixed} in bf16");
}

const LEARNING_STEPS: u64 = 120;
/// What is compared is the mean of the last ones.
const LAST_STEPS: u64 = 20;

#[test]
fn a_step_in_bf16_learns_what_one_in_f32_does() {
    tch::set_num_threads(1);
    both_steps_learn_alike(Device::Cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_step_in_bf16_learns_what_an_eager_one_in_f32_does() {
    torchx::cuda::load().unwrap();
    both_steps_learn_alike(Device::Cuda(0));
}

/// A config with a value for every augmentation there is, or will be.
fn augmented(config: &Config, strength: f64) -> Config {
    let set = |line: &str| match line.split_once(':') {
        Some((key, _)) if key.trim().starts_with("augment_") => format!("{key}: {strength}\n"),
        _ => format!("{line}\n"),
    };
    let text: String = config.to_yaml().lines().map(set).collect();
    Config::parse(&text, Path::new("augmented.yaml")).unwrap()
}

/// Mel frames and samples of each clip of a set.
fn speech(features: &Features, set: &Dataset) -> Vec<(Tensor, Option<Tensor>)> {
    let clip = |clip: usize| {
        let (host, batch) = batch_on(features, set, &[clip as u32], 0).unwrap();
        let frames = host.frame_spans[0].len as i64;
        let samples = batch.samples.as_ref().map(|all| all.narrow(0, 0, frames * (all.size()[0] / batch.frames.len())));
        (batch.mel.narrow(0, 0, frames), samples)
    };
    (0..set.lengths().len()).map(clip).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// Of a voice's validation and of a vocoder's, whatever is asked for.
    #[test]
    fn held_out_speech_is_never_augmented(strength in 0.05..0.5) {
        tch::set_num_threads(1);
        let mut case = Case::new();
        let heard = |case: &Case| {
            let (data, bar) = (case.prepare(config::Durations::Search), ProgressBar::hidden());
            let context = case.context(&data, &bar, Device::Cpu);
            let voice = samples::Validation::new(&context, &RunState::new(STATS), None, false);
            let (voice, vocoder) = (voice.unwrap().unwrap(), vocoder::Validation::new(&context, Purpose::Vocoder, STATS));
            let vocoder = vocoder.unwrap().unwrap();
            let trained = speech(&case.features(&data), &data.train);
            (speech(&voice.features, &voice.dataset), speech(&vocoder.features, &vocoder.dataset), trained)
        };
        let (voice, vocoder, trained) = heard(&case);
        case.config = augmented(&case.config, strength);
        let (voice_again, vocoder_again, changed) = heard(&case);
        prop_assert!(voice == voice_again && vocoder == vocoder_again);
        prop_assert!(voice.len() > 1 && trained.iter().zip(&changed).all(|(plain, changed)| plain.0 != changed.0));
    }
}
