//! The ring: slots of fixed memory on the model device, filled by a thread of their own while the step runs.
//!
//! A slot goes round: free → filled on the data role's streams → ready → read by the step → free. Each hand-over
//! carries an event, so the step waits on its device for a slot that is still being filled, and the feed's thread is the
//! only one that ever waits for a kernel.

use super::batch::Batch;
use super::event::Event;
use super::producer::{Delivery, Made, Producer, Slot};
use super::route::Route;
use anyhow::{Context, Result, anyhow};
use host::loader::Loader;
use host::telemetry::queue::{Backlog, Queue, QueueReading};
use serde::Serialize;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Context of errors that come from making batches.
#[derive(Debug, thiserror::Error)]
#[error("making a batch on the data device")]
pub struct OnDataDevice;

pub struct Feed {
    source: Source,
    device: tch::Device,
    /// Allocated on the data device before the feed began.
    before_bytes: u64,
    /// What filling the ring took there: (for good, at most).
    device_bytes: Cell<(u64, u64)>,
    route: Route,
    loader: Arc<Loader>,
}

enum Source {
    /// Every batch is made in the training thread, when it is asked for.
    Inline(Box<Producer>, Box<Slot>),
    Ring(Ring),
}

struct Ring {
    queue: Arc<Queue<Slots>>,
    /// There until the ring is dropped.
    thread: Option<JoinHandle<()>>,
    slots: usize,
}

/// A slot with what is in it, or why there will be no more.
type Ready = Result<(Slot, Made)>;

/// The slots that are neither filled nor read right now. The feed's thread waits for a free one, the step for a ready one.
struct Slots {
    free: VecDeque<Slot>,
    ready: VecDeque<Ready>,
    /// Batches that were made since the start.
    filled: usize,
    /// Nobody takes any more.
    closed: bool,
    /// Nobody fills any more.
    ended: bool,
}

impl Backlog for Slots {
    fn ready(&self) -> usize {
        self.ready.len()
    }
}

/// What the queues on both sides of the feed's thread have counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedReading {
    loader: QueueReading,
    ring: QueueReading,
}

/// Shares of the feed thread's time, and of the ring.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FeedTimes {
    pub busy: f64,
    pub waits_for_loader: f64,
    pub waits_for_room: f64,
    /// Time that the loader's threads wait for room; 1 is one of them all the time.
    pub loader_waits_for_room: f64,
    /// Batches that lay ready in the ring, on average over time.
    pub mean_ready: f64,
    /// Time that no batch lay ready.
    pub empty: f64,
}

impl FeedReading {
    pub fn since(&self, earlier: &FeedReading) -> FeedTimes {
        let (loader, ring) = (self.loader.since(&earlier.loader), self.ring.since(&earlier.ring));
        FeedTimes {
            busy: (1.0 - loader.consumer_waited - ring.producers_waited).max(0.0),
            waits_for_loader: loader.consumer_waited,
            waits_for_room: ring.producers_waited,
            loader_waits_for_room: loader.producers_waited,
            mean_ready: ring.mean_ready,
            empty: ring.empty,
        }
    }
}

impl Feed {
    /// `slots` on the model device; 0 makes every batch in the training thread.
    pub fn start(producer: Producer, slots: usize) -> Result<Feed> {
        let (route, loader, device) = (producer.route(), producer.loader().clone(), producer.device());
        let before_bytes = allocated(device).map_or(0, |(now, _)| now);
        if device.is_cuda() {
            torchx::memory::reset_peak(device)?;
        }
        let feed = |source| Feed {
            source,
            device,
            before_bytes,
            device_bytes: Cell::default(),
            route,
            loader: loader.clone(),
        };
        if slots == 0 {
            return Ok(feed(Source::Inline(Box::new(producer), Box::default())));
        }
        let free = (0..slots).map(|_| Slot::default()).collect();
        let queue = Slots { free, ready: VecDeque::new(), filled: 0, closed: false, ended: false };
        let queue = Arc::new(Queue::new(queue));
        let shared = queue.clone();
        let work = move || {
            if !device.is_cuda() {
                torchx::compute_alone(); // the cores are the step's
            }
            let _ = catch_unwind(AssertUnwindSafe(|| produce(producer, &shared)));
            shared.change(|slots| slots.ended = true);
        };
        let thread = std::thread::Builder::new().name("feed".into()).spawn(work).context("cannot start a thread")?;
        Ok(feed(Source::Ring(Ring { queue, thread: Some(thread), slots })))
    }

