//! Worker threads that lay batches ahead of the step, into a bounded number of blocks that go round.
//!
//! A worker takes a free block, then the next number, makes that batch and puts it into the window; the reader takes
//! from there in turn. Which worker makes what, and how many there are, decides nothing about the order.

use super::batch::{BatchTiming, HostBatch};
use super::block::{Allocate, Block};
use super::block_layout::BlockLayout;
use super::dataset::{Dataset, message};
use super::error::Error;
use super::layout::{Budget, Span};
use super::plans::Plans;
use super::position::Position;
use super::window::Window;
use crate::cache::Failure;
use crate::machine::ThreadClock;
use crate::simulate::{self, Delays};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A batch that panics for a reason of its own is tried so often, then left out and counted.
const ATTEMPTS: usize = 2;

pub struct LoaderOptions {
    pub seed: u64,
    pub from: Position,
    /// 0 makes every batch when it is asked for, in the reader's thread.
    pub workers: usize,
    /// Batches that may wait.
    pub depth: usize,
    /// Blocks that the reader keeps at most before it gives the first one back.
    pub in_flight: usize,
    /// Batches come in the order of the plan; otherwise those that are ready overtake.
    pub ordered: bool,
    pub allocate: Allocate,
    /// Damaged clips that a run may do without.
    pub max_failures: usize,
    pub delays: Delays,
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
    /// Sums over all workers since the start.
    pub busy_ns: u64,
    /// Waiting for a free block.
    pub blocked_full_ns: u64,
    /// Batches.
    pub made: u64,
}

struct Shared {
    dataset: Arc<Dataset>,
    layout: BlockLayout,
    seed: u64,
    in_flight: usize,
    allocate: Allocate,
    max_failures: usize,
    delays: Delays,
    plans: Mutex<Plans>,
    state: Mutex<State>,
    /// For workers: a block came back, the window moved on, or their number changed.
    room: Condvar,
    /// For the reader: a batch or an error came, or a worker left.
    arrived: Condvar,
    busy_ns: AtomicU64,
    blocked_full_ns: AtomicU64,
    made: AtomicU64,
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
    /// Clips of the cache that are not used any more.
    spoilt: HashSet<usize>,
    /// Given to the reader once; nothing comes after it.
    error: Option<Error>,
    closed: bool,
}

enum Made {
    Batch(HostBatch),
    /// It could not be made; the failure is on the list.
    Nothing(Box<dyn Block>),
}

impl Loader {
    pub fn start(dataset: Arc<Dataset>, budget: Budget, options: LoaderOptions) -> Result<Self, Error> {
        assert!(!dataset.lengths().is_empty(), "there is no batch without clips");
        let LoaderOptions { seed, from, workers, depth, in_flight, ordered, allocate, max_failures, delays } = options;
        let state = State {
            window: Window::new(ordered, from.batch, &from.ahead),
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
            delays,
            plans: Mutex::new(Plans::new(seed, from.epoch)),
            state: Mutex::new(state),
            room: Condvar::new(),
            arrived: Condvar::new(),
            busy_ns: AtomicU64::new(0),
            blocked_full_ns: AtomicU64::new(0),
            made: AtomicU64::new(0),
        };
        let loader = Loader { shared: Arc::new(shared), threads: Mutex::default() };
        loader.set_workers(workers)?;
        Ok(loader)
    }

