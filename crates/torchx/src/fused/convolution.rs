//! Convolutions along packed rows as matrix products, with the norms, rectifiers, dropout and residuals around them.
//!
//! On CUDA a convolution of k taps is one product with rows that hold what its k taps see, made by the kernel of the norm
//! before it, or one whose k results for each row are added up by the kernel of the residual behind it. Masks of dropout
//! are drawn in the kernels and drawn again in the backward pass: they are stored nowhere.
//!
//! What comes out of gaps has no meaning; a gradient must be zero there, as it is where a loss masks them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;

use tch::{Device, Kind, Tensor};

use super::program::{Source, program};
use super::{Spans, check_like, check_matrix, check_rows, check_taps, has_kernel, plain};
use crate::error::Error;
use crate::ffi::{
    Programs, RawDropout, RawTensor, make, make_all, make_list, raw, raws, torchx_conv_norm, torchx_feed_forward,
    torchx_lay_weights, torchx_norm, torchx_residual,
};
use crate::narrow::narrowed;

/// Parameters of a layer, f32 whatever it is applied to: of a norm `[width]` each, of a convolution `[to, from, taps…]` and
/// `[to]`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub weight: &'a Tensor,
    pub bias: &'a Tensor,
}

/// How the product of a convolution wants its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taps {
    /// Filters of channels side by side: of a convolution that widens, or does not narrow.
    Within,
    /// A matrix for each tap: of one that narrows.
    Apart,
}

thread_local! {
    /// By where the parameter lies.
    static LAID: RefCell<HashMap<usize, Tensor>> = RefCell::default();
}

/// Weights of convolutions as their products want them, which [`feed_forward`] and [`conv_norm`] in this thread find until it
/// is dropped, and else make when they need them: made together they can be made beside other work.
#[must_use]
pub struct LaidWeights(PhantomData<*const ()>); // which keeps it in its thread

impl LaidWeights {
    /// In the kind of the activations, on the current stream. Where there is no kernel for them none is laid.
    pub fn new<'a>(weights: impl IntoIterator<Item = (&'a Tensor, Taps)>, kind: Kind) -> Result<Self, Error> {
        let fits = |(weight, _): &(&Tensor, Taps)| {
            let fits_vectors = weight.size()[..2].iter().all(|size| size % 8 == 0);
            weight.device().is_cuda() && matches!(kind, Kind::Float | Kind::BFloat16) && fits_vectors
        };
        let mut by_taps: BTreeMap<i64, Vec<(&Tensor, Taps)>> = BTreeMap::new();
        for (weight, taps) in weights.into_iter().filter(fits) {
            by_taps.entry(weight.size()[2]).or_default().push((weight, taps));
        }
        let mut laid = HashMap::new();
        for (count, weights) in by_taps {
            let device = weights[0].0.device();
            let (like, program) =
                (Tensor::f_empty([0], (kind, device))?, program(Source::Product { taps: count }, kind, device)?);
            let apart: Vec<bool> = weights.iter().map(|(_, taps)| *taps == Taps::Apart).collect();
            let pointers = raws(weights.iter().map(|(weight, _)| *weight));
            // SAFETY: a program of this operation, two lists of as many, live tensors, and room for as many new ones.
            let made = make_list(weights.len(), |outputs| unsafe {
                torchx_lay_weights(program, pointers.as_ptr(), apart.as_ptr(), apart.len(), raw(&like), outputs)
            })?;
            laid.extend(weights.iter().map(|(weight, _)| weight.data_ptr() as usize).zip(made));
        }
        LAID.with_borrow_mut(|all| {
            assert!(all.is_empty(), "one set of laid weights at a time");
            *all = laid;
        });
        Ok(LaidWeights(PhantomData))
    }

    fn of(weight: &Tensor, kind: Kind) -> Option<Tensor> {
        LAID.with_borrow(|all| {
            let laid = all.get(&(weight.data_ptr() as usize))?;
            (laid.kind() == kind).then(|| laid.shallow_clone())
        })
    }
}

impl Drop for LaidWeights {
    fn drop(&mut self) {
        LAID.take();
    }
}

fn raw_or_null(tensor: Option<&Tensor>) -> *const RawTensor {
    tensor.map_or(std::ptr::null(), raw)
}

/// The dropout of one forward pass. Each use of it drops other elements.
pub struct Dropout {
    share: f64,
    /// `[1]`, i64, on a GPU where something is dropped: drawn there, so that every replay of a graph draws anew.
    seed: Option<Tensor>,
    layer: Cell<i32>,
}

impl Dropout {
    /// `share`: of the elements, below 1; none for 0.
    pub fn new(share: f64, device: Device) -> Result<Dropout, Error> {
        let drops = share > 0.0 && device.is_cuda();
        let seed = drops.then(|| Tensor::f_randint(i64::MAX, [1], (Kind::Int64, device))).transpose()?;
        Ok(Dropout { share, seed, layer: Cell::new(0) })
    }

