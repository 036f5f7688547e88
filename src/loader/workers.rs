//! Worker threads that assemble batches ahead of the step, in an order that does not depend on their number.
//!
//! Worker `w` of `n` makes batches `w, w + n, w + 2n, …` and hands them over through a bounded queue of its own; the
//! reader takes from the queues in turn. So the order is fixed without a lock, and memory is bounded by the queues.

use super::batch::{Dataset, HostBatch};
use super::layout::Budget;
use super::packer::{BatchPlan, plan};
use crate::cache;
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The next batch of a run. Saved with every checkpoint; reached again without replaying what came before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    pub batch: u64,
}

/// Endless batches, epoch after epoch.
pub struct Loader {
    source: Arc<Source>,
    /// Empty: batches are made in `next`, in the caller's thread.
    queues: Vec<Receiver<Made>>,
    threads: Vec<JoinHandle<()>>,
    turn: usize,
    position: Position,
}

/// A batch, or which file is damaged.
type Made = Result<HostBatch, cache::Error>;

struct Source {
    dataset: Arc<Dataset>,
    budget: Budget,
    seed: u64,
    /// Plans of the epochs in use: the workers may stand on both sides of an epoch's end.
    plans: Mutex<Vec<(u64, Arc<Vec<BatchPlan>>)>>,
}

impl Loader {
    /// `workers` 0 makes every batch when it is asked for. `depth`: batches that may wait in all queues together.
    pub fn start(
        dataset: Arc<Dataset>,
        budget: Budget,
        seed: u64,
        from: Position,
        workers: usize,
        depth: usize,
    ) -> Self {
        let source = Arc::new(Source { dataset, budget, seed, plans: Mutex::default() });
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let (sender, receiver) = sync_channel(depth.div_ceil(workers));
            let source = source.clone();
            queues.push(receiver);
            threads.push(std::thread::spawn(move || work(&source, from, worker as u64, workers as u64, &sender)));
        }
        Loader { source, queues, threads, turn: 0, position: from }
    }

    /// The position of the batch that `next` gives.
    pub fn position(&self) -> Position {
        self.position
    }

    /// `None` only when a worker died; its panic message has gone to stderr.
    #[allow(clippy::should_implement_trait)] // a position between batches is part of it, which an iterator has not
    pub fn next(&mut self) -> Option<Made> {
        let batch = match self.queues.get(self.turn) {
            Some(queue) => queue.recv().ok()?,
            None => self.source.batch(self.position),
        };
        self.turn = (self.turn + 1) % self.queues.len().max(1);
        self.position = self.source.advance(self.position, 1);
        Some(batch)
    }
}

impl Drop for Loader {
    /// Closing the queues ends the workers at their next hand-over.
    fn drop(&mut self) {
        self.queues.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(source: &Source, from: Position, worker: u64, workers: u64, queue: &SyncSender<Made>) {
    let mut position = source.advance(from, worker);
    while queue.send(source.batch(position)).is_ok() {
        position = source.advance(position, workers);
    }
}

impl Source {
    fn batch(&self, position: Position) -> Made {
        let plan = self.plan(position.epoch);
        self.dataset.batch(&plan[position.batch as usize], &self.budget)
    }

    fn advance(&self, mut position: Position, batches: u64) -> Position {
        position.batch += batches;
        loop {
            let len = self.plan(position.epoch).len() as u64;
            if position.batch < len {
                return position;
            }
            position = Position { epoch: position.epoch + 1, batch: position.batch - len };
        }
    }

    fn plan(&self, epoch: u64) -> Arc<Vec<BatchPlan>> {
        let mut plans = self.plans.lock().expect("no holder of this lock panics");
        if let Some((_, plan)) = plans.iter().find(|(number, _)| *number == epoch) {
            return plan.clone();
        }
        let made = Arc::new(plan(self.dataset.lengths(), &self.budget, self.seed, epoch));
        plans.retain(|(number, _)| *number + 2 > epoch);
        plans.push((epoch, made.clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{self, sample};
    use crate::loader::Length;
    use crate::text::Tokenizer;
    use std::ops::ControlFlow;
    use std::sync::atomic::AtomicBool;

    fn dataset() -> (tempfile::TempDir, Arc<Dataset>) {
        let dir = tempfile::tempdir().unwrap();
        let corpus = dir.path().join("corpus");
        let options = sample::Options { clips: 12, seed: 1, rate_hz: 16_000, voice: sample::Voice::Formant };
        sample::write(&corpus, &options, &|_| ControlFlow::Continue(())).unwrap();
        let utterances = corpus::read(&corpus, &corpus::Options::default()).unwrap().utterances;
        let tokenizer = Tokenizer::fit(utterances.iter().map(|u| (u.text.as_str(), "en")));
        let mut config = crate::config::Config::default();
        (config.data.sample_rate, config.data.cache_dir) = (16_000, Some(dir.path().join("cache")));
        let stop = AtomicBool::new(false);
        let (cache, _) = cache::open(&utterances, &tokenizer, &config, &|_| (), &stop).unwrap();
        let (dataset, left_out) = Dataset::new(cache, Length { frames: 2000, tokens: 500 });
        assert_eq!(left_out.total(), 0);
        (dir, Arc::new(dataset))
    }

    fn batches(dataset: &Arc<Dataset>, from: Position, workers: usize, count: usize) -> Vec<HostBatch> {
        let budget = Budget::packed(dataset.lengths(), 3);
        let mut loader = Loader::start(dataset.clone(), budget, 9, from, workers, 4);
        (0..count).map(|_| loader.next().unwrap().unwrap()).collect()
    }

    #[test]
    fn the_order_is_the_same_at_any_number_of_workers() {
        let (_dir, dataset) = dataset();
        let inline = batches(&dataset, Position::default(), 0, 14); // crosses epochs
        for workers in [1, 2, 5] {
            assert!(batches(&dataset, Position::default(), workers, 14) == inline, "{workers} workers");
        }
    }

    #[test]
    fn a_saved_position_gives_the_same_next_batch_with_any_number_of_workers() {
        let (_dir, dataset) = dataset();
        let straight = batches(&dataset, Position::default(), 2, 14);
        let budget = Budget::packed(dataset.lengths(), 3);
        let mut loader = Loader::start(dataset.clone(), budget, 9, Position::default(), 3, 4);
        for _ in 0..7 {
            loader.next().unwrap().unwrap();
        }
        let position = loader.position();
        assert!(batches(&dataset, position, 1, 7) == straight[7..]);
    }
}
