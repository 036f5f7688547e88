//! The model against itself and against references: packed equals alone, and one batch can be learned by heart.

use super::*;
use crate::config::Config;
use crate::loader::{Axis, GAP, Span};
use crate::rng::Rng;
use tch::Device;
use tch::nn::VarStore;

const VOCAB: usize = 12;

fn tiny() -> config::Model {
    let mut model = Config::default().model;
    (model.n_mels, model.dropout) = (6, 0.0);
    (model.text_dim, model.text_layers, model.text_heads) = (16, 2, 2);
    (model.decoder_dim, model.decoder_layers, model.decoder_heads) = (16, 2, 2);
    model
}

fn voice(seed: i64) -> (VarStore, Voice) {
    tch::set_num_threads(1); // tests run side by side, and these tensors are tiny
    tch::manual_seed(seed);
    let store = VarStore::new(Device::Cpu);
    let voice = Voice::new(&store.root(), &tiny(), VOCAB, Kind::Float).unwrap();
    // What starts as zero would hide whatever feeds it.
    for (_, tensor) in crate::train::named_parameters(&store) {
        let _ = tch::no_grad(|| tensor.shallow_clone().uniform_(-0.2, 0.2));
    }
    (store, voice)
}

/// Utterances of the given (tokens, frames), laid out with gaps; values depend on the utterance alone.
fn batch(utterances: &[(usize, usize, u64)]) -> Batch {
    let lay = |lens: Vec<usize>| {
        let mut start = 0;
        let spans: Vec<Span> = lens
            .iter()
            .map(|&len| {
                let span = Span { start, len };
                start += len + GAP;
                span
            })
            .collect();
        (spans, start)
    };
    let (text_spans, text_total) = lay(utterances.iter().map(|u| u.0).collect());
    let (frame_spans, frame_total) = lay(utterances.iter().map(|u| u.1).collect());
    let axis = |spans: &[Span], total| {
        let longest = spans.iter().map(|span| span.len).max().unwrap();
        Packed::new(&Axis::new(spans, total, utterances.len(), longest), |tensor| tensor)
    };
    // A generator for each utterance, not LibTorch's: tests run side by side and share that one.
    let (mut tokens, mut mel) = (vec![0i64; text_total], vec![9f32; frame_total * 6]);
    for ((text, frames), &(.., seed)) in text_spans.iter().zip(&frame_spans).zip(utterances) {
        let mut rng = Rng::new(&[seed]);
        tokens[text.range()].fill_with(|| rng.below(VOCAB) as i64);
        mel[frames.start * 6..frames.end() * 6].fill_with(|| rng.below(4000) as f32 / 1000.0 - 2.0);
    }
    let (tokens, mel) = (Tensor::from_slice(&tokens), Tensor::from_slice(&mel).view([-1, 6]));
    Batch { tokens, mel, text: axis(&text_spans, text_total), frames: axis(&frame_spans, frame_total) }
}

/// A loss without random draws: encoder, search, duration and decoder at fixed noise and time, summed over frames and
/// tokens, so that a batch's loss is the sum of its utterances'.
fn fixed_loss(voice: &Voice, batch: &Batch) -> Tensor {
    let (hidden, mean) = voice.encoder.forward(&batch.tokens, &batch.text, Kind::Float, false);
    let path = voice.aligner.search(&mean, &batch.mel, &batch.text, &batch.frames);
    let aligned = mean.index_select(0, &path);
    let times = Tensor::full([batch.frames.capacity()], 0.3, (Kind::Float, Device::Cpu));
    let noisy = &batch.mel * 0.5;
    let guess = voice.decoder.forward(&noisy, &aligned, &times, &batch.frames, Kind::Float);
    let durations = align::durations(&path, &batch.text, &batch.frames).clamp_min(1.0).log();
    let wrong = voice.duration.forward(&hidden, &batch.text, false) - durations;
    let per_frame = (guess - &batch.mel).square() + (&batch.mel - aligned).square();
    (per_frame * &batch.frames.mask).sum(Kind::Float) + (wrong.square() * &batch.text.mask).sum(Kind::Float)
}

fn gradients(store: &VarStore, loss: &Tensor) -> Vec<(String, Tensor)> {
    store.trainable_variables().iter().for_each(|tensor| tensor.shallow_clone().zero_grad());
    loss.backward();
    let named = crate::train::named_parameters(store);
    named.into_iter().map(|(name, tensor)| (name, tensor.grad().copy())).collect()
}