    /// By LibTorch's own operation, on a device of any kind.
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_dropout(self.share, true)?)
    }

    /// For the next layer.
    fn raw(&self) -> RawDropout {
        let layer = self.layer.replace(self.layer.get() + 1);
        let threshold = (self.share * 65536.0).round() as i32;
        let scale = 65536.0 / (65536 - threshold).max(1) as f32;
        RawDropout { seed: self.seed.as_ref().map_or(std::ptr::null(), raw), layer, threshold, scale }
    }
}

/// Layer norm, and `x` itself for a residual: what comes back through both is then added by the norm's kernel.
///
/// # Shapes
/// - x: `[rows, width]`
/// - outputs: `[rows, width]` each
pub fn norm(x: &Tensor, weights: Weights) -> Result<[Tensor; 2], Error> {
    check_matrix("norm", x)?;
    check_norm("norm", x, weights)?;
    if !convolves(x) {
        return plain::norm(x, weights);
    }
    let program = program(Source::Norm { width: x.size()[1], taps: 1, rectified: false }, x.kind(), x.device())?;
    // SAFETY: a program of this operation, live tensors whose shapes were checked, and room for two new ones.
    make_all(|outputs| unsafe { torchx_norm(program, raw(x), raw(weights.weight), raw(weights.bias), outputs) })
}

/// `x + dropout(y)`, both `[rows, width]`.
pub fn residual(x: &Tensor, y: &Tensor, dropout: &Dropout) -> Result<Tensor, Error> {
    check_matrix("residual", x)?;
    check_like("residual: y", y, &x.size(), x.kind(), x.device())?;
    if !has_kernel(x) {
        return plain::residual(x, y, dropout);
    }
    let program = program(Source::Fold { taps: 1 }, x.kind(), x.device())?;
    // SAFETY: as in `norm`, with room for one tensor.
    make(|output| unsafe { torchx_residual(program, raw(x), raw(y), dropout.raw(), output) })
}

/// `x + dropout(narrow(relu(widen(norm(x)))))`, of which `widen` and `narrow` are convolutions of as many taps, odd and at
/// most 7. A row sees the rows of its own utterance, and zeros beside them.
///
/// # Shapes
/// - x: `[rows, width]`; widen: from `width` to any multiple of 8, narrow: back
/// - output: `[rows, width]`
pub fn feed_forward(
    x: &Tensor,
    norm: Weights,
    widen: Weights,
    narrow: Weights,
    dropout: &Dropout,
    spans: &Spans,
) -> Result<Tensor, Error> {
    check_rows("feed_forward", x, spans)?;
    check_norm("feed_forward: norm", x, norm)?;
    let (width, inner) = (x.size()[1], narrow.weight.size().get(1).copied().unwrap_or(0));
    let taps = check_conv("feed_forward: widen", x, widen, [inner, width])?;
    if check_conv("feed_forward: narrow", x, narrow, [width, inner])? != taps {
        return Err(Error::Argument("feed_forward: both convolutions must have as many taps".into()));
    }
    if !convolves(x) || inner % 8 != 0 {
        return plain::feed_forward(x, norm, widen, narrow, dropout, spans);
    }
    let programs = programs(x, taps, Source::Norm { width, taps, rectified: false })?;
    let product_bias = narrowed(widen.bias, x.kind()).detach();
    let laid = [widen, narrow].map(|layer| LaidWeights::of(layer.weight, x.kind()));
    let laid = laid.each_ref().map(|one| raw_or_null(one.as_ref()));
    let [norm, widen, narrow] = [norm, widen, narrow].map(|layer| [layer.weight, layer.bias]);
    let weights = raws([norm, widen, narrow].into_iter().flatten().chain([&product_bias]));
    // SAFETY: as in `norm`, with as many weights as the operation takes and room for one tensor.
    make(|output| unsafe {
        torchx_feed_forward(programs, raw(x), weights.as_ptr(), laid.as_ptr(), spans.raw(), dropout.raw(), output)
    })
}

/// `dropout(norm(relu(conv(x))))`, `add`ed to `x` or alone; `conv` is a convolution of odd taps, at most 7.
///
/// # Shapes
/// - x: `[rows, width]`; conv: from `width` to `width`
/// - output: `[rows, width]`
pub fn conv_norm(
    x: &Tensor,
    conv: Weights,
    norm: Weights,
    add: bool,
    dropout: &Dropout,
    spans: &Spans,
) -> Result<Tensor, Error> {
    check_rows("conv_norm", x, spans)?;
    check_norm("conv_norm: norm", x, norm)?;
    let width = x.size()[1];
    let taps = check_conv("conv_norm: conv", x, conv, [width, width])?;
    if !convolves(x) {
        return plain::conv_norm(x, conv, norm, add, dropout, spans);
    }
    let programs = programs(x, taps, Source::Norm { width, taps: 1, rectified: true })?;
    let product_bias = narrowed(conv.bias, x.kind()).detach();
    let laid = LaidWeights::of(conv.weight, x.kind());
    let weights = raws([conv.weight, conv.bias, norm.weight, norm.bias, &product_bias]);
    // SAFETY: as in `feed_forward`.
    make(|output| unsafe {
        let laid = raw_or_null(laid.as_ref());
        torchx_conv_norm(programs, raw(x), weights.as_ptr(), laid, add, spans.raw(), dropout.raw(), output)
    })
}

