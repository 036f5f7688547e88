//! Worker threads that lay batches ahead of the step, into a bounded number of blocks that go round.
//!
//! A worker takes a free block, then the next number, makes that batch and puts it into the window; the reader takes
//! from there in turn. Which worker makes what, and how many there are, decides nothing about the order.

use super::batch::{BatchTiming, HostBatch};
use super::block::{Allocate, Block, PlainBlock};
use super::block_layout::BlockLayout;
use super::dataset::{Dataset, Spoilt, message};
use super::error::Error;
use super::lanes::Lanes;
use super::layout::{Budget, Span};
use super::plans::Plans;
use super::position::{self, Position};
use super::turns::{Share, Turns};
use super::window::Window;
use crate::cache::Failure;
use crate::machine::{MIB, ThreadClock};
use crate::simulate::{Hook, Moment};
use crate::telemetry::queue::{Backlog, Queue, QueueReading};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A batch that panics for a reason of its own is tried so often, then left out and counted.
const ATTEMPTS: usize = 2;

pub struct LoaderOptions {
    pub seed: u64,
    pub from: Position,
    /// The batches that this rank takes.
    pub share: Share,
    /// Ranks that read the same shards of a bucket.
    pub lanes: Lanes,
    /// 0 makes every batch when it is asked for, in the reader's thread.
    pub workers: usize,
    /// Batches that may wait.
    pub depth: usize,
    /// Blocks that the reader keeps at most before it gives the first one back.
    pub in_flight: usize,
    /// Batches come in the order of the plan; otherwise those that are ready overtake. Several ranks always take them in
    /// order: each must know what the others took.
    pub ordered: bool,
    pub allocate: Allocate,
    /// Damaged clips that a run may do without.
    pub max_failures: usize,
    pub hook: Hook,
}

impl Default for LoaderOptions {
    /// One worker and one batch at a time, in order, from the start, in plain memory: for measurements and tests.
    fn default() -> Self {
        LoaderOptions {
            seed: 0,
            from: Position::default(),
            share: Share::WHOLE,
            lanes: Lanes::ONE,
            workers: 1,
            depth: 1,
            in_flight: 1,
            ordered: true,
            allocate: PlainBlock::allocate(),
            max_failures: 0,
            hook: Hook::default(),
        }
    }
}

/// Endless batches, epoch after epoch.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How the workers are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderStatus {
    /// Batches that wait for the reader.
    pub ready: usize,
    pub workers: usize,
    /// Time that all workers together were at work since the start.
    pub busy_ns: u64,
}

struct Shared {
    dataset: Arc<Dataset>,
    layout: BlockLayout,
    seed: u64,
    in_flight: usize,
    allocate: Allocate,
    max_failures: usize,
    hook: Hook,
    turns: Turns,
    /// Other ranks take batches too: one that cannot be made must not move this rank on.
    is_shared: bool,
    plans: Mutex<Plans>,
    /// Workers wait for a block and a number, the reader for a batch.
    queue: Queue<State>,
    busy_ns: AtomicU64,
}

struct State {
    window: Window<Made>,
    free: Vec<Box<dyn Block>>,
    /// Blocks that exist, wherever they are.
    blocks: usize,
    depth: usize,
    /// Workers that there should be, and that there are.
    wanted: usize,
    alive: usize,
    failures: Vec<Failure>,
    /// What is not used any more.
    spoilt: HashSet<Spoilt>,
    /// Given to the reader once; nothing comes after it.
    error: Option<Error>,
    closed: bool,
}

enum Made {
    Batch(HostBatch),
    /// It could not be made; the failure is on the list.
    Nothing(Box<dyn Block>),
}

/// What the reader finds.
enum Found {
    /// The next batch, what ended the supply, or nothing after that.
    Delivery(Option<Result<HostBatch, Error>>),
    /// A number without a batch.
    Nothing,
    /// There are no workers: the reader makes the next batch itself.
    OwnTurn,
}

/// What a worker finds.
enum Task {
    Make(u64),
    Allocate,
    /// The worker is to end, and is counted out already.
    End,
}

