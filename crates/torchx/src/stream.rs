//! CUDA streams and events, and copies that do not wait.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;

use tch::{Device, Kind, Tensor};

use crate::cuda;
use crate::error::Error;
use crate::ffi::{check, make, raw, torchx_copy_async, torchx_pin};
use crate::kernel::{Arg, Kernel};
use crate::shim::{Guard, RawEvent, StreamId, api};

/// A queue of work on one device. Streams come from LibTorch's pools (32 per device and priority, handed out in turn),
/// so this is a name, cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(StreamId);

impl Stream {
    pub fn from_pool(device: Device, high_priority: bool) -> Result<Stream, Error> {
        let mut id = StreamId::default();
        // SAFETY: an index that exists, and room for one id.
        check(unsafe { (api()?.stream_from_pool)(cuda::index(device)?, high_priority, &mut id) })?;
        Ok(Stream(id))
    }

    /// The one that this thread's work on the device goes to.
    pub fn current(device: Device) -> Result<Stream, Error> {
        let mut id = StreamId::default();
        // SAFETY: an index that exists, and room for one id.
        check(unsafe { (api()?.stream_current)(cuda::index(device)?, &mut id) })?;
        Ok(Stream(id))
    }

    /// The one that libraries use where nobody names another. Work of streams from the pool does not wait for it.
    pub fn default_of(device: Device) -> Result<Stream, Error> {
        Ok(Stream(StreamId { id: 0, device: cuda::index(device)? }))
    }

    pub fn device(&self) -> Device {
        Device::Cuda(self.0.device as usize)
    }

    /// Makes this stream and its device current for this thread until the guard is dropped.
    pub fn guard(&self) -> Result<StreamGuard, Error> {
        let mut guard = std::ptr::null_mut();
        // SAFETY: the id came from LibTorch; the guard goes back through `stream_unguard`.
        check(unsafe { (api()?.stream_guard)(self.0, &mut guard) })?;
        Ok(StreamGuard { guard, _this_thread: PhantomData })
    }

    /// Blocks until the work queued so far is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the id came from LibTorch.
        check(unsafe { (api()?.stream_synchronize)(self.0) })
    }

    /// Whether the work queued so far is done; does not block.
    pub fn query(&self) -> Result<bool, Error> {
        let mut done = false;
        // SAFETY: the id came from LibTorch; writes one bool.
        check(unsafe { (api()?.stream_query)(self.0, &mut done) })?;
        Ok(done)
    }

    /// Work queued from now on starts after the event, which may be another device's. The host does not wait.
    pub fn wait(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: a live event, and an id that came from LibTorch.
        check(unsafe { (api()?.event_wait)(event.0, self.0) })
    }
}

/// Keeps a stream current; dropping it brings back what was current before. Drop guards in reverse order.
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    guard: Guard,
    /// What is current is kept per thread, so a guard must not leave its own.
    _this_thread: PhantomData<*mut ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: made by `stream_guard` on this thread, and freed once.
            unsafe { (api.stream_unguard)(self.guard) }
        }
    }
}

/// A mark in a stream. It belongs to the device of the stream that records it first.
pub struct Event(RawEvent);

// SAFETY: CUDA events may be used from any thread; `Event` is not `Sync`, so from one at a time.
unsafe impl Send for Event {}

impl Event {
    /// `timing` allows [`Event::elapsed_ms`], at a small cost on the GPU.
    pub fn new(timing: bool) -> Result<Event, Error> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the event goes back through `event_free`.
        check(unsafe { (api()?.event_new)(timing, &mut event) })?;
        Ok(Event(event))
    }

    /// Marks the end of what is queued on the stream so far; an older mark is forgotten.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: a live event, and an id that came from LibTorch.
        check(unsafe { (api()?.event_record)(self.0, stream.0) })
    }

    /// Whether the GPU has passed the mark; does not block. True when nothing was recorded yet.
    pub fn query(&self) -> Result<bool, Error> {
        let mut done = false;
        // SAFETY: a live event; writes one bool.
        check(unsafe { (api()?.event_query)(self.0, &mut done) })?;
        Ok(done)
    }

    /// Blocks until the GPU has passed the mark.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: a live event.
        check(unsafe { (api()?.event_synchronize)(self.0) })
    }

    /// Time on the GPU from this mark to a later one. An error while either is ahead: [`Event::query`] first.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f32, Error> {
        let mut ms = 0.0;
        // SAFETY: live events; writes one f32.
        check(unsafe { (api()?.event_elapsed_ms)(self.0, later.0, &mut ms) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: made by `event_new`, and freed once.
            unsafe { (api.event_free)(self.0) }
        }
    }
}

