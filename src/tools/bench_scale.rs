//! How training would scale: a step and its gradients measured here, and from them what more GPUs would give.
//!
//! The model is α–β: a message of `b` bytes over a link takes `α + b ÷ β`. Inside a machine gradients go round a ring over
//! NVLink; between machines a ring over the network follows, of which every machine has one link. A ring of `n` moves
//! `2 (n − 1) ÷ n` times the bytes; its latency is taken as that of a tree, `2 α ⌈log₂ n⌉`, which NCCL changes to for short
//! messages. Nothing overlaps with the backward pass, as in this program.

use super::measure::Pipeline;
use crate::ranks::Ranks;
use crate::run::RunContext;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// GPUs of one machine.
const PER_MACHINE: usize = 8;
/// What NCCL gets of an H100's or H200's NVLink in one direction, bytes a millisecond, and a step's latency.
const NVLINK: Link = Link { alpha_ms: 0.01, bytes_per_ms: 360e9 / 1e3 };
/// Networks between machines, Gbit/s. 90 % of it arrives.
pub const NETWORKS_GBIT: [f64; 3] = [25.0, 100.0, 400.0];
const NETWORK_SHARE: f64 = 0.9;
const NETWORK_ALPHA_MS: f64 = 0.02;
pub const SIZES: [usize; 4] = [2, 8, 64, 1024];

#[derive(Clone, Copy)]
struct Link {
    alpha_ms: f64,
    bytes_per_ms: f64,
}

impl Link {
    fn network(gbit: f64) -> Link {
        Link { alpha_ms: NETWORK_ALPHA_MS, bytes_per_ms: gbit * NETWORK_SHARE * 1e9 / 8.0 / 1e3 }
    }

    /// Milliseconds to add up `bytes` of `n`.
    fn all_reduce_ms(self, bytes: f64, n: usize) -> f64 {
        if n < 2 {
            return 0.0;
        }
        let n = n as f64;
        2.0 * self.alpha_ms * n.log2().ceil() + 2.0 * (n - 1.0) / n * bytes / self.bytes_per_ms
    }
}

/// What was measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleFigures {
    pub parameters: usize,
    pub device: String,
    pub ranks: usize,
    pub machines: usize,
    pub exchange: String,
    /// A step without the exchange of gradients, of rank 0 alone.
    pub alone_ms: f64,
    /// A step of all ranks.
    pub step_ms: f64,
    /// Of it in the exchange, the wait for the slowest rank included.
    pub exchange_ms: f64,
    /// Of one rank's gradients.
    pub gradient_bytes: u64,
    /// Speech that one rank learns from in a second, alone and as one of all; all have batches of the same size.
    pub alone_audio_seconds_per_second: f64,
    pub audio_seconds_per_second: f64,
}

/// What more GPUs would give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub gpus: usize,
    /// Gbit/s between machines; none inside one.
    pub network_gbit: Option<f64>,
    pub all_reduce_ms: f64,
    pub step_ms: f64,
    /// Times the speed of one GPU.
    pub speed_up: f64,
    pub audio_seconds_per_second: f64,
}

/// Runs steps alone, then with the ranks that there are; or with a group of one, which shows what the exchange itself costs.
/// `None` for all but rank 0.
pub fn measure(context: &RunContext, ranks: &Arc<Ranks>, steps: u64) -> Result<Option<ScaleFigures>> {
    let is_alone = ranks.me.size == 1;
    let alone = RunContext { ranks: None, ..*context };
    let before = if ranks.is_first() { Some(observe(&alone, steps)?) } else { None };
    // The others must not compute meanwhile: on one machine they share cores, and links.
    ranks.meet("alone is measured")?;
    let together = observe(&RunContext { ranks: Some(ranks), ..*context }, steps)?;
    let Some(before) = before else { return Ok(None) };
    // Whichever comes first pays for cold caches and clocks.
    let alone = if is_alone { observe(&alone, steps)?.faster(before) } else { before };
    Ok(Some(ScaleFigures {
        parameters: together.parameters,
        device: crate::feed::name(context.roles.model),
        ranks: ranks.me.size,
        machines: ranks.machines(),
        exchange: together.exchange.unwrap_or_default(),
        alone_ms: alone.step_ms,
        step_ms: together.step_ms,
        exchange_ms: together.exchange_ms,
        gradient_bytes: together.gradient_bytes,
        alone_audio_seconds_per_second: alone.audio_seconds_per_second,
        audio_seconds_per_second: together.audio_seconds_per_second * ranks.me.size as f64,
    }))
}

struct Observed {
    parameters: usize,
    step_ms: f64,
    exchange_ms: f64,
    gradient_bytes: u64,
    exchange: Option<String>,
    audio_seconds_per_second: f64,
}

