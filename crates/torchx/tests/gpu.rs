//! Everything that needs a GPU. `cargo test -p torchx --test gpu -- --ignored --test-threads=1` runs it where there is
//! one; one thread, because memory statistics, caps and the random generator belong to the whole process.

use std::convert::Infallible;
use std::io::Write;
use std::time::Instant;

use tch::{Device, Kind, Tensor};
use torchx::activity::{self, Activity};
use torchx::adamw::{AdamW, Moments, Options};
use torchx::collectives::Nccl;
use torchx::fused::{Tally, Update};
use torchx::stream::{copy_async, copy_together, empty_pinned, pin, record_stream};
use torchx::{
    Arg, Copies, Error, Event, Graph, Kernel, Pool, Stream, clip_grad_norm, cuda, gradients, memory, narrowed,
    varlen_attention,
};

const GPU: Device = Device::Cuda(0);
const FLOAT_GPU: (Kind, Device) = (Kind::Float, GPU);
const MIB: i64 = 1 << 20;

/// Says so past the harness, which swallows what tests that pass print.
fn skipped(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: no GPU: {reason}", thread.name().unwrap_or("a test"));
}

/// Leaves the test, visibly, where there is no GPU.
macro_rules! need_gpu {
    () => {
        if let Err(reason) = cuda::load() {
            return skipped(&reason.to_string());
        }
    };
}

fn ok<T>(value: T) -> Result<T, Infallible> {
    Ok(value)
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    let host = |x: &Tensor| x.detach().to_device(Device::Cpu).to_kind(Kind::Float);
    (host(a) - host(b)).abs().max().double_value(&[])
}

fn assert_close(a: &Tensor, b: &Tensor, tolerance: f64) {
    let difference = difference(a, b);
    assert!(difference <= tolerance, "differ by {difference}, more than {tolerance}");
}

/// A kernel that keeps one block busy for a given time, whatever the card's speed.
fn spinner() -> Kernel {
    let source = r#"extern "C" __global__ void spin(long long ns) {
        long long start, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
        do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - start < ns);
    }"#;
    Kernel::compile(source, "spin", GPU).unwrap()
}

