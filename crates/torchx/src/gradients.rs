//! Gradients of some parameters alone; and all of them as one flat tensor, for a collective: one long message instead of
//! hundreds of short ones.

use tch::Tensor;

use crate::error::Error;
use crate::ffi::{
    check, raw, raws, torchx_aside, torchx_backward, torchx_gather_grad, torchx_grad_len, torchx_join_aside,
    torchx_scatter_grad,
};

/// While it lives, the fused operations make the gradients of their weights on a stream of its own, beside what the backward
/// pass goes on with. For passes that have one gradient for each weight, and hand it to the weight as it is: nothing else
/// may read it before [`Aside::join`].
#[must_use]
pub struct Aside(());

impl Aside {
    pub fn begin() -> Aside {
        // SAFETY: sets a flag.
        unsafe { torchx_aside(true) };
        Aside(())
    }

    /// What is queued from now on goes behind these gradients.
    pub fn join(self) -> Result<(), Error> {
        join_aside()
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // SAFETY: as above; after a join there is nothing left to wait for, and after a panic nobody to tell.
        unsafe {
            torchx_aside(false);
            let _ = check(torchx_join_aside());
        }
    }
}

/// Adds the gradients of `loss` to those of these parameters, and of their narrow copies where those keep their own, and
/// computes no others. `keep_graph`: another loss of the same graph follows.
pub fn backward(loss: &Tensor, params: &[Tensor], keep_graph: bool) -> Result<(), Error> {
    let copies = crate::narrow::learning_copies(params);
    let params = raws(params.iter().chain(&copies));
    // SAFETY: live tensors and their count.
    check(unsafe {
        torchx_backward([raw(loss)].as_ptr(), 1, std::ptr::null(), params.as_ptr(), params.len(), keep_graph)
    })
}

/// Adds the gradients of all these losses, each times `weight` (0-d), to those of whatever they depend on: as those of their
/// weighted sum, without a kernel for each addition.
pub fn backward_all(losses: &[&Tensor], weight: &Tensor) -> Result<(), Error> {
    let losses = raws(losses.iter().copied());
    // SAFETY: live tensors and their count, and no list of parameters.
    check(unsafe { torchx_backward(losses.as_ptr(), losses.len(), raw(weight), std::ptr::null(), 0, false) })
}

/// What is queued from now on goes behind the gradients that are made aside, if there are any.
pub fn join_aside() -> Result<(), Error> {
    // SAFETY: takes nothing.
    check(unsafe { torchx_join_aside() })
}

/// Length of a tensor that holds the gradients of these parameters; those without one are left out, here and below.
pub fn len(params: &[&Tensor]) -> i64 {
    let params = raws(params.iter().copied());
    // SAFETY: live tensors and their count.
    unsafe { torchx_grad_len(params.as_ptr(), params.len()) }
}

/// Copies all gradients into `flat`, one behind the other, converted to its kind. What lies between them stays as it is.
pub fn gather(params: &[&Tensor], flat: &Tensor) -> Result<(), Error> {
    let params = raws(params.iter().copied());
    // SAFETY: live tensors and their count; LibTorch checks that `flat` is long enough.
    check(unsafe { torchx_gather_grad(params.as_ptr(), params.len(), raw(flat)) })
}

/// The way back. `adopt`: parts of `flat` take the place of the gradients, which saves a copy; `flat` must then be of
/// their kind, and is theirs until they are dropped.
pub fn scatter(params: &[&Tensor], flat: &Tensor, adopt: bool) -> Result<(), Error> {
    let params = raws(params.iter().copied());
    // SAFETY: as above.
    check(unsafe { torchx_scatter_grad(params.as_ptr(), params.len(), raw(flat), adopt) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn two_losses_of_one_graph_reach_their_own_parameters() {
        let [a, b] = [2.0, 3.0].map(|value: f32| Tensor::from(value).set_requires_grad(true));
        let product = &a * &b;
        backward(&(&product * 5.0), &[a.shallow_clone()], true).unwrap();
        assert!(!b.grad().defined());
        backward(&(&product * 7.0), &[b.shallow_clone()], false).unwrap();
        assert_eq!((a.grad().double_value(&[]), b.grad().double_value(&[])), (15.0, 14.0));
    }

    #[test]
    fn losses_are_weighted_and_added() {
        let [a, b] = [2.0, 3.0].map(|value: f32| Tensor::from(value).set_requires_grad(true));
        backward_all(&[&(&a * &b), &(&a * 5.0)], &Tensor::from(2.0f32)).unwrap();
        assert_eq!((a.grad().double_value(&[]), b.grad().double_value(&[])), (16.0, 4.0));
    }

    #[test]
    fn gradients_come_back_from_one_tensor() {
        for adopt in [false, true] {
            let a = Tensor::ones([2, 3], FLOAT_CPU).set_requires_grad(true);
            let unused = Tensor::ones([5], FLOAT_CPU).set_requires_grad(true);
            let b = Tensor::ones([4], FLOAT_CPU).set_requires_grad(true);
            ((&a * 2.0).sum(Kind::Float) + (&b * 3.0).sum(Kind::Float)).backward();
            let params = [&a, &unused, &b];
            let flat = Tensor::zeros([len(&params) + 1], FLOAT_CPU);
            gather(&params, &flat).unwrap();
            let held: Vec<f32> = Vec::try_from(&flat).unwrap();
            let count = |value| held.iter().filter(|held| **held == value).count();
            assert_eq!((count(2.0), count(3.0), held.last()), (6, 4, Some(&0.0)));
            let place = a.grad().data_ptr();
            scatter(&params, &(&flat * 2.0), adopt).unwrap();
            assert_eq!(a.grad().data_ptr() == place, !adopt);
            assert_eq!((a.grad().size(), a.grad().double_value(&[1, 2])), (vec![2, 3], 4.0));
            assert_eq!(b.grad().double_value(&[3]), 6.0);
            assert!(!unused.grad().defined());
        }
    }

    #[test]
    fn a_narrower_kind_is_converted_both_ways() {
        let a = Tensor::ones([3], FLOAT_CPU).set_requires_grad(true);
        (&a * 1.001).sum(Kind::Float).backward();
        let flat = Tensor::zeros([len(&[&a])], (Kind::BFloat16, tch::Device::Cpu));
        gather(&[&a], &flat).unwrap();
        scatter(&[&a], &flat, false).unwrap();
        assert_eq!((a.grad().kind(), a.grad().double_value(&[0])), (Kind::Float, 1.0));
    }
}
