//! On the CPU: the operations against their definitions, written out.

use super::*;
use tch::kind::FLOAT_CPU;

/// Utterances of 5, 0 and 9 rows, gaps of 3 before, between and after.
fn spans() -> Spans {
    let owner: Vec<i64> = [vec![3; 3], vec![0; 5], vec![3; 3], vec![2; 9], vec![3; 3]].concat();
    let list = |values: &[i64]| Tensor::from_slice(values);
    Spans::new(&list(&owner), &list(&[3, 0, 11]), &list(&[5, 0, 9])).unwrap()
}

fn owners() -> Vec<i32> {
    Vec::try_from(&spans().owner).unwrap()
}

fn random(size: &[i64]) -> Tensor {
    Tensor::randn(size, FLOAT_CPU).set_requires_grad(true)
}

fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
    Vec::try_from(tensor.to_kind(Kind::Double)).unwrap()
}

fn assert_rows(tensor: &Tensor, expected: &[Vec<f64>]) {
    let given = rows(tensor);
    assert_eq!(given.len(), expected.len());
    for (given, expected) in given.iter().flatten().zip(expected.iter().flatten()) {
        assert!((given - expected).abs() < 1e-5, "{given} instead of {expected}");
    }
}

#[test]
fn adaln_is_its_formula() {
    let (x, scale, shift) = (random(&[23, 8]), random(&[4, 8]), random(&[4, 8]));
    let (xs, scales, shifts) = (rows(&x), rows(&scale), rows(&shift));
    let expected: Vec<Vec<f64>> = xs
        .iter()
        .zip(owners())
        .map(|(row, owner)| {
            let mean = row.iter().sum::<f64>() / 8.0;
            let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 8.0;
            let norm = |i: usize| (row[i] - mean) / (variance + 1e-5).sqrt();
            let owner = owner as usize;
            (0..8).map(|i| norm(i) * (1.0 + scales[owner][i]) + shifts[owner][i]).collect()
        })
        .collect();
    let [normal, same] = adaln(&x, &Tensor::cat(&[scale, shift], 1), &spans()).unwrap();
    assert_rows(&normal, &expected);
    assert_rows(&same, &xs);
}

#[test]
fn gated_add_is_its_formula() {
    let (x, y, gate) = (random(&[23, 8]), random(&[23, 8]), random(&[4, 8]));
    let (xs, ys, gates) = (rows(&x), rows(&y), rows(&gate));
    let at = |t: usize, i: usize| match owners()[t] {
        3 => 0.0, // a gap
        owner => xs[t][i] + ys[t][i] * gates[owner as usize][i],
    };
    let expected: Vec<Vec<f64>> = (0..23).map(|t| (0..8).map(|i| at(t, i)).collect()).collect();
    assert_rows(&gated_add(&x, &y, &gate, &spans()).unwrap(), &expected);
}

#[test]
fn depthwise_sees_its_own_utterance_alone() {
    let (x, weight, bias) = (random(&[23, 8]), random(&[8, 1, 7]), random(&[8]));
    let (xs, weights) = (rows(&x), rows(&weight.squeeze_dim(1)));
    let biases: Vec<f64> = Vec::try_from(bias.to_kind(Kind::Double)).unwrap();
    let owners = owners();
    let at = |t: usize, i: usize| {
        let taps = (0..7).filter(|k| (3..26).contains(&(t + k)) && owners[t + k - 3] == owners[t]);
        let sum: f64 = taps.map(|k| weights[i][k] * xs[t + k - 3][i]).sum();
        if owners[t] == 3 { 0.0 } else { biases[i] + sum }
    };
    let expected: Vec<Vec<f64>> = (0..23).map(|t| (0..8).map(|i| at(t, i)).collect()).collect();
    assert_rows(&depthwise(&x, &weight, &bias, &spans()).unwrap(), &expected);
}

