//! The fused operations on a GPU: equal to LibTorch's own on the CPU, the same in every run and in a captured graph.
//! `cargo test -p torchx --test fused_gpu -- --ignored --test-threads=1` where there is one.

mod cases;

use cases::{Case, Way};
use std::io::Write;
use tch::{Device, Kind, Tensor};
use torchx::fused::{self, Dropout, LaidWeights, Taps, Weights, residual};
use torchx::{Error, Graph, cuda};

const GPU: Device = Device::Cuda(0);
/// Rows that fill neither the last tile nor the last block.
const ROWS: i64 = 1003;
/// Even over a warp's vectors, uneven, and uneven in the last block of columns.
const WIDTHS: [i64; 4] = [256, 320, 640, 64];

/// Whether there is a GPU; where there is none, a test of `what` is skipped, and it is said.
fn has_gpu(what: &str) -> bool {
    let found = cuda::load();
    if let Err(reason) = &found {
        let _ = writeln!(std::io::stderr(), "SKIPPED a test of {what}: no GPU: {reason}");
    }
    found.is_ok()
}

/// Runs `test` for every operation, kind and width, with inputs on the CPU and a gradient that is zero in gaps.
fn each(test: impl Fn(&Case, &[Tensor], &Tensor, Kind)) {
    if !has_gpu("fused kernels") {
        return;
    }
    tch::manual_seed(5);
    let batch = cases::batch(ROWS, Device::Cpu);
    let mask = outside_of_gaps(&batch);
    for (case, kind) in cases::all().iter().flat_map(|case| [(case, Kind::Float), (case, Kind::BFloat16)]) {
        for width in WIDTHS {
            println!("{} {kind:?} {width}", case.name);
            let inputs = case.inputs(ROWS, width, &batch, kind);
            let upstream = Tensor::randn([ROWS, case.parts * width], (Kind::Float, Device::Cpu)) * &mask;
            test(case, &inputs, &upstream.to_kind(kind), kind);
        }
    }
}

/// `[rows, 1]`: 0 in gaps, which have no gradient.
fn outside_of_gaps(batch: &cases::Batch) -> Tensor {
    batch.spans.owner.lt(batch.spans.utterances()).to_kind(Kind::Float).unsqueeze(1)
}

fn on_gpu(case: &Case, inputs: &[Tensor], upstream: &Tensor, kind: Kind) -> Vec<Tensor> {
    let batch = cases::batch(ROWS, GPU);
    case.run(&case.leaves(inputs, kind, GPU), &upstream.to_device(GPU), &batch, Way::Fused).unwrap()
}

/// The largest difference, as a share of the largest value where that is above 1.
fn difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    let host = |x: &Tensor| x.to_device(Device::Cpu).to_kind(Kind::Double);
    let (a, b) = (host(a), host(b));
    (a - &b).abs().max().double_value(&[]) / b.abs().max().double_value(&[]).max(1.0)
}

