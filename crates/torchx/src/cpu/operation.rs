//! Operations that LibTorch differentiates by a backward pass of ours.

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tch::Tensor;

use crate::error::Error;
use crate::ffi::{Message, RawOperation, RawTensor, make_list, raws, torchx_operate};
use crate::panic::panic_text;

/// A function of tensors on the CPU, and its gradient. LibTorch records nothing inside of either.
pub(crate) trait Operation {
    const OUTPUTS: usize;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error>;

    /// Gradients of the inputs from those of the outputs, some of which may not be there; none where none is `wanted`.
    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], wanted: &[bool]) -> Result<Vec<Option<Tensor>>, Error>;
}

/// The operation's outputs.
pub(crate) fn apply<O: Operation>(inputs: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
    let operation = RawOperation { forward: forward::<O>, backward: backward::<O>, outputs: O::OUTPUTS };
    let inputs = raws(inputs.iter().copied());
    // SAFETY: live tensors and their count, and room for as many outputs as there are.
    make_list(O::OUTPUTS, |outputs| unsafe { torchx_operate(operation, inputs.as_ptr(), inputs.len(), outputs) })
}

/// The only output of an operation.
pub(crate) fn apply_one<O: Operation>(inputs: &[&Tensor]) -> Result<Tensor, Error> {
    const { assert!(O::OUTPUTS == 1) };
    Ok(apply::<O>(inputs)?.remove(0))
}

unsafe extern "C" fn forward<O: Operation>(
    inputs: *const *const RawTensor,
    count: usize,
    outputs: *mut *mut RawTensor,
) -> Message {
    message(|| {
        // SAFETY: so many live tensors, by the contract with C++.
        let inputs: Vec<Tensor> = unsafe { tensors(inputs, count) }.into_iter().flatten().collect();
        // SAFETY: room for as many as the operation has outputs.
        unsafe { hand_over(O::forward(&inputs)?.into_iter().map(Some), outputs) };
        Ok(())
    })
}

unsafe extern "C" fn backward<O: Operation>(
    inputs: *const *const RawTensor,
    count: usize,
    grads: *const *const RawTensor,
    wanted: *const bool,
    outputs: *mut *mut RawTensor,
) -> Message {
    message(|| {
        // SAFETY: so many live tensors, as many flags, and gradients of as many as the operation has outputs.
        let (inputs, grads, wanted) =
            unsafe { (tensors(inputs, count), tensors(grads, O::OUTPUTS), std::slice::from_raw_parts(wanted, count)) };
        let inputs: Vec<Tensor> = inputs.into_iter().flatten().collect();
        // SAFETY: room for as many as there are inputs.
        unsafe { hand_over(O::backward(&inputs, &grads, wanted)?.into_iter(), outputs) };
        Ok(())
    })
}

/// # Safety
/// `pointers` are so many, each of a live tensor or null.
unsafe fn tensors(pointers: *const *const RawTensor, count: usize) -> Vec<Option<Tensor>> {
    // SAFETY: as the caller says.
    let pointers = unsafe { std::slice::from_raw_parts(pointers, count) };
    // SAFETY: a live tensor, which stays the other side's.
    let tensor = |pointer: &*const RawTensor| unsafe { Tensor::clone_from_ptr(pointer.cast_mut().cast()) };
    pointers.iter().map(|pointer| (!pointer.is_null()).then(|| tensor(pointer))).collect()
}

/// # Safety
/// `outputs` has room for all. They are the other side's from now on.
unsafe fn hand_over(made: impl Iterator<Item = Option<Tensor>>, outputs: *mut *mut RawTensor) {
    for (i, tensor) in made.enumerate() {
        let pointer = tensor.map_or(std::ptr::null_mut(), |tensor| ManuallyDrop::new(tensor).as_mut_ptr().cast());
        // SAFETY: as the caller says.
        unsafe { outputs.add(i).write(pointer) };
    }
}

/// Null where the work went well. No panic gets to the other side.
fn message(work: impl FnOnce() -> Result<(), Error>) -> Message {
    let text = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return std::ptr::null_mut(),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic_text(&*panic),
    };
    let text = CString::new(text.replace('\0', " ")).expect("no zeros are left");
    // SAFETY: a string that ends with a zero.
    unsafe { libc::strdup(text.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, kind::FLOAT_CPU};

    /// `a * b` and `a + b`, of which it says another gradient than is true: what is ours shows.
    struct Both;

    impl Operation for Both {
        const OUTPUTS: usize = 2;

        fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
            Ok(vec![inputs[0].f_mul(&inputs[1])?, inputs[0].f_add(&inputs[1])?])
        }

        fn backward(
            inputs: &[Tensor],
            grads: &[Option<Tensor>],
            wanted: &[bool],
        ) -> Result<Vec<Option<Tensor>>, Error> {
            let Some(grad) = &grads[0] else { panic!("the product has no gradient") };
            assert!(grads[1].is_none() && !grad.requires_grad() && !(grad * 2.0).requires_grad());
            Ok(vec![wanted[0].then(|| grad * 7.0), wanted[1].then(|| grad * &inputs[0])])
        }
    }

    #[test]
    fn gradients_are_ours_where_they_are_wanted() {
        let a = Tensor::full([2], 3.0, FLOAT_CPU).set_requires_grad(true);
        let b = Tensor::full([2], 5.0, FLOAT_CPU);
        let made = apply::<Both>(&[&a, &b]).unwrap();
        assert_eq!(Vec::<f32>::try_from(&made[0]).unwrap(), [15.0; 2]);
        assert_eq!(Vec::<f32>::try_from(&made[1]).unwrap(), [8.0; 2]);
        made[0].sum(Kind::Float).backward();
        assert_eq!(Vec::<f32>::try_from(a.grad()).unwrap(), [7.0; 2]);
        assert!(!b.grad().defined());
        assert!(!tch::no_grad(|| apply::<Both>(&[&a, &b]).unwrap())[0].requires_grad());
    }

    #[test]
    fn what_goes_wrong_inside_is_an_error_outside() {
        let [a, c] = [2, 3].map(|len| Tensor::ones([len], FLOAT_CPU).set_requires_grad(true));
        let error = apply::<Both>(&[&a, &c]).unwrap_err();
        assert!(error.to_string().contains("must match the size"), "{error}");
        let made = apply::<Both>(&[&a, &a]).unwrap();
        let error = made[1].sum(Kind::Float).f_backward().unwrap_err();
        assert!(error.to_string().contains("the product has no gradient"), "{error}");
    }
}