/// Whether there are kernels for convolutions and norms of these rows.
fn convolves(x: &Tensor) -> bool {
    has_kernel(x) && x.size()[1] <= Source::WIDEST_NORM
}

fn programs(x: &Tensor, taps: i64, norm: Source) -> Result<Programs, Error> {
    let [norm, fold, product] = [norm, Source::Fold { taps }, Source::Product { taps }]
        .map(|source| program(source, x.kind(), x.device()).map(std::ptr::from_ref));
    Ok(Programs { norm: norm?, fold: fold?, product: product? })
}

fn check_norm(name: &str, x: &Tensor, weights: Weights) -> Result<(), Error> {
    let size = &x.size()[1..];
    check_like(&format!("{name}: weight"), weights.weight, size, Kind::Float, x.device())?;
    check_like(&format!("{name}: bias"), weights.bias, size, Kind::Float, x.device())
}

/// How many taps it has.
fn check_conv(name: &str, x: &Tensor, weights: Weights, [to, from]: [i64; 2]) -> Result<i64, Error> {
    let taps = weights.weight.size().last().copied().unwrap_or(0);
    check_like(&format!("{name}: weight"), weights.weight, &[to, from, taps], Kind::Float, x.device())?;
    check_like(&format!("{name}: bias"), weights.bias, &[to], Kind::Float, x.device())?;
    check_taps(name, taps)?;
    Ok(taps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    /// Rows of two utterances, 5 and 6 long, with a gap of 2 before, between and after.
    fn spans() -> Spans {
        let owner: Vec<i64> = [vec![2; 2], vec![0; 5], vec![2; 2], vec![1; 6], vec![2; 2]].concat();
        let list = |values: &[i64]| Tensor::from_slice(values);
        Spans::new(&list(&owner), &list(&[2, 9]), &list(&[5, 6])).unwrap()
    }

    fn drawn(size: &[i64]) -> Tensor {
        Tensor::randn(size, FLOAT_CPU)
    }

    fn kept() -> Dropout {
        Dropout::new(0.0, Device::Cpu).unwrap()
    }

    /// What an utterance gives alone, as one without neighbours, it gives between others.
    #[test]
    fn rows_see_their_own_utterance_alone() {
        let (x, spans) = (drawn(&[17, 8]), spans());
        let norm = [drawn(&[8]), drawn(&[8])];
        let [wide, narrow, local] = [[16, 8, 3], [8, 16, 3], [8, 8, 5]].map(|size| [drawn(&size), drawn(&size[..1])]);
        let [norm, wide, narrow, local] =
            [&norm, &wide, &narrow, &local].map(|[weight, bias]| Weights { weight, bias });
        let all = |x: &Tensor, spans: &Spans| {
            let wide = feed_forward(x, norm, wide, narrow, &kept(), spans).unwrap();
            [wide, conv_norm(x, local, norm, true, &kept(), spans).unwrap()]
        };
        let together = all(&x, &spans);
        for (start, len) in [(2, 5), (9, 6)] {
            let (zero, lens) = (Tensor::from_slice(&[0i64]), Tensor::from_slice(&[len]));
            let alone = Spans::new(&zero.repeat([len]), &zero, &lens).unwrap();
            for (made, alone) in together.iter().zip(&all(&x.narrow(0, start, len), &alone)) {
                assert!(made.narrow(0, start, len).allclose(alone, 1e-5, 1e-5, false));
            }
        }
    }

    #[test]
    fn dropout_keeps_the_mean() {
        tch::manual_seed(5);
        let (nothing, one) = (Tensor::zeros([500, 8], FLOAT_CPU), Tensor::ones([500, 8], FLOAT_CPU));
        let made = residual(&nothing, &one, &Dropout::new(0.25, Device::Cpu).unwrap()).unwrap();
        let share = made.eq(0.0).to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
        assert!((share - 0.25).abs() < 0.03 && (made.max().double_value(&[]) - 4.0 / 3.0).abs() < 1e-6, "{share}");
        assert_eq!(residual(&nothing, &one, &kept()).unwrap(), one);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (x, norm, conv) = (drawn(&[17, 8]), [drawn(&[8]), drawn(&[8])], [drawn(&[8, 8, 4]), drawn(&[8])]);
        let [norm, conv] = [&norm, &conv].map(|[weight, bias]| Weights { weight, bias });
        let message = conv_norm(&x, conv, norm, true, &kept(), &spans()).unwrap_err().to_string();
        assert!(message.contains("4 taps"), "{message}");
        let message = feed_forward(&x, norm, norm, conv, &kept(), &spans()).unwrap_err().to_string();
        assert!(message.starts_with("feed_forward: widen: weight: must be [8, 8, "), "{message}");
    }
}
