//! The adversarial step on the CPU: which weights learn from which loss, what segments hold, and one signal overfitted.

use super::*;
use crate::feed::MelExtractor;
use host::config::Config;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchx::AdamW;
use torchx::named_parameters;

const ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);
const FRAMES: i64 = 32;

fn weight(share: f32) -> Tensor {
    Tensor::from(share)
}

fn config() -> Config {
    let mut config = Config::default();
    (config.data.sample_rate, config.training.vocoder_segment_frames) = (8_000, 16);
    (config.model.n_fft, config.model.hop_length, config.model.n_mels) = (256, 64, 32);
    (config.model.vocoder_dim, config.model.vocoder_layers) = (48, 2);
    config
}

/// The generator's store, the discriminators' store, and the step that trains both.
fn adversarial(config: &Config, device: Device) -> (VarStore, VarStore, AdversarialStep) {
    tch::set_num_threads(1); // tests run side by side, and these tensors are tiny
    tch::manual_seed(1);
    let (generator, discriminators) = (VarStore::new(device), VarStore::new(device));
    let adversarial = AdversarialStep::new(&generator, &discriminators, config, Kind::Float);
    (generator, discriminators, adversarial)
}

/// Two tones, bursts of noise and a quiet ground, with their log-mel frames.
fn signal(config: &Config) -> (Tensor, Tensor) {
    let rate_hz = config.data.sample_rate;
    let time = Tensor::arange(FRAMES * config.model.hop_length, ON_CPU) / f64::from(rate_hz);
    let tone = |hz: f64| (&time * (std::f64::consts::TAU * hz)).sin() * 0.2;
    let bursts = (&time * 20.0).sin().gt(0.7).to_kind(Kind::Float) * time.randn_like() * 0.1;
    let samples = tone(220.0) + tone(1318.5) + bursts + time.randn_like() * 0.003;
    let log_mel = MelExtractor::new(&config.model, rate_hz, Device::Cpu).log_mel(&samples);
    (samples, log_mel)
}

/// As long as a segment: then there is but one to draw.
fn one_segment(config: &Config) -> (Tensor, Tensor) {
    let (samples, log_mel) = signal(config);
    (samples.narrow(0, 0, 16 * 64), log_mel.narrow(0, 0, 16))
}

fn gradients(store: &VarStore) -> Vec<(String, Tensor)> {
    named_parameters(store).into_iter().map(|(name, tensor)| (name, tensor.grad().copy())).collect()
}

/// Discriminators that take all for real: what they learn from real and generated speech no longer cancels out to the
/// last bit in the bias of their logits.
fn lean(discriminators: &VarStore) {
    let biases = named_parameters(discriminators).into_iter().filter(|(name, _)| name.ends_with("score.bias"));
    tch::no_grad(|| biases.for_each(|(_, mut bias)| drop(bias.fill_(1.5))));
}

#[test]
fn every_parameter_of_generator_and_discriminators_gets_a_gradient() {
    let config = config();
    let (generator, discriminators, adversarial) = adversarial(&config, Device::Cpu);
    lean(&discriminators);
    let (samples, log_mel) = signal(&config);
    let losses = adversarial.backward(&samples, &log_mel, &weight(1.0));
    assert_eq!(losses.size(), [AdversarialStep::LOSS_NAMES.len() as i64]);
    assert!(!losses.requires_grad());
    for (name, gradient) in gradients(&generator).into_iter().chain(gradients(&discriminators)) {
        let largest = gradient.abs().max().double_value(&[]);
        assert!(largest > 0.0 && largest.is_finite(), "{name}: largest gradient {largest}");
    }
}

#[test]
fn neither_step_changes_the_gradients_of_the_other() {
    let config = config();
    let (generator, discriminators, adversarial) = adversarial(&config, Device::Cpu);
    let (samples, log_mel) = signal(&config);
    let waves = samples.view([1, -1]);
    let generated = adversarial.generator.forward(&log_mel.unsqueeze(0));
    let judged = adversarial.judge(adversarial.discriminators.forward(&waves), &generated);
    let _ = adversarial.discriminator_step(&judged, &weight(1.0));
    assert!(named_parameters(&generator).iter().all(|(_, tensor)| !tensor.grad().defined()));
    let before = gradients(&discriminators);
    let (_, by_judges) = adversarial.judgement(judged);
    (&generated * by_judges).sum(Kind::Float).backward();
    for ((name, before), (_, after)) in before.iter().zip(gradients(&discriminators)) {
        assert_eq!(before, &after, "{name} learned from the generator's loss");
    }
}

