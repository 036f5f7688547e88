//! Ways out. `tch` panics where LibTorch throws: [`exception`] tells such a panic from all others.

use std::any::Any;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, without_backtrace};

/// How `tch`'s `unwrap` begins its message; LibTorch's follows, quoted and escaped.
const MARK: &str = "value: Torch(\"";

/// The LibTorch exception that a panic stands for; none for other panics.
pub fn exception(panic: &(dyn Any + Send)) -> Option<Error> {
    text(panic).filter(|text| text.contains(MARK)).map(|_| Error::torch(&panic_text(panic)))
}

/// Ends the program at once. `std::process::exit` would run LibTorch's destructors beside threads that still use what
/// they destroy.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` runs no code of this process.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Work that a program which another thread ends brings to its end first, such as a file that is being written.
pub struct Unfinished(());

static UNFINISHED: Mutex<usize> = Mutex::new(0);
static FINISHED: Condvar = Condvar::new();

impl Unfinished {
    pub fn begin() -> Unfinished {
        *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Unfinished(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FINISHED.notify_all();
    }
}

/// Waits until nothing is [`Unfinished`], so long at most.
pub fn finish(at_most: Duration) {
    let count = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    drop(FINISHED.wait_timeout_while(count, at_most, |count| *count > 0));
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = text(panic).unwrap_or("the work panicked");
    let quoted = text.split_once(MARK).map_or(text, |(_, message)| message.trim_end_matches("\")"));
    without_backtrace(&quoted.replace("\\n", "\n")).to_owned()
}

fn text(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use tch::Tensor;

    #[test]
    fn what_is_unfinished_is_waited_for_but_not_for_ever() {
        use std::time::Instant;
        let work = Unfinished::begin();
        let start = Instant::now();
        finish(Duration::from_millis(50));
        assert!(start.elapsed() >= Duration::from_millis(50));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(work);
        });
        finish(Duration::from_secs(600));
        assert!(thread.join().is_ok() && start.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn an_exception_becomes_its_message() {
        let panic = catch_unwind(|| Tensor::zeros([2], tch::kind::FLOAT_CPU).double_value(&[5])).unwrap_err();
        let error = exception(&*panic).unwrap();
        assert_eq!(error.to_string(), "select(): index 5 out of range for tensor of size [2] at dimension 0");
    }

    #[test]
    fn other_panics_are_none() {
        let panic = catch_unwind(|| panic!("a bug")).unwrap_err();
        assert_eq!((exception(&*panic), text(&*panic)), (None, Some("a bug")));
    }
}
