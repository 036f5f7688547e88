//! Gradients of all ranks, added up: by NCCL in the stream of the step, so that it is captured with it, or by Gloo over
//! host memory. One flat message a step, with a word at its end that asks all to stop.

use super::Ranks;
use crate::feed::Event;
use anyhow::{Context, Result};
use host::config::{AllReducePrecision, Collectives, Training};
use host::error::hinted;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tch::{Device, Kind, Tensor};
use torchx::collectives::{Nccl, NcclId};
use torchx::{Arg, Kernel, gradients};

/// Steps after which a GPU's word about stopping is read: by then it has arrived, and nobody waits for it. The same on
/// all ranks, so that all stop after the same step.
const LAG: usize = 4;

/// The clock of a GPU, taken twice.
const CLOCK: &str = r#"
__device__ long long now() {
    long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}
extern "C" __global__ void start(long long* at) { *at = now(); }
extern "C" __global__ void stop(const long long* at, float* sum_ms) { *sum_ms += (now() - *at) * 1e-6f; }
"#;

pub struct Exchange {
    ranks: Arc<Ranks>,
    way: Way,
    device: Device,
    kind: Kind,
    /// All gradients and the word, on the device; made by the first step, whose gradients say how many there are.
    flat: Option<Tensor>,
    /// 1 once this rank wants to stop.
    word: Tensor,
    /// Sums of the words of the last steps, on their way to the host.
    recent: VecDeque<(Tensor, Event)>,
}

enum Way {
    /// In the stream.
    Nccl { nccl: Nccl, clock: Clock },
    /// Through host memory, pinned where the device is a GPU.
    Host { copy: Option<Tensor> },
}

struct Clock {
    at: Tensor,
    start: Kernel,
    stop: Kernel,
}

impl Exchange {
    pub fn new(ranks: Arc<Ranks>, training: &Training, device: Device) -> Result<Self> {
        let number = ranks.exchanges.fetch_add(1, Ordering::Relaxed);
        let way = match uses_nccl(&ranks, number, training, device)? {
            true => {
                let drawn = if ranks.is_first() { Nccl::unique_id()?.to_vec() } else { Vec::new() };
                let id: NcclId =
                    ranks.of_first(&format!("nccl/{number}"), &drawn)?.try_into().ok().context("an id of NCCL")?;
                let nccl = Nccl::join(&id, (ranks.me.rank, ranks.me.size), device).context("NCCL cannot be used")?;
                let [start, stop] = ["start", "stop"].map(|name| Kernel::compile(CLOCK, name, device));
                Way::Nccl {
                    nccl,
                    clock: Clock { at: Tensor::f_zeros([1], (Kind::Int64, device))?, start: start?, stop: stop? },
                }
            }
            false => Way::Host { copy: None },
        };
        let kind = match training.all_reduce_precision {
            AllReducePrecision::F32 => Kind::Float,
            AllReducePrecision::Bf16 => Kind::BFloat16,
        };
        let word = Tensor::f_zeros([1], (kind, device))?;
        Ok(Exchange { ranks, way, device, kind, flat: None, word, recent: VecDeque::new() })
    }

    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Whether it happens in the stream of the step, and can be captured with it.
    pub fn is_captured(&self) -> bool {
        matches!(self.way, Way::Nccl { .. })
    }

    pub fn describe(&self) -> String {
        let kind = if self.kind == Kind::Float { "f32" } else { "bf16" };
        let way = match (&self.way, self.device.is_cuda()) {
            (Way::Nccl { .. }, _) => "NCCL, inside the step",
            (_, true) => "Gloo, through host memory",
            (_, false) => "Gloo",
        };
        format!("{way}, {kind}")
    }

    /// The gradients of these parameters become the sums of all ranks'. `keeps`: in the memory where they are, which a
    /// captured pass adds to again. `spent_ms`: where the time that it takes is added, `[1]` on the device.
    pub fn sum_gradients(
        &mut self,
        parameters: &[&Tensor],
        keeps: bool,
        spent_ms: &Tensor,
    ) -> Result<(), torchx::Error> {
        let len = gradients::len(parameters);
        let flat = match &self.flat {
            Some(flat) if flat.size()[0] == len + 1 => flat.shallow_clone(),
            Some(flat) => {
                let before = flat.size()[0] - 1;
                return Err(torchx::Error::Argument(format!("{len} values in the gradients, {before} before")));
            }
            None => Tensor::f_zeros([len + 1], (self.kind, self.device))?,
        };
        gradients::gather(parameters, &flat)?;
        flat.narrow(0, len, 1).f_copy_(&self.word)?;
        match &mut self.way {
            Way::Nccl { nccl, clock } => {
                clock.start.launch([1; 3], [1; 3], 0, &[Arg::Tensor(&clock.at)])?;
                nccl.sum(&flat)?;
                clock.stop.launch([1; 3], [1; 3], 0, &[Arg::Tensor(&clock.at), Arg::Tensor(spent_ms)])?;
            }
            Way::Host { copy } => {
                let host = host_copy(copy, &flat)?;
                let start = Instant::now();
                self.ranks.gloo().sum(&host)?;
                let spent = start.elapsed();
                let _ = spent_ms.shallow_clone().f_add_scalar_(spent.as_secs_f64() * 1e3)?;
                if self.device.is_cuda() {
                    flat.shallow_clone().f_copy_(&host)?;
                }
            }
        }
        gradients::scatter(parameters, &flat, !keeps && self.kind == Kind::Float)?;
        self.flat = Some(flat);
        Ok(())
    }