#[test]
fn gradients_of_two_halves_add_up() {
    let config = config();
    let (generator, discriminators, adversarial) = adversarial(&config, Device::Cpu);
    lean(&discriminators);
    let (samples, log_mel) = signal(&config);
    // As long as a segment: then there is but one to draw.
    let (samples, log_mel) = (samples.narrow(0, 0, 16 * 64), log_mel.narrow(0, 0, 16));
    let _ = adversarial.backward(&samples, &log_mel, &weight(1.0));
    let both = || gradients(&generator).into_iter().chain(gradients(&discriminators)).collect::<Vec<_>>();
    let all = both();
    let _ = adversarial.backward(&samples, &log_mel, &weight(0.5));
    let _ = adversarial.backward(&samples, &log_mel, &weight(0.5));
    for ((name, one), (_, two)) in all.iter().zip(&both()) {
        let scale = one.abs().max().double_value(&[]);
        assert!((one * 2.0 - two).abs().max().double_value(&[]) < 1e-4 * scale, "{name}");
    }
}

#[test]
fn segments_are_stretches_of_the_batch() {
    // Each frame and each of its samples holds the frame's number.
    let (frames, hop) = (50, 4);
    let numbers = Tensor::arange(frames, ON_CPU);
    let log_mel = numbers.view([frames, 1]).expand([frames, 3], false).contiguous();
    let samples = numbers.view([frames, 1]).expand([frames, hop], false).contiguous().view(-1);
    let mut seen = Vec::new();
    for _ in 0..200 {
        let segments = adversarial::Segments::draw(&samples, &log_mel, 8);
        // Half of 50 frames, in whole segments of 8.
        assert_eq!((segments.log_mel.size(), segments.waves.size()), (vec![3, 8, 3], vec![3, 32]));
        let first = segments.log_mel.narrow(1, 0, 1);
        assert_eq!(&segments.log_mel - first, Tensor::arange(8, ON_CPU).view([1, 8, 1]).expand([3, 8, 3], false));
        assert_eq!(segments.waves.view([3, 8, hop]).select(2, hop - 1), segments.log_mel.select(2, 0));
        seen.extend(Vec::<f32>::try_from(segments.log_mel.select(2, 0).select(1, 0)).unwrap());
    }
    let (least, most) = seen.iter().fold((f32::MAX, f32::MIN), |(a, b), &start| (a.min(start), b.max(start)));
    assert_eq!((least, most), (0.0, 42.0), "segments start anywhere, and end inside the batch");
    // A batch shorter than a segment is one.
    assert_eq!(adversarial::Segments::draw(&samples, &log_mel, 64).log_mel.size(), [1, 50, 3]);
}

#[test]
fn discriminators_see_each_wave_alone() {
    let config = config();
    let (_, _, adversarial) = adversarial(&config, Device::Cpu);
    let waves = Tensor::randn([3, 1000], ON_CPU);
    let together = adversarial.discriminators.forward(&waves);
    let alone = adversarial.discriminators.forward(&waves.narrow(0, 1, 1));
    for (together, alone) in together.iter().zip(&alone) {
        for (a, b) in together.features.iter().zip(&alone.features).chain([(&together.logits, &alone.logits)]) {
            let rows = b.size()[0];
            assert!((a.narrow(0, rows, rows) - b).abs().max().double_value(&[]) < 1e-5);
        }
    }
}

