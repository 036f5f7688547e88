//! The model against itself and against references: packed equals alone, and one batch can be learned by heart.

use super::track::{repeat, with_gap_row};
use super::*;
use host::config::Config;
use host::loader::{Axis, GAP, Span};
use host::rng::Rng;
use tch::Device;
use tch::nn::VarStore;

const VOCAB: usize = 12;
const LANGUAGES: usize = 3;

fn tiny() -> config::Model {
    let mut model = Config::default().model;
    (model.n_mels, model.dropout) = (6, Some(0.0));
    (model.text_dim, model.text_layers, model.text_heads) = (16, 2, 2);
    (model.decoder_dim, model.decoder_layers, model.decoder_heads) = (16, 4, 2);
    model
}

impl Losses {
    fn total(&self) -> Tensor {
        self.parts().into_iter().sum()
    }
}

fn weight(share: f32) -> Tensor {
    Tensor::from(share)
}

fn voice(seed: i64) -> (VarStore, Voice) {
    voice_of(&tiny(), seed)
}

fn voice_of(config: &config::Model, seed: i64) -> (VarStore, Voice) {
    tch::set_num_threads(1); // tests run side by side, and these tensors are tiny
    tch::manual_seed(seed);
    let store = VarStore::new(Device::Cpu);
    let voice = Voice::new(&store.root(), config, VOCAB, LANGUAGES, Kind::Float).unwrap();
    // What starts as zero would hide whatever feeds it.
    for (_, tensor) in torchx::named_parameters(&store) {
        let _ = tch::no_grad(|| tensor.shallow_clone().uniform_(-0.2, 0.2));
    }
    (store, voice)
}

/// Utterances of the given (tokens, frames), laid out with gaps; values depend on the utterance alone.
fn batch(utterances: &[(usize, usize, u64)]) -> Batch {
    batch_of(6, utterances)
}

fn batch_of(n_mels: usize, utterances: &[(usize, usize, u64)]) -> Batch {
    let lay = |lens: Vec<usize>| {
        let mut start = 0usize;
        let spans: Vec<Span> = lens
            .iter()
            .map(|&len| {
                let span = Span { start, len };
                start += (len + GAP).next_multiple_of(2);
                span
            })
            .collect();
        (spans, start)
    };
    let (text_spans, text_total) = lay(utterances.iter().map(|u| u.0).collect());
    let (frame_spans, frame_total) = lay(utterances.iter().map(|u| u.1).collect());
    // A generator for each utterance, not LibTorch's: tests run side by side and share that one.
    let (mut tokens, mut mel) = (vec![0i32; text_total], vec![9f32; frame_total * n_mels]);
    let mut languages = vec![0i32; utterances.len()];
    for (index, &(.., seed)) in utterances.iter().enumerate() {
        let mut rng = Rng::new(&[seed]);
        let value = |rng: &mut Rng| rng.below(4000) as f32 / 1000.0 - 2.0;
        tokens[text_spans[index].range()].fill_with(|| rng.below(VOCAB) as i32);
        mel[frame_spans[index].start * n_mels..frame_spans[index].end() * n_mels].fill_with(|| value(&mut rng));
        languages[index] = rng.below(LANGUAGES) as i32;
    }
    let mel = Tensor::from_slice(&mel).view([-1, n_mels as i64]);
    Batch::by_hand(&text_spans, &frame_spans, &tokens, &languages, mel)
}

/// Every part at fixed noise and time, with the first third of each utterance as context, summed over frames and tokens,
/// so that a batch's loss is the sum of its utterances'.
fn fixed_loss(voice: &Voice, batch: &Batch) -> Tensor {
    let track = voice.text_track(&batch.text);
    let encoded = voice.encoder.forward(&batch.tokens, &batch.languages, &track, false);
    let path = voice.token_of_frame(&encoded, batch);
    let (mean, content) = encoded.split(&encoded.table.index_select(0, &path));
    let times = Tensor::full([batch.frames.capacity()], 0.3, (Kind::Float, Device::Cpu));
    let mask = first_third(batch);
    let context = voice.clones().then_some(Context { mel: &batch.mel, mask: &mask });
    let conditioning = Conditioning { content: &content, content_mask: &(-&mask + 1.0), context };
    let guess = velocity(voice, &(&batch.mel * 0.5), &conditioning, &times, &batch.frames);
    let lasted = align::durations(&path, &batch.text, &batch.frames);
    let predicted = voice.duration.forward(&encoded.hidden, &track, false);
    let by_token = duration_loss(&predicted, &lasted, &batch.text.mask) * lasted.sum(Kind::Float);
    let per_frame = (guess - &batch.mel).square() + (&batch.mel - mean).square();
    (per_frame * &batch.frames.mask).sum(Kind::Float) + by_token
}