#[test]
fn packed_loss_and_gradients_equal_those_of_each_utterance_alone() {
    let (store, voice) = voice(1);
    let utterances = [(5, 13, 21), (3, 8, 22), (7, 7, 23)];
    let packed = fixed_loss(&voice, &batch(&utterances));
    let together = gradients(&store, &packed);
    let losses: Vec<Tensor> = utterances.iter().map(|&u| fixed_loss(&voice, &batch(&[u]))).collect();
    let alone = losses.iter().sum::<Tensor>();
    let apart = gradients(&store, &alone);
    assert!((packed.double_value(&[]) - alone.double_value(&[])).abs() < 1e-3 * alone.double_value(&[]));
    for ((name, a), (_, b)) in together.iter().zip(&apart) {
        let scale = b.abs().max().double_value(&[]).max(1e-3);
        let error = (a - b).abs().max().double_value(&[]) / scale;
        assert!(error < 1e-4, "{name}: gradients differ by {error:.1e} of their largest");
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    let (store, voice) = voice(2);
    let loss = voice.losses(&batch(&[(5, 13, 31), (3, 8, 32)]), true).total();
    for (name, gradient) in gradients(&store, &loss) {
        assert!(gradient.abs().max().double_value(&[]) > 0.0, "{name} is computed for nothing");
    }
}

#[test]
fn recomputed_blocks_give_the_same_gradients() {
    let (store, mut voice) = voice(4);
    let batch = batch(&[(5, 13, 61), (3, 8, 62)]);
    let draw = Draw::new(&batch);
    let mut run = |recompute: bool| {
        voice.recompute = recompute;
        store.trainable_variables().iter().for_each(|tensor| tensor.shallow_clone().zero_grad());
        let losses = voice.backward_at(&batch, &draw, 0.5);
        let named = crate::train::named_parameters(&store);
        (
            losses.total().double_value(&[]),
            named.into_iter().map(|(name, t)| (name, t.grad().copy())).collect::<Vec<_>>(),
        )
    };
    let (kept, recomputed) = (run(false), run(true));
    assert!((kept.0 - recomputed.0).abs() < 1e-5);
    for ((name, a), (_, b)) in kept.1.iter().zip(&recomputed.1) {
        let scale = a.abs().max().double_value(&[]).max(1e-6);
        assert!((a - b).abs().max().double_value(&[]) / scale < 1e-4, "{name}");
    }
}

#[test]
fn one_batch_can_be_learned_by_heart() {
    let (store, voice) = voice(3);
    let batch = batch(&[(4, 12, 41), (3, 9, 42)]);
    let parameters = crate::train::named_parameters(&store).into_iter().map(|(_, tensor)| (tensor, false));
    let options = torchx::adamw::Options { lr: 5e-3, ..Default::default() };
    let mut optimizer = torchx::AdamW::new(parameters, options).unwrap();
    let mut history = Vec::new();
    let draws: Vec<Draw> = (0..4).map(|_| Draw::new(&batch)).collect();
    for step in 0..600 {
        let loss = voice.losses_at(&batch, &draws[step % 4], true).total();
        optimizer.zero_grad().unwrap();
        loss.backward();
        optimizer.step(None).unwrap();
        history.push(loss.double_value(&[]));
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&history[..8]), mean(&history[592..]));
    assert!(last < 0.15 * first, "loss {first:.3} → {last:.3}");
}

#[test]
fn search_on_a_batch_equals_the_best_of_every_path() {
    // Means far apart and frames drawn around them: the path is known.
    let batch = batch(&[(3, 6, 51), (2, 5, 52)]);
    let mut rng = Rng::new(&[5]);
    let rows: Vec<f32> = (0..batch.text.len() * 6).map(|_| rng.below(200) as f32 / 10.0 - 10.0).collect();
    let mean = Tensor::from_slice(&rows).view([-1, 6]);
    let wanted: Vec<i64> = vec![0, 0, 1, 1, 1, 2, 7, 7, 7, 8, 8];
    let places: Vec<i64> = (0..6).chain(10..15).collect();
    let mut mel = batch.mel.zeros_like();
    let _ = mel.index_put_(
        &[Some(Tensor::from_slice(&places))],
        &mean.index_select(0, &Tensor::from_slice(&wanted)),
        false,
    );
    let path = Aligner::new(Device::Cpu).unwrap().search(&mean, &mel, &batch.text, &batch.frames);
    let found: Vec<i64> = Vec::try_from(path.index_select(0, &Tensor::from_slice(&places))).unwrap();
    assert_eq!(found, wanted);
}

