//! One optimizer step: forward, backward, clip, AdamW. Nothing in it waits for the device unless figures are read.
//!
//! On a GPU both halves can be captured as CUDA graphs: *accumulate* (forward and backward of one batch) and *update*
//! (clip and AdamW). Small voices starve on kernel launches; a replay is one launch.

use super::named_parameters;
use crate::config::Training;
use crate::feed::{Batch, Delivery, Feed};
use crate::model::{Losses, Voice};
use crate::rng::Rng;
use anyhow::{Context, Result};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchx::{AdamW, Graph, Pool};

/// Eager steps before capture: lazily made handles and gradients must exist by then.
const WARMUP_STEPS: u64 = 3;

pub struct Step {
    pub voice: Voice,
    pub store: VarStore,
    pub optimizer: AdamW,
    parameters: Vec<Tensor>,
    /// Where every batch is copied to; a captured graph reads these addresses.
    input: Option<Batch>,
    figures: Figures,
    accumulate: u64,
    clip_norm: f64,
    seed: u64,
    graphs: Graphs,
}

/// Sums on the device since they were last read.
struct Figures {
    /// `Losses::NAMES`, then the gradient norm.
    sums: Tensor,
    /// Steps whose gradients were not finite; AdamW leaves these out.
    skipped: Tensor,
    steps: u64,
}

enum Graphs {
    Off,
    WarmingUp(u64),
    Captured { accumulate: Graph, update: Graph },
}

/// Means since the last reading.
pub struct Reading {
    pub losses: [f64; 3],
    pub gradient_norm: f64,
    pub skipped_steps: u64,
}

impl Reading {
    pub fn loss(&self) -> f64 {
        self.losses.iter().sum()
    }
}

impl Step {
    pub fn new(voice: Voice, store: VarStore, config: &Training) -> Result<Self> {
        let device = store.device();
        let named = named_parameters(&store);
        let optimizer = AdamW::new(
            // Decay shrinks matrices; biases, norms and other vectors are left alone.
            named.iter().map(|(_, tensor)| (tensor.shallow_clone(), tensor.dim() > 1)),
            torchx::adamw::Options {
                lr: config.learning_rate,
                beta1: config.beta1,
                beta2: config.beta2,
                eps: 1e-8,
                weight_decay: config.weight_decay,
            },
        )?;
        let captures = config.enable_xla && device.is_cuda();
        Ok(Step {
            voice,
            store,
            optimizer,
            parameters: named.into_iter().map(|(_, tensor)| tensor).collect(),
            input: None,
            figures: Figures {
                sums: Tensor::zeros([Losses::NAMES.len() as i64 + 1], (Kind::Float, device)),
                skipped: Tensor::zeros([], (Kind::Float, device)),
                steps: 0,
            },
            accumulate: config.gradient_accumulation_steps,
            clip_norm: config.gradient_clip_norm,
            seed: config.seed,
            graphs: if captures { Graphs::WarmingUp(0) } else { Graphs::Off },
        })
    }

    /// Trains on the next `gradient_accumulation_steps` batches. `number` seeds what is random in it.
    pub fn run(&mut self, feed: &mut Feed, number: u64, learning_rate: f64) -> Result<Vec<Delivery>> {
        torchx::catch(|| self.run_or_panic(feed, number, learning_rate)).map_err(Into::into).flatten().map_err(explain)
    }

    /// `tch` panics where LibTorch throws.
    fn run_or_panic(&mut self, feed: &mut Feed, number: u64, learning_rate: f64) -> Result<Vec<Delivery>> {
        self.optimizer.set_lr(learning_rate)?;
        let mut deliveries = Vec::new();
        for part in 0..self.accumulate {
            deliveries.push(feed.next(&mut self.input)?);
            tch::manual_seed(Rng::new(&[self.seed, number, part]).next() as i64);
            self.advance_capture()?;
            match &self.graphs {
                Graphs::Captured { accumulate, .. } => accumulate.replay()?,
                _ => self.forward_backward(),
            }
        }
        match &self.graphs {
            Graphs::Captured { update, .. } => update.replay()?,
            _ => self.clip_and_update()?,
        }
        self.figures.steps += 1;
        Ok(deliveries)
    }

    /// Reading waits for the device: do it rarely.
    pub fn read(&mut self) -> Result<Reading> {
        let steps = self.figures.steps.max(1) as f64;
        let sums: Vec<f32> = Vec::try_from(self.figures.sums.to_device(Device::Cpu))?;
        let mean = |index: usize| f64::from(sums[index]) / steps;
        let skipped_steps = self.figures.skipped.double_value(&[]) as u64;
        let _ = (self.figures.sums.zero_(), self.figures.skipped.zero_());
        self.figures.steps = 0;
        Ok(Reading { losses: [mean(0), mean(1), mean(2)], gradient_norm: mean(3), skipped_steps })
    }

    fn forward_backward(&self) {
        let share = 1.0 / self.accumulate as f64;
        let losses = self.voice.backward(self.input.as_ref().expect("a batch was delivered"), share);
        let parts = Tensor::stack(&losses.parts(), 0) * share;
        let _ = self.figures.sums.narrow(0, 0, parts.size()[0]).g_add_(&parts);
    }

    fn clip_and_update(&mut self) -> Result<(), torchx::Error> {
        let norm = torchx::clip_grad_norm(&self.parameters, self.clip_norm)?;
        let bad = norm.isfinite().logical_not().to_kind(Kind::Float);
        self.optimizer.step(Some(&bad))?;
        self.optimizer.zero_grad()?;
        let finite = norm.nan_to_num(0.0, 0.0, 0.0);
        let _ = self.figures.sums.narrow(0, Losses::NAMES.len() as i64, 1).g_add_(&finite);
        let _ = self.figures.skipped.g_add_(&bad);
        Ok(())
    }

    fn advance_capture(&mut self) -> Result<()> {
        let Graphs::WarmingUp(seen) = self.graphs else { return Ok(()) };
        if seen < WARMUP_STEPS * self.accumulate {
            self.graphs = Graphs::WarmingUp(seen + 1);
            return Ok(());
        }
        let device = self.store.device();
        let hint = "the step could not be captured\nhint: `enable_graphs: false` runs it kernel by kernel";
        // One pool: the graphs are always replayed in the order in which they are captured here.
        let pool = Pool::new(device)?;
        let (accumulate, ()) = Graph::capture(device, Some(&pool), || {
            self.forward_backward();
            Ok::<_, torchx::Error>(())
        })
        .context(hint)?;
        let (update, ()) = Graph::capture(device, Some(&pool), || self.clip_and_update()).context(hint)?;
        self.graphs = Graphs::Captured { accumulate, update };
        Ok(())
    }
}

/// The way out of the one failure that everybody meets.
fn explain(error: anyhow::Error) -> anyhow::Error {
    if !error.chain().any(|cause| cause.to_string().contains("out of memory")) {
        return error;
    }
    error.context(
        "the step does not fit into the GPU's memory; the last checkpoint is intact\nhint: a smaller --batch-size \
         (with --grad-accum for the same step), `enable_gradient_checkpointing: true`, or a higher cap",
    )
}
