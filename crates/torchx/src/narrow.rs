//! Parameters in a narrower kind, for mixed precision. Cast layer by layer, each costs a kernel forward and one backward;
//! cast together, all cost a few.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;

use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::ffi::{
    check, raw, raws, torchx_adopt_grad, torchx_drop_grad, torchx_narrow, torchx_refresh, torchx_versions,
};

thread_local! {
    /// Weights of products in the network that is being built, while somebody asks for them.
    static PRODUCTS: RefCell<Option<Vec<Tensor>>> = RefCell::default();
    /// Narrow copies, by where the parameter lies, which is what a layer and an optimizer have in common.
    static COPIES: RefCell<HashMap<usize, Tensor>> = RefCell::default();
}

/// Narrow copies of parameters, which the layers of this thread find until it is dropped. They are as the parameters
/// were when it was made, and hand their gradients on to them.
#[must_use]
pub struct Narrowed(PhantomData<*const ()>); // which keeps it in its thread

impl Narrowed {
    /// Parameters of one kind, on one device. There is one `Narrowed` at a time in a thread.
    pub fn new<'a>(params: impl IntoIterator<Item = &'a Tensor>, kind: Kind) -> Result<Self, Error> {
        let params: Vec<&Tensor> = params.into_iter().filter(|param| param.kind() != kind).collect();
        let (pointers, mut copies) = (raws(params.iter().copied()), vec![std::ptr::null_mut(); params.len()]);
        let like = Tensor::f_empty([0], (kind, Device::Cpu))?;
        // SAFETY: live tensors, their count, and room for as many new ones.
        check(unsafe { torchx_narrow(pointers.as_ptr(), params.len(), raw(&like), copies.as_mut_ptr()) })?;
        // SAFETY: the call went well, so each is a new `at::Tensor`, now owned by the `Tensor`.
        let copies = copies.into_iter().map(|copy| unsafe { Tensor::from_ptr(copy.cast()) });
        Ok(Narrowed::lend(params.iter().copied().zip(copies)))
    }

    fn lend<'a>(pairs: impl Iterator<Item = (&'a Tensor, Tensor)>) -> Self {
        let known = pairs.map(|(param, copy)| (param.data_ptr() as usize, copy)).collect();
        COPIES.with_borrow_mut(|copies| {
            assert!(copies.is_empty(), "one set of narrow copies at a time");
            *copies = known;
        });
        Narrowed(PhantomData)
    }
}

impl Drop for Narrowed {
    fn drop(&mut self) {
        COPIES.take();
    }
}

/// Narrow copies that stay, each a leaf with a gradient of its own, in its own kind: nothing is cast at the start of a step
/// and nothing widened at its end, where the update writes both. What else changes a parameter goes through LibTorch,
/// which counts: [`Copies::refresh`] sees it.
pub struct Copies {
    params: Vec<Tensor>,
    copies: Vec<Tensor>,
    /// The parameters' versions that the copies are of.
    versions: i64,
}

impl Copies {
    /// Of parameters of one kind, on one device.
    pub fn new(params: &[Tensor], kind: Kind) -> Result<Self, Error> {
        let empty = |param: &Tensor| {
            let copy = tch::no_grad(|| Tensor::f_empty(param.size(), (kind, param.device())))?;
            Ok(copy.set_requires_grad(true))
        };
        let copies = params.iter().map(empty).collect::<Result<Vec<Tensor>, Error>>()?;
        let mut made = Copies { params: params.iter().map(Tensor::shallow_clone).collect(), copies, versions: -1 };
        made.refresh()?;
        Ok(made)
    }

    /// In the order of the parameters.
    pub fn tensors(&self) -> &[Tensor] {
        &self.copies
    }

    /// Copies the parameters again if anything but [`crate::AdamW::update`] has changed them: a checkpoint, an average put
    /// in their place. Call it before every step, outside of a graph.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let params = raws(&self.params);
        // SAFETY: live tensors and their count.
        let versions = unsafe { torchx_versions(params.as_ptr(), params.len()) };
        if versions != self.versions {
            copy_values(&self.params, &self.copies)?;
            self.versions = versions;
        }
        Ok(())
    }

    /// The copies' own gradients are given up, as in [`crate::AdamW::drop_grad`].
    pub fn drop_grad(&self) -> Result<(), Error> {
        let copies = raws(&self.copies);
        // SAFETY: live tensors and their count.
        check(unsafe { torchx_drop_grad(copies.as_ptr(), copies.len()) })
    }

    /// The layers of this thread find the copies of all these sets until it is dropped.
    pub fn lend<'a>(sets: impl IntoIterator<Item = &'a Copies>) -> Narrowed {
        let pairs = |set: &'a Copies| set.params.iter().zip(set.copies.iter().map(Tensor::shallow_clone));
        Narrowed::lend(sets.into_iter().flat_map(pairs))
    }
}

/// Writes parameters to their copies.
pub(crate) fn copy_values<'a>(params: impl IntoIterator<Item = &'a Tensor>, copies: &[Tensor]) -> Result<(), Error> {
    let (params, copies) = (raws(params), raws(copies));
    assert!(params.len() >= copies.len(), "parameters and their copies");
    // SAFETY: two lists of live tensors, the first no shorter than the count.
    check(unsafe { torchx_refresh(copies.as_ptr(), params.as_ptr(), copies.len()) })
}

/// The gradients of copies become their parameters', or are added to what those have.
pub(crate) fn adopt_gradients<'a>(
    params: impl IntoIterator<Item = &'a Tensor>,
    copies: &[Tensor],
) -> Result<(), Error> {
    let (params, copies) = (raws(params), raws(copies));
    assert!(params.len() >= copies.len(), "parameters and their copies");
    // SAFETY: two lists of live tensors, the first no shorter than the count.
    check(unsafe { torchx_adopt_grad(params.as_ptr(), copies.as_ptr(), copies.len()) })
}