#[test]
fn rotary_turns_queries_and_keys() {
    let (qkv, angle) = (random(&[5, 3, 2, 4]), Tensor::randn([5, 2], FLOAT_CPU));
    let [q, k, v] = rotary(&qkv, &angle.cos(), &angle.sin()).unwrap();
    for (part, turned) in [(0, &q), (1, &k)] {
        for (t, head, i) in (0..5).flat_map(|t| [(t, 0, 0), (t, 0, 1), (t, 1, 0), (t, 1, 1)]) {
            let at = |tensor: &Tensor, index: &[i64]| tensor.double_value(index);
            let (a, b) = (at(&qkv, &[t, part, head, i]), at(&qkv, &[t, part, head, i + 2]));
            let (sin, cos) = at(&angle, &[t, i]).sin_cos();
            assert!((at(turned, &[t, head, i]) - (a * cos - b * sin)).abs() < 1e-5);
            assert!((at(turned, &[t, head, i + 2]) - (a * sin + b * cos)).abs() < 1e-5);
        }
    }
    assert_eq!(v, qkv.select(1, 2));
}

#[test]
fn bias_gelu_is_its_formula() {
    let (x, bias) = (random(&[6, 8]), random(&[8]));
    let biases: Vec<f64> = Vec::try_from(bias.to_kind(Kind::Double)).unwrap();
    let gelu = |u: f64| 0.5 * u * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (u + 0.044715 * u.powi(3))).tanh());
    let expected: Vec<Vec<f64>> =
        rows(&x).iter().map(|row| row.iter().zip(&biases).map(|(x, bias)| gelu(x + bias)).collect()).collect();
    assert_rows(&bias_gelu(&x, &bias).unwrap(), &expected);
}

#[test]
fn bias_leaky_is_its_formula() {
    let (x, bias, target) = (random(&[6, 8]), random(&[8]), random(&[6, 8]));
    let biases: Vec<f64> = Vec::try_from(bias.to_kind(Kind::Double)).unwrap();
    let leaky = |u: f64| if u > 0.0 { u } else { 0.1 * u };
    let expected: Vec<Vec<f64>> =
        rows(&x).iter().map(|row| row.iter().zip(&biases).map(|(x, bias)| leaky(x + bias)).collect()).collect();
    assert_rows(&bias_leaky(&x, &bias, 0.1).unwrap(), &expected);
    let [made, distance] = bias_leaky_matched(&x, &bias, 0.1, &target).unwrap();
    assert_rows(&made, &expected);
    let apart = expected.iter().flatten().zip(rows(&target).iter().flatten()).map(|(a, b)| (a - b).abs()).sum::<f64>();
    assert!((distance.double_value(&[]) - apart / 48.0).abs() < 1e-5);
    distance.backward();
    assert!(x.grad().defined() && bias.grad().defined() && !target.grad().defined());
}

#[test]
fn conv_leaky_is_its_formula() {
    let (x, weight, bias) = (random(&[1, 5, 9, 8]), random(&[32, 2, 3, 9]), random(&[32]));
    let weights = Weights { weight: &weight, bias: &bias };
    let made = conv_leaky(&x, weights, [2, 2], 0.1).unwrap();
    assert_eq!(made.size(), [1, 3, 5, 32]);
    // Of eight channels that lie there the first two count; beyond the ends there are zeros.
    let at = |t: i64, f: i64, to: i64| {
        let taps = (0..3).flat_map(|a| (0..9).map(move |b| (a, b)));
        let inside = taps.filter(|(a, b)| (0..5).contains(&(2 * t + a - 1)) && (0..9).contains(&(2 * f + b - 4)));
        let product = |(a, b): (i64, i64), from: i64| {
            x.double_value(&[0, 2 * t + a - 1, 2 * f + b - 4, from]) * weight.double_value(&[to, from, a, b])
        };
        let sum = inside.map(|tap| product(tap, 0) + product(tap, 1)).sum::<f64>() + bias.double_value(&[to]);
        if sum > 0.0 { sum } else { 0.1 * sum }
    };
    for (t, f, to) in [(0, 0, 0), (1, 2, 7), (2, 4, 31), (0, 4, 12), (2, 0, 3)] {
        assert!((made.double_value(&[0, t, f, to]) - at(t, f, to)).abs() < 1e-4);
    }
    let [_, distance] = conv_leaky_matched(&x, weights, [2, 2], 0.1, &made.zeros_like()).unwrap();
    assert!((distance.double_value(&[]) - made.abs().mean(Kind::Float).double_value(&[])).abs() < 1e-5);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (x, table, spans) = (random(&[23, 8]), random(&[4, 8]), spans());
    let message = |result: Result<Tensor, Error>| result.unwrap_err().to_string();
    let norm = |x: &Tensor, table: &Tensor| message(adaln(x, table, &spans).map(|[normal, _]| normal));
    assert!(norm(&x, &random(&[3, 16])).starts_with("adaln: table: must be [4, 16] Float"));
    assert!(norm(&random(&[22, 8]), &random(&[4, 16])).contains("owner: must be [22]"));
    assert!(message(depthwise(&x, &random(&[8, 1, 4]), &random(&[8]), &spans)).contains("4 taps"));
    assert!(message(gated_add(&x, &table, &table, &spans)).contains("y: must be [23, 8]"));
    assert!(message(bias_gelu(&x, &random(&[7]))).contains("bias: must be [8]"));
}