/// Without a GPU: what the tests below call can be called, and is the same either way.
#[test]
fn cases_agree_on_the_cpu() {
    tch::manual_seed(5);
    let batch = cases::batch(203, Device::Cpu);
    let mask = outside_of_gaps(&batch);
    for (case, kind) in cases::all().iter().flat_map(|case| [(case, Kind::Float), (case, Kind::BFloat16)]) {
        let inputs = case.inputs(203, 64, &batch, kind);
        let upstream = (Tensor::randn([203, case.parts * 64], (Kind::Float, Device::Cpu)) * &mask).to_kind(kind);
        let run = |way| case.run(&case.leaves(&inputs, kind, Device::Cpu), &upstream, &batch, way).unwrap();
        for (index, (ours, plain)) in run(Way::Fused).iter().zip(&run(Way::Plain)).enumerate() {
            let difference = difference(ours, plain);
            assert!(difference < 1e-4, "{}, {kind:?}: result {index} differs by {difference}", case.name);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn fused_equals_plain_on_the_cpu() {
    each(|case, inputs, upstream, kind| {
        let ours = on_gpu(case, inputs, upstream, kind);
        let leaves = case.leaves(inputs, Kind::Float, Device::Cpu);
        let batch = cases::batch(ROWS, Device::Cpu);
        let truth = case.run(&leaves, &upstream.to_kind(Kind::Float), &batch, Way::Plain).unwrap();
        let tolerance = if kind == Kind::Float { 1e-4 } else { 2e-2 };
        for (index, (ours, truth)) in ours.iter().zip(&truth).enumerate() {
            let difference = difference(ours, truth);
            assert!(difference < tolerance, "{}: result {index} differs by {difference}", case.name);
        }
    });
}

/// Where utterances and the gaps between them begin, and the end.
fn borders(batch: &cases::Batch, rows: i64) -> Tensor {
    let list = |values: &Tensor| Vec::<i32>::try_from(values).unwrap();
    let spans = list(&batch.spans.starts).into_iter().zip(list(&batch.spans.lens)).filter(|(_, len)| *len > 0);
    let inner = spans.flat_map(|(start, len)| [start, start + len]);
    let all: Vec<i32> = [0].into_iter().chain(inner).chain([rows as i32]).collect();
    Tensor::from_slice(&all).to_device(batch.cos.device())
}

fn attention(qkv: &Tensor, batch: &cases::Batch, rows: i64) -> Tensor {
    fused::attention(qkv, [&batch.cos, &batch.sin], &borders(batch, rows), rows, &batch.spans).unwrap()
}

/// Output and gradient of attention in bf16, by a kernel of its own, which f32 has not.
#[test]
#[ignore = "needs a GPU"]
fn attention_equals_plain_on_the_cpu_and_itself_to_the_bit() {
    if !has_gpu("fused kernels") {
        return;
    }
    tch::manual_seed(6);
    for (rows, heads) in [(ROWS, 3), (5 * ROWS, 5), (70, 1)] {
        let size = [rows, 3, heads, 64];
        let qkv = Tensor::randn(size, (Kind::Float, Device::Cpu)).to_kind(Kind::BFloat16);
        let upstream = Tensor::randn([rows, heads * 64], (Kind::Float, Device::Cpu)).to_kind(Kind::BFloat16);
        let run = |kind: Kind, device: Device| {
            let batch = cases::batch(rows, device);
            let leaf = qkv.to_device(device).to_kind(kind).copy().set_requires_grad(true);
            let out = attention(&leaf, &batch, rows);
            let mask = batch.mask.to_kind(kind);
            let upstream = upstream.to_device(device).to_kind(kind) * &mask;
            let grads = cases::backward(&[out.shallow_clone()], &[leaf], &upstream);
            [out.detach() * mask, grads.unwrap().remove(0)]
        };
        let (ours, again, truth) = (run(Kind::BFloat16, GPU), run(Kind::BFloat16, GPU), run(Kind::Float, Device::Cpu));
        for ((ours, again), truth) in ours.iter().zip(&again).zip(&truth) {
            let difference = difference(ours, truth);
            println!("attention {rows} {heads}: {difference}");
            assert!(difference < 2e-2, "attention of {rows} rows differs by {difference}");
            assert!(ours.equal(again));
        }
    }
}

/// A softmax does not change when all of its scores fall, and as weights grow they may fall below what a power of two holds:
/// -200 here, by channels that hardly turn. The gradient must stay a number in tiles that a segment does not fill.
#[test]
#[ignore = "needs a GPU"]
fn gradients_of_attention_are_finite_where_all_scores_are_far_below_zero() {
    if !has_gpu("fused kernels") {
        return;
    }
    tch::manual_seed(8);
    let (rows, heads) = (ROWS, 2);
    let qkv = Tensor::randn([rows, 3, heads, 64], (Kind::Float, Device::Cpu));
    for (part, value) in [(0, 40.0), (1, -40.0)] {
        let _ = qkv.select(1, part).narrow(2, 31, 1).fill_(value);
    }
    let batch = cases::batch(rows, GPU);
    let leaf = qkv.to_kind(Kind::BFloat16).to_device(GPU).set_requires_grad(true);
    let out = attention(&leaf, &batch, rows);
    let grads = cases::backward(&[out.shallow_clone()], &[leaf], &out.ones_like()).unwrap();
    for made in [&out, &grads[0]] {
        assert_eq!(made.isfinite().all().int64_value(&[]), 1);
    }
    // Gaps are written, whatever their memory held.
    let gaps = -batch.mask.to_kind(Kind::BFloat16) + 1.0;
    assert_eq!((out * &gaps).abs().max().double_value(&[]), 0.0);
    assert_eq!((&grads[0] * gaps.view([rows, 1, 1, 1])).abs().max().double_value(&[]), 0.0);
}

/// Channels that lie and that count, kernel, strides, time and frequency.
type Plane = (i64, i64, [i64; 2], [i64; 2], [i64; 2]);

/// The layers of a spectral discriminator, of sizes that fill no tile, and one that fills them.
const PLANES: [Plane; 6] = [
    (8, 2, [3, 9], [1, 2], [33, 205]),
    (32, 32, [3, 9], [1, 2], [33, 103]),
    (32, 32, [3, 9], [2, 2], [33, 257]),
    (32, 32, [3, 3], [1, 1], [17, 33]),
    (32, 32, [3, 9], [2, 2], [16, 128]),
    (8, 8, [3, 3], [1, 1], [5, 7]),
];

/// Output, distance and gradients of input, weight and bias of convolutions over time and frequency in bf16.
#[test]
#[ignore = "needs a GPU"]
fn planes_equal_plain_on_the_cpu_and_themselves_to_the_bit() {
    if !has_gpu("fused kernels") {
        return;
    }
    tch::manual_seed(7);
    for (lies, from, kernel, stride, size) in PLANES {
        let drawn = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu)).to_kind(Kind::BFloat16);
        let x = drawn(&[5, size[0], size[1], from]).constant_pad_nd([0, lies - from]);
        let weight = (drawn(&[32, from, kernel[0], kernel[1]]) * 0.1).to_kind(Kind::Float);
        let bias = Tensor::randn([32], (Kind::Float, Device::Cpu));
        let out = [5, (size[0] - 1) / stride[0] + 1, (size[1] - 1) / stride[1] + 1, 32];
        let upstream = drawn(&out);
        // Half a unit from what comes out, above or below: the sign of the distance is then no matter of rounding.
        let weights = Weights { weight: &weight, bias: &bias };
        let plain = fused::conv_leaky(&x.to_kind(Kind::Float), weights, stride, 0.1).unwrap();
        let target = plain + upstream.to_kind(Kind::Float).sign() * 0.5;
        let run = |matched: bool, kind: Kind, device: Device| {
            let on = |tensor: &Tensor, kind: Kind| tensor.to_device(device).to_kind(kind).copy();
            let leaf = |tensor: &Tensor, kind: Kind| on(tensor, kind).set_requires_grad(true);
            let leaves = [leaf(&x, kind), leaf(&weight, Kind::Float), leaf(&bias, Kind::Float)];
            let weights = Weights { weight: &leaves[1], bias: &leaves[2] };
            assert_eq!(fused::convolves_planes(&leaves[0], &weight, stride), device.is_cuda());
            let (made, distance) = match matched {
                false => (fused::conv_leaky(&leaves[0], weights, stride, 0.1).unwrap(), None),
                true => {
                    let target = on(&target, kind);
                    let [made, distance] =
                        fused::conv_leaky_matched(&leaves[0], weights, stride, 0.1, &target).unwrap();
                    (made, Some(distance))
                }
            };
            // The distance counts as much as all that is pulled by hand.
            let pulled = (&made * on(&upstream, kind)).sum(Kind::Float);
            let loss = distance.as_ref().map_or(pulled.shallow_clone(), |d| &pulled + d * made.numel() as f64);
            loss.backward();
            let grads = leaves.iter().map(Tensor::grad);
            [made.detach()].into_iter().chain(distance.map(|d| d.detach())).chain(grads).collect::<Vec<_>>()
        };
        for matched in [false, true] {
            let [ours, again] = [(); 2].map(|()| run(matched, Kind::BFloat16, GPU));
            let truth = run(matched, Kind::Float, Device::Cpu);
            for (index, ((ours, again), truth)) in ours.iter().zip(&again).zip(&truth).enumerate() {
                let difference = difference(ours, truth);
                println!("planes {lies} {kernel:?} {stride:?} {size:?} {matched}: result {index} {difference:.1e}");
                assert!(difference < 2e-2, "result {index} differs by {difference}");
                assert!(ours.equal(again), "result {index}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn two_runs_agree_to_the_bit() {
    each(|case, inputs, upstream, kind| {
        let [first, second] = [(); 2].map(|()| on_gpu(case, inputs, upstream, kind));
        for (first, second) in first.iter().zip(&second) {
            assert!(first.equal(second), "{}", case.name);
        }
    });
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_graph_gives_the_same_to_the_bit() {
    each(|case, inputs, upstream, kind| {
        let expected = on_gpu(case, inputs, upstream, kind);
        let (mut leaves, upstream) = (case.leaves(inputs, kind, GPU), upstream.to_device(GPU));
        let batch = cases::batch(ROWS, GPU);
        // Captured with other numbers in place: the replay must read the new ones.
        tch::no_grad(|| leaves.iter_mut().for_each(|leaf| drop(leaf.fill_(0.5))));
        let (graph, results) =
            Graph::capture::<_, Error>(GPU, None, || case.run(&leaves, &upstream, &batch, Way::Fused)).unwrap();
        let fresh = case.leaves(inputs, kind, GPU);
        tch::no_grad(|| leaves.iter_mut().zip(&fresh).for_each(|(leaf, fresh)| leaf.copy_(fresh)));
        graph.replay().unwrap();
        for (result, expected) in results.iter().zip(&expected) {
            assert!(result.equal(expected), "{}", case.name);
        }
    });
}

/// More weights than one launch takes.
#[test]
#[ignore = "needs a GPU"]
fn weights_laid_together_serve_as_those_laid_one_by_one() {
    if !has_gpu("fused kernels") {
        return;
    }
    let drawn = |size: &[i64]| Tensor::randn(size, (Kind::Float, GPU)) * 0.1;
    let (batch, x) = (cases::batch(ROWS, GPU), drawn(&[ROWS, 64]).to_kind(Kind::BFloat16));
    let [one, wide] = [drawn(&[64]), drawn(&[256])];
    let layers: Vec<[Tensor; 2]> = (0..9).map(|_| [drawn(&[256, 64, 3]), drawn(&[64, 256, 3])]).collect();
    let speak = || -> Vec<Tensor> {
        let through = |[widen, narrow]: &[Tensor; 2]| {
            let [norm, widen, narrow] = [(&one, &one), (widen, &wide), (narrow, &one)];
            let [norm, widen, narrow] = [norm, widen, narrow].map(|(weight, bias)| Weights { weight, bias });
            let nothing_dropped = Dropout::new(0.0, GPU).unwrap();
            fused::feed_forward(&x, norm, widen, narrow, &nothing_dropped, &batch.spans).unwrap()
        };
        layers.iter().map(through).collect()
    };
    let alone = speak();
    let weights = layers.iter().flat_map(|[widen, narrow]| [(widen, Taps::Within), (narrow, Taps::Apart)]);
    let _laid = LaidWeights::new(weights, Kind::BFloat16).unwrap();
    assert!(speak().iter().zip(&alone).all(|(together, alone)| together.equal(alone)));
}

#[test]
#[ignore = "needs a GPU"]
fn dropout_takes_its_share_and_every_replay_draws_anew() {
    if !has_gpu("dropout") {
        return;
    }
    for kind in [Kind::Float, Kind::BFloat16] {
        let (nothing, one) = (Tensor::zeros([ROWS, 256], (kind, GPU)), Tensor::ones([ROWS, 256], (kind, GPU)));
        let one = one.set_requires_grad(true);
        let dropped = |dropout: &Dropout| residual(&nothing, &one, dropout);
        let check = |made: &Tensor| {
            let share = made.eq(0.0).to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
            let kept = made.max().double_value(&[]);
            assert!((share - 0.3).abs() < 0.01 && (kept - 1.0 / 0.7).abs() < 0.01, "{share} dropped, others {kept}");
        };
        let dropout = Dropout::new(0.3, GPU).unwrap();
        let [first, second] = [(); 2].map(|()| dropped(&dropout).unwrap());
        check(&first);
        check(&second);
        assert!(!first.equal(&second), "two layers drop the same");
        first.sum(Kind::Float).backward();
        assert!(one.grad().equal(&first), "what was dropped gets a gradient, or what was kept none");

        let captured = || tch::no_grad(|| dropped(&Dropout::new(0.3, GPU)?));
        let (graph, made) = Graph::capture::<_, Error>(GPU, None, captured).unwrap();
        let replayed = |seed: Option<i64>| {
            seed.into_iter().for_each(tch::manual_seed);
            graph.replay().unwrap();
            check(&made);
            made.copy()
        };
        let [first, second, again] = [Some(7), None, Some(7)].map(replayed);
        assert!(!first.equal(&second), "two replays drop the same");
        assert!(first.equal(&again), "the same seed drops something else");
    }
}