fn spin_ms(spinner: &Kernel, ms: i64) {
    spinner.launch([1; 3], [1; 3], 0, &[Arg::I64(ms * 1_000_000)]).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn facts_of_the_device() {
    need_gpu!();
    assert!(tch::Cuda::is_available());
    assert_eq!(cuda::device_count() as i64, tch::Cuda::device_count());
    let facts = cuda::facts(GPU).unwrap();
    println!("{facts:?}");
    assert!(!facts.name.is_empty() && facts.pci_bus_id.contains(':') && facts.compute_capability.0 >= 5);
    assert!(0 < facts.free_bytes && facts.free_bytes <= facts.total_bytes);
    cuda::can_access_peer(GPU, GPU).unwrap();
    cuda::synchronize(GPU).unwrap();
    let missing = cuda::facts(Device::Cuda(99)).unwrap_err().to_string();
    assert!(missing.contains("cuda:99: no such device"), "{missing}");
    assert!(Stream::current(Device::Cpu).unwrap_err().to_string().contains("cpu: no such device"));
}

#[test]
#[ignore = "needs a GPU"]
fn a_replay_equals_the_eager_step() {
    need_gpu!();
    let weight = Tensor::randn([64, 64], FLOAT_GPU);
    let mut input = Tensor::zeros([16, 64], FLOAT_GPU);
    let step = |input: &Tensor| input.matmul(&weight).relu().sum_dim_intlist(1i64, false, None::<Kind>);
    drop(step(&input));
    let (graph, output) = Graph::capture(GPU, None, || ok(step(&input))).unwrap();
    for _ in 0..3 {
        let fresh = Tensor::randn([16, 64], FLOAT_GPU);
        input.copy_(&fresh);
        graph.replay().unwrap();
        assert_close(&output, &step(&fresh), 1e-4);
    }
}

/// LibTorch clears memory before a sum that many blocks share.
#[test]
#[ignore = "needs a GPU"]
fn memory_is_cleared_by_kernels_in_every_replay() {
    need_gpu!();
    let mut input = Tensor::ones([1 << 22], FLOAT_GPU);
    let sum = |input: &Tensor| input.sum(Kind::Float);
    drop(sum(&input));
    let (graph, output) = Graph::capture(GPU, None, || ok(sum(&input))).unwrap();
    for round in 1..4 {
        let _ = input.fill_(f64::from(round));
        graph.replay().unwrap();
        assert_eq!(output.double_value(&[]), f64::from(round) * f64::from(1 << 22));
    }
    let replayed = record(|| graph.replay().unwrap());
    assert!(replayed.by_name.iter().any(|kernel| kernel.name == "clear"), "{:?}", replayed.by_name);
}

#[test]
#[ignore = "needs a GPU"]
fn a_replay_draws_what_the_seed_says() {
    need_gpu!();
    let draw = || Tensor::randn([1000], FLOAT_GPU);
    drop(draw());
    let (graph, output) = Graph::capture(GPU, None, || ok(draw())).unwrap();
    let replay = || {
        graph.replay().unwrap();
        output.copy()
    };
    tch::manual_seed(7);
    let (first, second) = (replay(), replay());
    tch::manual_seed(7);
    assert_eq!((replay(), replay()), (first.copy(), second.copy()));
    assert_ne!(first, second);
    tch::manual_seed(7);
    assert_eq!((draw(), draw()), (first, second));
}

#[test]
#[ignore = "needs a GPU"]
fn a_failed_capture_is_reported_and_leaves_the_device_usable() {
    need_gpu!();
    let x = Tensor::ones([4], FLOAT_GPU);
    let waits = Graph::capture(GPU, None, || ok(x.rand_like().sum(Kind::Float).double_value(&[]))).err().unwrap();
    println!("{waits}");
    let text = waits.to_string();
    assert!(matches!(waits, Error::Capture(_)) && text.contains("captur") && !text.contains("frame #"));

    let refuses = Graph::capture(GPU, None, || (&x + 1.0).f_matmul(&Tensor::ones([3, 3], FLOAT_GPU))).err().unwrap();
    assert!(matches!(&refuses, Error::Capture(text) if !text.contains("frame #")), "{refuses}");
    let says = Graph::capture(GPU, None, || Err::<(), _>("the model said no")).err().unwrap();
    assert_eq!(says.to_string(), "CUDA graph capture: the model said no");

    tch::manual_seed(1);
    let eager = x.rand_like();
    let (graph, output) = Graph::capture(GPU, None, || ok(x.rand_like())).unwrap();
    tch::manual_seed(1);
    graph.replay().unwrap();
    assert_eq!(output, eager);
}

#[test]
#[ignore = "needs a GPU"]
fn graphs_share_a_pool_and_give_it_back() {
    need_gpu!();
    let x = Tensor::ones([MIB], FLOAT_GPU);
    let _ = (&x + 1.0) * 3.0;
    memory::empty_cache().unwrap();
    let before = memory::stats(GPU).unwrap().reserved_bytes;
    {
        let pool = Pool::new(GPU).unwrap();
        let (add, sum) = Graph::capture(GPU, Some(&pool), || ok(&x + 1.0)).unwrap();
        let (mul, product) = Graph::capture(GPU, Some(&pool), || ok(&sum * 3.0)).unwrap();
        add.replay().unwrap();
        mul.replay().unwrap();
        assert_eq!(product.double_value(&[5]), 6.0);
        // The first graph goes and a third comes: the pool lives while one graph does.
        drop((add, sum));
        let (third, y) = Graph::capture(GPU, Some(&pool), || ok(&x - 1.0)).unwrap();
        third.replay().unwrap();
        assert_eq!(y.double_value(&[5]), 0.0);
    }
    cuda::synchronize(GPU).unwrap();
    memory::empty_cache().unwrap();
    assert_eq!(memory::stats(GPU).unwrap().reserved_bytes, before);
}

#[test]
#[ignore = "needs a GPU"]
fn streams_run_side_by_side_and_events_order_them() {
    need_gpu!();
    let spinner = spinner();
    let (a, b) = (Stream::from_pool(GPU, false).unwrap(), Stream::from_pool(GPU, true).unwrap());
    assert_ne!(a, b);
    let outside = Stream::current(GPU).unwrap();
    let mut x = Tensor::zeros([1024], FLOAT_GPU);
    // A kernel is loaded at its first use, which may wait for the GPU: not in the middle of what is timed below.
    drop((x.fill_(1.0), &x * 2.0));
    cuda::synchronize(GPU).unwrap();

    let start = Instant::now();
    for stream in [&a, &b] {
        let _guard = stream.guard().unwrap();
        assert_eq!(Stream::current(GPU).unwrap(), *stream);
        spin_ms(&spinner, 60);
    }
    assert_eq!(Stream::current(GPU).unwrap(), outside);
    assert!(!a.query().unwrap(), "the host did not wait");
    a.synchronize().unwrap();
    b.synchronize().unwrap();
    let both_ms = start.elapsed().as_millis();
    assert!((59..110).contains(&both_ms), "two spins of 60 ms side by side took {both_ms} ms");

    let (begun, written) = (Event::new(true).unwrap(), Event::new(true).unwrap());
    {
        let _guard = a.guard().unwrap();
        begun.record(&a).unwrap();
        spin_ms(&spinner, 30);
        let _ = x.fill_(5.0);
        written.record(&a).unwrap();
    }
    assert!(!written.query().unwrap());
    assert!(begun.elapsed_ms(&written).is_err(), "the later mark is still ahead");
    let seen = {
        let _guard = b.guard().unwrap();
        b.wait(&written).unwrap();
        record_stream(&x, &b).unwrap();
        &x * 2.0
    };
    b.synchronize().unwrap();
    assert_eq!(seen.double_value(&[1023]), 10.0);
    assert!(written.query().unwrap());
    let ms = begun.elapsed_ms(&written).unwrap();
    assert!((29.0..60.0).contains(&ms), "{ms} ms");
    written.synchronize().unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn pinned_copies_do_not_wait() {
    need_gpu!();
    let spinner = spinner();
    let stream = Stream::from_pool(GPU, false).unwrap();
    let source = pin(&Tensor::randn([MIB], (Kind::Float, Device::Cpu))).unwrap();
    let mut on_gpu = Tensor::zeros([MIB], FLOAT_GPU);
    let mut second = Tensor::zeros([MIB], FLOAT_GPU);
    let mut back = empty_pinned(&[MIB], Kind::Float).unwrap();
    cuda::synchronize(GPU).unwrap();
    let _guard = stream.guard().unwrap();
    let start = Instant::now();
    spin_ms(&spinner, 80);
    copy_async(&mut on_gpu, &source).unwrap();
    copy_async(&mut second, &on_gpu).unwrap();
    copy_async(&mut back, &second).unwrap();
    let queued_ms = start.elapsed().as_millis();
    assert!(!stream.query().unwrap() && queued_ms < 40, "queueing took {queued_ms} ms");
    stream.synchronize().unwrap();
    assert_eq!(back, source);
}

/// Of all kinds and sizes, those that are no whole number of pieces too; and where nothing is together.
fn copies_arrive(from: Device, to: Device) {
    let make = |device: Device| -> Vec<Tensor> {
        let sizes = [vec![1000, 80], vec![7], vec![0], vec![3, 5], vec![1]];
        let numbers = sizes.iter().map(|size| Tensor::randn(size.as_slice(), (Kind::Float, device)));
        numbers.chain([Tensor::randint(9, [1001], (Kind::Int, device))]).collect()
    };
    let (source, target) = (make(from), make(to));
    let pairs: Vec<(&Tensor, &Tensor)> = target.iter().zip(&source).collect();
    copy_together(&pairs).unwrap();
    for (target, source) in pairs {
        assert_eq!(target.to_device(Device::Cpu), source.to_device(Device::Cpu));
    }
    copy_together(&[]).unwrap();
}

#[test]
fn copies_together_arrive_on_the_cpu() {
    copies_arrive(Device::Cpu, Device::Cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn copies_together_arrive() {
    need_gpu!();
    copies_arrive(GPU, GPU);
    copies_arrive(Device::Cpu, GPU);
}

#[test]
#[ignore = "needs a GPU"]
fn a_cap_stops_an_allocation() {
    need_gpu!();
    memory::empty_cache().unwrap();
    let total_mib = cuda::facts(GPU).unwrap().total_bytes / MIB as u64;
    memory::set_cap_mib(GPU, 1024).unwrap();
    let refused = Tensor::f_zeros([2048 * MIB], (Kind::Uint8, GPU)).map_err(Error::from);
    let allowed = Tensor::f_zeros([512 * MIB], (Kind::Uint8, GPU));
    memory::set_cap_mib(GPU, total_mib).unwrap();
    let message = refused.unwrap_err().to_string();
    println!("{message}");
    assert!(message.contains("1024.00 MiB allowed") || message.contains("1.00 GiB allowed"), "{message}");
    assert!(allowed.is_ok());
    let above = memory::set_cap_mib(GPU, total_mib + 1).unwrap_err().to_string();
    assert!(above.contains(&format!("outside 1 to {total_mib} MiB")), "{above}");
    assert!(memory::set_cap_mib(GPU, 0).is_err());
}

#[test]
#[ignore = "needs a GPU"]
fn statistics_follow_allocations() {
    need_gpu!();
    memory::empty_cache().unwrap();
    memory::reset_peak(GPU).unwrap();
    let before = memory::stats(GPU).unwrap();
    // More than other tests may have left in the cache, so that it must come from the card.
    let held = Tensor::zeros([2048 * MIB], (Kind::Uint8, GPU));
    let during = memory::stats(GPU).unwrap();
    assert_eq!(during.allocated_bytes - before.allocated_bytes, 2048 * MIB);
    assert!(during.reserved_bytes > before.reserved_bytes && during.reserved_bytes >= during.allocated_bytes);
    drop(held);
    let after = memory::stats(GPU).unwrap();
    assert_eq!(after.allocated_bytes, before.allocated_bytes);
    assert_eq!(after.peak_allocated_bytes, during.allocated_bytes);
    memory::empty_cache().unwrap();
    memory::reset_peak(GPU).unwrap();
    let emptied = memory::stats(GPU).unwrap();
    assert!(emptied.reserved_bytes < after.reserved_bytes);
    assert_eq!(emptied.peak_allocated_bytes, emptied.allocated_bytes);
}

/// Parameters of several shapes, the same on both devices.
fn twins() -> [Vec<Tensor>; 2] {
    let shapes: [&[i64]; 4] = [&[33, 17], &[17], &[5, 3, 7], &[1]];
    let host: Vec<Tensor> = shapes.iter().map(|shape| Tensor::randn(*shape, (Kind::Float, Device::Cpu))).collect();
    let leaf = |p: &Tensor, device| p.copy().to_device(device).set_requires_grad(true);
    [Device::Cpu, GPU].map(|device| host.iter().map(|p| leaf(p, device)).collect())
}

fn give_gradients(params: &[Tensor], round: i64) {
    for (index, p) in params.iter().enumerate() {
        (p * (p + index as f64 - round as f64)).sum(Kind::Float).backward();
    }
}

#[test]
#[ignore = "needs a GPU"]
fn adamw_and_clipping_equal_the_cpu() {
    need_gpu!();
    let sets = twins();
    let options = Options { lr: 0.05, weight_decay: 0.1, ..Options::default() };
    let mut optimizers = sets
        .each_ref()
        .map(|params| AdamW::new(params.iter().map(|p| (p.shallow_clone(), p.dim() > 1)), options).unwrap());
    for round in 0..12 {
        let norms: Vec<Tensor> = sets
            .iter()
            .zip(&mut optimizers)
            .map(|(params, optimizer)| {
                optimizer.zero_grad().unwrap();
                give_gradients(params, round);
                let norm = clip_grad_norm(params, 2.0).unwrap();
                let skip = Tensor::from(f32::from(round == 4)).to_device(params[0].device());
                optimizer.set_lr(0.05 / (round + 1) as f64).unwrap();
                optimizer.step(Some(&skip)).unwrap();
                norm
            })
            .collect();
        assert_eq!((norms[1].device(), norms[1].kind(), norms[1].dim()), (GPU, Kind::Float, 0));
        assert_close(&norms[0], &norms[1], 1e-3);
        for (host, gpu) in sets[0].iter().zip(&sets[1]) {
            assert_close(host, gpu, 5e-5);
        }
    }
    assert_eq!(optimizers[1].steps().double_value(&[]), 11.0);
}

/// Parameters under a whole update, whose gradients are what they are given.
struct Group {
    params: Vec<Tensor>,
    copies: Option<Copies>,
    averages: Vec<Tensor>,
    given: Vec<Tensor>,
    optimizer: AdamW,
    norm: Tensor,
    spoiled: Tensor,
    skipped: Tensor,
}

impl Group {
    /// `kind`: bf16 for narrow copies that stay.
    fn new(device: Device, kind: Kind) -> Group {
        tch::manual_seed(7);
        let shapes: [&[i64]; 8] = [&[1], &[3], &[2047], &[2048], &[64, 33], &[5, 3, 7], &[700, 901], &[4099]];
        // More than one launch has room for the addresses of.
        let shapes = shapes.into_iter().chain(std::iter::repeat_n(&[2][..], 450));
        let host = shapes.map(|shape| Tensor::randn(shape, (Kind::Float, Device::Cpu)));
        let params: Vec<Tensor> = host.map(|p| p.to_device(device).set_requires_grad(true)).collect();
        let zeros = || params.iter().map(|p| p.detach().zeros_like()).collect();
        let options = Options { lr: 0.01, weight_decay: 0.1, ..Options::default() };
        let number = || Tensor::zeros([1], (Kind::Float, device));
        Group {
            copies: (kind != Kind::Float).then(|| Copies::new(&params, kind).unwrap()),
            averages: zeros(),
            given: zeros(),
            optimizer: AdamW::new(params.iter().map(|p| (p.shallow_clone(), p.dim() > 1)), options).unwrap(),
            norm: number(),
            spoiled: number(),
            skipped: number(),
            params,
        }
    }

    /// What the next step learns from, the same on all devices; not finite in the 20th round.
    fn begin(&mut self, round: i64) {
        tch::manual_seed(round);
        for given in &mut self.given {
            let drawn = Tensor::randn(given.size(), (Kind::Float, Device::Cpu)) * 10f64.powi(round as i32 % 5 - 4);
            given.copy_(&drawn.to_kind(Kind::BFloat16));
        }
        if round == 20 {
            let _ = self.given[6].view(-1).narrow(0, 77_777, 1).fill_(f64::INFINITY);
        }
        self.optimizer.set_lr(0.01 / (1.0 + 0.1 * round as f64)).unwrap();
        self.copies.iter_mut().for_each(|copies| copies.refresh().unwrap());
    }

    fn step(&mut self) -> Result<(), Error> {
        let lent = self.copies.as_ref().map(|copies| Copies::lend([copies]));
        for (index, (p, given)) in self.params.iter().zip(&self.given).enumerate().filter(|(index, _)| *index != 3) {
            // Some as they are, the others narrow; the fourth learns nothing.
            let kind = if self.copies.is_some() && index % 3 != 0 { Kind::BFloat16 } else { Kind::Float };
            (narrowed(p, kind) * given.to_kind(kind)).sum(Kind::Float).backward();
        }
        drop(lent);
        self.optimizer.update(&Update {
            max_norm: 2.0,
            averages: Some((&self.averages, 0.01)),
            copies: self.copies.as_ref().map_or(&[], Copies::tensors),
            tally: Tally { norm: &self.norm, spoiled: &self.spoiled, skipped: &self.skipped, is_first: true },
        })?;
        self.optimizer.drop_grad()?;
        self.copies.as_ref().map_or(Ok(()), Copies::drop_grad)
    }

    fn state(&self) -> Vec<&Tensor> {
        let moments = self.optimizer.moments().flat_map(|m| [&m.exp_avg, &m.exp_avg_sq]);
        let copies = self.copies.iter().flat_map(Copies::tensors);
        let numbers = [self.optimizer.steps(), &self.norm, &self.spoiled, &self.skipped];
        self.params.iter().chain(&self.averages).chain(moments).chain(numbers).chain(copies).collect()
    }

    fn assert_equal(&self, other: &Group, when: &str) {
        for (index, (ours, theirs)) in self.state().into_iter().zip(other.state()).enumerate() {
            assert!(ours.equal(theirs), "{when}: tensor {index} of {:?}", ours.size());
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_whole_update_equals_the_cpu() {
    need_gpu!();
    for kind in [Kind::Float, Kind::BFloat16] {
        let [mut host, mut gpu, mut again] = [Device::Cpu, GPU, GPU].map(|device| Group::new(device, kind));
        for round in 0..50 {
            for group in [&mut host, &mut gpu, &mut again] {
                group.begin(round);
                group.step().unwrap();
            }
            gpu.assert_equal(&again, &format!("two runs, {kind:?}, round {round}"));
            for (param, copy) in gpu.params.iter().zip(gpu.copies.iter().flat_map(Copies::tensors)) {
                assert!(param.to_kind(kind).equal(copy), "a copy of {:?}, round {round}", param.size());
            }
            for (host, gpu) in host.params.iter().chain(&host.averages).zip(gpu.params.iter().chain(&gpu.averages)) {
                assert_close(host, gpu, 5e-5);
            }
            let [ours, theirs] = [&gpu, &host]
                .map(|group| [&group.skipped, &group.spoiled].map(|x| x.double_value(&[0])).map(|x| x as i64));
            assert_eq!(ours, theirs, "round {round}");
        }
        let (ours, theirs) = (gpu.norm.double_value(&[0]), host.norm.double_value(&[0]));
        // Sums over 50 rounds, of weights that may differ by 5e-5 by then.
        assert!((ours / theirs - 1.0).abs() < 1e-4, "{ours} and {theirs}");
        assert_eq!((gpu.optimizer.steps().double_value(&[]), gpu.skipped.double_value(&[0])), (49.0, 1.0));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_update_equals_the_eager_one_and_goes_on_from_a_saved_state() {
    need_gpu!();
    for kind in [Kind::Float, Kind::BFloat16] {
        let [mut eager, mut captured] = [(); 2].map(|()| Group::new(GPU, kind));
        for round in 0..3 {
            for group in [&mut eager, &mut captured] {
                group.begin(round);
                group.step().unwrap();
            }
        }
        cuda::synchronize(GPU).unwrap();
        let (graph, ()) = Graph::capture(GPU, None, || captured.step()).unwrap();
        for round in 3..24 {
            eager.begin(round);
            eager.step().unwrap();
            captured.begin(round);
            graph.replay().unwrap();
            captured.assert_equal(&eager, &format!("{kind:?}, round {round}"));
        }
        let mut resumed = Group::new(GPU, kind);
        tch::no_grad(|| {
            let own = resumed.params.iter().chain(&resumed.averages);
            for (own, saved) in own.zip(captured.params.iter().chain(&captured.averages)) {
                own.shallow_clone().copy_(saved);
            }
            resumed.norm.copy_(&captured.norm);
            resumed.skipped.copy_(&captured.skipped);
        });
        let copy = |m: &Moments| Moments { exp_avg: m.exp_avg.copy(), exp_avg_sq: m.exp_avg_sq.copy() };
        let moments: Vec<Moments> = captured.optimizer.moments().map(copy).collect();
        resumed.optimizer.load_state(captured.optimizer.steps().double_value(&[]), &moments).unwrap();
        for round in 24..30 {
            resumed.begin(round);
            resumed.step().unwrap();
            captured.begin(round);
            graph.replay().unwrap();
            captured.assert_equal(&resumed, &format!("resumed, {kind:?}, round {round}"));
        }
    }
}

/// Gradients that lie in one flat tensor, as an exchange between ranks leaves them: at odd addresses.
#[test]
#[ignore = "needs a GPU"]
fn an_update_takes_gradients_at_any_address() {
    need_gpu!();
    let [first, second] = [false, true].map(|flat| {
        let mut group = Group::new(GPU, Kind::Float);
        for round in 0..3 {
            group.begin(round);
            for (p, given) in group.params.iter().zip(&group.given) {
                (p * given).sum(Kind::Float).backward();
            }
            if flat {
                let params: Vec<&Tensor> = group.params.iter().collect();
                let flat = Tensor::zeros([gradients::len(&params)], FLOAT_GPU);
                gradients::gather(&params, &flat).unwrap();
                gradients::scatter(&params, &flat, true).unwrap();
            }
            let tally = Tally { norm: &group.norm, spoiled: &group.spoiled, skipped: &group.skipped, is_first: true };
            let averages = Some((&group.averages[..], 0.01));
            group.optimizer.update(&Update { max_norm: 2.0, averages, copies: &[], tally }).unwrap();
            group.optimizer.drop_grad().unwrap();
        }
        group
    });
    first.assert_equal(&second, "in one tensor");
}

fn starts(lengths: &[i32]) -> Tensor {
    let mut starts = vec![0];
    lengths.iter().for_each(|length| starts.push(starts[starts.len() - 1] + length));
    Tensor::from_slice(&starts)
}

/// Output and gradients on the GPU in `kind`, against the CPU in f32 on the same (rounded) numbers.
fn attention_agrees(kind: Kind, lengths: &[i32], tolerance: f64) {
    let shape = [i64::from(lengths.iter().sum::<i32>()), 4, 32];
    let host = || Tensor::randn(shape, FLOAT_GPU).to_kind(kind).to_device(Device::Cpu).to_kind(Kind::Float);
    let inputs: [Tensor; 4] = std::array::from_fn(|_| host());
    let [(ours, our_grads), (truth, true_grads)] = [(GPU, kind), (Device::Cpu, Kind::Float)].map(|(device, kind)| {
        let [q, k, v, upstream] = inputs.each_ref().map(|x| x.to_device(device).to_kind(kind));
        let [q, k, v] = [q, k, v].map(|x| x.detach().copy().set_requires_grad(true));
        let output = varlen_attention(&q, &k, &v, &starts(lengths).to_device(device), 300, None).unwrap();
        (&output * upstream).sum(Kind::Float).backward();
        (output, [q.grad(), k.grad(), v.grad()])
    });
    assert_eq!((ours.kind(), ours.size()), (kind, shape.to_vec()));
    assert_close(&ours, &truth, tolerance);
    for (ours, truth) in our_grads.iter().zip(&true_grads) {
        assert_close(ours, truth, 4.0 * tolerance);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn packed_attention_equals_the_cpu() {
    need_gpu!();
    for lengths in [&[5, 1, 200, 4, 77, 4][..], &[300], &[64, 64, 0, 0], &[1, 1, 1, 0, 129]] {
        attention_agrees(Kind::BFloat16, lengths, 3e-2);
        attention_agrees(Kind::Half, lengths, 5e-3);
        attention_agrees(Kind::Float, lengths, 2e-3);
    }
    // Without gradients too: f32 then skips what only the backward needs.
    let x = Tensor::randn([9, 2, 16], FLOAT_GPU);
    let cu_seqlens = starts(&[4, 5]).to_device(GPU);
    let host = x.to_device(Device::Cpu);
    let truth = varlen_attention(&host, &host, &host, &starts(&[4, 5]), 5, Some(0.5)).unwrap();
    assert_close(&varlen_attention(&x, &x, &x, &cu_seqlens, 5, Some(0.5)).unwrap(), &truth, 2e-3);
    assert!(varlen_attention(&x, &x, &x, &starts(&[4, 5]), 5, None).unwrap_err().to_string().contains("on Cuda(0)"));
    let odd = Tensor::randn([9, 2, 17], FLOAT_GPU).to_kind(Kind::BFloat16);
    let refused = varlen_attention(&odd, &odd, &odd, &cu_seqlens, 5, None).unwrap_err().to_string();
    assert!(refused.contains("head_dim 17"), "{refused}");
}

/// A small packed transformer block under AdamW.
struct Trainer {
    params: Vec<Tensor>,
    optimizer: AdamW,
    input: Tensor,
    cu_seqlens: Tensor,
}

impl Trainer {
    fn new(seed: i64) -> Trainer {
        tch::manual_seed(seed);
        let leaf = |shape: &[i64]| (Tensor::randn(shape, FLOAT_GPU) * 0.1).set_requires_grad(true);
        let params = vec![leaf(&[64, 192]), leaf(&[64, 64]), leaf(&[64])];
        let options = Options { lr: 0.01, ..Options::default() };
        let optimizer = AdamW::new(params.iter().map(|p| (p.shallow_clone(), p.dim() > 1)), options).unwrap();
        let input = Tensor::zeros([96, 64], FLOAT_GPU);
        Trainer { params, optimizer, input, cu_seqlens: starts(&[40, 4, 52, 0]).to_device(GPU) }
    }

    /// Forward, backward, clip, update; the loss and the norm stay on the device.
    fn step(&mut self) -> Result<(Tensor, Tensor), Error> {
        self.optimizer.zero_grad()?;
        let x = self.input.to_kind(Kind::BFloat16);
        let qkv = x.matmul(&self.params[0].to_kind(Kind::BFloat16)).view([96, 3, 4, 16]).unbind(1);
        let y = varlen_attention(&qkv[0], &qkv[1], &qkv[2], &self.cu_seqlens, 96, None)?;
        let y = y.reshape([96, 64]).to_kind(Kind::Float).matmul(&self.params[1]) + &self.params[2];
        let loss = (y.dropout(0.1, true) - &self.input).square().mean(Kind::Float);
        loss.backward();
        let norm = clip_grad_norm(&self.params, 0.1)?;
        let found_inf = norm.isfinite().logical_not().to_kind(Kind::Float);
        self.optimizer.step(Some(&found_inf))?;
        Ok((loss.detach(), norm))
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_training_step_equals_the_eager_one() {
    need_gpu!();
    let (mut eager, mut captured) = (Trainer::new(3), Trainer::new(3));
    cuda::synchronize(GPU).unwrap();
    {
        let _guard = Stream::from_pool(GPU, false).unwrap().guard().unwrap();
        for _ in 0..2 {
            drop(captured.step().unwrap());
        }
    }
    let (graph, (loss, norm)) = Graph::capture(GPU, None, || captured.step()).unwrap();
    // The warm-up trained: start both from the same place again, where the graph's memory is.
    for (p, wanted) in captured.params.iter().zip(&eager.params) {
        tch::no_grad(|| p.shallow_clone().copy_(wanted));
    }
    let zero = |m: &Moments| Moments { exp_avg: m.exp_avg.zeros_like(), exp_avg_sq: m.exp_avg_sq.zeros_like() };
    let zeros: Vec<Moments> = captured.optimizer.moments().map(zero).collect();
    captured.optimizer.load_state(0.0, &zeros).unwrap();

    let mut losses = vec![];
    for round in 0..20 {
        let batch = Tensor::randn([96, 64], FLOAT_GPU);
        for trainer in [&mut eager, &mut captured] {
            trainer.input.copy_(&batch);
            trainer.optimizer.set_lr(0.01 / (1.0 + round as f64)).unwrap();
        }
        tch::manual_seed(round);
        let (eager_loss, eager_norm) = eager.step().unwrap();
        tch::manual_seed(round);
        graph.replay().unwrap();
        assert_close(&loss, &eager_loss, 1e-3);
        assert_close(&norm, &eager_norm, 1e-3);
        losses.push(loss.double_value(&[]));
    }
    for (ours, wanted) in captured.params.iter().zip(&eager.params) {
        assert_close(ours, wanted, 2e-3);
    }
    assert_eq!(captured.optimizer.steps().double_value(&[]), 20.0);
    assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn a_kernel_from_source() {
    need_gpu!();
    let source = r#"extern "C" __global__ void axpy(float* y, const float* x, float a, long long n, int offset) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i] + offset;
    }"#;
    let axpy = Kernel::compile(source, "axpy", GPU).unwrap();
    let (y, x) = (Tensor::ones([1000], FLOAT_GPU), Tensor::arange(1000, FLOAT_GPU));
    let args = [Arg::Tensor(&y), Arg::Tensor(&x), Arg::F32(0.5), Arg::I64(1000), Arg::I32(-3)];
    let launch = || axpy.launch([8, 1, 1], [128, 1, 1], 0, &args);
    launch().unwrap();
    assert_close(&y, &(&x * 0.5 - 2.0), 0.0);
    let (graph, ()) = Graph::capture(GPU, None, launch).unwrap();
    graph.replay().unwrap();
    assert_close(&y, &(&x - 5.0), 0.0);
    axpy.launch([8, 1, 1], [128, 1, 1], 64 * 1024, &args).unwrap();

    let broken = Kernel::compile("extern \"C\" __global__ void f() { int x = nonsense; }", "f", GPU).err().unwrap();
    assert!(broken.to_string().contains("identifier \"nonsense\" is undefined"), "{broken}");
    let absent = Kernel::compile(source, "saxpy", GPU).err().unwrap();
    assert!(absent.to_string().contains("saxpy: "), "{absent}");
    let host = Tensor::zeros([4], (Kind::Float, Device::Cpu));
    assert!(axpy.launch([1; 3], [1; 3], 0, &[Arg::Tensor(&host)]).is_err());
    assert!(axpy.launch([1; 3], [2048, 1, 1], 0, &args).is_err(), "no card has blocks of 2048");
}

/// Share of the recording that some of its time is.
fn share(activity: &Activity, ns: u64) -> f64 {
    ns as f64 / activity.wall_ns.max(1) as f64
}

fn record(work: impl FnOnce()) -> Activity {
    let recorder = activity::start().unwrap();
    work();
    let recording = recorder.stop().unwrap();
    assert_eq!(recording.dropped, 0);
    let activity = recording.of(GPU).unwrap();
    let top = activity.by_name.first().map(|kernel| (&kernel.name, kernel.count));
    println!(
        "busy {:.3}, kernels {} {:.3}, top {top:?}",
        share(&activity, activity.busy_ns),
        activity.kernels,
        share(&activity, activity.kernel_ns)
    );
    activity
}

#[test]
#[ignore = "needs a GPU"]
fn recorded_time_is_near_the_wall_when_queued_and_below_it_when_the_host_sleeps() {
    need_gpu!();
    let spinner = spinner();
    let a = Tensor::randn([2048, 2048], FLOAT_GPU);
    record(|| drop(a.matmul(&a))); // the first one sets CUPTI up
    let matmuls = record(|| (0..200).for_each(|_| drop(a.matmul(&a))));
    assert!(matmuls.kernels >= 200 && share(&matmuls, matmuls.busy_ns) > 0.8, "{:?}", matmuls.by_name);

    let queued = record(|| (0..100).for_each(|_| spin_ms(&spinner, 1)));
    assert_eq!(queued.kernels, 100);
    assert!(queued.by_name[0].name == "spin" && queued.by_name[0].count == 100);
    assert!((100_000_000..120_000_000).contains(&queued.kernel_ns) && share(&queued, queued.kernel_ns) > 0.9);

    let paused = record(|| {
        for _ in 0..20 {
            spin_ms(&spinner, 1);
            cuda::synchronize(GPU).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
    });
    assert_eq!(paused.kernels, 20);
    assert!((20_000_000..24_000_000).contains(&paused.kernel_ns) && share(&paused, paused.busy_ns) < 0.4);
}

#[test]
#[ignore = "needs a GPU"]
fn kernels_of_a_replayed_graph_are_recorded_one_by_one() {
    need_gpu!();
    let spinner = spinner();
    let seven = || ok([0; 7].map(|ms| spin_ms(&spinner, ms)));
    let capture = || Graph::capture(GPU, None, seven).unwrap().0;
    let replay = |graph: &Graph| (0..50).for_each(|_| graph.replay().unwrap());
    // LibTorch may add kernels of its own to a replay.
    let spins = |activity: Activity| activity.by_name.iter().find(|kernel| kernel.name == "spin").unwrap().count;
    // Captured and replayed before the first recording, between two, and after.
    let before = capture();
    replay(&before);
    assert_eq!(spins(record(|| replay(&before))), 7 * 50);
    let between = capture();
    replay(&between);
    let both = || [&before, &between].into_iter().for_each(replay);
    assert_eq!(spins(record(both)), 2 * 7 * 50);
    replay(&before);
    cuda::synchronize(GPU).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn copies_are_busy_time_and_one_recording_runs_at_a_time() {
    need_gpu!();
    let host = empty_pinned(&[64 * MIB / 4], Kind::Float).unwrap();
    let mut device = Tensor::zeros([64 * MIB / 4], FLOAT_GPU);
    let copies = record(|| (0..10).for_each(|_| copy_async(&mut device, &host).unwrap()));
    assert!(copies.busy_ns > 0 && copies.kernels == 0 && copies.kernel_ns == 0, "{:?}", copies.by_name);

    let first = activity::start().unwrap();
    let second = activity::start().err().unwrap().to_string();
    assert!(second.contains("under way"), "{second}");
    drop(first);
    assert_eq!(record(|| ()).busy_ns, 0, "nothing is left of a recording that was dropped");
}

#[test]
#[ignore = "needs a GPU"]
fn nccl_of_one_process_is_captured_with_what_is_around_it() {
    need_gpu!();
    let nccl = Nccl::join(&Nccl::unique_id().unwrap(), (0, 1), GPU).unwrap();
    let values = Tensor::ones([1000], FLOAT_GPU);
    nccl.sum(&values).unwrap(); // sets itself up on the first call
    let work = || {
        let _ = values.shallow_clone().g_mul_scalar_(2.0);
        nccl.sum(&values)
    };
    let (graph, ()) = Graph::capture(GPU, None, work).unwrap();
    (0..3).for_each(|_| graph.replay().unwrap());
    assert_eq!(values.double_value(&[999]), 8.0);
    nccl.broadcast(&values).unwrap();
    assert_eq!(values.double_value(&[0]), 8.0);
    let whole = nccl.sum(&Tensor::ones([3], (Kind::Int64, GPU))).unwrap_err();
    assert!(whole.to_string().contains("NCCL"), "{whole}");
    drop(graph); // before the communicator
}

#[test]
#[ignore = "needs a GPU"]
fn gradients_are_gathered_and_put_back_on_the_card() {
    need_gpu!();
    let params: Vec<Tensor> = twins()[0].iter().map(|p| p.detach().to_device(GPU).set_requires_grad(true)).collect();
    give_gradients(&params, 1);
    let (list, before): (Vec<&Tensor>, Vec<Tensor>) = params.iter().map(|p| (p, p.grad().copy())).unzip();
    for kind in [Kind::Float, Kind::BFloat16] {
        let flat = Tensor::zeros([gradients::len(&list)], (kind, GPU));
        gradients::gather(&list, &flat).unwrap();
        gradients::scatter(&list, &(&flat * 2.0), kind == Kind::Float).unwrap();
        let factor = if kind == Kind::Float { 2.0 } else { 4.0 };
        for (param, before) in params.iter().zip(&before) {
            let scale = before.abs().max().double_value(&[]);
            assert_close(&param.grad(), &(before * factor), factor * scale / 128.0);
        }
    }
}