    /// The next batch, or what ended the supply; nothing after that.
    #[allow(clippy::should_implement_trait)] // other threads read gauges and set numbers meanwhile
    pub fn next(&self) -> Option<Result<HostBatch, Error>> {
        let shared = &self.shared;
        let mut state = shared.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(error) = state.error.take() {
                return Some(Err(shared.close(&mut state, error)));
            }
            match state.window.pop() {
                Some(made) => {
                    shared.room.notify_all();
                    match made {
                        Made::Batch(batch) => {
                            let position = shared.position(state.window.delivered());
                            return Some(Ok(HostBatch { position, ..batch }));
                        }
                        Made::Nothing(block) => state.take_back(block, shared.in_flight),
                    }
                }
                None if state.wanted == 0 && state.window.is_idle() => {
                    drop(state);
                    if let Some((number, block)) = shared.task(false) {
                        shared.make(number, block, &Hand::new(0));
                    }
                    state = shared.lock();
                }
                None if state.wanted > 0 && state.alive == 0 => {
                    return Some(Err(shared.close(&mut state, Error::Ended("none is left".into()))));
                }
                None => state = shared.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Gives a batch's memory back, to be filled again.
    pub fn recycle(&self, block: Box<dyn Block>) {
        self.shared.recycle(block);
    }

    /// Where things lie in the blocks.
    pub fn layout(&self) -> &BlockLayout {
        &self.shared.layout
    }

    /// The most host memory that batches take.
    pub fn host_bytes(&self) -> usize {
        self.shared.lock().most_blocks(self.shared.in_flight) * self.shared.layout.bytes
    }

    /// While the run goes on. Surplus workers end after the batch they are at.
    pub fn set_workers(&self, workers: usize) -> Result<(), Error> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        let mut state = self.shared.lock();
        state.wanted = workers;
        while state.alive < workers {
            let (shared, number) = (self.shared.clone(), state.alive);
            let thread = std::thread::Builder::new().name("loader".into()).spawn(move || work(&shared, number));
            threads.push(thread.map_err(Error::Thread)?);
            state.alive += 1;
        }
        self.shared.resized(&mut state);
        Ok(())
    }

    /// Batches that may wait, while the run goes on.
    pub fn set_depth(&self, depth: usize) {
        let mut state = self.shared.lock();
        state.depth = depth;
        self.shared.resized(&mut state);
    }

    pub fn status(&self) -> LoaderStatus {
        let (shared, state) = (&self.shared, self.shared.lock());
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LoaderStatus {
            ready: state.window.ready(),
            workers: state.alive,
            busy_ns: read(&shared.busy_ns),
            blocked_full_ns: read(&shared.blocked_full_ns),
            made: read(&shared.made),
        }
    }

    /// Clips that were left out since the start, each once.
    pub fn failures(&self) -> Vec<Failure> {
        self.shared.lock().failures.clone()
    }
}

impl Drop for Loader {
    /// Workers end after the batch they are at.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.room.notify_all();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

/// What a thread that makes batches has of its own.
struct Hand {
    number: usize,
    clock: ThreadClock,
}

impl Hand {
    fn new(number: usize) -> Self {
        Hand { number, clock: ThreadClock::open() }
    }
}

/// A worker thread. What panics in a batch is caught there; this is for memory that does not come.
fn work(shared: &Shared, number: usize) {
    let hand = Hand::new(number);
    let run = || {
        while let Some((number, block)) = shared.task(true) {
            shared.make(number, block, &hand);
        }
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let mut state = shared.lock();
        state.alive -= 1;
        state.error = Some(Error::Ended(message(&*panic).into()));
        shared.arrived.notify_all();
        shared.room.notify_all();
    }
}

impl Shared {
    /// A worker that panicked left nothing half done behind: what it holds is taken or it is not.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a block, then for a number. None: the worker is to end, and is counted out already.
    fn task(&self, is_worker: bool) -> Option<(u64, Box<dyn Block>)> {
        let start = Instant::now();
        let mut own: Option<Box<dyn Block>> = None;
        let mut state = self.lock();
        loop {
            if state.closed || state.error.is_some() || (is_worker && state.alive > state.wanted) {
                state.free.extend(own);
                state.alive -= usize::from(is_worker);
                self.room.notify_all();
                self.arrived.notify_all();
                return None;
            }
            let most = state.most_blocks(self.in_flight);
            if own.is_none() {
                own = state.free.pop();
            }
            if own.is_none() && state.blocks < most {
                state.blocks += 1;
                drop(state);
                let allocated = (self.allocate)(self.layout.bytes);
                state = self.lock();
                match allocated {
                    Ok(block) => own = Some(block),
                    Err(reason) => {
                        state.blocks -= 1;
                        state.error = Some(Error::Memory { mib: self.layout.bytes.div_ceil(1 << 20), reason });
                    }
                }
                continue;
            }
            if let Some(block) = own.take() {
                if let Some(number) = state.window.take(most) {
                    self.blocked_full_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    return Some((number, block));
                }
                own = Some(block);
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes a batch and puts it, or the news that there is none, into the window.
    fn make(&self, number: u64, mut block: Box<dyn Block>, hand: &Hand) {
        let (start, before, mut locked) = (Instant::now(), hand.clock.read(), Duration::ZERO);
        simulate::wait(self.delays.hiccup_of(number));
        simulate::work(self.delays.load);
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
        let timing = BatchTiming { worker: hand.number, start, wall, locked, ran: hand.clock.since(before) };
        self.busy_ns.fetch_add(wall.as_nanos() as u64, Ordering::Relaxed);
        self.made.fetch_add(u64::from(laid.is_some()), Ordering::Relaxed);
        let made = match laid {
            Some((text_spans, frame_spans)) => {
                Made::Batch(HostBatch { block, text_spans, frame_spans, position: Position::default(), timing })
            }
            None => Made::Nothing(block),
        };
        self.lock().window.put(number, made);
        self.arrived.notify_all();
    }

    /// Lays a batch, less the clips that turn out to be damaged.
    fn lay(&self, number: u64, block: &mut dyn Block, locked: &mut Duration) -> (Vec<Span>, Vec<Span>) {
        let asked = Instant::now();
        let mut plans = self.plans();
        *locked += asked.elapsed();
        simulate::wait(self.delays.lock);
        let (epoch, batch, plan) = plans.locate(number, &self.dataset, &self.layout.budget);
        drop(plans);
        simulate::hand_over(self.delays.lock);
        loop {
            let asked = Instant::now();
            let spoilt = self.lock().spoilt.clone();
            *locked += asked.elapsed();
            let draw = [self.seed, epoch, batch];
            let clips = &plan[batch as usize];
            match self.dataset.lay(clips, &self.layout, block.bytes_mut(), draw, &spoilt, &self.delays) {
                Ok(spans) => return spans,
                Err(spoilt) => self.fail(Some(spoilt.clip), spoilt.failure),
            }
        }
    }

    /// Counts a failure, a clip's only once.
    fn fail(&self, clip: Option<usize>, failure: Failure) {
        let mut state = self.lock();
        if clip.is_some_and(|clip| !state.spoilt.insert(clip)) {
            return;
        }
        state.failures.push(failure);
        if state.failures.len() > self.max_failures {
            let failures = state.failures.clone();
            state.error = Some(Error::TooManyFailures { failures, max_failures: self.max_failures });
            self.arrived.notify_all();
            self.room.notify_all();
        }
    }

    fn batch_failure(&self, number: u64, reason: &str) -> Failure {
        let (epoch, batch, _) = self.plans().locate(number, &self.dataset, &self.layout.budget);
        let id = format!("batch {batch} of epoch {epoch}");
        Failure { path: id.clone().into(), id, reason: format!("panic: {reason}") }
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn position(&self, delivered: (u64, Vec<u64>)) -> Position {
        self.plans().position(delivered, &self.dataset, &self.layout.budget)
    }

    fn recycle(&self, block: Box<dyn Block>) {
        self.lock().take_back(block, self.in_flight);
        self.room.notify_all();
    }

    /// More blocks may be made, or the surplus goes.
    fn resized(&self, state: &mut State) {
        while state.blocks > state.most_blocks(self.in_flight) && state.free.pop().is_some() {
            state.blocks -= 1;
        }
        self.room.notify_all();
        self.arrived.notify_all();
    }

    fn close(&self, state: &mut State, error: Error) -> Error {
        state.closed = true;
        self.room.notify_all();
        error
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
}
