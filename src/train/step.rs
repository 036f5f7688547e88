//! One optimizer step: forward, backward, clip, AdamW, moving average. Nothing in it waits for the device.
//!
//! On a GPU the whole step is captured as one CUDA graph: small voices starve on kernel launches, and a replay is one
//! launch. With gradient accumulation there are two: *accumulate* (forward and backward of one batch) and *update*.

use crate::feed::{Batch, Delivery, Event, Feed, Interval};
use crate::optimizer::{LossScale, ParameterGroup};
use crate::ranks::{Exchange, Ranks};
use crate::run::Done;
use anyhow::{Context, Result};
use host::config::Training;
use host::error::WithHint;
use host::machine::ThreadClock;
use host::rng::Rng;
use host::simulate::{Hook, Moment};
use std::sync::Arc;
use tch::{Device, Kind, Tensor};
use torchx::fused::Tally;
use torchx::gradients::Aside;
use torchx::{Copies, Graph, Narrowed, Pool};

/// Eager steps before capture: lazily made handles and gradients must exist by then.
const WARMUP_STEPS: u64 = 3;

/// What a run trains: a voice, or a vocoder with its discriminators.
pub trait Learner {
    /// Names of what `backward` returns, in that order.
    fn loss_names(&self) -> &'static [&'static str];

    /// Number of losses, from the first on, that make up the loss that is compared between runs.
    fn summed(&self) -> usize {
        self.loss_names().len()
    }

    /// Name of the loss that tells, on held-out speech, whether the run still gets better.
    fn compared(&self) -> &'static str;

    /// Whether `backward` computes one gradient for each weight, and reads none of them.
    fn has_one_gradient_each(&self) -> bool {
        false
    }

    /// Adds `weight` (0-d, on the device) times the gradients of the batch's losses to the parameters'. Returns the
    /// losses without a graph: 1-d, f32. May be captured: it must not wait for the device.
    fn backward(&self, batch: &Batch, weight: &Tensor) -> Tensor;
}

pub struct Step<L> {
    pub learner: L,
    pub groups: Vec<ParameterGroup>,
    /// Where every batch is copied to; a captured graph reads these addresses.
    input: Option<Batch>,
    figures: Figures,
    pub scale: LossScale,
    /// Kind of the activations.
    kind: Kind,
    accumulate: u64,
    seed: u64,
    graphs: Graphs,
    device: Device,
    /// Adds up the gradients of several ranks. Behind the graphs: they hold its collectives and go first.
    pub exchange: Option<Exchange>,
    /// Called between the step's two events, so that what it does counts as the step's time.
    pub hook: Hook,
    /// Of the thread that trains, where that is the device.
    clock: Option<ThreadClock>,
}

enum Graphs {
    Off,
    WarmingUp(u64),
    Whole(Graph),
    Halves { accumulate: Graph, update: Graph },
}

impl<L: Learner> Step<L> {
    pub fn new(learner: L, groups: Vec<ParameterGroup>, config: &Training, kind: Kind, device: Device) -> Result<Self> {
        let captures = config.enable_xla && device.is_cuda();
        let figures = Figures::new(learner.loss_names().len(), groups.len(), device)?;
        Ok(Step {
            learner,
            groups,
            input: None,
            figures,
            scale: LossScale::new(kind, device),
            kind,
            accumulate: config.gradient_accumulation_steps,
            seed: config.seed,
            graphs: if captures { Graphs::WarmingUp(0) } else { Graphs::Off },
            device,
            exchange: None,
            hook: Hook::default(),
            clock: None,
        })
    }

    /// From here on this is one rank of several: all start with what rank 0 has, and every step adds up their gradients.
    pub fn join(&mut self, ranks: Option<&Arc<Ranks>>, config: &Training) -> Result<()> {
        let Some(ranks) = ranks else { return Ok(()) };
        let exchange = Exchange::new(ranks.clone(), config, self.device)?;
        for tensor in self.state() {
            exchange.broadcast(tensor)?;
        }
        self.exchange = Some(exchange);
        Ok(())
    }

    /// Everything that a step changes and the next one reads.
    fn state(&self) -> impl Iterator<Item = &Tensor> {
        let scale = self.scale.saved().into_iter().map(|(_, tensor)| tensor);
        self.groups.iter().flat_map(ParameterGroup::state).chain(scale)
    }

