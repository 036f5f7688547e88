//! How busy the GPUs really are: every kernel and copy with its start and end, as CUPTI records them. Kernels inside
//! replayed graphs count one by one. Recording slows launches down, so it is for a stretch of steps and not for a whole
//! run. The first recording of a process also sets CUPTI up: throw it away.

use std::ffi::CStr;

use tch::Device;

use crate::cuda;
use crate::error::Error;
use crate::ffi::check;
use crate::shim::{self, Span, api};

const NO_NAME: u32 = u32::MAX;

/// Records until it is stopped or dropped. There can be one at a time, and none beside LibTorch's own profiler.
#[must_use = "dropping it ends the recording"]
pub struct Recorder {
    _private: (),
}

/// Waits until the GPUs are idle, then records what they run, all of them.
pub fn start() -> Result<Recorder, Error> {
    cuda::load()?;
    // SAFETY: takes nothing; the shim refuses a second recording.
    check(unsafe { (api()?.activity_start)() })?;
    Ok(Recorder { _private: () })
}

impl Recorder {
    /// Waits until what was queued is done: that is the end of the recording.
    pub fn stop(self) -> Result<Recording, Error> {
        let mut raw = std::mem::MaybeUninit::<shim::Recording>::uninit();
        // SAFETY: `activity_stop` fills in the whole struct when it goes well, with arrays of the lengths it names and
        // NUL-terminated names; they live until `activity_clear`, which is called when `self` goes, after this copy.
        unsafe {
            check((api()?.activity_stop)(raw.as_mut_ptr()))?;
            let raw = raw.assume_init();
            Ok(Recording {
                spans: copy(raw.spans, raw.span_count),
                names: copy(raw.names, raw.name_count).into_iter().map(|name| text(name)).collect(),
                start_ns: raw.start_ns,
                end_ns: raw.end_ns,
                dropped: raw.dropped,
            })
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: a recording is under way, or was stopped just now and its arrays are copied.
            unsafe { (api.activity_clear)() }
        }
    }
}

/// # Safety
/// `from` points to `count` values, or `count` is 0.
unsafe fn copy<T: Copy>(from: *const T, count: usize) -> Vec<T> {
    // SAFETY: the caller's promise; an empty C++ vector may give a null pointer, which a slice may not have.
    if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(from, count) }.to_vec() }
}

/// # Safety
/// `name` is a NUL-terminated string.
unsafe fn text(name: *const std::ffi::c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// What all GPUs ran between start and stop.
pub struct Recording {
    spans: Vec<Span>,
    names: Vec<String>,
    start_ns: u64,
    end_ns: u64,
    /// Records that CUPTI had no room for: where this is not 0, the figures are too low.
    pub dropped: u64,
}

/// What one GPU ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    pub wall_ns: u64,
    /// Time while at least one kernel, copy or fill ran.
    pub busy_ns: u64,
    /// Time while at least one kernel ran.
    pub kernel_ns: u64,
    pub kernels: u64,
    /// Kernels, the longest in total first.
    pub by_name: Vec<KernelTime>,
    /// Every run of one, by its start.
    pub runs: Vec<KernelRun>,
}

/// One run of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRun {
    /// Since the recording began.
    pub start_us: f64,
    pub us: f64,
    pub stream: u32,
    pub name: String,
}

/// All runs of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    pub name: String,
    pub total_ns: u64,
    pub count: u64,
}

impl Recording {
    pub fn of(&self, device: Device) -> Result<Activity, Error> {
        Ok(self.of_index(cuda::index(device)? as u32))
    }

    fn of_index(&self, device: u32) -> Activity {
        let mut spans: Vec<Span> = self.spans.iter().filter(|span| span.device == device).copied().collect();
        spans.sort_by_key(|span| span.start_ns);
        let kernels: Vec<Span> = spans.iter().filter(|span| span.name != NO_NAME).copied().collect();
        Activity {
            wall_ns: self.end_ns.saturating_sub(self.start_ns),
            busy_ns: covered(spans.iter().map(|span| self.within(span))),
            kernel_ns: covered(kernels.iter().map(|span| self.within(span))),
            kernels: kernels.len() as u64,
            by_name: self.by_name(&kernels),
            runs: kernels.iter().map(|kernel| self.run(kernel)).collect(),
        }
    }

