//! Batches by number, across epochs: which clips, and where that is in the run.

use super::dataset::Dataset;
use super::layout::Budget;
use super::packer::{BatchPlan, plan};
use super::position::Position;
use std::collections::VecDeque;
use std::sync::Arc;

/// Numbers count from the first batch of the epoch that the run starts or goes on in.
pub(super) struct Plans {
    seed: u64,
    /// The epochs in use, without a hole: (epoch, number of its first batch, its batches).
    epochs: VecDeque<(u64, u64, Arc<Vec<BatchPlan>>)>,
    next_epoch: u64,
    /// The number behind the last planned batch.
    end: u64,
}

impl Plans {
    pub fn new(seed: u64, epoch: u64) -> Self {
        Plans { seed, epochs: VecDeque::new(), next_epoch: epoch, end: 0 }
    }

    /// Epoch, batch in the epoch, and the epoch's batches.
    pub fn locate(&mut self, number: u64, dataset: &Dataset, budget: &Budget) -> (u64, u64, Arc<Vec<BatchPlan>>) {
        while self.end <= number {
            let made = Arc::new(plan(dataset.lengths(), budget, self.seed, self.next_epoch));
            self.epochs.push_back((self.next_epoch, self.end, made.clone()));
            (self.next_epoch, self.end) = (self.next_epoch + 1, self.end + made.len() as u64);
        }
        let at = self.epochs.partition_point(|(_, first, _)| *first <= number) - 1;
        let (epoch, first, plan) = &self.epochs[at];
        (*epoch, number - first, plan.clone())
    }

    /// Where a run stands that has delivered everything before `low`. Epochs that are over are forgotten.
    pub fn position(&mut self, (low, ahead): (u64, Vec<u64>), dataset: &Dataset, budget: &Budget) -> Position {
        while self.epochs.get(1).is_some_and(|(_, first, _)| *first <= low) {
            self.epochs.pop_front();
        }
        if low == self.end {
            return Position { epoch: self.next_epoch, batch: 0, ahead };
        }
        let (epoch, batch, _) = self.locate(low, dataset, budget);
        Position { epoch, batch, ahead }
    }
}