    /// An error where the ranks no longer hold the same numbers.
    pub fn ensure_equal(&self, number: u64) -> Result<()> {
        let Some(exchange) = &self.exchange else { return Ok(()) };
        let hash = crate::catch(|| state_hash(self.state()))?;
        exchange.ranks().same(&format!("hash/{number}"), &hash, |first| {
            format!("holds other numbers than rank 0 after step {number} ({hash:x} and {first:x})")
        })
    }

    /// Whether the run is to stop here: this process alone, or all ranks after the same step once one was asked to.
    pub fn is_stopping(&mut self, asked: bool) -> Result<bool, torchx::Error> {
        let Some(exchange) = &mut self.exchange else { return Ok(asked) };
        if asked {
            exchange.ask_to_stop()?;
        }
        exchange.is_stopping()
    }

    /// Number of batches in a step, of all ranks.
    fn batches(&self) -> u64 {
        self.accumulate * self.size()
    }

    fn size(&self) -> u64 {
        self.exchange.as_ref().map_or(1, |exchange| exchange.ranks().me.size as u64)
    }

    /// Whether gradients stay in their memory from step to step: several batches add up in it, or the host reaches for it
    /// between two captured halves.
    fn keeps_gradients(&self) -> bool {
        let apart = self.exchange.as_ref().is_some_and(|exchange| !exchange.is_captured());
        self.accumulate > 1 || (apart && !matches!(self.graphs, Graphs::Off))
    }

    /// Whether narrow copies of the weights stay from step to step and keep gradients of their own, which the update reads
    /// as they are. Several batches or ranks add theirs up in f32 instead, and f16 takes its loss scale off in f32.
    fn keeps_copies(&self) -> bool {
        self.kind == Kind::BFloat16 && self.exchange.is_none() && !self.keeps_gradients()
    }

    fn exchange_gradients(&mut self) -> Result<(), torchx::Error> {
        let keeps = self.keeps_gradients();
        let Some(exchange) = &mut self.exchange else { return Ok(()) };
        let parameters: Vec<&Tensor> = self.groups.iter().flat_map(ParameterGroup::parameters).collect();
        exchange.sum_gradients(&parameters, keeps, &self.figures.exchange_ms())
    }

    /// Trains on the next `gradient_accumulation_steps` batches. `number` seeds what is random in it.
    pub fn run(&mut self, feed: &mut Feed, number: u64, learning_rate: f64) -> Result<Done> {
        self.step_on(number, learning_rate, |input| feed.next(input).map(Some))
    }

    /// A step on the batch that the last one left: what the device could do if data were free.
    pub fn repeat(&mut self, number: u64, learning_rate: f64) -> Result<Done> {
        self.step_on(number, learning_rate, |_| Ok(None))
    }

    fn step_on(
        &mut self,
        number: u64,
        learning_rate: f64,
        next: impl FnMut(&mut Option<Batch>) -> Result<Option<Delivery>>,
    ) -> Result<Done> {
        // `tch` panics where LibTorch throws.
        crate::catch(|| self.step_or_panic(number, learning_rate, next)).map_err(Into::into).flatten()
    }

    fn step_or_panic(
        &mut self,
        number: u64,
        learning_rate: f64,
        mut next: impl FnMut(&mut Option<Batch>) -> Result<Option<Delivery>>,
    ) -> Result<Done> {
        for group in &mut self.groups {
            group.begin(number)?;
            group.set_rate(learning_rate)?;
        }
        if self.keeps_copies() {
            let kind = self.kind;
            self.groups.iter_mut().try_for_each(|group| group.refresh_copies(kind))?;
        }
        if !self.device.is_cuda() {
            self.clock.get_or_insert_with(ThreadClock::open);
        }
        let before = self.clock.as_ref().and_then(ThreadClock::read);
        let (mut deliveries, mut part_ends, mut start) = (Vec::new(), Vec::new(), None);
        self.hook.at(Moment::BeforeStep);
        for part in 0..self.accumulate {
            deliveries.extend(next(&mut self.input)?);
            if start.is_none() {
                start = Some(Event::now(self.device)?);
                self.hook.at(Moment::StepBegins);
            }
            // Drawn by the batch's place in the step, whichever rank takes it.
            let rank = self.exchange.as_ref().map_or(0, |exchange| exchange.ranks().me.rank as u64);
            let place = part * self.size() + rank;
            tch::manual_seed(Rng::new(&[self.seed, number, place]).next_u64() as i64);
            self.advance_capture()?;
            match &self.graphs {
                Graphs::Whole(step) => step.replay()?,
                Graphs::Halves { accumulate, .. } => accumulate.replay()?,
                _ => self.forward_backward()?,
            }
            if part + 1 < self.accumulate {
                part_ends.push(Event::now(self.device)?);
            }
        }
        if self.exchange.as_ref().is_some_and(|exchange| !exchange.is_captured()) {
            self.exchange_gradients()?;
        }
        match &self.graphs {
            Graphs::Whole(_) => {}
            Graphs::Halves { update, .. } => update.replay()?,
            _ => self.update()?,
        }
        self.figures.steps += 1;
        self.hook.at(Moment::StepEnds { seed: self.seed, number });
        let span = Interval { start: start.expect("at least one batch a step"), end: Event::now(self.device)? };
        let ran = self.clock.as_ref().and_then(|clock| clock.since(before));
        Ok(Done { deliveries, part_ends, span, ran })
    }