thread_local! {
    /// Streams of work that runs beside other work, by what it is: always the same ones, because libraries set themselves up
    /// for each.
    static LANES: RefCell<HashMap<(Device, &'static str), Vec<Stream>>> = RefCell::default();
    /// Whether work that could go side by side is done one after the other for now.
    static IN_ORDER: Cell<bool> = const { Cell::new(false) };
    /// What [`settled`] has done so far.
    static SETTLED: RefCell<HashSet<(Device, &'static str, Vec<i64>)>> = RefCell::default();
}

/// Whether it was so before, which it is again once this is gone: work may panic.
struct InOrder(bool);

impl Drop for InOrder {
    fn drop(&mut self) {
        IN_ORDER.set(self.0);
    }
}

/// Does work in which LibTorch transforms (Fourier): the first time for a name and a shape on the default stream, one thing
/// after the other, and until it is done.
///
/// cuFFT makes a plan for each shape that it meets, and what a plan needs on the GPU gets there by the default stream. A
/// transform on a stream from the pool does not wait for that: where another program keeps the GPU busy it came first, and
/// read an address that was none yet ("illegal memory access").
pub fn settled<T>(device: Device, name: &'static str, shape: &[i64], work: impl FnOnce() -> T) -> Result<T, Error> {
    if !device.is_cuda() || !SETTLED.with_borrow_mut(|seen| seen.insert((device, name, shape.to_vec()))) {
        return Ok(work());
    }
    let (default, queued) = (Stream::default_of(device)?, Event::new(false)?);
    queued.record(&Stream::current(device)?)?;
    default.wait(&queued)?;
    let made = {
        let (_guard, _in_order) = (default.guard()?, InOrder(IN_ORDER.replace(true)));
        work()
    };
    default.synchronize()?;
    Ok(made)
}

/// Does pieces of work that do not depend on each other, each on a stream of its own: small kernels then share the GPU. What
/// is queued already goes before all of them, and what comes next goes after; LibTorch takes their gradients back on the
/// same streams, which are those of work of this name. Elsewhere than on a GPU one goes after the other.
pub fn side_by_side<T>(
    device: Device,
    name: &'static str,
    count: usize,
    mut work: impl FnMut(usize) -> T,
) -> Result<Vec<T>, Error> {
    if !device.is_cuda() || IN_ORDER.get() {
        return Ok((0..count).map(work).collect());
    }
    let (main, lanes) = (Stream::current(device)?, lanes(device, name, count)?);
    let (begun, mut made) = (Event::new(false)?, Vec::with_capacity(count));
    begun.record(&main)?;
    for (number, lane) in lanes.iter().enumerate() {
        lane.wait(&begun)?;
        let _guard = lane.guard()?;
        made.push(work(number));
    }
    for lane in &lanes {
        let done = Event::new(false)?;
        done.record(lane)?;
        main.wait(&done)?;
    }
    Ok(made)
}

/// Begins work on a stream of its own, behind what is queued already: what comes next waits for it where [`Beside::join`]
/// says so. LibTorch takes its gradients back on the same stream. Elsewhere than on a GPU it is done at once.
pub fn beside<T>(device: Device, name: &'static str, work: impl FnOnce() -> T) -> Result<Beside<T>, Error> {
    if !device.is_cuda() || IN_ORDER.get() {
        return Ok(Beside { made: work(), lane: None });
    }
    let lane = lanes(device, name, 1)?[0];
    let begun = Event::new(false)?;
    begun.record(&Stream::current(device)?)?;
    lane.wait(&begun)?;
    let _guard = lane.guard()?;
    let made = work();
    let done = Event::new(false)?;
    done.record(&lane)?;
    Ok(Beside { made, lane: Some((lane, done)) })
}

/// Work that [`beside`] began.
#[must_use]
pub struct Beside<T> {
    made: T,
    /// Where it runs, and the end of it there.
    lane: Option<(Stream, Event)>,
}

impl<T> Beside<T> {
    /// What the work returned, for more work of the same name, which goes behind it anyway. Others wait for that.
    pub fn ahead(self) -> T {
        self.made
    }

    /// What the work returned. What is queued on the current stream from now on goes behind it.
    pub fn join(self) -> Result<T, Error> {
        if let Some((lane, done)) = &self.lane {
            Stream::current(lane.device())?.wait(done)?;
        }
        Ok(self.made)
    }
}

fn lanes(device: Device, name: &'static str, count: usize) -> Result<Vec<Stream>, Error> {
    LANES.with_borrow_mut(|all| {
        let lanes = all.entry((device, name)).or_default();
        for _ in lanes.len()..count {
            lanes.push(Stream::from_pool(device, false)?);
        }
        Ok(lanes[..count].to_vec())
    })
}

/// Queues the copy on the current stream and returns, where that can be: between devices, and from or to pinned host
/// memory. Until the stream has passed the copy, leave both tensors alone.
pub fn copy_async(dst: &mut Tensor, src: &Tensor) -> Result<(), Error> {
    // SAFETY: two live tensors; LibTorch checks their shapes.
    check(unsafe { torchx_copy_async(raw(dst), raw(src)) })
}

/// The same for several, each `(to, from)`; in one launch where all are on one GPU.
pub fn copy_together(copies: &[(&Tensor, &Tensor)]) -> Result<(), Error> {
    const MOST: usize = 8;
    const PIECE: usize = 16;
    const BLOCK: u32 = 256;
    let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
    let is_plain = |tensor: &Tensor| {
        let device = copies[0].0.device();
        device.is_cuda()
            && tensor.device() == device
            && tensor.is_contiguous()
            && tensor.data_ptr().addr().is_multiple_of(PIECE)
            && bytes(tensor).is_multiple_of(4)
    };
    let are_alike = |&(to, from): &(&Tensor, &Tensor)| {
        to.kind() == from.kind() && to.size() == from.size() && is_plain(to) && is_plain(from)
    };
    if copies.len() > MOST || !copies.iter().all(are_alike) {
        return copies.iter().try_for_each(|(to, from)| copy_async(&mut to.shallow_clone(), from));
    }
    let Some((first, _)) = copies.first() else { return Ok(()) };
    // Mirror of the struct in copy.cu.
    let (mut words, mut pieces) = ([0; 4 * MOST], 0);
    for place in 0..MOST {
        if let Some((to, from)) = copies.get(place) {
            pieces += bytes(to).div_ceil(PIECE) as u64;
            words[place] = from.data_ptr().addr() as u64;
            words[MOST + place] = to.data_ptr().addr() as u64;
            words[2 * MOST + place] = (bytes(to) / 4) as u64;
        }
        words[3 * MOST + place] = pieces;
    }
    let blocks = pieces.div_ceil(u64::from(BLOCK)) as u32;
    Kernel::shared(include_str!("copy.cu"), "copy", first.device())?.launch(
        [blocks.max(1), 1, 1],
        [BLOCK, 1, 1],
        0,
        &[Arg::Words(&words)],
    )
}

/// Tells the allocator that `stream` uses the tensor too, so that its memory is not given away before `stream` is done.
/// Needed when a tensor made on one stream is dropped while another still reads it.
pub fn record_stream(tensor: &Tensor, stream: &Stream) -> Result<(), Error> {
    // SAFETY: a live tensor, and an id that came from LibTorch.
    check(unsafe { (api()?.record_stream)(raw(tensor), stream.0) })
}

/// A copy in pinned host memory, which the GPU can read on its own.
pub fn pin(tensor: &Tensor) -> Result<Tensor, Error> {
    cuda::load()?;
    // SAFETY: a live tensor, and room for the new one.
    make(|pinned| unsafe { torchx_pin(raw(tensor), pinned) })
}

/// Pinned host memory to fill in; pinning is slow (a system call per block), so make it once and use it again.
pub fn empty_pinned(shape: &[i64], kind: Kind) -> Result<Tensor, Error> {
    pin(&Tensor::f_empty(shape, (kind, Device::Cpu))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_async_on_the_cpu_is_a_copy() {
        let source = Tensor::from_slice(&[1.0f32, 2.0, 3.0]);
        let mut copy = Tensor::zeros([3], (Kind::Double, Device::Cpu));
        copy_async(&mut copy, &source).unwrap();
        assert_eq!(Vec::<f64>::try_from(&copy).unwrap(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn without_a_gpu_work_goes_one_after_the_other() {
        assert_eq!(side_by_side(Device::Cpu, "squares", 3, |number| number * number).unwrap(), [0, 1, 4]);
        assert_eq!(beside(Device::Cpu, "square", || 9).unwrap().join().unwrap(), 9);
    }

    #[test]
    fn a_libtorch_exception_becomes_an_error() {
        let error = copy_async(&mut Tensor::zeros([2], (Kind::Float, Device::Cpu)), &Tensor::from_slice(&[1i64, 2, 3]));
        let message = error.unwrap_err().to_string();
        assert!(message.contains("size of tensor") && !message.contains("frame #"), "{message}");
    }
}