/// Copies of these parameters that keep gradients of their own.
pub(crate) fn learning_copies(params: &[Tensor]) -> Vec<Tensor> {
    COPIES.with_borrow(|copies| {
        let of = |param: &Tensor| copies.get(&(param.data_ptr() as usize));
        let learns = |copy: &&Tensor| copy.is_leaf() && copy.requires_grad();
        params.iter().filter_map(of).filter(learns).map(Tensor::shallow_clone).collect()
    })
}

/// The parameter in this kind: its copy where there is one, else a cast of its own. A parameter that is held, because it
/// shall not learn, has no gradient this way either.
pub fn narrowed(param: &Tensor, kind: Kind) -> Tensor {
    let copy = COPIES.with_borrow(|copies| {
        let copy = copies.get(&(param.data_ptr() as usize)).filter(|copy| copy.kind() == kind)?;
        Some(if param.requires_grad() { copy.shallow_clone() } else { copy.detach() })
    });
    copy.unwrap_or_else(|| param.to_kind(kind))
}

/// Declares the weight of a matrix product or convolution, which a layer uses in the kind of its input: such weights may be
/// kept narrow where nothing is trained. Kernels and norms want theirs as they are.
pub fn product(weight: Tensor) -> Tensor {
    PRODUCTS.with_borrow_mut(|products| products.iter_mut().for_each(|list| list.push(weight.shallow_clone())));
    weight
}

/// Builds a network, and returns the weights that its layers declared as those of products beside it.
pub fn with_products<T>(build: impl FnOnce() -> T) -> (T, Vec<Tensor>) {
    let before = PRODUCTS.replace(Some(Vec::new()));
    let built = build();
    (built, PRODUCTS.replace(before).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_network_that_is_being_built() {
        let weight = |values: &[f32]| Tensor::from_slice(values);
        let ((), none) = with_products(|| ());
        let (outer, products) = with_products(|| {
            let ((), inner) = with_products(|| drop(product(weight(&[1.0]))));
            assert_eq!(inner, [weight(&[1.0])]);
            product(weight(&[2.0]))
        });
        assert!(none.is_empty() && products == [outer]);
        let _ = product(weight(&[3.0])); // nobody asks
        assert!(PRODUCTS.with_borrow(Option::is_none));
    }

    fn drawn(shape: &[i64]) -> Tensor {
        Tensor::randn(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true)
    }

    /// A gradient in one piece, one that is not, and one that comes twice.
    fn loss(weights: &[Tensor], x: &Tensor) -> Tensor {
        let narrow = |i: usize| narrowed(&weights[i], Kind::BFloat16);
        let y = x.matmul(&narrow(0)).matmul(&narrow(1).transpose(0, 1)) * narrow(2);
        (y + narrow(2)).square().sum(Kind::Float)
    }

    #[test]
    fn copies_have_the_values_and_gradients_of_single_casts() {
        let weights = [drawn(&[4, 6]), drawn(&[5, 6]), drawn(&[5]), drawn(&[3])];
        let x = drawn(&[7, 4]).detach().to_kind(Kind::BFloat16);
        let learn = || {
            let loss = loss(&weights, &x);
            loss.backward();
            let taken: Vec<Tensor> = weights.iter().map(|weight| weight.grad().copy()).collect();
            weights.iter().for_each(|weight| weight.shallow_clone().zero_grad());
            (loss.double_value(&[]), taken)
        };
        // The fourth is not used, and so has no gradient; `zero_grad` and `copy` want one.
        weights[3].sum(Kind::Float).backward();
        weights[3].shallow_clone().zero_grad();
        let (plain, by_cast) = learn();
        let (together, by_copy) = {
            let _copies = Narrowed::new(&weights, Kind::BFloat16).unwrap();
            learn()
        };
        assert_eq!(plain, together);
        for (cast, copy) in by_cast.iter().zip(&by_copy) {
            assert_eq!((copy.kind(), copy.is_contiguous()), (Kind::Float, true));
            assert!(cast.allclose(copy, 1e-2, 1e-2, false), "{cast} {copy}");
        }
        assert_eq!(learn().0, plain);
    }

    #[test]
    fn held_parameters_learn_nothing() {
        let weights = [drawn(&[3, 3]), drawn(&[3, 3])];
        let _copies = Narrowed::new(&weights, Kind::BFloat16).unwrap();
        let _ = weights[0].set_requires_grad(false);
        let y = narrowed(&weights[0], Kind::BFloat16).matmul(&narrowed(&weights[1], Kind::BFloat16));
        y.sum(Kind::Float).backward();
        assert!(!weights[0].grad().defined() && weights[1].grad().defined());
    }

    #[test]
    fn two_backward_passes_may_share_the_copies() {
        let weights = [drawn(&[2, 2]), drawn(&[2, 2])];
        let _copies = Narrowed::new(&weights, Kind::BFloat16).unwrap();
        for weight in &weights {
            narrowed(weight, Kind::BFloat16).sum(Kind::Float).backward();
        }
        assert!(weights.iter().all(|weight| weight.grad().double_value(&[1, 1]) == 1.0));
    }

    #[test]
    fn parameters_of_that_kind_need_no_copy() {
        let weight = drawn(&[2]);
        let _copies = Narrowed::new([&weight], Kind::Float).unwrap();
        assert_eq!(narrowed(&weight, Kind::Float).data_ptr(), weight.data_ptr());
    }
}
