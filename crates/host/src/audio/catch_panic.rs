//! Panics that are expected and caught, without the line that a panic prints.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`: what it gives, or none where it panicked. Whatever it was changing is to be thrown away then.
///
/// The hook that prints is one for the whole process: ours is put before it once, and steps aside for every panic
/// that is not under a `catch_panic` of its own thread.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_is_none_and_later_panics_are_loud_again() {
        assert_eq!(catch_panic(|| 7), Some(7));
        assert_eq!(catch_panic(|| -> u8 { panic!("not to be seen") }), None);
        assert!(!QUIET.get());
        let nested = catch_panic(|| {
            catch_panic(|| panic!("nor this"));
            QUIET.get()
        });
        assert_eq!(nested, Some(true));
    }
}
