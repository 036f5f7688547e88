//! Panics of other people's code that are expected: caught, and without the line that a panic prints. The program's one
//! panic hook is here.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// What a panic carries.
type Payload = dyn Any + Send;

/// Says of a panic whether it is expected, and so will be caught.
type Expectation = fn(&Payload) -> bool;

thread_local! {
    static EXPECTED: Cell<Option<Expectation>> = const { Cell::new(None) };
}

/// Runs `work`. A panic that `expected` says yes to comes back as a value and prints nothing; all others go on. Whatever
/// `work` was changing is to be thrown away then.
///
/// The hook that prints is one for the whole process: ours is put before it once, and steps aside for every panic that
/// its own thread does not expect.
pub fn catch_panic<T>(expected: Expectation, work: impl FnOnce() -> T) -> Result<T, Box<Payload>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !EXPECTED.get().is_some_and(|expected| expected(panic.payload())) {
                loud(panic);
            }
        }));
    });
    let before = EXPECTED.replace(Some(expected));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(before);
    result.or_else(|panic| if expected(&*panic) { Err(panic) } else { panic::resume_unwind(panic) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catch<T>(work: impl FnOnce() -> T) -> Option<T> {
        catch_panic(|_| true, work).ok()
    }

    #[test]
    fn a_caught_panic_is_none_and_later_panics_are_loud_again() {
        assert_eq!(catch(|| 7), Some(7));
        assert_eq!(catch(|| -> u8 { panic!("not to be seen") }), None);
        assert!(EXPECTED.get().is_none());
        let nested = catch(|| {
            catch(|| panic!("nor this"));
            EXPECTED.get().is_some()
        });
        assert_eq!(nested, Some(true));
    }

    #[test]
    fn other_panics_pass_through() {
        let only_numbers = |panic: &Payload| panic.is::<u8>();
        assert!(catch_panic(only_numbers, || panic::panic_any(3u8)).is_err());
        let panic = catch_panic(|_| true, || catch_panic(only_numbers, || panic!("a bug"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"a bug"));
    }
}
