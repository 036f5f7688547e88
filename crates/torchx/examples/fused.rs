//! Times the fused operations against LibTorch's own, forward and backward, as a Markdown table.
//!
//! Method: one captured graph of `REPEATS` repetitions, each on inputs of its own so that little is left in the L2 cache
//! from the last, replayed `REPLAYS` times between two events. What the harness itself takes (a dot product with the
//! upstream gradient, and its backward) is measured alone and taken off.

#[path = "../tests/cases/mod.rs"]
mod cases;

use cases::{Case, Way};
use tch::{Device, Kind, Tensor};
use torchx::{Error, Event, Graph, Stream, cuda};

const GPU: Device = Device::Cuda(0);
const ROWS: i64 = 8448;
const REPEATS: usize = 12;
const REPLAYS: usize = 20;

fn main() -> Result<(), Error> {
    cuda::load()?;
    println!("{}, {ROWS} rows, forward and backward, µs\n", cuda::facts(GPU)?.name);
    println!("| op | kind | width | plain | fused | plain / fused |\n|---|---|---|---|---|---|");
    for (case, kind) in cases::all().iter().flat_map(|case| [(case, Kind::BFloat16), (case, Kind::Float)]) {
        for width in [256, 320, 512, 640] {
            let [harness, plain, fused] = times_us(case, kind, width)?;
            let (plain, fused) = (plain - harness, fused - harness);
            println!("| {} | {kind:?} | {width} | {plain:.1} | {fused:.1} | {:.1} |", case.name, plain / fused);
        }
    }
    Ok(())
}

/// One repetition of the harness alone, of LibTorch's own operations, and of ours.
fn times_us(case: &Case, kind: Kind, width: i64) -> Result<[f64; 3], Error> {
    let batch = cases::batch(ROWS, GPU);
    let upstream = Tensor::randn([ROWS, case.parts * width], (Kind::Float, GPU)).to_kind(kind);
    let inputs = || case.leaves(&case.inputs(ROWS, width, &batch, kind), kind, GPU);
    let inputs: Vec<Vec<Tensor>> = (0..REPEATS).map(|_| inputs()).collect();
    let mut outputs = vec![];
    for leaves in &inputs {
        let computed = (case.compute)(leaves, &batch, Way::Plain)?;
        outputs.push(computed.iter().map(|output| output.detach().copy().set_requires_grad(true)).collect::<Vec<_>>());
    }
    let run = |way| time_us(|index| case.run(&inputs[index], &upstream, &batch, way).map(drop));
    let harness = time_us(|index| cases::backward(&outputs[index], &outputs[index], &upstream).map(drop))?;
    Ok([harness, run(Way::Plain)?, run(Way::Fused)?])
}

/// Median over five measurements of one repetition.
fn time_us(repetition: impl Fn(usize) -> Result<(), Error>) -> Result<f64, Error> {
    let work = || (0..REPEATS).try_for_each(&repetition);
    work()?;
    let (graph, ()) = Graph::capture(GPU, None, work)?;
    let mut times = (0..5).map(|_| replay_us(&graph)).collect::<Result<Vec<f64>, Error>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[2] / REPEATS as f64)
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