    fn run(&self, kernel: &Span) -> KernelRun {
        KernelRun {
            start_us: kernel.start_ns.saturating_sub(self.start_ns) as f64 / 1e3,
            us: kernel.end_ns.saturating_sub(kernel.start_ns) as f64 / 1e3,
            stream: kernel.stream,
            name: self.names[kernel.name as usize].clone(),
        }
    }

    /// Counted from the start of the recording and cut to it.
    fn within(&self, span: &Span) -> (u64, u64) {
        let inside = |ns: u64| ns.clamp(self.start_ns, self.end_ns) - self.start_ns;
        (inside(span.start_ns), inside(span.end_ns))
    }

    fn by_name(&self, kernels: &[Span]) -> Vec<KernelTime> {
        let mut times: Vec<KernelTime> =
            self.names.iter().map(|name| KernelTime { name: name.clone(), total_ns: 0, count: 0 }).collect();
        for kernel in kernels {
            let time = &mut times[kernel.name as usize];
            time.total_ns += kernel.end_ns.saturating_sub(kernel.start_ns);
            time.count += 1;
        }
        times.retain(|time| time.count > 0);
        times.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        times
    }
}

/// The time that any of the spans covers; they come by their start.
fn covered(spans: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut total, mut reached) = (0, 0);
    for (start, end) in spans {
        total += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_ns: u64, end_ns: u64, device: u32, stream: u32, name: u32) -> Span {
        Span { start_ns, end_ns, device, stream, name }
    }

    #[test]
    fn overlaps_count_once_copies_are_no_kernels_and_devices_are_apart() {
        let spans = vec![
            span(140, 160, 0, 7, 1),
            span(110, 130, 0, 7, 0),
            span(120, 150, 0, 9, 0),
            span(155, 170, 0, 9, NO_NAME),
            span(90, 105, 0, 7, 0),
            span(195, 230, 0, 7, NO_NAME),
            span(100, 200, 1, 7, 0),
        ];
        let names = vec!["matmul".to_owned(), "add".to_owned(), "of nobody".to_owned()];
        let recording = Recording { spans, names, start_ns: 100, end_ns: 200, dropped: 0 };
        let activity = recording.of_index(0);
        assert_eq!((activity.wall_ns, activity.busy_ns, activity.kernel_ns, activity.kernels), (100, 70, 55, 4));
        let time = |name: &str, total_ns, count| KernelTime { name: name.to_owned(), total_ns, count };
        assert_eq!(activity.by_name, [time("matmul", 65, 3), time("add", 20, 1)]);
        let runs: Vec<_> = activity.runs.iter().map(|run| (run.start_us, run.us, run.stream, &*run.name)).collect();
        assert_eq!(runs[1..3], [(0.01, 0.02, 7, "matmul"), (0.02, 0.03, 9, "matmul")]);
        assert_eq!((recording.of_index(1).busy_ns, recording.of_index(2).kernels), (100, 0));
    }

    /// Against marking every nanosecond.
    #[test]
    fn covered_time_equals_brute_force() {
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for round in 0..200 {
            let mut spans: Vec<(u64, u64)> = (0..round % 20).map(|_| (random(500), random(60))).collect();
            spans.iter_mut().for_each(|span| span.1 += span.0);
            spans.sort_by_key(|span| span.0);
            let marked = (0..600).filter(|ns| spans.iter().any(|(start, end)| start <= ns && ns < end)).count();
            assert_eq!(covered(spans.iter().copied()), marked as u64, "{spans:?}");
        }
    }

    #[test]
    fn without_a_gpu_the_reason_comes_back() {
        if !cuda::is_available() {
            assert_eq!(start().err(), cuda::load().err());
        }
    }
}
