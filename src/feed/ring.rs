//! The ring: slots of fixed memory on the model device, filled by a thread of their own while the step runs.
//!
//! A slot goes round: free → filled on the data role's streams → ready → read by the step → free. Each hand-over
//! carries an event, so the next user of a slot waits on the device and no host thread waits for a kernel.

use super::batch::Batch;
use super::mel::{MelExtractor, MelStats};
use super::roles::Roles;
use crate::loader::{Loader, Position};
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tch::Device;
use torchx::{Event, Stream};

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Slots on the model device; 0 makes every batch in the training thread, when it is asked for.
    pub slots: usize,
    /// Pinned host memory and streams of their own; otherwise plain copies on the default streams.
    pub overlap: bool,
}

/// What `next` delivered besides the tensors.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Where the loader stands after this batch: what a checkpoint taken now must hold.
    pub resume_at: Position,
    pub utterances: usize,
    pub speech_frames: usize,
    /// How long the training thread waited for a batch.
    pub wait: Duration,
}

pub struct Feed {
    source: Source,
}

enum Source {
    Inline(Box<Producer>),
    Ring(Ring),
}

struct Ring {
    /// Both ends and the thread are there until the ring is dropped.
    queues: Option<(Receiver<Result<Slot>>, SyncSender<Slot>)>,
    thread: Option<JoinHandle<()>>,
    filled: Arc<AtomicUsize>,
    slots: usize,
}

#[derive(Default)]
struct Slot {
    /// Allocated at its first use, then overwritten: (tensors, what they hold).
    content: Option<(Batch, Delivery)>,
    /// Recorded by whoever used the slot last; the next user's stream waits for it.
    done: Option<Event>,
}

impl Feed {
    pub fn start(producer: Producer, options: Options) -> Result<Feed> {
        if options.slots == 0 {
            return Ok(Feed { source: Source::Inline(Box::new(producer)) });
        }
        let (to_ready, ready) = sync_channel(options.slots);
        let (free, to_fill) = sync_channel(options.slots);
        for _ in 0..options.slots {
            free.send(Slot::default()).expect("the other end is three lines above");
        }
        let filled = Arc::new(AtomicUsize::new(0));
        let counter = filled.clone();
        let work = move || produce(producer, options.overlap, &to_fill, &to_ready, &counter);
        let thread = std::thread::Builder::new().name("feed".into()).spawn(work).context("cannot start a thread")?;
        let ring = Ring { queues: Some((ready, free)), thread: Some(thread), filled, slots: options.slots };
        Ok(Feed { source: Source::Ring(ring) })
    }

    /// Copies the next batch into `into` (allocated at the first call) on the current stream.
    pub fn next(&mut self, into: &mut Option<Batch>) -> Result<Delivery> {
        let start = Instant::now();
        match &mut self.source {
            Source::Inline(producer) => {
                let (batch, delivery) = producer.make(false)?;
                put(&batch, into, producer.roles.model)?;
                Ok(Delivery { wait: start.elapsed(), ..delivery })
            }
            Source::Ring(ring) => {
                let (ready, free) = ring.queues.as_ref().expect("the ring is not being dropped");
                let mut slot = ready.recv().map_err(|_| anyhow!("the feed thread ended; its message is above"))??;
                ring.filled.fetch_sub(1, Ordering::Relaxed);
                let wait = start.elapsed();
                let (batch, delivery) = slot.content.as_ref().expect("a ready slot is filled");
                let device = batch.mel.device();
                wait_on_current(slot.done.as_ref(), device)?;
                put(batch, into, device)?;
                let delivery = Delivery { wait, ..*delivery };
                slot.done = record_on_current(device)?;
                let _ = free.send(slot); // fails only when the feed thread has ended, and then the next call says why
                Ok(delivery)
            }
        }
    }

