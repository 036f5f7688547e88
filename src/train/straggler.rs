//! The figures of all ranks, and which of them keeps the others waiting. Each rank shows its own now and then; rank 0 reads
//! what is there, and nobody waits for anybody.

use crate::ranks::Ranks;
use crate::run::StageTimes;
use anyhow::Result;
use host::telemetry::gpu::GpuReading;
use host::telemetry::median;
use host::telemetry::window::StepSummary;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Slower than the others by more than this share is worth a word.
const SLOWER: f64 = 0.05;

/// Ranks whose own figures are logged; of more, what they come to together.
const MOST_SHOWN: usize = 64;

/// Looks in a row that must find the same rank: noise falls on one and then on another.
const PERSISTS: u32 = 5;

pub struct RankLog {
    ranks: Arc<Ranks>,
    suspicion: Suspicion,
}

/// The rank that the last looks found slower, how many in a row, and who was told of last.
#[derive(Default)]
struct Suspicion {
    rank: Option<usize>,
    looks: u32,
    told: Option<usize>,
}

/// A rank's steps since its last figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RankFigures {
    step_ms: f64,
    /// Of it the exchange of gradients, with the wait for the others.
    exchange_ms: f64,
    /// Of it the wait for data.
    starved_ms: f64,
    audio_seconds_per_second: f64,
    /// Why its GPU's clocks are held down, if they are.
    throttle: Option<String>,
}

/// What the ranks come to together.
pub struct AllRanks {
    pub audio_seconds_per_second: f64,
    pub figures: Vec<(String, f64)>,
    /// A rank that the others wait for; said once.
    pub finding: Option<String>,
}

impl RankFigures {
    fn named(&self, rank: usize) -> [(String, f64); 3] {
        [
            ("own_ms", self.own_ms()),
            ("starved_ms", self.starved_ms),
            ("audio_seconds_per_second", self.audio_seconds_per_second),
        ]
        .map(|(name, value)| (format!("ranks/{rank}/{name}"), value))
    }

    /// What the rank needs by itself until gradients meet.
    fn own_ms(&self) -> f64 {
        self.step_ms - self.exchange_ms
    }
}

impl RankLog {
    pub fn new(ranks: Arc<Ranks>) -> Self {
        RankLog { ranks, suspicion: Suspicion::default() }
    }

    /// Shows this rank's figures; rank 0 gets those of all.
    pub fn observe(
        &mut self,
        window: &StepSummary,
        stages: &StageTimes,
        exchange_ms: f64,
        gpu: Option<&GpuReading>,
    ) -> Result<Option<AllRanks>> {
        let mine = RankFigures {
            step_ms: window.step_ms.mean,
            exchange_ms,
            starved_ms: stages.starved_ms.mean,
            audio_seconds_per_second: window.audio_seconds_per_second,
            throttle: gpu.filter(|gpu| !gpu.throttle.is_empty()).map(|gpu| gpu.throttle.join(", ")),
        };
        self.ranks.show("figures", &mine)?;
        if !self.ranks.is_first() {
            return Ok(None);
        }
        let all = (0..self.ranks.me.size).map(|rank| self.ranks.shown("figures", rank));
        let all: Vec<RankFigures> = all.collect::<Result<Option<Vec<_>>>>()?.unwrap_or_default();
        if all.is_empty() {
            return Ok(None); // one has not come so far yet
        }
        let finding = self.suspicion.look(straggler(&all));
        let exchange: Vec<f64> = all.iter().map(|rank| rank.exchange_ms).collect();
        let own: Vec<f64> = all.iter().map(RankFigures::own_ms).collect();
        let slowest = (0..own.len()).max_by(|a, b| own[*a].total_cmp(&own[*b])).unwrap_or(0);
        let of_all = [
            ("ranks/slowest", slowest as f64),
            ("ranks/slowest_own_ms", own[slowest]),
            ("ranks/median_own_ms", median(&own)),
            // It follows the backward pass, so all of it is exposed; the least of it is what travelling takes.
            ("ranks/exchange_ms", median(&exchange)),
            ("ranks/exchange_least_ms", exchange.iter().copied().fold(f64::INFINITY, f64::min)),
        ];
        let of_each = all.iter().enumerate().take(MOST_SHOWN).flat_map(|(rank, figures)| figures.named(rank));
        Ok(Some(AllRanks {
            audio_seconds_per_second: all.iter().map(|rank| rank.audio_seconds_per_second).sum(),
            figures: of_all.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(of_each).collect(),
            finding: finding.map(|(rank, why)| format!("straggler: {} {why}", self.ranks.name(rank))),
        }))
    }
}

