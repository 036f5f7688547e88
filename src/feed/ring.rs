//! The ring: slots of fixed memory on the model device, filled by a thread of their own while the step runs.
//!
//! A slot goes round: free → filled on the data role's streams → ready → read by the step → free. Each hand-over
//! carries a mark, so the step waits on its device for a slot that is still being filled, and the feed's thread is the
//! only one that ever waits for a kernel.

use super::batch::Batch;
use super::event::Event;
use super::producer::{Delivery, Made, Producer, Slot};
use super::route::Route;
use anyhow::{Context, Result, anyhow};
use host::loader::Loader;
use host::telemetry::clock::{Board, Queue, Snapshot, Stage};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Context of errors that come from making batches.
pub const DATA_ROLE: &str = "making a batch on the data device";

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
    Inline(Box<Producer>, Slot),
    Ring(Ring),
}

struct Ring {
    /// Both ends and the thread are there until the ring is dropped.
    queues: Option<(Receiver<Ready>, SyncSender<Slot>)>,
    thread: Option<JoinHandle<()>>,
    gauges: Arc<Gauges>,
    slots: usize,
}

/// A slot with what is in it, or why there will be no more.
type Ready = Result<(Slot, Made)>;

/// What the feed's thread does with its time, and how full the ring is.
struct Gauges {
    filled: AtomicUsize,
    board: Board,
    thread: Arc<Stage>,
    ready: Arc<Queue>,
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
            return Ok(feed(Source::Inline(Box::new(producer), Slot::default())));
        }
        let (to_ready, ready) = sync_channel(slots);
        let (free, to_fill) = sync_channel(slots);
        for _ in 0..slots {
            free.send(Slot::default()).expect("the other end is three lines above");
        }
        let board = Board::default();
        let (stage, queue) = (board.stage("feed"), board.queue("ring", slots));
        let gauges = Arc::new(Gauges { filled: AtomicUsize::new(0), board, thread: stage, ready: queue });
        let shared = gauges.clone();
        let work = move || produce(producer, &to_fill, &to_ready, &shared);
        let thread = std::thread::Builder::new().name("feed".into()).spawn(work).context("cannot start a thread")?;
        let ring = Ring { queues: Some((ready, free)), thread: Some(thread), gauges, slots };
        Ok(feed(Source::Ring(ring)))
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
            Source::Ring(ring) => {
                let (ready, _) = ring.queues.as_ref().expect("the ring is not being dropped");
                let taken = ready.recv().map_err(|_| anyhow!("the feed's thread has ended"))??;
                ring.gauges.ready.pop();
                Ok(taken)
            }
        }
    }

    fn give_back(&mut self, slot: Slot) {
        match &mut self.source {
            Source::Inline(_, place) => *place = slot,
            Source::Ring(ring) => {
                let (_, free) = ring.queues.as_ref().expect("the ring is not being dropped");
                let _ = free.send(slot); // fails only when the thread has ended, and then the next call says why
            }
        }
    }

    /// Waits until every slot is filled or the time is over: (filled, slots). Without a ring there is nothing to fill.
    pub fn warm_up(&self, at_most: Duration) -> Option<(usize, usize)> {
        let Source::Ring(ring) = &self.source else { return None };
        let start = Instant::now();
        let filled = || ring.gauges.filled.load(Ordering::Relaxed);
        while filled() < ring.slots && start.elapsed() < at_most {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Nothing else has allocated meanwhile: the training thread was in here.
        if let Some((now, peak)) = allocated(self.device) {
            self.device_bytes.set((now.saturating_sub(self.before_bytes), peak.saturating_sub(self.before_bytes)));
        }
        Some((filled(), ring.slots))
    }

    /// Memory of the data role on its device: (fixed buffers, at most while a batch is made).
    pub fn device_bytes(&self) -> (u64, u64) {
        self.device_bytes.get()
    }

    pub fn route(&self) -> Route {
        self.route
    }

    /// The loader behind it: its gauges, its number of workers.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// What the feed's thread and its ring did since the start; nothing without a ring.
    pub fn snapshot(&self) -> Snapshot {
        match &self.source {
            Source::Ring(ring) => ring.gauges.board.snapshot(),
            Source::Inline(..) => Snapshot::default(),
        }
    }
}

impl Drop for Ring {
    /// Closing the queues ends the thread at its next hand-over.
    fn drop(&mut self) {
        self.queues = None;
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
fn produce(mut producer: Producer, to_fill: &Receiver<Slot>, ready: &SyncSender<Ready>, gauges: &Gauges) {
    producer.watch(gauges.thread.clone());
    tch::no_grad(|| {
        loop {
            let waiting = gauges.thread.blocked_full();
            let Ok(mut slot) = to_fill.recv() else { return };
            let waited = slot.done.take().map_or(Ok(()), |done| done.wait());
            drop(waiting);
            let made = crate::catch(|| -> Ready {
                waited?;
                let made = producer.fill(&mut slot)?;
                Ok((slot, made))
            });
            let made = made.map_err(anyhow::Error::from).flatten().context(DATA_ROLE);
            let failed = made.is_err();
            gauges.filled.fetch_add(1, Ordering::Relaxed);
            gauges.thread.done(1);
            if ready.send(made).is_err() || failed {
                return;
            }
            gauges.ready.push();
        }
    });
}