/// In a step of mixed precision all weights are cast together, before the discriminators learn and are frozen.
#[test]
fn weights_that_are_cast_together_learn_the_same() {
    tch::set_num_threads(1);
    let config = config();
    let dim = config.model.vocoder_dim;
    // Virtual machines that promise AMX and leave out its tables make oneDNN fail.
    let [x, y] = [[16, dim], [dim, dim]].map(|shape| Tensor::ones(shape, (Kind::BFloat16, Device::Cpu)));
    if let Err(error) = x.f_linear(&y, None::<Tensor>) {
        return host::skipped(&format!("bf16 products on this CPU: {error}"));
    }
    let (samples, log_mel) = one_segment(&config);
    let (generator, discriminators) = (VarStore::new(Device::Cpu), VarStore::new(Device::Cpu));
    let adversarial = AdversarialStep::new(&generator, &discriminators, &config, Kind::BFloat16);
    let parameters: Vec<Tensor> =
        [&generator, &discriminators].into_iter().flat_map(named_parameters).map(|(_, tensor)| tensor).collect();
    let learn = || {
        let losses = adversarial.backward(&samples, &log_mel, &weight(1.0));
        let gradients: Vec<Tensor> = parameters.iter().map(|parameter| parameter.grad().copy()).collect();
        parameters.iter().for_each(|parameter| parameter.shallow_clone().zero_grad());
        (losses, gradients)
    };
    let (losses, by_layer) = learn();
    let same = |other_losses: &Tensor, others: &[Tensor]| {
        assert!(losses.allclose(other_losses, 1e-3, 1e-3, false), "{losses} {other_losses}");
        for (alone, together) in by_layer.iter().zip(others) {
            let error = (alone - together).norm().double_value(&[]) / alone.norm().double_value(&[]).max(1e-6);
            assert!(error < 2e-2, "gradients of {:?} differ by {error:.1e} of their size", alone.size());
        }
    };
    let copies = torchx::Narrowed::new(&parameters, Kind::BFloat16).unwrap();
    let (same_losses, together) = learn();
    drop(copies);
    same(&same_losses, &together);
    // And where the copies stay, with gradients of their own.
    let copies = torchx::Copies::new(&parameters, Kind::BFloat16).unwrap();
    let lent = torchx::Copies::lend([&copies]);
    let (same_losses, wide) = learn();
    drop(lent);
    let whole = |(wide, copy): (&Tensor, &Tensor)| if copy.grad().defined() { wide + copy.grad() } else { wide.copy() };
    let gradients: Vec<Tensor> = wide.iter().zip(copies.tensors()).map(whole).collect();
    same(&same_losses, &gradients);
    let of_generator = named_parameters(&generator).len();
    let (generator, discriminators) = copies.tensors().split_at(of_generator);
    let learned = |copies: &[Tensor]| copies.iter().filter(|copy| copy.grad().defined()).count();
    assert_eq!(learned(generator), 0, "it computes in f32");
    assert!(learned(discriminators) > discriminators.len() / 2);
}

#[test]
fn one_signal_can_be_overfitted() {
    let config = config();
    let (generator, discriminators, adversarial) = adversarial(&config, Device::Cpu);
    let (samples, log_mel) = signal(&config);
    let optimizer = |store: &VarStore| {
        let parameters = named_parameters(store).into_iter().map(|(_, tensor)| (tensor, false));
        let (beta1, beta2) = (config.training.vocoder_beta1, config.training.vocoder_beta2);
        AdamW::new(parameters, torchx::adamw::Options { lr: 2e-3, beta1, beta2, ..Default::default() })
    };
    let mut optimizers = [optimizer(&generator).unwrap(), optimizer(&discriminators).unwrap()];
    let loss = || adversarial.loss(&samples, &log_mel).double_value(&[]);
    let before = loss();
    for _ in 0..150 {
        let _ = adversarial.backward(&samples, &log_mel, &weight(1.0));
        for optimizer in &mut optimizers {
            optimizer.step(None).unwrap();
            optimizer.zero_grad().unwrap();
        }
    }
    let after = loss();
    assert!(after < before / 3.0, "mel distance {before:.3} → {after:.3}");
    let wave = adversarial.generator.waveform(&log_mel);
    assert_eq!(wave.len() as i64, samples.size()[0]);
}

