//! Batches made on the data device and delivered to the model device: copy, features, transfer, each on a stream of
//! its own, each between two events.

use super::batch::Batch;
use super::block::block_tensor;
use super::event::{Event, Interval};
use super::features::Features;
use super::roles::Roles;
use super::route::{Route, StagingBuffers};
use anyhow::{Result, anyhow};
use host::loader::{BatchTiming, Block, COPIES_IN_FLIGHT, HostBatch, Loader, Position};
use host::machine::{Ran, ThreadClock};
use host::simulate::{Hook, Moment};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};
use torchx::stream::{copy_async, record_stream};
use torchx::{Stream, StreamGuard};

/// When the parts of making one batch ran.
pub struct Trace {
    pub timing: BatchTiming,
    /// When the feed asked for the batch, and how long it waited for the loader.
    pub asked: Instant,
    pub load_wait: Duration,
    /// Absent where the data role runs on the CPU: the block is there already.
    pub to_device: Option<Interval>,
    pub features: Interval,
    pub transfer: Interval,
    /// How long the feed's thread was at this batch, and what it had of a core meanwhile where the system tells.
    pub wall: Duration,
    pub ran: Option<Ran>,
}

/// What is known of a batch when it is on its way.
pub struct Made {
    pub resume_at: Position,
    pub utterances: usize,
    pub speech_frames: usize,
    pub trace: Trace,
}

/// What was delivered besides the tensors.
pub struct Delivery {
    /// Where the loader stands after this batch: what a checkpoint taken now must hold.
    pub resume_at: Position,
    pub utterances: usize,
    pub speech_frames: usize,
    /// How long the training thread waited for the batch. On a GPU the device may still have had work.
    pub wait: Duration,
    /// When the model device had nothing else to do and the batch was asked for; absent for the first.
    pub asked: Option<Event>,
    /// When the model device had the batch: after all it waited for, before it copied anything.
    pub arrived: Event,
    pub trace: Trace,
}

/// Memory of one batch on the model device, and what it takes to fill it.
#[derive(Default)]
pub struct Slot {
    /// Allocated at the first use, then overwritten.
    pub batch: Option<Batch>,
    /// The last reader's event: until the device is past it, the slot is not written.
    pub done: Option<Event>,
    staging: StagingBuffers,
}

pub struct Producer {
    loader: Arc<Loader>,
    features: Features,
    roles: Roles,
    route: Route,
    lanes: Lanes,
    hook: Hook,
    /// Blocks on the data device, used in turn, each with the event of its last reader.
    staging: [(Option<Tensor>, Option<Event>); 2],
    turn: usize,
    /// The clock of the thread that fills, opened by that thread.
    cores: Option<ThreadClock>,
    #[cfg(test)]
    poison: bool,
    /// Blocks that a copy may still be reading.
    in_flight: VecDeque<(Event, Box<dyn Block>)>,
}

/// Streams of the producer. On one device and without overlap: whatever is current.
#[derive(Default)]
struct Lanes {
    copy: Option<Stream>,
    work: Option<Stream>,
    /// On the data device and on the model device.
    deliver: [Option<Stream>; 2],
}

impl Producer {
    /// `overlap`: streams of its own, so that nothing it does queues behind the step.
    pub fn new(loader: Arc<Loader>, features: Features, roles: Roles, overlap: bool, hook: Hook) -> Result<Self> {
        Self::by_route(Route::of(roles)?, loader, features, roles, overlap, hook)
    }

    /// Two devices' route and lanes work on one device as well, so that one is enough to test them.
    pub(super) fn by_route(
        route: Route,
        loader: Arc<Loader>,
        features: Features,
        roles: Roles,
        overlap: bool,
        hook: Hook,
    ) -> Result<Self> {
        let lanes = if overlap { Lanes::new(roles, route)? } else { Lanes::default() };
        Ok(Producer {
            loader,
            features,
            roles,
            route,
            lanes,
            hook,
            staging: Default::default(),
            turn: 0,
            cores: None,
            #[cfg(test)]
            poison: false,
            in_flight: VecDeque::new(),
        })
    }

    pub fn loader(&self) -> &Arc<Loader> {
        &self.loader
    }

    pub fn device(&self) -> Device {
        self.roles.data
    }

    pub fn route(&self) -> Route {
        self.route
    }

    /// Fills slots with values that no batch has once they were read, so that reading one late would show.
    #[cfg(test)]
    pub fn poison_slots(&mut self) {
        self.poison = true;
    }

    /// Whether copy, features and both ends of the transfer have a stream each.
    #[cfg(test)]
    pub fn has_lanes_of_two_devices(&self) -> bool {
        let Lanes { copy, work, deliver: [from, to] } = self.lanes;
        let lanes = [copy, work, from, to];
        lanes.iter().all(Option::is_some) && (1..4).all(|n| !lanes[..n].contains(&lanes[n]))
    }

    /// A read of poison must be the fault of the producer: the poison is there before anything else is queued.
    #[cfg(test)]
    fn poison(&self, slot: &Slot) -> Result<()> {
        if let Some(batch) = slot.batch.as_ref().filter(|_| self.poison) {
            batch.poison();
            Event::now(self.roles.model)?.wait()?;
        }
        Ok(())
    }