/// `[frames, 1]`
fn first_third(batch: &Batch) -> Tensor {
    let frames = &batch.frames;
    let thirds = with_gap_row(&frames.lens.unsqueeze(1)).index_select(0, &frames.owner);
    (frames.position.unsqueeze(1) * 3).lt_tensor(&thirds).to_kind(Kind::Float)
}

/// Parameters' gradients after `backward` has run.
fn collected(store: &VarStore, backward: impl FnOnce()) -> Vec<(String, Tensor)> {
    store.trainable_variables().iter().for_each(|tensor| tensor.shallow_clone().zero_grad());
    backward();
    let named = torchx::named_parameters(store);
    let gradient = |tensor: Tensor| if tensor.grad().defined() { tensor.grad().copy() } else { tensor.zeros_like() };
    named.into_iter().map(|(name, tensor)| (name, gradient(tensor))).collect()
}

fn agree(one: &[(String, Tensor)], other: &[(String, Tensor)], least: f64, within: f64) {
    for ((name, a), (_, b)) in one.iter().zip(other) {
        let scale = b.abs().max().double_value(&[]).max(least);
        let error = (a - b).abs().max().double_value(&[]) / scale;
        assert!(error < within, "{name}: gradients differ by {error:.1e} of their largest");
    }
}

#[test]
fn packed_loss_and_gradients_equal_those_of_each_utterance_alone() {
    // Odd and even lengths: at half the frame rate an odd one ends in half a pair.
    let utterances = [(5, 13, 21), (3, 8, 22), (7, 7, 23), (4, 11, 24)];
    for context_share in [0.7, 0.0] {
        let (store, voice) = voice_of(&config::Model { context_share, ..tiny() }, 1);
        let mut sums = (0.0, 0.0);
        let together = collected(&store, || {
            let loss = fixed_loss(&voice, &batch(&utterances));
            loss.backward();
            sums.0 = loss.double_value(&[]);
        });
        let apart = collected(&store, || {
            for &utterance in &utterances {
                let loss = fixed_loss(&voice, &batch(&[utterance]));
                loss.backward();
                sums.1 += loss.double_value(&[]);
            }
        });
        assert!((sums.0 - sums.1).abs() < 1e-4 * sums.1, "{sums:?}");
        agree(&together, &apart, 1e-3, 2e-4);
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    for context_share in [0.7, 0.0] {
        let (store, voice) = voice_of(&config::Model { context_share, ..tiny() }, 2);
        let losses = collected(&store, || {
            voice.backward(&batch(&[(5, 13, 31), (3, 8, 32), (6, 9, 33)]), &weight(1.0));
        });
        for (name, gradient) in losses {
            assert!(gradient.abs().max().double_value(&[]) > 0.0, "{name} is computed for nothing");
        }
    }
}

#[test]
fn recomputed_blocks_give_the_same_gradients() {
    let (store, mut voice) = voice(4);
    let batch = batch(&[(5, 13, 61), (3, 8, 62)]);
    let draw = Draw::new(&batch, 2, 0.7, 0.3);
    let mut run = |recompute: bool| {
        voice.recompute = recompute;
        let mut loss = 0.0;
        let gradients =
            collected(&store, || loss = voice.backward_at(&batch, &draw, &weight(0.5)).total().double_value(&[]));
        (loss, gradients)
    };
    let (kept, recomputed) = (run(false), run(true));
    assert!((kept.0 - recomputed.0).abs() < 1e-5);
    agree(&recomputed.1, &kept.1, 1e-6, 1e-4);
}

#[test]
fn two_draws_are_the_mean_of_each_alone() {
    let (store, voice) = voice(6);
    let batch = batch(&[(5, 13, 81), (3, 8, 82)]);
    let mut both = Draw::new(&batch, 2, 0.7, 0.5);
    // As many context frames in each, for the loss is a mean over the rest.
    both.masks.context = Some(first_third(&batch).repeat([2, 1]));
    let part = |index: usize| {
        let half = |tensor: &Tensor| tensor.chunk(2, 0).remove(index);
        Draw {
            frames: repeat(&batch.frames, 1),
            times: half(&both.times),
            masks: ContextMasks { context: both.masks.context.as_ref().map(half), content: half(&both.masks.content) },
            context_mel: half(&both.context_mel),
            noisy: half(&both.noisy),
            velocity: half(&both.velocity),
        }
    };
    let mut losses = [0.0; 3];
    let together =
        collected(&store, || losses[0] = voice.backward_at(&batch, &both, &weight(1.0)).total().double_value(&[]));
    let apart = collected(&store, || {
        for index in 0..2 {
            losses[index + 1] = voice.backward_at(&batch, &part(index), &weight(0.5)).total().double_value(&[]);
        }
    });
    assert!((losses[0] - (losses[1] + losses[2]) / 2.0).abs() < 1e-5, "{losses:?}");
    agree(&together, &apart, 1e-5, 1e-3);
}

fn velocity(voice: &Voice, noisy: &Tensor, conditioning: &Conditioning, times: &Tensor, frames: &Packed) -> Tensor {
    let (decoder, halved) = (&voice.decoder, half(frames));
    let (tables, rates) = (decoder.tables(times, Kind::Float), decoder.rates(frames, &halved, Kind::Float));
    decoder.velocity(noisy, conditioning, &tables, &rates)
}

/// The decoder's guess for a batch's own frames at fixed noise.
fn guess(voice: &Voice, batch: &Batch, draw: &Draw) -> Tensor {
    let content = voice.aligned(batch, false).content;
    velocity(voice, &draw.noisy, &draw.conditioning(&content), &draw.times, &draw.frames) * &batch.frames.mask
}

#[test]
fn a_dropped_condition_says_nothing() {
    let (_, voice) = voice(7);
    let (one, other) = (batch(&[(5, 13, 91)]), batch(&[(5, 13, 92)]));
    let mut draw = Draw::new(&one, 1, 0.7, 1.0);
    let dropped = guess(&voice, &one, &draw);
    assert_eq!(dropped, guess(&voice, &other, &draw), "text is dropped, so it may be any");
    draw.context_mel = draw.context_mel.randn_like();
    assert_eq!(dropped, guess(&voice, &one, &draw), "and so is the context");
    // Without a mask there is no context at all: what guidance compares with.
    draw.masks.context = None;
    assert_eq!(dropped, guess(&voice, &one, &draw));
}

#[test]
fn context_is_given_clean_and_counted_out_of_the_loss() {
    let (_, voice) = voice(13);
    let batch = batch(&[(5, 13, 31), (3, 8, 32), (6, 9, 33)]);
    for seed in 0..5 {
        tch::manual_seed(seed);
        let mut draw = Draw::new(&batch, 1, 0.7, 0.0);
        let context = draw.masks.context.as_ref().unwrap().copy();
        let (before, wanted) = (guess(&voice, &batch, &draw), draw.velocity.copy());
        let loss = draw.loss(&before).double_value(&[]);
        // Noise on context frames is not looked at, and neither is what would have been the target there.
        draw.noisy += draw.noisy.randn_like() * &context;
        assert_eq!(guess(&voice, &batch, &draw), before);
        draw.velocity += draw.velocity.randn_like() * &context;
        assert_eq!(draw.loss(&before).double_value(&[]), loss);
        // By hand: the mean over what is generated.
        let generated = &batch.frames.mask - &context;
        let error = ((&before - wanted).square() * &generated).sum(Kind::Float).double_value(&[]);
        let count = generated.sum(Kind::Float).double_value(&[]) * 6.0;
        assert!((error / count - loss).abs() < 1e-5 * loss);
        // Clean frames are looked at, but for those that are to be generated.
        draw.context_mel = &draw.context_mel + draw.context_mel.randn_like() * &generated; // the batch's own stay
        assert_eq!(guess(&voice, &batch, &draw), before);
        draw.context_mel = &draw.context_mel + draw.context_mel.randn_like() * &context;
        assert_ne!(guess(&voice, &batch, &draw), before);
    }
}

#[test]
fn guidance_of_one_is_plain_and_more_goes_on_in_the_same_direction() {
    let (_, voice) = voice(8);
    let batch = batch(&[(5, 13, 95), (3, 8, 96)]);
    let content = voice.aligned(&batch, false).content;
    let (mask, nothing) = (first_third(&batch), batch.mel.zeros_like());
    // One Euler step from nothing is the velocity itself.
    let spoken = |guidance: f64| {
        let branches = Branches::along(&batch.frames, &(-&mask + 1.0), Some((&batch.mel, &mask)), guidance);
        voice.decode(&content, &nothing, 1, &branches) * &batch.frames.mask
    };
    let (none, one, two) = (spoken(0.0), spoken(1.0), spoken(2.0));
    let near = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]) < 1e-5;
    assert!(near(&two, &(&one * 2.0 - &none)), "velocities are not on a line");
    assert!(!near(&one, &none), "the condition changes nothing");
    assert!(near(&spoken(1.0 + 1e-9), &one), "two copies differ from one");
}