impl Loader {
    pub fn start(dataset: Arc<Dataset>, budget: Budget, options: LoaderOptions) -> Result<Self, Error> {
        assert!(!dataset.lengths().is_empty(), "there is no batch without clips");
        let LoaderOptions {
            seed,
            mut from,
            share,
            lanes,
            workers,
            depth,
            in_flight,
            ordered,
            allocate,
            max_failures,
            hook,
        } = options;
        if dataset.has_lanes(&lanes) {
            // A position of other ranks may lie between two turns of these.
            from = Position { batch: from.batch.next_multiple_of(share.ranks as u64), ahead: vec![], ..from };
        }
        let state = State {
            window: Window::new(ordered || share.ranks > 1),
            free: Vec::new(),
            blocks: 0,
            depth,
            wanted: 0,
            alive: 0,
            failures: Vec::new(),
            spoilt: HashSet::new(),
            error: None,
            closed: false,
        };
        let shared = Shared {
            layout: dataset.layout(&budget),
            dataset,
            seed,
            in_flight,
            allocate,
            max_failures,
            hook,
            turns: Turns::new(share, from.batch, &from.ahead),
            is_shared: share.ranks > 1,
            plans: Mutex::new(Plans::new(seed, (from.epoch, from.chunk), share.rank, lanes)),
            queue: Queue::new(state),
            busy_ns: AtomicU64::new(0),
        };
        let loader = Loader { shared: Arc::new(shared), threads: Mutex::default() };
        loader.set_workers(workers)?;
        Ok(loader)
    }

    /// The next batch, or what ended the supply; nothing after that.
    #[allow(clippy::should_implement_trait)] // other threads read its status and set numbers meanwhile
    pub fn next(&self) -> Option<Result<HostBatch, Error>> {
        let shared = &self.shared;
        loop {
            match shared.queue.consume(|state| shared.find(state)) {
                Found::Delivery(delivery) => return delivery,
                Found::Nothing => {}
                Found::OwnTurn => shared.queue.while_consuming_waits(|| {
                    if let Some((number, block)) = shared.task(false) {
                        shared.make(number, block, &Worker::new(0));
                    }
                }),
            }
        }
    }

    /// Gives a batch's memory back, to be filled again.
    pub fn recycle(&self, block: Box<dyn Block>) {
        self.shared.queue.change(|state| state.take_back(block, self.shared.in_flight));
    }

    /// Where things lie in the blocks.
    pub fn layout(&self) -> &BlockLayout {
        &self.shared.layout
    }

    /// The most host memory that batches take.
    pub fn host_bytes(&self) -> usize {
        self.shared.queue.update(|state| state.most_blocks(self.shared.in_flight)) * self.shared.layout.bytes
    }

    /// While the run goes on. Surplus workers end after the batch they are at.
    pub fn set_workers(&self, workers: usize) -> Result<(), Error> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        self.shared.queue.change(|state| {
            state.wanted = workers;
            while state.alive < workers {
                let (shared, number) = (self.shared.clone(), state.alive);
                let thread = std::thread::Builder::new().name("loader".into()).spawn(move || work(&shared, number));
                threads.push(thread.map_err(Error::thread)?);
                state.alive += 1;
            }
            state.drop_surplus(self.shared.in_flight);
            Ok(())
        })
    }

    /// Batches that may wait, while the run goes on.
    pub fn set_depth(&self, depth: usize) {
        self.shared.queue.change(|state| {
            state.depth = depth;
            state.drop_surplus(self.shared.in_flight);
        });
    }

    pub fn status(&self) -> LoaderStatus {
        let (ready, workers) = self.shared.queue.update(|state| (state.window.ready(), state.alive));
        LoaderStatus { ready, workers, busy_ns: self.shared.busy_ns.load(Ordering::Relaxed) }
    }

    /// What workers and the reader waited for since the start.
    pub fn queue(&self) -> QueueReading {
        self.shared.queue.reading()
    }

    /// Clips that were left out since the start, each once.
    pub fn failures(&self) -> Vec<Failure> {
        self.shared.queue.update(|state| state.failures.clone())
    }
}