    /// A small tensor becomes the sum of all ranks', in place.
    pub fn sum(&self, tensor: &Tensor) -> Result<(), torchx::Error> {
        match &self.way {
            Way::Nccl { nccl, .. } => nccl.sum(tensor),
            Way::Host { .. } => {
                let host = tensor.f_to_device(Device::Cpu)?;
                self.ranks.gloo().sum(&host)?;
                tensor.shallow_clone().f_copy_(&host)
            }
            .map_err(Into::into),
        }
    }

    /// Becomes what rank 0 has, in place.
    pub fn broadcast(&self, tensor: &Tensor) -> Result<(), torchx::Error> {
        tch::no_grad(|| match &self.way {
            Way::Nccl { nccl, .. } => nccl.broadcast(tensor),
            Way::Host { .. } => {
                let host = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
                self.ranks.gloo().broadcast(&host)?;
                Ok(tensor.shallow_clone().f_copy_(&host)?)
            }
        })
    }

    /// Asks all ranks to stop, with the next step.
    pub fn ask_to_stop(&mut self) -> Result<(), torchx::Error> {
        let _ = self.word.f_fill_(1.0)?;
        Ok(())
    }

    /// After a step: whether one of the ranks has asked to stop. All of them hear it after the same step.
    pub fn is_stopping(&mut self) -> Result<bool, torchx::Error> {
        let flat = self.flat.as_ref().expect("a step was made");
        let word = flat.narrow(0, flat.size()[0] - 1, 1);
        let lag = if self.is_captured() { LAG } else { 0 };
        let mut host = match self.device.is_cuda() {
            true => torchx::stream::empty_pinned(&[1], self.kind)?,
            false => Tensor::f_zeros([1], (self.kind, Device::Cpu))?,
        };
        torchx::stream::copy_async(&mut host, &word)?;
        self.recent.push_back((host, Event::now(self.device)?));
        if self.recent.len() <= lag {
            return Ok(false);
        }
        let (word, arrived) = self.recent.pop_front().expect("one was pushed");
        arrived.wait()?;
        Ok(word.double_value(&[0]) > 0.0)
    }

    /// Bytes that cross in a step, of one rank.
    pub fn bytes(&self) -> u64 {
        self.flat.as_ref().map_or(0, |flat| flat.numel() as u64 * self.kind.elt_size_in_bytes() as u64)
    }
}

/// The gradients in host memory, there when it returns.
fn host_copy(copy: &mut Option<Tensor>, flat: &Tensor) -> Result<Tensor, torchx::Error> {
    if !flat.device().is_cuda() {
        return Ok(flat.shallow_clone());
    }
    let mut host = match copy {
        Some(host) => host.shallow_clone(),
        None => torchx::stream::empty_pinned(&flat.size(), flat.kind())?,
    };
    torchx::stream::copy_async(&mut host, flat)?;
    Event::now(flat.device())?.wait()?;
    *copy = Some(host.shallow_clone());
    Ok(host)
}

/// NCCL wants a GPU for each rank. Rank 0 decides for all, by where each one is.
fn uses_nccl(ranks: &Ranks, number: u64, training: &Training, device: Device) -> Result<bool> {
    let gpu = match device.is_cuda() {
        true => Some((host::machine::name(), torchx::cuda::facts(device)?.pci_bus_id)),
        false => None,
    };
    let key = format!("gpu/{number}");
    ranks.show(&key, &gpu)?;
    let mut wanted = false;
    if ranks.is_first() {
        let all = (0..ranks.me.size)
            .map(|rank| ranks.wait_for(&key, rank))
            .collect::<Result<Vec<Option<(String, String)>>>>()?;
        let mut known: Vec<&(String, String)> = all.iter().flatten().collect();
        known.sort();
        known.dedup();
        wanted = known.len() == all.len();
    }
    let apart = ranks.of_first(&format!("apart/{number}"), &wanted)?;
    match training.collectives {
        Collectives::Gloo => Ok(false),
        Collectives::Auto => Ok(apart),
        Collectives::Nccl if apart => Ok(true),
        Collectives::Nccl => Err(hinted(
            "`collectives: nccl` needs a GPU for each rank, and two ranks share one or have none",
            "`collectives: auto` adds up over host memory there",
        )),
    }
}
