//! Times the convolutions of a spectral discriminator, forward and with all gradients, as a Markdown table: ours against cuDNN's
//! with `bias_leaky` behind them, bf16, channels last, cuDNN's kernels tried.
//!
//! Method: one captured graph of `REPEATS` repetitions, replayed `REPLAYS` times between two events; the least of three.

use tch::{Device, Kind, Tensor};
use torchx::fused::{self, Weights};
use torchx::{Error, Event, Graph, Stream, cuda};

const GPU: Device = Device::Cuda(0);
const SEGMENTS: i64 = 26;
const REPEATS: usize = 4;
const REPLAYS: usize = 5;

/// Channels that lie in a place, kernel, strides.
const LAYERS: [(i64, [i64; 2], [i64; 2]); 4] =
    [(8, [3, 9], [1, 2]), (32, [3, 9], [1, 2]), (32, [3, 9], [2, 2]), (32, [3, 3], [1, 1])];

fn main() -> Result<(), Error> {
    cuda::load()?;
    tch::Cuda::cudnn_set_benchmark(true);
    println!("{}, {SEGMENTS} segments, µs\n", cuda::facts(GPU)?.name);
    println!("| layer | places | cuDNN, forward | ours | cuDNN, with gradients | ours |\n|---|---|---|---|---|---|");
    for mut size in [[33, 1025], [129, 257]] {
        for (number, (from, kernel, stride)) in LAYERS.into_iter().enumerate() {
            let [theirs, ours] = [false, true].map(|fused| layer_us(size, from, kernel, stride, fused));
            let ([before, all_before], [now, all]) = (theirs?, ours?);
            println!("| {} | {size:?} | {before:.0} | {now:.0} | {all_before:.0} | {all:.0} |", number + 1);
            size = [(size[0] - 1) / stride[0] + 1, (size[1] - 1) / stride[1] + 1];
        }
    }
    Ok(())
}

/// Forward, and with the gradients of input, weight and bias.
fn layer_us(size: [i64; 2], from: i64, kernel: [i64; 2], stride: [i64; 2], ours: bool) -> Result<[f64; 2], Error> {
    let drawn = |size: &[i64], kind: Kind| Tensor::randn(size, (Kind::Float, GPU)).to_kind(kind);
    let x = drawn(&[SEGMENTS, size[0], size[1], from], Kind::BFloat16).set_requires_grad(true);
    let weight = drawn(&[32, from, kernel[0], kernel[1]], Kind::Float).set_requires_grad(true);
    let bias = drawn(&[32], Kind::Float).set_requires_grad(true);
    let forward = || match ours {
        true => fused::conv_leaky(&x, Weights { weight: &weight, bias: &bias }, stride, 0.1),
        false => {
            let laid = weight.f_permute([0, 2, 3, 1])?.f_to_kind(x.kind())?.f_contiguous()?.f_permute([0, 3, 1, 2])?;
            let half = kernel.map(|taps| taps / 2);
            let made = x.f_permute([0, 3, 1, 2])?.f_conv2d(&laid, None::<&Tensor>, stride, half, [1, 1], 1)?;
            let places = made.f_permute([0, 2, 3, 1])?;
            Ok(fused::bias_leaky(&places.f_reshape([-1, 32])?, &bias, 0.1)?.f_view(places.size().as_slice())?)
        }
    };
    let made = forward()?;
    let upstream = drawn(&made.size(), Kind::BFloat16);
    let with_gradients = || {
        let loss = forward()?.f_mul(&upstream)?.f_sum(Kind::Float)?;
        Tensor::f_run_backward(&[loss], &[&x, &weight, &bias], false, false)?;
        Ok::<_, Error>(())
    };
    Ok([time_us(|| forward().map(drop))?, time_us(with_gradients)?])
}

fn time_us(repetition: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
    let work = || (0..REPEATS).try_for_each(|_| repetition());
    work()?;
    let (graph, ()) = Graph::capture(GPU, None, work)?;
    let times = (0..3).map(|_| replay_us(&graph)).collect::<Result<Vec<f64>, Error>>()?;
    Ok(times.into_iter().fold(f64::INFINITY, f64::min) / REPEATS as f64)
}

fn replay_us(graph: &Graph) -> Result<f64, Error> {
    let (stream, start, end) = (Stream::current(GPU)?, Event::new(true)?, Event::new(true)?);
    graph.replay()?;
    start.record(&stream)?;
    for _ in 0..REPLAYS {
        graph.replay()?;
    }
    end.record(&stream)?;
    end.synchronize()?;
    Ok(f64::from(start.elapsed_ms(&end)?) * 1e3 / REPLAYS as f64)
}