    /// Waits until every slot is filled or the time is over: (filled, slots). Without a ring there is nothing to fill.
    pub fn warm_up(&self, at_most: Duration) -> Option<(usize, usize)> {
        let Source::Ring(ring) = &self.source else { return None };
        let start = Instant::now();
        let filled = || ring.filled.load(Ordering::Relaxed);
        while filled() < ring.slots && start.elapsed() < at_most {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some((filled(), ring.slots))
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

/// Makes batches on the data device.
pub struct Producer {
    pub loader: Loader,
    pub mel: MelExtractor,
    pub stats: MelStats,
    pub roles: Roles,
}

impl Producer {
    fn make(&mut self, pinned: bool) -> Result<(Batch, Delivery)> {
        let host = self.loader.next().ok_or_else(|| anyhow!("a loader worker ended; its message is above"))??;
        let delivery = Delivery {
            resume_at: self.loader.position(),
            utterances: host.utterances(),
            speech_frames: host.speech_frames(),
            wait: Duration::ZERO,
        };
        Ok((self.mel.batch(&host, &self.stats, pinned), delivery))
    }
}

/// The feed thread. Ends when the ring is dropped, or after the first error, which it hands over.
fn produce(
    mut producer: Producer,
    overlap: bool,
    to_fill: &Receiver<Slot>,
    ready: &SyncSender<Result<Slot>>,
    filled: &AtomicUsize,
) {
    let streams = if overlap { own_streams(producer.roles) } else { Ok(Vec::new()) };
    // The data role's guard comes last and decides the current device.
    let _guards = match streams.as_ref().map(|streams| streams.iter().map(Stream::guard).collect::<Result<Vec<_>, _>>())
    {
        Ok(Ok(guards)) => guards,
        Ok(Err(error)) => return drop(ready.send(Err(error.into()))),
        Err(error) => return drop(ready.send(Err(anyhow!("{error}")))),
    };
    tch::no_grad(|| {
        while let Ok(slot) = to_fill.recv() {
            let slot = torchx::catch(|| fill(&mut producer, slot, overlap)).map_err(Into::into).flatten();
            let failed = slot.is_err();
            filled.fetch_add(1, Ordering::Relaxed);
            if ready.send(slot).is_err() || failed {
                return;
            }
        }
    });
}

/// Streams that the feed thread works on, so that nothing it does queues behind the step.
fn own_streams(roles: Roles) -> Result<Vec<Stream>, torchx::Error> {
    let mut gpus: Vec<Device> = [roles.model, roles.data].into_iter().filter(|device| device.is_cuda()).collect();
    gpus.dedup();
    gpus.into_iter().map(|gpu| Stream::from_pool(gpu, false)).collect()
}

fn fill(producer: &mut Producer, mut slot: Slot, overlap: bool) -> Result<Slot> {
    let (batch, delivery) = producer.make(overlap)?;
    let device = producer.roles.model;
    wait_on_current(slot.done.as_ref(), device)?;
    let mut into = slot.content.take().map(|(batch, _)| batch);
    put(&batch, &mut into, device)?;
    slot.done = record_on_current(device)?;
    slot.content = into.map(|batch| (batch, delivery));
    Ok(slot)
}

fn put(batch: &Batch, into: &mut Option<Batch>, device: Device) -> Result<()> {
    match into {
        Some(into) => into.fill_from(batch)?,
        None => *into = Some(batch.copy_to(device)),
    }
    Ok(())
}

/// On the CPU, work is done when its call returns: there is nothing to wait for and nothing to record.
fn wait_on_current(event: Option<&Event>, device: Device) -> Result<()> {
    if let Some(event) = event {
        Stream::current(device)?.wait(event)?;
    }
    Ok(())
}

fn record_on_current(device: Device) -> Result<Option<Event>> {
    if !device.is_cuda() {
        return Ok(None);
    }
    let event = Event::new(false)?;
    event.record(&Stream::current(device)?)?;
    Ok(Some(event))
}