impl Observed {
    fn faster(self, other: Observed) -> Observed {
        if self.step_ms < other.step_ms { self } else { other }
    }
}

fn observe(context: &RunContext, steps: u64) -> Result<Observed> {
    let (mut pipeline, _) = Pipeline::start(context)?;
    pipeline.warm_up()?;
    let seen = pipeline.observe(steps)?.summary;
    let (exchange_ms, gradient_bytes, exchange) = pipeline.exchange();
    Ok(Observed {
        parameters: pipeline.parameters(),
        step_ms: seen.step_ms.mean,
        exchange_ms,
        gradient_bytes,
        exchange,
        audio_seconds_per_second: seen.audio_seconds_per_second,
    })
}

impl ScaleFigures {
    /// What the exchange costs besides what travels: gathering gradients and putting them back.
    fn packing_ms(&self) -> f64 {
        match self.ranks {
            1 => (self.step_ms - self.alone_ms).max(0.0),
            _ => 0.0,
        }
    }

    /// Speed on `gpus`, machines of eight being joined by a network where one does not hold them all.
    pub fn predict(&self, gpus: usize, network_gbit: Option<f64>) -> Prediction {
        let bytes = self.gradient_bytes as f64;
        let (inside, machines) = match network_gbit {
            None => (gpus, 1),
            Some(_) => (gpus.min(PER_MACHINE), gpus.div_ceil(PER_MACHINE)),
        };
        let between = network_gbit.map_or(0.0, |gbit| Link::network(gbit).all_reduce_ms(bytes, machines));
        let all_reduce_ms = NVLINK.all_reduce_ms(bytes, inside) + between;
        let step_ms = self.alone_ms + self.packing_ms() + all_reduce_ms;
        let speed_up = gpus as f64 * self.alone_ms / step_ms;
        let audio_seconds_per_second = self.alone_audio_seconds_per_second * speed_up;
        Prediction { gpus, network_gbit, all_reduce_ms, step_ms, speed_up, audio_seconds_per_second }
    }

    /// Every size with every network that it needs.
    pub fn predictions(&self) -> Vec<Prediction> {
        let of = |gpus: usize| -> Vec<Option<f64>> {
            match gpus <= PER_MACHINE {
                true => vec![None],
                false => NETWORKS_GBIT.map(Some).to_vec(),
            }
        };
        SIZES.iter().flat_map(|gpus| of(*gpus).into_iter().map(|network| self.predict(*gpus, network))).collect()
    }

    /// Times the speed of one rank alone, measured.
    pub fn speed_up(&self) -> f64 {
        self.audio_seconds_per_second / self.alone_audio_seconds_per_second
    }

    /// Reads what `bench scale --json` printed.
    pub fn parse(json: &str) -> Result<ScaleFigures> {
        let report: serde_json::Value = serde_json::from_str(json)?;
        Ok(serde_json::from_value(report.get("measured").context("no figures")?.clone())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> ScaleFigures {
        ScaleFigures {
            parameters: 20_000_000,
            device: "GPU 0".into(),
            ranks: 1,
            machines: 1,
            exchange: "NCCL".into(),
            alone_ms: 10.0,
            step_ms: 10.1,
            exchange_ms: 0.02,
            gradient_bytes: 80_000_000,
            alone_audio_seconds_per_second: 20_000.0,
            audio_seconds_per_second: 19_800.0,
        }
    }

    #[test]
    fn two_cards_move_their_gradients_once_each_way() {
        let two = measured().predict(2, None);
        // 80 MB over 360 GB/s and two latencies of 10 µs.
        assert!((two.all_reduce_ms - (80.0 / 360.0 + 0.02)).abs() < 1e-9, "{two:?}");
        assert!((two.step_ms - (10.1 + two.all_reduce_ms)).abs() < 1e-9);
        assert!((two.speed_up - 2.0 * 10.0 / two.step_ms).abs() < 1e-9);
    }

    #[test]
    fn a_slow_network_is_what_limits_many_machines() {
        let all = measured().predictions();
        assert_eq!(all.len(), 2 + 3 + 3);
        let at = |gpus, gbit| all.iter().find(|p| p.gpus == gpus && p.network_gbit == Some(gbit)).unwrap();
        // 2 · 7/8 · 80 MB at 22.5 Gbit/s are 50 ms.
        assert!(at(64, 25.0).all_reduce_ms > 49.0 && at(64, 25.0).speed_up < 11.0, "{:?}", at(64, 25.0));
        assert!(at(64, 400.0).speed_up > 40.0, "{:?}", at(64, 400.0));
        assert!(at(1024, 100.0).speed_up > at(64, 100.0).speed_up);
    }
}