/// Outputs, and the gradients of `leaves` where outputs outside of gaps count as `wanted` says.
fn with_gradients(outputs: &[Tensor], wanted: &Tensor, leaves: &[&Tensor]) -> Vec<Tensor> {
    let mask = spans().owner.lt(3).to_kind(Kind::Float).view([23, 1]);
    let count = |output: &Tensor| {
        let rows = output.reshape([output.size()[0], -1]);
        let mask = if rows.size()[0] == 23 { mask.shallow_clone() } else { Tensor::ones([1, 1], FLOAT_CPU) };
        (&rows * mask * wanted.narrow(0, 0, rows.size()[0]).narrow(1, 0, rows.size()[1])).sum(Kind::Float)
    };
    outputs.iter().map(count).sum::<Tensor>().backward();
    let gradients = leaves.iter().map(|leaf| {
        let gradient = leaf.grad().copy();
        leaf.shallow_clone().zero_grad();
        gradient
    });
    outputs.iter().map(Tensor::detach).chain(gradients).collect()
}

/// The CPU has kernels of its own; here they meet tables and rows that lie apart, and odd widths.
#[test]
fn kernels_of_the_cpu_and_their_gradients_are_the_plain_operations() {
    tch::manual_seed(5);
    let same = |name: &str, leaves: &[&Tensor], ours: &[Tensor], plain: &[Tensor]| {
        let wanted = random(&[23, 600]).detach();
        let [ours, plain] = [ours, plain].map(|outputs| with_gradients(outputs, &wanted, leaves));
        for (i, (ours, plain)) in ours.iter().zip(&plain).enumerate() {
            let fits = ours.size() == plain.size() && ours.allclose(plain, 1e-4, 2e-5, false);
            assert!(fits, "{name}, {i} of {} outputs and leaves: {ours} {plain}", leaves.len());
        }
    };
    for width in [6, 8, 40, 75, 150] {
        let (spans, half) = (spans(), width / 2);
        let (columns, y) = (random(&[width, 23]), random(&[23, width]));
        let (x, wide) = (columns.transpose(0, 1), random(&[4, 3 * width]));
        let tables = wide.split_with_sizes([2 * width, width], 1);
        let (weight, bias) = (random(&[width, 1, 5]), random(&[width]));
        assert!(crate::cpu::serves(&x));
        let [normal, _] = adaln(&x, &tables[0], &spans).unwrap();
        same("adaln", &[&columns, &wide], &[normal], &[plain::adaln(&x, &tables[0], &spans).unwrap()]);
        let ours = gated_add(&x, &y, &tables[1], &spans).unwrap();
        let plainly = plain::gated_add(&x, &y, &tables[1], &spans).unwrap();
        same("gated_add", &[&columns, &y, &wide], &[ours], &[plainly]);
        let ours = depthwise(&x, &weight, &bias, &spans).unwrap();
        let plainly = plain::depthwise(&x, &weight, &bias, &spans).unwrap();
        same("depthwise", &[&columns, &weight, &bias], &[ours], &[plainly]);
        let (ours, plainly) = (bias_gelu(&x, &bias).unwrap(), plain::bias_gelu(&x, &bias).unwrap());
        same("bias_gelu", &[&columns, &bias], &[ours], &[plainly]);
        let (qkv, angle) = (random(&[23, 3, 3, 2 * half]), random(&[23, half]).detach());
        let ours = rotary(&qkv, &angle.cos(), &angle.sin()).unwrap();
        let plainly = plain::rotary(&qkv, &angle.cos(), &angle.sin()).unwrap();
        same("rotary", &[&qkv], &ours, &plainly);
        // Where a part of them leads nowhere.
        let ours = rotary(&qkv, &angle.cos(), &angle.sin()).unwrap();
        let plainly = plain::rotary(&qkv, &angle.cos(), &angle.sin()).unwrap();
        same("rotary", &[&qkv], &ours[1..2], &plainly[1..2]);
    }
    let (nothing, bias) = (Tensor::zeros([0, 8], FLOAT_CPU), random(&[8]));
    let made = bias_gelu(&nothing, &bias).unwrap();
    assert_eq!(made.size(), [0, 8]);
    made.sum(Kind::Float).backward();
    assert_eq!(bias.grad().abs().max().double_value(&[]), 0.0);
}