    /// Names of the parameters whose gradients by the batch at hand are not finite: for a run that has come to its end.
    pub fn spoiled_parameters(&mut self) -> Result<Vec<String>, torchx::Error> {
        self.forward_backward()?;
        Ok(self.groups.iter().flat_map(ParameterGroup::spoiled).collect())
    }

    /// Whether steps are replayed by now.
    pub fn is_settled(&self) -> bool {
        !matches!(self.graphs, Graphs::WarmingUp(_))
    }

    /// Queues a reading of the losses since the last one, taken after step `at`. It is handed out by `poll`.
    pub fn request_reading(&mut self, at: u64) -> Result<(), torchx::Error> {
        if let Some(exchange) = &self.exchange {
            exchange.sum(&self.figures.losses())?;
        }
        self.figures.request(at, self.device)
    }

    /// The oldest reading that has arrived. `wait`: blocks until it has.
    pub fn poll(&mut self, wait: bool) -> Result<Option<LossReading>, torchx::Error> {
        self.figures.poll(wait)
    }

    fn forward_backward(&self) -> Result<(), torchx::Error> {
        let batch = self.input.as_ref().expect("a batch was delivered");
        let _copies = match self.keeps_copies() {
            true => Copies::lend(self.groups.iter().filter_map(ParameterGroup::copies)),
            false => Narrowed::new(self.groups.iter().flat_map(ParameterGroup::parameters), self.kind)?,
        };
        let aside = (self.keeps_copies() && self.learner.has_one_gradient_each()).then(Aside::begin);
        let losses = match self.batches() {
            1 => self.learner.backward(batch, self.scale.value()),
            batches => {
                let share = 1.0 / batches as f64;
                self.learner.backward(batch, &(self.scale.value() * share)) * share
            }
        };
        aside.map_or(Ok(()), Aside::join)?;
        let _ = self.figures.sums.narrow(0, 0, losses.size()[0]).g_add_(&losses);
        Ok(())
    }

    fn update(&mut self) -> Result<(), torchx::Error> {
        if self.exchange.as_ref().is_some_and(Exchange::is_captured) {
            self.exchange_gradients()?;
        }
        let keeps = self.keeps_gradients();
        let Figures { sums, losses, spoiled, skipped, .. } = &self.figures;
        for (index, group) in self.groups.iter_mut().enumerate() {
            let norm = sums.narrow(0, losses + index as i64, 1);
            group.update(&self.scale, Tally { norm: &norm, spoiled, skipped, is_first: index == 0 })?;
            match keeps {
                false => group.drop_gradients()?,
                true => group.optimizer.zero_grad()?,
            }
        }
        self.scale.adapt(&spoiled.view([] as [i64; 0]));
        Ok(())
    }

    fn advance_capture(&mut self) -> Result<()> {
        let Graphs::WarmingUp(seen) = self.graphs else { return Ok(()) };
        if seen < WARMUP_STEPS * self.accumulate {
            self.graphs = Graphs::WarmingUp(seen + 1);
            return Ok(());
        }
        let device = self.device;
        let hint = "`enable_graphs: false` runs it kernel by kernel";
        let fact = "the step could not be captured";
        // One pool: the graphs are always replayed in the order in which they are captured here.
        let pool = Pool::new(device)?;
        if !self.keeps_gradients() {
            let whole = || {
                self.forward_backward()?;
                self.update()
            };
            let (step, ()) = Graph::capture(device, Some(&pool), whole).hint(hint).context(fact)?;
            self.graphs = Graphs::Whole(step);
            return Ok(());
        }
        let (accumulate, ()) =
            Graph::capture(device, Some(&pool), || self.forward_backward()).hint(hint).context(fact)?;
        let (update, ()) = Graph::capture(device, Some(&pool), || self.update()).hint(hint).context(fact)?;
        self.graphs = Graphs::Halves { accumulate, update };
        Ok(())
    }
}

