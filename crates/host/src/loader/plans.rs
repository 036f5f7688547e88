//! Batches by number, across chunks and epochs: which clips, where that is in the run, and which shards they need.

use super::dataset::Dataset;
use super::lanes::Lanes;
use super::layout::Budget;
use super::packer::ChunkPlan;
use super::position::Position;
use std::collections::VecDeque;
use std::sync::Arc;

/// Chunks whose shards are fetched or used at a time: one whose batches are being laid, and those behind it.
pub(super) const CHUNKS_AT_A_TIME: usize = 3;

/// Numbers count from the first batch of the chunk that the run starts or goes on in.
pub(super) struct Plans {
    seed: u64,
    lanes: Lanes,
    /// The lane that shards are fetched for.
    lane: usize,
    /// The chunks in use, without a hole.
    planned: VecDeque<Planned>,
    /// Epoch and chunk that come next.
    next: (u64, u64),
    /// The number behind the last planned batch.
    end: u64,
    /// What has a lower number needs no shard any more.
    laid: u64,
}

/// A chunk and its batches.
#[derive(Clone)]
pub(super) struct Planned {
    pub epoch: u64,
    pub chunk: u64,
    /// Number of its first batch.
    first: u64,
    plan: Arc<ChunkPlan>,
}

impl Planned {
    /// The number behind its last batch.
    fn end(&self) -> u64 {
        self.first + self.plan.len() as u64
    }

    /// The clips of a batch of the chunk.
    pub fn clips(&self, batch: u64) -> &[u32] {
        self.plan.batch(batch as usize)
    }
}

impl Plans {
    /// For a rank of some lane.
    pub fn new(seed: u64, (epoch, chunk): (u64, u64), rank: usize, lanes: Lanes) -> Self {
        Plans { seed, lane: lanes.of(rank), lanes, planned: VecDeque::new(), next: (epoch, chunk), end: 0, laid: 0 }
    }

    /// A batch: its chunk, and its number there.
    pub fn locate(&mut self, number: u64, dataset: &Dataset, budget: &Budget) -> (Planned, u64) {
        while self.end <= number {
            let (epoch, chunk) = self.next;
            let plan = Arc::new(dataset.plan_of_lanes(budget, self.seed, epoch, chunk, &self.lanes));
            let first = self.end;
            self.end += plan.len() as u64;
            self.planned.push_back(Planned { epoch, chunk, first, plan });
            self.next = dataset.after(epoch, chunk, &self.lanes);
            self.fetch_ahead(dataset);
        }
        let at = self.planned.partition_point(|planned| planned.first <= number) - 1;
        let planned = self.planned[at].clone();
        let batch = number - planned.first;
        (planned, batch)
    }

    /// All batches before this number are laid. A batch has copies of its clips: chunks that are laid make room, however long
    /// their batches wait to be taken.
    pub fn let_go(&mut self, before: u64, dataset: &Dataset) {
        let was = self.laid_chunks();
        self.laid = self.laid.max(before);
        if self.laid_chunks() > was {
            self.fetch_ahead(dataset);
        }
    }

    fn laid_chunks(&self) -> usize {
        self.planned.partition_point(|planned| planned.end() <= self.laid)
    }

    /// What is in use stays, and chunks behind it are fetched. Where that cannot be begun, clips are fetched one at a time.
    fn fetch_ahead(&self, dataset: &Dataset) {
        let in_use = self.planned.iter().skip(self.laid_chunks()).map(|planned| (planned.epoch, planned.chunk));
        let (mut chunks, mut next): (Vec<_>, _) = (in_use.collect(), self.next);
        for _ in 0..CHUNKS_AT_A_TIME.saturating_sub(chunks.len()).max(1) {
            chunks.push(next);
            next = dataset.after(next.0, next.1, &self.lanes);
        }
        let _ = dataset.fetch_ahead(self.seed, chunks.into_iter(), (self.lane, self.lanes.count()));
    }

    /// Where a run stands that has delivered everything before `low`. Chunks that are over are forgotten.
    pub fn position(&mut self, (low, ahead): (u64, Vec<u64>), dataset: &Dataset, budget: &Budget) -> Position {
        self.let_go(low, dataset);
        while self.planned.get(1).is_some_and(|planned| planned.first <= low) {
            self.planned.pop_front();
        }
        if low == self.end {
            let (epoch, chunk) = self.next;
            return Position { epoch, chunk, batch: 0, ahead };
        }
        let (Planned { epoch, chunk, .. }, batch) = self.locate(low, dataset, budget);
        Position { epoch, chunk, batch, ahead }
    }
}