#[test]
#[ignore = "needs a GPU"]
fn search_on_the_gpu_equals_the_cpu_on_large_cases() {
    torchx::cuda::load().unwrap();
    let mut rng = Rng::new(&[77]);
    let utterances: Vec<(usize, usize, u64)> = (0..40)
        .map(|seed| {
            let tokens = 1 + rng.below(350);
            (tokens, tokens + rng.below(900), seed)
        })
        .collect();
    let on_cpu = batch(&utterances);
    let on_gpu = on_cpu.copy_to(Device::Cuda(0));
    let rows: Vec<f32> = (0..on_cpu.text.len() * 6).map(|_| rng.below(4000) as f32 / 1000.0 - 2.0).collect();
    let mean = Tensor::from_slice(&rows).view([-1, 6]);
    let wanted = Aligner::new(Device::Cpu).unwrap().search(&mean, &on_cpu.mel, &on_cpu.text, &on_cpu.frames);
    let gpu = Aligner::new(Device::Cuda(0)).unwrap();
    let found = gpu.search(&mean.to_device(Device::Cuda(0)), &on_gpu.mel, &on_gpu.text, &on_gpu.frames);
    // Sums are added in another order, so near ties may fall differently; the paths' scores are what must agree.
    let score = |path: &Tensor| {
        let distance = (&on_cpu.mel - mean.index_select(0, path)).square() * &on_cpu.frames.mask;
        distance.sum(Kind::Double).double_value(&[])
    };
    let (cpu, gpu) = (score(&wanted), score(&found.to_device(Device::Cpu)));
    assert!((cpu - gpu).abs() < 1e-5 * cpu, "{cpu} on the CPU, {gpu} on the GPU");
    let same = wanted.eq_tensor(&found.to_device(Device::Cpu)).to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
    assert!(same > 0.99, "only {same} of the frames agree");
}

#[test]
#[ignore = "needs a GPU"]
fn losses_and_gradients_on_the_gpu_equal_the_cpu() {
    torchx::cuda::load().unwrap();
    let (mut store, voice) = voice(5);
    let cpu_batch = batch(&[(5, 13, 71), (30, 80, 72), (7, 7, 73)]);
    let cpu_draw = Draw::new(&cpu_batch);
    let cpu = voice.backward_at(&cpu_batch, &cpu_draw, 1.0).total().double_value(&[]);
    let cpu_gradients: Vec<Tensor> =
        crate::train::named_parameters(&store).iter().map(|(_, tensor)| tensor.grad().copy()).collect();
    store.trainable_variables().iter().for_each(|tensor| tensor.shallow_clone().zero_grad());

    let gpu = Device::Cuda(0);
    let other = VarStore::new(gpu);
    let on_gpu = Voice::new(&other.root(), &tiny(), VOCAB, Kind::Float).unwrap();
    for ((_, to), (_, from)) in
        crate::train::named_parameters(&other).iter().zip(crate::train::named_parameters(&store))
    {
        tch::no_grad(|| to.shallow_clone().copy_(&from));
    }
    store.freeze();
    let draw = Draw {
        times: cpu_draw.times.to_device(gpu),
        noisy: cpu_draw.noisy.to_device(gpu),
        velocity: cpu_draw.velocity.to_device(gpu),
    };
    let loss = on_gpu.backward_at(&cpu_batch.copy_to(gpu), &draw, 1.0).total().double_value(&[]);
    assert!((loss - cpu).abs() < 1e-4 * cpu.abs(), "{cpu} on the CPU, {loss} on the GPU");
    for ((name, tensor), wanted) in crate::train::named_parameters(&other).iter().zip(&cpu_gradients) {
        let scale = wanted.abs().max().double_value(&[]).max(1e-3);
        let error = (tensor.grad().to_device(Device::Cpu) - wanted).abs().max().double_value(&[]) / scale;
        assert!(error < 5e-3, "{name}: gradients differ by {error:.1e} of their largest");
    }
}