    /// Copies the next batch into `into` (allocated at the first call) on the current stream.
    pub fn next(&mut self, into: &mut Option<Batch>) -> Result<Delivery> {
        let start = Instant::now();
        let asked = into.as_ref().map(|batch| Event::now(batch.mel.device())).transpose()?;
        let (mut slot, made) = self.take()?;
        let wait = start.elapsed();
        let batch = slot.batch.take().expect("a slot that was filled has a batch");
        let device = batch.mel.device();
        if let Some(filled) = slot.done.take() {
            filled.precede(device)?;
        }
        let arrived = Event::now(device)?;
        match into {
            Some(into) => {
                into.fill_from(&batch)?;
                slot.done = Some(Event::now(device)?);
                slot.batch = Some(batch);
            }
            // The first batch stays; its slot gets memory of its own when it is filled again.
            None => *into = Some(batch),
        }
        self.give_back(slot);
        let Made { resume_at, utterances, speech_frames, trace } = made;
        Ok(Delivery { resume_at, utterances, speech_frames, wait, asked, arrived, trace })
    }

    fn take(&mut self) -> Ready {
        match &mut self.source {
            Source::Inline(producer, slot) => {
                let made = producer.fill(slot)?;
                Ok((std::mem::take(slot), made))
            }
            Source::Ring(ring) => ring.queue.consume(|slots| match slots.ready.pop_front() {
                None if slots.ended => Some(Err(anyhow!("the feed's thread has ended"))),
                next => next,
            }),
        }
    }

    fn give_back(&mut self, slot: Slot) {
        match &mut self.source {
            Source::Inline(_, own) => **own = slot,
            Source::Ring(ring) => ring.queue.change(|slots| slots.free.push_back(slot)),
        }
    }

    /// Waits until every slot is filled or the time is over: (filled, slots). Nothing without a ring, or once filling has
    /// failed: then it waits no longer, and [`Feed::next`] gives the error.
    pub fn warm_up(&self, at_most: Duration) -> Option<(usize, usize)> {
        let Source::Ring(ring) = &self.source else { return None };
        let start = Instant::now();
        let state = || ring.queue.update(|slots| (slots.filled, slots.ended));
        let is_filling = |(filled, ended): (usize, bool)| !ended && filled < ring.slots;
        while is_filling(state()) && start.elapsed() < at_most {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Nothing else has allocated meanwhile: the training thread was in here.
        if let Some((now, peak)) = allocated(self.device) {
            self.device_bytes.set((now.saturating_sub(self.before_bytes), peak.saturating_sub(self.before_bytes)));
        }
        let (filled, ended) = state();
        (!ended).then_some((filled, ring.slots))
    }

    /// Memory of the data role on its device: (fixed buffers, at most while a batch is made).
    pub fn device_bytes(&self) -> (u64, u64) {
        self.device_bytes.get()
    }

    pub fn route(&self) -> Route {
        self.route
    }

    /// The loader behind it: its status, its number of workers.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// What the feed's thread and its ring did since the start; nothing without a ring.
    pub fn reading(&self) -> Option<FeedReading> {
        let Source::Ring(ring) = &self.source else { return None };
        Some(FeedReading { loader: self.loader.queue(), ring: ring.queue.reading() })
    }
}

impl Drop for Ring {
    /// The thread ends at its next hand-over.
    fn drop(&mut self) {
        self.queue.change(|slots| slots.closed = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn allocated(device: tch::Device) -> Option<(u64, u64)> {
    let stats = device.is_cuda().then(|| torchx::memory::stats(device).ok()).flatten()?;
    Some((stats.allocated_bytes as u64, stats.peak_allocated_bytes as u64))
}

/// The feed's thread. Ends when the ring is dropped, or after the first error, which it hands over.
fn produce(mut producer: Producer, ring: &Queue<Slots>) {
    let next_free = |slots: &mut Slots| if slots.closed { Some(None) } else { slots.free.pop_front().map(Some) };
    tch::no_grad(|| {
        while let Some(mut slot) = ring.produce(next_free) {
            let waited = ring.while_producing_waits(|| slot.done.take().map_or(Ok(()), |done| done.wait()));
            let made = crate::catch(|| -> Ready {
                waited?;
                let made = producer.fill(&mut slot)?;
                Ok((slot, made))
            });
            let made = made.map_err(anyhow::Error::from).flatten().context(OnDataDevice);
            let failed = made.is_err();
            ring.put(|slots| {
                slots.filled += usize::from(!failed);
                slots.ready.push_back(made);
            });
            if failed {
                return;
            }
        }
    });
}