#[test]
fn what_is_imitated_keeps_its_context_and_has_the_batchs_shape() {
    let (_, voice) = voice(9);
    let batch = batch(&[(5, 13, 97), (3, 8, 98)]);
    let how = Sampling { steps: 2, temperature: 1.0, guidance: 1.0, speaker_guidance: 0.0 };
    let made = voice.imitate(&batch, &how) * &batch.frames.mask;
    let speech = &batch.mel * &batch.frames.mask;
    assert_eq!(made.size(), speech.size());
    let same = made.eq_tensor(&speech).all_dim(1, true).to_kind(Kind::Float) * &batch.frames.mask;
    let same = same.sum(Kind::Float).double_value(&[]);
    assert!((4.0..19.0).contains(&same), "{same} of 21 frames are as recorded");
}

#[test]
fn known_durations_replace_the_search() {
    let (_, voice) = voice(10);
    let mut batch = batch(&[(5, 13, 98), (3, 8, 99)]);
    let draw = Draw::new(&batch, 1, 0.7, 0.0);
    let searched = voice.losses_at(&batch, &draw, false).total().double_value(&[]);
    batch.token_of_frame = Some(voice.align(&batch));
    assert_eq!(voice.losses_at(&batch, &draw, false).total().double_value(&[]), searched);
    // A path that the search did not find.
    batch.token_of_frame =
        Some(Tensor::from_slice(&[0i32, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).constant_pad_nd([0, 17]));
    assert_ne!(voice.losses_at(&batch, &draw, false).total().double_value(&[]), searched);
}

#[test]
fn the_best_prediction_of_durations_is_their_mean() {
    // Minus log-likelihood of counts d under rate r is r - d ln r + …: lowest where r is the mean of d.
    let lasted = Tensor::from_slice(&[1f32, 2.0, 3.0, 14.0]).unsqueeze(1);
    let mask = lasted.ones_like();
    let loss = |frames: f64| {
        let predicted = Tensor::full([4, 1], frames.ln(), (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let loss = duration_loss(&predicted, &lasted, &mask);
        loss.backward();
        (loss.double_value(&[]), predicted.grad().sum(Kind::Float).double_value(&[]))
    };
    assert!(loss(5.0).1.abs() < 1e-6, "the slope at the mean is {}", loss(5.0).1);
    assert!(loss(5.0).0 < loss(4.9).0 && loss(5.0).0 < loss(5.1).0);
    // By hand: (Σ d ln(d / 5)) / Σ d, as Σ d = Σ 5.
    let expected = (0.2f64.ln() + 2.0 * 0.4f64.ln() + 3.0 * 0.6f64.ln() + 14.0 * 2.8f64.ln()) / 20.0;
    assert!((loss(5.0).0 - expected).abs() < 1e-6);
    assert!(duration_loss(&lasted.log(), &lasted, &mask).double_value(&[]).abs() < 1e-6, "0 where all is known");
}

#[test]
fn half_rate_and_copies_are_what_the_host_would_lay_out() {
    let lay = |spans: &[(usize, usize)], total: usize, capacity: usize, longest: usize| {
        let spans: Vec<Span> = spans.iter().map(|&(start, len)| Span { start, len }).collect();
        Packed::new(&Axis::new(&spans, total, capacity, longest), |tensor| tensor)
    };
    let list = |tensor: &Tensor| Vec::<i64>::try_from(tensor.flatten(0, -1)).unwrap();
    let full = lay(&[(0, 5), (10, 6)], 24, 3, 6);
    let halved = track::half(&full);
    assert_eq!(list(&halved.owner), [0, 0, 0, 3, 3, 1, 1, 1, 3, 3, 3, 3]);
    assert_eq!(list(&halved.position), [0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0]);
    assert_eq!((list(&halved.starts), list(&halved.lens)), (vec![0, 5, 0], vec![3, 3, 0]));
    assert_eq!(list(&halved.cu_seqlens)[..6], [0, 0, 3, 5, 8, 12]);
    assert_eq!(list(&halved.mask).iter().sum::<i64>(), 6);
    let twice = track::repeat(&full, 2);
    assert_eq!(list(&twice.owner)[24..40], [3, 3, 3, 3, 3, 6, 6, 6, 6, 6, 4, 4, 4, 4, 4, 4]);
    assert_eq!(list(&twice.owner)[5], 6);
    assert_eq!(list(&twice.starts), [0, 10, 0, 24, 34, 24]);
    assert_eq!((list(&twice.lens), list(&twice.mask).len()), (vec![5, 6, 0, 5, 6, 0], 48));
    let borders = list(&twice.cu_seqlens);
    assert!(borders.is_sorted() && borders.ends_with(&[48]));
    let one = list(&full.cu_seqlens).len();
    assert_eq!(borders[one..one + 5], [24, 29, 34, 40, 48]);
}

/// Frames that follow from the text: a token's are alike, and it is known which these are, for a search among tokens that
/// say nothing yet may settle on others. So nothing need remain of the loss.
fn learnable() -> Batch {
    let mut batch = batch(&[(4, 12, 41), (3, 9, 42)]);
    let token_of_frame: Vec<i64> = (0..12).map(|at| at / 3).chain([0; 4]).chain((0..9).map(|at| 8 + at / 3)).collect();
    let path = Tensor::from_slice(&token_of_frame).constant_pad_nd([0, batch.frames.len() - 25]);
    batch.mel = batch.mel.index_select(0, &path) * &batch.frames.mask;
    batch.token_of_frame = Some(path.to_kind(Kind::Int));
    batch
}

#[test]
fn one_batch_can_be_learned_by_heart() {
    let (store, voice) = voice(3);
    let batch = learnable();
    let parameters = torchx::named_parameters(&store).into_iter().map(|(_, tensor)| (tensor, false));
    let options = torchx::adamw::Options { lr: 5e-3, ..Default::default() };
    let mut optimizer = torchx::AdamW::new(parameters, options).unwrap();
    let mut history = Vec::new();
    let draws: Vec<Draw> = (0..4).map(|_| Draw::new(&batch, 1, 0.7, 0.0)).collect();
    for step in 0..400 {
        optimizer.set_lr(5e-3 * (1.0 - step as f64 / 400.0)).unwrap();
        let loss = voice.losses_at(&batch, &draws[step % 4], true).total();
        optimizer.zero_grad().unwrap();
        loss.backward();
        optimizer.step(None).unwrap();
        history.push(loss.double_value(&[]));
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&history[..8]), mean(&history[392..]));
    assert!(last < 1e-3 * first, "loss {first:.3} → {last:.1e}");
}

#[test]
fn search_on_a_batch_equals_the_best_of_every_path() {
    // Means far apart and frames drawn around them: the path is known.
    let batch = batch(&[(3, 6, 51), (2, 5, 52)]);
    let mut rng = Rng::new(&[5]);
    let rows: Vec<f32> = (0..batch.text.len() * 6).map(|_| rng.below(200) as f32 / 10.0 - 10.0).collect();
    let mean = Tensor::from_slice(&rows).view([-1, 6]);
    let wanted: Vec<i64> = vec![0, 0, 1, 1, 1, 2, 8, 8, 8, 9, 9];
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
        // More tokens than a block's warps hold at once.
        .chain([(1300, 2100, 41)])
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

/// The same voice on the GPU, in f32.
fn on_gpu(store: &VarStore) -> (VarStore, Voice) {
    torchx::cuda::load().unwrap();
    like(store, GPU, Kind::Float)
}

/// The same voice elsewhere.
fn like(store: &VarStore, device: Device, kind: Kind) -> (VarStore, Voice) {
    like_of(&tiny(), store, device, kind)
}

fn like_of(config: &config::Model, store: &VarStore, device: Device, kind: Kind) -> (VarStore, Voice) {
    let other = VarStore::new(device);
    let voice = Voice::new(&other.root(), config, VOCAB, LANGUAGES, kind).unwrap();
    let parameters = torchx::named_parameters(&other).into_iter().zip(torchx::named_parameters(store));
    parameters.for_each(|((_, mut to), (_, from))| tch::no_grad(|| to.copy_(&from)));
    (other, voice)
}

const GPU: Device = Device::Cuda(0);

#[test]
#[ignore = "needs a GPU"]
fn losses_and_gradients_on_the_gpu_equal_the_cpu() {
    torchx::cuda::load().unwrap();
    equals_the_cpu(GPU, Kind::Float, 1e-4, 5e-3);
    // bf16 on the CPU is up to 0.11 away, in a bias before a rectifier.
    equals_the_cpu(GPU, Kind::BFloat16, 2e-2, 0.25);
}

/// On a device, in a kind, against f32 on the CPU: within a share of the loss, and of each parameter's largest gradient.
fn equals_the_cpu(device: Device, kind: Kind, loss_within: f64, within: f64) {
    let (store, voice) = voice(5);
    let (other_store, other) = like(&store, device, kind);
    let mut batch = batch(&[(5, 13, 71), (30, 80, 72), (7, 7, 73)]);
    // What is nearly a tie may fall differently elsewhere; the search has a test of its own.
    batch.token_of_frame = Some(voice.align(&batch));
    let mut moved = batch.copy_to(device);
    moved.token_of_frame = batch.token_of_frame.as_ref().map(|path| path.to_device(device));
    let draw = Draw::new(&batch, 2, 0.7, 0.3);
    let moved_draw = Draw {
        frames: repeat(&moved.frames, 2),
        times: draw.times.to_device(device),
        masks: ContextMasks {
            context: draw.masks.context.as_ref().map(|mask| mask.to_device(device)),
            content: draw.masks.content.to_device(device),
        },
        context_mel: draw.context_mel.to_device(device),
        noisy: draw.noisy.to_device(device),
        velocity: draw.velocity.to_device(device),
    };
    let mut losses = [0.0; 2];
    let wanted =
        collected(&store, || losses[0] = voice.backward_at(&batch, &draw, &weight(1.0)).total().double_value(&[]));
    let found = collected(&other_store, || {
        losses[1] = other.backward_at(&moved, &moved_draw, &weight(1.0).to_device(device)).total().double_value(&[]);
    });
    assert!((losses[1] - losses[0]).abs() < loss_within * losses[0].abs(), "f32 on the CPU, and {kind:?}: {losses:?}");
    let found: Vec<_> = found.into_iter().map(|(name, tensor)| (name, tensor.to_device(Device::Cpu))).collect();
    agree(&found, &wanted, 1e-3, within);
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_on_the_gpu_are_the_same_every_time() {
    torchx::cuda::load().unwrap(); // before anything else asks LibTorch for a device
    let (store, _) = voice(12);
    let (gpu_store, voice) = on_gpu(&store);
    let batch = batch(&[(30, 200, 74), (25, 180, 75), (7, 60, 76)]).copy_to(GPU);
    let draw = Draw::new(&batch, 2, 0.7, 0.3);
    let run = || collected(&gpu_store, || drop(voice.backward_at(&batch, &draw, &weight(1.0))));
    for ((name, one), (_, two)) in run().iter().zip(&run()) {
        assert_eq!(one, two, "{name}");
    }
}

/// As a training step makes them: in bf16, with copies of the weights that have gradients of their own, in a network of the widths
/// that every kernel of ours takes, with more blocks than pieces of work may lie behind. They are equal to the bit, because
/// nothing adds up in an order of its own; captured, and replayed over what another batch has left, as well.
#[test]
#[ignore = "needs a GPU"]
fn gradients_made_aside_equal_those_that_are_not() {
    torchx::cuda::load().unwrap();
    gradients_aside_are_equal(GPU);
}

/// The same where there is no lane: what the test above calls can be called.
#[test]
fn gradients_that_nobody_makes_aside_are_equal() {
    gradients_aside_are_equal(Device::Cpu);
}

fn gradients_aside_are_equal(device: Device) {
    let mut model = tiny();
    model.n_mels = 8;
    (model.text_dim, model.decoder_dim, model.decoder_layers) = (128, 128, 8);
    let (store, voice) = like_of(&model, &voice_of(&model, 13).0, device, Kind::BFloat16);
    let batch = batch_of(8, &[(30, 200, 74), (25, 180, 75), (7, 60, 76)]).copy_to(device);
    let [draw, other] = [0.7, 0.3].map(|share| Draw::new(&batch, 2, share, 0.3));
    let named = torchx::named_parameters(&store);
    let parameters: Vec<Tensor> = named.iter().map(|(_, parameter)| parameter.shallow_clone()).collect();
    let copies = torchx::Copies::new(&parameters, Kind::BFloat16).unwrap();
    let optimizer = parameters.iter().map(|parameter| (parameter.shallow_clone(), false));
    let optimizer = torchx::AdamW::new(optimizer, Default::default()).unwrap();
    let scale = weight(1.0).to_device(device);
    // A number for each gradient, of its bits: a graph's own memory is read where it lies.
    let of = |tensor: &Tensor| match tensor.defined() {
        true => tensor.to_kind(Kind::Float).view(-1).view_dtype(Kind::Int).to_kind(Kind::Int64),
        false => Tensor::zeros([1], (Kind::Int64, device)),
    };
    let bits = |tensor: &Tensor| {
        let bits = of(tensor);
        let places = Tensor::arange(bits.size()[0], (Kind::Int64, device)) * 2 + 1;
        (places * bits).sum(Kind::Int64)
    };
    let pass = |draw: &Draw, is_aside: bool| -> Tensor {
        copies.drop_grad().unwrap();
        optimizer.drop_grad().unwrap();
        let lent = torchx::Copies::lend([&copies]);
        let aside = is_aside.then(torchx::gradients::Aside::begin);
        drop(voice.backward_at(&batch, draw, &scale));
        aside.map_or(Ok(()), torchx::gradients::Aside::join).unwrap();
        drop(lent);
        let all = parameters.iter().zip(copies.tensors()).flat_map(|(parameter, copy)| [parameter.grad(), copy.grad()]);
        tch::no_grad(|| Tensor::stack(&all.map(|gradient| bits(&gradient)).collect::<Vec<_>>(), 0))
    };
    let wanted = pass(&draw, false).to_device(Device::Cpu);
    let check = |found: &Tensor, way: &str| {
        let equal = Vec::<bool>::try_from(found.to_device(Device::Cpu).eq_tensor(&wanted)).unwrap();
        let names = equal.chunks(2).zip(&named).filter(|(equal, _)| equal.contains(&false)).map(|(_, (name, _))| name);
        let names: Vec<&String> = names.collect();
        assert!(names.is_empty(), "{way}: {names:?}");
    };
    assert!(pass(&other, true).to_device(Device::Cpu) != wanted);
    check(&pass(&draw, true), "aside");
    if device.is_cuda() {
        let capture =
            |draw: &Draw| torchx::Graph::capture(device, None, || Ok::<_, torchx::Error>(pass(draw, true))).unwrap();
        let ((first, found), (second, _)) = (capture(&draw), capture(&other));
        for _ in 0..3 {
            second.replay().unwrap();
            first.replay().unwrap();
            check(&found, "captured");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn what_is_drawn_on_the_gpu_equals_the_cpu() {
    torchx::cuda::load().unwrap();
    let batch = batch(&[(5, 13, 71), (30, 80, 72), (7, 7, 73), (2, 3, 74)]);
    let gpu_batch = batch.copy_to(GPU);
    for (seed, (copies, share)) in [(1, 0.7), (2, 0.7), (3, 0.05), (1, 0.0)].into_iter().cycle().take(40).enumerate() {
        tch::manual_seed(seed as i64);
        let [frames, gpu_frames] = [&batch, &gpu_batch].map(|batch| repeat(&batch.frames, copies));
        let floats = (Kind::Float, Device::Cpu);
        let numbers = draw::Numbers {
            shift: Tensor::rand([1], floats),
            chance: context::Chance::draw(&frames, share),
            noise: Tensor::randn([frames.len(), 6], floats),
        };
        let gpu_numbers = draw::Numbers {
            shift: numbers.shift.to_device(GPU),
            chance: context::Chance(numbers.chance.0.to_device(GPU)),
            noise: numbers.noise.to_device(GPU),
        };
        let wanted = Draw::by(&numbers, &batch, frames, share, 0.3);
        let found = Draw::by(&gpu_numbers, &gpu_batch, gpu_frames, share, 0.3);
        let parts = |draw: &Draw| {
            let Draw { frames: _, times, masks, context_mel, noisy, velocity } = draw;
            let context = masks.context.as_ref().map_or_else(|| masks.content.zeros_like(), Tensor::shallow_clone);
            [times, &context, &masks.content, context_mel, noisy, velocity].map(|part| part.to_device(Device::Cpu))
        };
        for (index, (wanted, found)) in parts(&wanted).iter().zip(&parts(&found)).enumerate() {
            let distance = (wanted - found).abs().max().double_value(&[]);
            assert!(distance <= 1e-6, "part {index} of {copies} copies, share {share}: {distance}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn tables_of_an_axis_on_the_gpu_equal_the_cpu() {
    torchx::cuda::load().unwrap();
    let batch = batch(&[(5, 13, 71), (30, 80, 72), (7, 7, 73)]);
    let gpu_batch = batch.copy_to(GPU);
    let (wanted, found) = (half(&batch.frames), half(&gpu_batch.frames));
    let tables = |axis: &Packed| {
        let Packed { position, owner, mask, cu_seqlens, starts, lens, longest_segment: _ } = axis;
        [position, owner, mask, cu_seqlens, starts, lens].map(|table| table.to_device(Device::Cpu))
    };
    assert_eq!(tables(&wanted), tables(&found));
    for kind in [Kind::Float, Kind::BFloat16] {
        for (wanted, found) in [(&wanted, &found), (&batch.text, &gpu_batch.text)] {
            let (wanted, found) = (Track::new(wanted, kind), Track::new(found, kind));
            assert_eq!(wanted.mask, found.mask.to_device(Device::Cpu));
            let owners = wanted.seqs.capacity();
            let rows = Tensor::arange(owners * 4, (Kind::Float, Device::Cpu)).view([owners, 4]).to_kind(kind);
            assert_eq!(wanted.owners.spread(&rows), found.owners.spread(&rows.to_device(GPU)).to_device(Device::Cpu));
            let (wanted, found) = (layers::Rotary::new(&wanted, 16), layers::Rotary::new(&found, 16));
            for (wanted, found) in [(&wanted.cos, &found.cos), (&wanted.sin, &found.sin)] {
                assert!((wanted - found.to_device(Device::Cpu)).abs().max().double_value(&[]) < 1e-5);
            }
        }
    }
}

#[test]
fn sizes_have_about_8_20_45_and_110_million_parameters() {
    let count = |size: &str| {
        let text = format!("model: {{size: {size}}}");
        let config = Config::parse(&text, std::path::Path::new("a.yaml")).unwrap();
        let store = VarStore::new(Device::Cpu);
        Voice::new(&store.root(), &config.model, 200, 1, Kind::Float).unwrap();
        let parameters = store.trainable_variables();
        parameters.iter().map(Tensor::numel).sum::<usize>() as f64 / 1e6
    };
    for (size, millions) in [("tiny", 7.4), ("small", 18.9), ("normal", 41.4), ("big", 102.0)] {
        let found = count(size);
        assert!((found - millions).abs() < 0.1, "{size} has {found:.2} M");
    }
}
