//! Work on the threads that LibTorch's own operations use: threads of another pool would wait for cores that those, which
//! spin for a while after each operation, still hold.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a function once on each of so many threads of a team, and returns when all are done.
type Team = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, u32, u32);

/// OpenMP's own, as GCC calls it, out of the library that LibTorch brought along; Intel's and LLVM's have it under this name too.
fn team() -> Option<Team> {
    static TEAM: OnceLock<Option<Team>> = OnceLock::new();
    *TEAM.get_or_init(|| {
        // SAFETY: a lookup by name among the libraries that are loaded.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"GOMP_parallel".as_ptr()) };
        // SAFETY: the name belongs to a function of this type, a stable part of GCC's interface.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Team>(found) })
    })
}

/// From now on what this thread computes it computes alone, so that it has no team of its own. OpenMP counts the threads of all
/// teams, and where they are more than the cores nobody who waits spins any more: then every small operation of another
/// thread's puts its team to sleep and wakes it again.
pub fn compute_alone() {
    tch::get_num_threads(); // LibTorch sets the number at a thread's first question for it, and not again
    // SAFETY: a lookup by name among the libraries that are loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"omp_set_num_threads".as_ptr()) };
    if !found.is_null() {
        // SAFETY: the name belongs to a function of this type, of OpenMP's interface; it sets a number of this thread.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(i32)>(found)(1) };
    }
}

/// Threads that this one may use, itself among them.
pub(super) fn threads() -> usize {
    tch::get_num_threads().max(1) as usize
}

struct Job<F> {
    next: AtomicUsize,
    parts: usize,
    work: F,
}

/// Calls `work` for every part. Who is done takes the next, so a core that is busy elsewhere holds nobody up.
pub(super) fn each_part<F: Fn(usize) + Sync>(parts: usize, work: F) {
    let job = Job { next: AtomicUsize::new(0), parts, work };
    extern "C" fn take<F: Fn(usize) + Sync>(job: *mut c_void) {
        // SAFETY: what `each_part` handed out; it lives until all threads are done, and is only read.
        let job = unsafe { &*job.cast::<Job<F>>() };
        loop {
            let part = job.next.fetch_add(1, Ordering::Relaxed);
            if part >= job.parts {
                return;
            }
            (job.work)(part);
        }
    }
    let job_ptr = std::ptr::from_ref(&job).cast_mut().cast();
    let threads = parts.min(threads());
    match team() {
        // SAFETY: a function that takes this pointer, which outlives the call.
        Some(team) if threads > 1 => unsafe { team(take::<F>, job_ptr, threads as u32, 0) },
        _ => take::<F>(job_ptr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_part_is_done_once_and_by_several() {
        assert!(team().is_some(), "LibTorch comes with an OpenMP library");
        for parts in [0, 1, 2, 7, 1000] {
            let done = Mutex::new(vec![0; parts]);
            each_part(parts, |part| done.lock().unwrap()[part] += 1);
            assert!(done.lock().unwrap().iter().all(|times| *times == 1));
        }
    }
}