impl Drop for Loader {
    /// Workers end after the batch they are at.
    fn drop(&mut self) {
        self.shared.queue.change(|state| state.closed = true);
        self.shared.dataset.stop_fetching();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

/// What a thread that makes batches has of its own.
struct Worker {
    number: usize,
    clock: ThreadClock,
}

impl Worker {
    fn new(number: usize) -> Self {
        Worker { number, clock: ThreadClock::open() }
    }
}

/// A worker thread. What panics in a batch is caught there; this is for memory that does not come.
fn work(shared: &Shared, number: usize) {
    let worker = Worker::new(number);
    let run = || {
        while let Some((number, block)) = shared.task(true) {
            shared.make(number, block, &worker);
        }
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        shared.queue.change(|state| {
            state.alive -= 1;
            state.error = Some(Error::ended(message(&*panic)));
        });
    }
}

impl Shared {
    /// For the reader; it waits where there is nothing.
    fn find(&self, state: &mut State) -> Option<Found> {
        if state.closed {
            return Some(Found::Delivery(None));
        }
        if let Some(error) = state.error.take() {
            return Some(state.end(error));
        }
        match state.window.pop() {
            Some(Made::Batch(batch)) => {
                let position = self.position(state.window.delivered());
                Some(Found::Delivery(Some(Ok(HostBatch { position, ..batch }))))
            }
            Some(Made::Nothing(_)) if self.is_shared => {
                Some(state.end(Error::too_many(state.failures.clone(), self.max_failures)))
            }
            Some(Made::Nothing(block)) => {
                state.take_back(block, self.in_flight);
                Some(Found::Nothing)
            }
            None if state.wanted == 0 && state.window.is_idle() => Some(Found::OwnTurn),
            None if state.wanted > 0 && state.alive == 0 => Some(state.end(Error::ended("none is left"))),
            None => None,
        }
    }

    /// Waits for a block, then for a turn. None: the worker is to end, and is counted out already.
    fn task(&self, is_worker: bool) -> Option<(u64, Box<dyn Block>)> {
        let mut own = None;
        loop {
            match self.queue.produce(|state| self.begin(state, &mut own, is_worker)) {
                Task::Make(number) => return own.map(|block| (number, block)),
                Task::Allocate => own = self.allocate(),
                Task::End => {
                    self.queue.change(|_| ()); // the reader may wait for a worker that is no more
                    return None;
                }
            }
        }
    }

    /// For a worker; it waits where there is nothing to do. A number is taken only with a block in hand.
    fn begin(&self, state: &mut State, own: &mut Option<Box<dyn Block>>, is_worker: bool) -> Option<Task> {
        if state.closed || state.error.is_some() || (is_worker && state.alive > state.wanted) {
            state.free.extend(own.take());
            state.alive -= usize::from(is_worker);
            return Some(Task::End);
        }
        let most = state.most_blocks(self.in_flight);
        if own.is_none() {
            *own = state.free.pop();
        }
        if own.is_none() {
            let may_grow = state.blocks < most;
            state.blocks += usize::from(may_grow);
            return may_grow.then_some(Task::Allocate);
        }
        state.window.take(most).map(Task::Make)
    }

    fn allocate(&self) -> Option<Box<dyn Block>> {
        let allocated = (self.allocate)(self.layout.bytes);
        let refused = |reason| {
            self.queue.change(|state| {
                state.blocks -= 1;
                state.error = Some(Error::memory(self.layout.bytes.div_ceil(MIB as usize), reason));
            });
        };
        allocated.map_err(refused).ok()
    }

    /// Makes the batch of a turn and puts it, or the news that there is none, into the window.
    fn make(&self, turn: u64, mut block: Box<dyn Block>, worker: &Worker) {
        let number = self.turns.number(turn);
        let (start, before, mut locked) = (Instant::now(), worker.clock.read(), Duration::ZERO);
        self.hook.at(Moment::MakeBatch(number));
        let laid = (0..ATTEMPTS).find_map(|attempt| {
            let laid = catch_unwind(AssertUnwindSafe(|| self.lay(number, &mut *block, &mut locked)));
            laid.map_err(|panic| {
                if attempt + 1 == ATTEMPTS {
                    self.fail(None, self.batch_failure(number, message(&*panic)));
                }
            })
            .ok()
        });
        let wall = start.elapsed();
        let timing = BatchTiming { worker: worker.number, start, wall, locked, ran: worker.clock.since(before) };
        self.busy_ns.fetch_add(wall.as_nanos() as u64, Ordering::Relaxed);
        let made = match laid {
            Some((text_spans, frame_spans)) => {
                Made::Batch(HostBatch { block, text_spans, frame_spans, position: Position::default(), timing })
            }
            None => Made::Nothing(block),
        };
        let unmade = self.queue.put(|state| {
            state.window.put(turn, made);
            state.window.unmade()
        });
        // Ranks that share a store keep what the slowest of them may need: they take batches in step, but lay them ahead as they
        // can, and one that holds shards to come must not wait for one that has no room for its own.
        if !self.is_shared {
            self.plans().let_go(self.turns.number(unmade), &self.dataset);
        }
    }

    /// Lays a batch, less the clips that turn out to be damaged.
    fn lay(&self, number: u64, block: &mut dyn Block, locked: &mut Duration) -> (Vec<Span>, Vec<Span>) {
        let asked = Instant::now();
        let mut plans = self.plans();
        *locked += asked.elapsed();
        self.hook.at(Moment::PlanLocked);
        let (planned, batch) = plans.locate(number, &self.dataset, &self.layout.budget);
        drop(plans);
        self.hook.at(Moment::PlanReleased);
        loop {
            let asked = Instant::now();
            let spoilt = self.queue.update(|state| state.spoilt.clone());
            *locked += asked.elapsed();
            let draw = [self.seed, planned.epoch, position::number(planned.chunk, batch)];
            let clips = planned.clips(batch);
            match self.dataset.lay(clips, &self.layout, block.bytes_mut(), draw, &spoilt, &self.hook) {
                Ok(spans) => return spans,
                Err(spoilt) => self.fail(Some(spoilt.what), spoilt.failure),
            }
        }
    }

    /// Counts a failure, a clip's or a shard's only once.
    fn fail(&self, spoilt: Option<Spoilt>, failure: Failure) {
        self.queue.change(|state| {
            if spoilt.is_some_and(|spoilt| !state.spoilt.insert(spoilt)) {
                return;
            }
            state.failures.push(failure);
            if state.failures.len() > self.max_failures {
                state.error = Some(Error::too_many(state.failures.clone(), self.max_failures));
            }
        });
    }

    fn batch_failure(&self, number: u64, reason: &str) -> Failure {
        let (planned, batch) = self.plans().locate(number, &self.dataset, &self.layout.budget);
        let id = match planned.chunk {
            0 => format!("batch {batch} of epoch {}", planned.epoch),
            chunk => format!("batch {batch} of chunk {chunk} of epoch {}", planned.epoch),
        };
        Failure { path: id.clone().into(), id, reason: format!("panic: {reason}") }
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn position(&self, delivered: (u64, Vec<u64>)) -> Position {
        self.plans().position(self.turns.delivered(delivered), &self.dataset, &self.layout.budget)
    }
}

impl Backlog for State {
    fn ready(&self) -> usize {
        self.window.ready()
    }
}

impl State {
    /// One for each worker and each batch that waits, and those that the reader holds.
    fn most_blocks(&self, in_flight: usize) -> usize {
        (self.wanted + self.depth + in_flight).max(1)
    }

    fn take_back(&mut self, block: Box<dyn Block>, in_flight: usize) {
        if self.blocks > self.most_blocks(in_flight) {
            self.blocks -= 1;
        } else {
            self.free.push(block);
        }
    }

    /// After a change of what there should be; more blocks are made when they are needed.
    fn drop_surplus(&mut self, in_flight: usize) {
        while self.blocks > self.most_blocks(in_flight) && self.free.pop().is_some() {
            self.blocks -= 1;
        }
    }

    fn end(&mut self, error: Error) -> Found {
        self.closed = true;
        Found::Delivery(Some(Err(error)))
    }
}