#[test]
#[ignore = "needs a GPU"]
fn losses_and_gradients_on_the_gpu_equal_the_cpu() {
    torchx::cuda::load().unwrap();
    torchx::require_full_f32().unwrap();
    let (config, gpu) = (config(), Device::Cuda(0));
    let (samples, log_mel) = one_segment(&config);
    let here = adversarial(&config, Device::Cpu);
    let there = adversarial(&config, gpu);
    for (from, to) in [(&here.0, &there.0), (&here.1, &there.1)] {
        for ((_, from), (_, mut to)) in named_parameters(from).into_iter().zip(named_parameters(to)) {
            tch::no_grad(|| to.copy_(&from));
        }
    }
    let cpu_losses = here.2.backward(&samples, &log_mel, &weight(1.0));
    let losses = there
        .2
        .backward(&samples.to_device(gpu), &log_mel.to_device(gpu), &weight(1.0).to_device(gpu))
        .to_device(Device::Cpu);
    assert!((&losses - &cpu_losses).abs().max().double_value(&[]) < 1e-2, "{cpu_losses:?} on the CPU, {losses:?}");
    for (cpu, gpu) in [(&here.0, &there.0), (&here.1, &there.1)] {
        for ((name, wanted), (_, found)) in gradients(cpu).iter().zip(gradients(gpu)) {
            let error = (found.to_device(Device::Cpu) - wanted).norm().double_value(&[]);
            let scale = wanted.norm().double_value(&[]).max(1e-3);
            assert!(error < 3e-2 * scale, "{name}: gradients differ by {:.1e} of their size", error / scale);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_pass_draws_new_segments_at_each_replay() {
    torchx::cuda::load().unwrap();
    let (config, gpu) = (config(), Device::Cuda(0));
    let (generator, discriminators) = (VarStore::new(gpu), VarStore::new(gpu));
    let adversarial = AdversarialStep::new(&generator, &discriminators, &config, Kind::BFloat16);
    let (samples, log_mel) = signal(&config);
    let (samples, log_mel) = (samples.to_device(gpu), log_mel.to_device(gpu));
    let losses = Tensor::zeros([AdversarialStep::LOSS_NAMES.len() as i64], (Kind::Float, gpu));
    let parameters: Vec<Tensor> =
        [&generator, &discriminators].iter().flat_map(|store| store.trainable_variables()).collect();
    let pass = || {
        let _copies = torchx::Narrowed::new(&parameters, Kind::BFloat16).unwrap();
        losses.shallow_clone().copy_(&adversarial.backward(&samples, &log_mel, &weight(1.0)));
    };
    (0..3).for_each(|_| pass());
    let (graph, ()) = torchx::Graph::capture(gpu, None, || {
        pass();
        Ok::<_, torchx::Error>(())
    })
    .unwrap();
    let replay = || {
        graph.replay().unwrap();
        Vec::<f32>::try_from(losses.to_device(Device::Cpu)).unwrap()
    };
    let replays: Vec<Vec<f32>> = (0..6).map(|_| replay()).collect();
    assert!(replays.iter().flatten().all(|loss| loss.is_finite()), "{replays:?}");
    // There are few places to draw from, so two in a row may be alike.
    assert!(replays.iter().any(|losses| *losses != replays[0]), "{replays:?}");
}

/// Time and kernels of a whole pass in a replayed graph, updates left out: 26 segments, the networks of `docs/kernels.md`.
#[test]
#[ignore = "needs a GPU"]
fn time_of_a_pass() {
    torchx::cuda::load().unwrap();
    tch::Cuda::cudnn_set_benchmark(true);
    let (mut config, gpu) = (Config::default(), Device::Cuda(0));
    (config.model.vocoder_dim, config.model.vocoder_layers) = (256, 7);
    let (generator, discriminators) = (VarStore::new(gpu), VarStore::new(gpu));
    let adversarial = AdversarialStep::new(&generator, &discriminators, &config, Kind::BFloat16);
    let frames = 26 * 2 * config.training.vocoder_segment_frames;
    let samples = Tensor::randn([frames * config.model.hop_length], (Kind::Float, gpu)) * 0.1;
    let log_mel = MelExtractor::new(&config.model, config.data.sample_rate, gpu).log_mel(&samples);
    let parameters: Vec<Tensor> =
        [&generator, &discriminators].iter().flat_map(|store| store.trainable_variables()).collect();
    let copies = torchx::Copies::new(&parameters, Kind::BFloat16).unwrap();
    let optimizer =
        AdamW::new(parameters.iter().map(|parameter| (parameter.shallow_clone(), false)), Default::default()).unwrap();
    let weight = weight(1.0).to_device(gpu);
    let pass = || {
        let _lent = torchx::Copies::lend([&copies]);
        let losses = adversarial.backward(&samples, &log_mel, &weight);
        copies.drop_grad().unwrap();
        optimizer.drop_grad().unwrap();
        Ok::<_, torchx::Error>(losses)
    };
    (0..3).for_each(|_| drop(pass()));
    let (graph, losses) = torchx::Graph::capture(gpu, None, pass).unwrap();
    let replays = |count| {
        (0..count).for_each(|_| graph.replay().unwrap());
        torchx::cuda::synchronize(gpu).unwrap();
    };
    replays(10);
    let start = std::time::Instant::now();
    replays(50);
    println!("{:.2} ms a pass, losses {:?}", start.elapsed().as_secs_f64() * 20.0, Vec::<f32>::try_from(&losses));
    let recorder = torchx::activity::start().unwrap();
    replays(10);
    let activity = recorder.stop().unwrap().of(gpu).unwrap();
    let all: f64 = activity.by_name.iter().map(|kernel| kernel.total_ns as f64 / 1e7).sum();
    println!(
        "{} kernels, {all:.2} ms of them; a kernel runs for {:.2} ms",
        activity.kernels / 10,
        activity.kernel_ns as f64 / 1e7
    );
    for kernel in activity.by_name.iter().take(60) {
        let name: String = kernel.name.chars().take(150).collect();
        println!("{:.3} ms\t{}\t{name}", kernel.total_ns as f64 / 1e7, kernel.count / 10);
    }
}