impl Suspicion {
    /// What is to be told, once it is certain; of the same rank once.
    fn look(&mut self, found: Option<(usize, String)>) -> Option<(usize, String)> {
        let rank = found.as_ref().map(|(rank, _)| *rank);
        self.looks = if rank == self.rank { self.looks + 1 } else { 1 };
        self.rank = rank;
        let certain = found.filter(|(rank, _)| self.looks >= PERSISTS && self.told != Some(*rank));
        self.told = certain.as_ref().map(|(rank, _)| *rank).or(self.told);
        certain
    }
}

/// The rank that is slower than the others, and why, if there is one.
fn straggler(all: &[RankFigures]) -> Option<(usize, String)> {
    let slowest = (0..all.len()).max_by(|a, b| all[*a].own_ms().total_cmp(&all[*b].own_ms()))?;
    let others: Vec<&RankFigures> = (0..all.len()).filter(|rank| *rank != slowest).map(|rank| &all[rank]).collect();
    if others.is_empty() {
        return None;
    }
    let of_others =
        |figure: fn(&RankFigures) -> f64| median(&others.iter().map(|rank| figure(rank)).collect::<Vec<_>>());
    let (usual, slow) = (of_others(RankFigures::own_ms), &all[slowest]);
    let excess = slow.own_ms() - usual;
    if excess <= SLOWER * usual {
        return None;
    }
    let starving = slow.starved_ms - of_others(|rank| rank.starved_ms);
    let cause = match &slow.throttle {
        _ if starving > excess / 2.0 => "it waits for data: its disk, its cores or its number of workers",
        Some(reason) => &format!("its GPU's clocks are held down: {reason}"),
        None => "it computes more slowly: another program on its device, or a slower one",
    };
    let tens = (excess / usual * 10.0).round() * 10.0;
    Some((slowest, format!("needs about {tens:.0} % longer for a step than the others, who wait for it; {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(step_ms: f64, exchange_ms: f64, starved_ms: f64) -> RankFigures {
        RankFigures { step_ms, exchange_ms, starved_ms, audio_seconds_per_second: 1.0, throttle: None }
    }

    #[test]
    fn the_one_that_the_others_wait_for_is_named_with_its_cause() {
        // All steps take as long as the slowest one's; the others wait in the exchange.
        let all = [rank(13.0, 3.0, 0.0), rank(13.0, 1.0, 2.0), rank(13.0, 3.1, 0.1)];
        let (slow, why) = straggler(&all).unwrap();
        assert_eq!(slow, 1);
        assert!(why.starts_with("needs about 20 % longer") && why.contains("waits for data"), "{why}");
        let mut hot = all.clone();
        (hot[1].starved_ms, hot[1].throttle) = (0.0, Some("heat".into()));
        assert!(straggler(&hot).unwrap().1.ends_with("held down: heat"));
        hot[1].throttle = None;
        assert!(straggler(&hot).unwrap().1.contains("computes more slowly"));
    }

    #[test]
    fn only_what_stays_is_told_and_once() {
        let mut suspicion = Suspicion::default();
        let mut told = |ranks: &[usize]| -> Vec<usize> {
            ranks.iter().filter_map(|rank| suspicion.look(Some((*rank, String::new())))).map(|(rank, _)| rank).collect()
        };
        assert_eq!(told(&[0, 1, 0, 1, 1, 1, 0, 1]), [] as [usize; 0]);
        assert_eq!(told(&[1, 1, 1, 1, 1, 1, 1]), [1]);
        assert_eq!(told(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]), [2]);
        assert_eq!(suspicion.look(None), None);
    }

    #[test]
    fn ranks_that_are_alike_are_not_a_finding() {
        assert_eq!(straggler(&[rank(10.0, 1.0, 0.0), rank(10.0, 1.3, 0.0)]), None);
        assert_eq!(straggler(&[rank(10.0, 1.0, 0.0)]), None);
    }
}