    /// Makes the next batch and queues its way into the slot; the slot's `done` event then tells when it is there.
    pub fn fill(&mut self, slot: &mut Slot) -> Result<Made> {
        // The device has read what the slot held: bounds how far the host runs ahead.
        if let Some(done) = slot.done.take() {
            done.wait()?;
        }
        #[cfg(test)]
        self.poison(slot)?;
        self.recycle()?;
        let before = self.cores.get_or_insert_with(ThreadClock::open).read();
        let asked = Instant::now();
        let host = self.loader.next().ok_or_else(|| anyhow!("every loader worker has ended"))??;
        let load_wait = asked.elapsed();
        let (utterances, speech_frames) = (host.utterances(), host.speech_frames());
        let HostBatch { block, position, timing, .. } = host;
        let (staged, to_device) = self.upload(&*block)?;
        let (batch, features) = self.make(&staged, to_device.as_ref(), &position)?;
        let (transfer, read) = self.deliver(&batch, &features, slot)?;
        self.release(block, read)?;
        let ran = self.cores.as_ref().and_then(|cores| cores.since(before));
        let trace = Trace { timing, asked, load_wait, to_device, features, transfer, wall: asked.elapsed(), ran };
        Ok(Made { resume_at: position, utterances, speech_frames, trace })
    }

    /// The block's bytes on the data device.
    fn upload(&mut self, block: &dyn Block) -> Result<(Tensor, Option<Interval>)> {
        let (host, device) = (block_tensor(block), self.roles.data);
        if !device.is_cuda() {
            return Ok((host.shallow_clone(), None));
        }
        let (staged, last_reader) = &mut self.staging[self.turn];
        let staged = staged.get_or_insert_with(|| Tensor::empty(host.size(), (Kind::Uint8, device)));
        let _lane = current(self.lanes.copy)?;
        if let Some(read) = last_reader.take() {
            read.precede(device)?;
        }
        let ((), span) = Interval::of(device, || {
            self.hook.at(Moment::CopyToData);
            copy_async(staged, host)
        })?;
        Ok((staged.shallow_clone(), Some(span)))
    }

    fn make(&self, staged: &Tensor, copied: Option<&Interval>, at: &Position) -> Result<(Batch, Interval)> {
        let _lane = current(self.lanes.work)?;
        if let Some(span) = copied {
            span.end.precede(self.roles.data)?;
        }
        Interval::of(self.roles.data, || {
            self.hook.at(Moment::MakeFeatures);
            Ok(self.features.batch(staged, at))
        })
    }

    /// Queues the batch's way into the slot: the span of it, and the event after which the batch is read no more.
    fn deliver(&self, batch: &Batch, made: &Interval, slot: &mut Slot) -> Result<(Interval, Event)> {
        let Roles { data, model } = self.roles;
        // Two variables, not a pair: each guard brings back the stream that was current before it, so the later one must
        // go first. Variables are dropped in reverse, the fields of a pair in order.
        let _on_data = current(self.lanes.deliver[0])?;
        let _on_model = current(self.lanes.deliver[1])?;
        // On both: a copy between devices is queued on the source's stream, one on a device on the latest that is current; and
        // the span begins when there is something to carry.
        made.end.precede(data)?;
        made.end.precede(model)?;
        for lane in self.lanes.deliver.iter().flatten().filter(|lane| lane.device() == data) {
            // Made on the work lane and dropped by the host before this lane has read it.
            batch.tensors().into_iter().try_for_each(|tensor| record_stream(tensor, lane))?;
        }
        let ((), span) = Interval::of(model, || {
            self.hook.at(Moment::TransferToModel);
            self.carry(batch, slot)
        })?;
        slot.done = Some(Event::now(model)?);
        Ok((span, Event::now(data)?))
    }

    fn carry(&self, batch: &Batch, slot: &mut Slot) -> Result<()> {
        let Roles { data, model } = self.roles;
        let Some(into) = &slot.batch else {
            slot.batch = Some(batch.copy_to(model));
            return Ok(());
        };
        if self.route == Route::Staged {
            slot.staging.load(batch)?;
            Event::now(data)?.precede(model)?;
            slot.staging.unload(into)?;
        } else {
            into.fill_from(batch)?;
        }
        Ok(())
    }

    /// The block and its copy on the device are free once `read` has passed.
    fn release(&mut self, block: Box<dyn Block>, read: Event) -> Result<()> {
        if !self.roles.data.is_cuda() {
            self.loader.recycle(block);
            return Ok(());
        }
        let copied = self.end_of(self.lanes.copy)?;
        self.staging[self.turn].1 = Some(read);
        self.turn = (self.turn + 1) % self.staging.len();
        self.in_flight.push_back((copied, block));
        Ok(())
    }

    /// Gives blocks back whose copies are over.
    fn recycle(&mut self) -> Result<()> {
        while let Some((copied, _)) = self.in_flight.front() {
            if self.in_flight.len() >= COPIES_IN_FLIGHT {
                copied.wait()?;
            } else if !copied.passed()? {
                break;
            }
            let (_, block) = self.in_flight.pop_front().expect("it has a front");
            self.loader.recycle(block);
        }
        Ok(())
    }

    /// The end of what is queued on a lane of the data device.
    fn end_of(&self, lane: Option<Stream>) -> Result<Event, torchx::Error> {
        let _lane = current(lane)?;
        Event::now(self.roles.data)
    }
}

impl Lanes {
    fn new(roles: Roles, route: Route) -> Result<Lanes, torchx::Error> {
        let lane = |device: Device| device.is_cuda().then(|| Stream::from_pool(device, true)).transpose();
        let (copy, work) = (lane(roles.data)?, lane(roles.data)?);
        // On one device the transfer is one small copy: a lane of its own would only add waiting.
        let deliver = if route == Route::Local { [work, work] } else { [lane(roles.data)?, lane(roles.model)?] };
        Ok(Lanes { copy, work, deliver })
    }
}

fn current(lane: Option<Stream>) -> Result<Option<StreamGuard>, torchx::Error> {
    lane.map(|stream| stream.guard()).transpose()
}
