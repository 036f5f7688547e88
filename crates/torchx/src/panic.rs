//! Ways out. `tch` panics where LibTorch throws: `catch` turns such a panic into an error and leaves all others alone.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use crate::error::{Error, without_backtrace};

/// How `tch`'s `unwrap` begins its message; LibTorch's follows, quoted and escaped.
const MARK: &str = "value: Torch(\"";

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. A LibTorch exception in it, such as running out of memory, comes back as an error and prints nothing.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Error> {
    static HOOK: Once = Once::new();
    HOOK.call_once(silence);
    let before = CATCHING.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(before);
    outcome.or_else(|panic| match text(&*panic) {
        Some(text) if text.contains(MARK) => Err(Error::torch(&panic_text(&*panic))),
        _ => resume_unwind(panic),
    })
}

/// Ends the program at once. `std::process::exit` would run LibTorch's destructors beside threads that still use what
/// they destroy.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` runs no code of this process.
    unsafe { libc::_exit(i32::from(code)) }
}

/// A hook that passes over the panics which `catch` reports, and hands on the rest.
fn silence() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let reported = CATCHING.get() && text(info.payload()).is_some_and(|text| text.contains(MARK));
        if !reported {
            before(info);
        }
    }));
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
    use tch::Tensor;

    #[test]
    fn an_exception_becomes_its_message() {
        let error = catch(|| Tensor::zeros([2], tch::kind::FLOAT_CPU).double_value(&[5])).unwrap_err();
        assert_eq!(error.to_string(), "select(): index 5 out of range for tensor of size [2] at dimension 0");
    }

    #[test]
    fn other_panics_pass_through() {
        let panic = catch_unwind(|| catch(|| panic!("a bug"))).unwrap_err();
        assert_eq!(text(&*panic), Some("a bug"));
    }
}