/// A number of all these tensors' bits, the order of which counts; on the device but for the last of it.
fn state_hash<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> i64 {
    let of = |tensor: &Tensor| {
        let bits = tensor.contiguous().view(-1).view_dtype(Kind::Int).to_kind(Kind::Int64);
        let places = Tensor::arange(bits.size()[0], (Kind::Int64, tensor.device())) * 2 + 1;
        (bits * places).sum(Kind::Int64)
    };
    let sums: Vec<Tensor> = tch::no_grad(|| tensors.map(of).collect());
    let all: Vec<i64> = Vec::try_from(Tensor::stack(&sums, 0)).expect("whole numbers");
    all.iter().fold(0, |hash: i64, sum| hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(*sum))
}

/// Sums on the device since they were last asked for.
struct Figures {
    /// The losses, then the gradient norm of each group, then the time of the exchange between ranks in ms.
    sums: Tensor,
    losses: i64,
    /// Steps whose gradients were not finite; AdamW leaves these out.
    skipped: Tensor,
    /// 1 where those of the last step were not.
    spoiled: Tensor,
    steps: u64,
    pending: std::collections::VecDeque<Pending>,
}

/// A reading on its way to the host.
struct Pending {
    /// Pinned where the device is a GPU.
    host: Tensor,
    arrived: Event,
    steps: u64,
    at: u64,
}

/// Means over some steps.
#[derive(Clone, Debug, PartialEq)]
pub struct LossReading {
    /// The step after which it was taken.
    pub at: u64,
    /// By `Learner::loss_names`, then a gradient norm for each group.
    pub means: Vec<f64>,
    /// Time of this rank in the exchange of gradients, its wait for the others included.
    pub exchange_ms: f64,
    pub skipped_steps: u64,
}

impl Figures {
    fn new(losses: usize, groups: usize, device: Device) -> Result<Self> {
        Ok(Figures {
            sums: Tensor::f_zeros([(losses + groups + 1) as i64], (Kind::Float, device))?,
            losses: losses as i64,
            skipped: Tensor::f_zeros([1], (Kind::Float, device))?,
            spoiled: Tensor::f_zeros([1], (Kind::Float, device))?,
            steps: 0,
            pending: Default::default(),
        })
    }

    fn losses(&self) -> Tensor {
        self.sums.narrow(0, 0, self.losses)
    }

    fn exchange_ms(&self) -> Tensor {
        self.sums.narrow(0, self.sums.size()[0] - 1, 1)
    }

    fn request(&mut self, at: u64, device: Device) -> Result<(), torchx::Error> {
        let all = Tensor::f_cat(&[&self.sums, &self.skipped], 0)?;
        let mut host = match device.is_cuda() {
            true => torchx::stream::empty_pinned(&all.size(), Kind::Float)?,
            false => all.f_empty_like()?,
        };
        torchx::stream::copy_async(&mut host, &all)?;
        let _ = (self.sums.f_zero_()?, self.skipped.f_zero_()?);
        let steps = std::mem::take(&mut self.steps);
        self.pending.push_back(Pending { host, arrived: Event::now(device)?, steps, at });
        Ok(())
    }

    fn poll(&mut self, wait: bool) -> Result<Option<LossReading>, torchx::Error> {
        let Some(oldest) = self.pending.front() else { return Ok(None) };
        if wait {
            oldest.arrived.wait()?;
        } else if !oldest.arrived.passed()? {
            return Ok(None);
        }
        let Pending { host, steps, at, .. } = self.pending.pop_front().expect("it has a front");
        let values: Vec<f32> = Vec::try_from(host)?;
        let (skipped, sums) = values.split_last().expect("one more than losses");
        let mut means: Vec<f64> = sums.iter().map(|sum| f64::from(*sum) / steps.max(1) as f64).collect();
        let exchange_ms = means.pop().expect("behind the norms");
        Ok(Some(LossReading { at, means, exchange_ms, skipped_steps: *skipped as u64 }))
    }
}