/// Sums of a gradient do not depend on how many threads there are.
#[test]
fn gradients_of_the_cpu_are_the_same_every_time() {
    tch::manual_seed(6);
    let (x, bias) = (random(&[700, 160]), random(&[160]));
    let gradient = |threads: i32| {
        tch::set_num_threads(threads);
        bias_gelu(&x, &bias).unwrap().square().sum(Kind::Float).backward();
        let gradient = bias.grad().copy();
        bias.shallow_clone().zero_grad();
        gradient
    };
    let threads = tch::get_num_threads();
    let one = gradient(1);
    assert!((2..4).all(|threads| gradient(threads) == one));
    tch::set_num_threads(threads);
}

#[test]
fn lay_gives_each_frame_its_token_and_counts_them() {
    // Two tokens for the first utterance, three for the last; rows of the text as those of the frames.
    let tokens: Vec<i32> =
        [vec![0; 3], vec![3, 3, 3, 4, 4], vec![0; 3], vec![11, 12, 12, 12, 12, 12, 12, 13, 13], vec![0; 3]].concat();
    let (table, spans) = (random(&[23, 6]), spans());
    let laid = lay(&table, &Tensor::from_slice(&tokens), 4, &spans, &spans).unwrap();
    let row = |t: usize| rows(&table)[tokens[t] as usize].clone();
    assert_rows(&laid.mean, &(0..23).map(|t| row(t)[..4].to_vec()).collect::<Vec<_>>());
    assert_rows(&laid.content, &(0..23).map(|t| row(t)[4..].to_vec()).collect::<Vec<_>>());
    let lasted = |token: usize| (0..23).filter(|&t| owners()[t] < 3 && tokens[t] as usize == token).count() as f64;
    assert_rows(&laid.lasted, &(0..23).map(|token| vec![lasted(token)]).collect::<Vec<_>>());
}

#[test]
fn embed_takes_rows_and_scales_them() {
    let (table, index) = (random(&[4, 8]), [2i32, 0, 2, 3]);
    let out = embed(&table, &Tensor::from_slice(&index), 1.5, Kind::Float).unwrap();
    let scaled = |entry: i32| rows(&table)[entry as usize].iter().map(|value| value * 1.5).collect::<Vec<f64>>();
    assert_rows(&out, &index.map(scaled));
    out.sum(Kind::Float).backward();
    assert_rows(&table.grad(), &[1.0, 0.0, 2.0, 1.0].map(|count| vec![count * 1.5; 8]));
}
