//! What a decoder that fills gaps in speech takes in: frames that are noisy, or given clean, and what is said in them.

use tch::{Kind, Tensor};

use super::program::{Source, program};
use super::{check_like, has_kernel, plain};
use crate::error::Error;
use crate::ffi::{make, raw, torchx_infill};

/// Frames, where they are given, and two linear layers. Weights and biases are of the content's kind, all else is f32.
pub struct Infill<'a> {
    /// `[rows, bands]`
    pub noisy: &'a Tensor,
    /// `[rows, bands]`; looked at where `given` is 1.
    pub clean: &'a Tensor,
    /// `[rows, 1]`: 1 where a frame is given clean, and its noisy one is not looked at.
    pub given: &'a Tensor,
    /// `[rows / copies, width]`: copies of an axis share it.
    pub content: &'a Tensor,
    /// `[rows, 1]`: 0 where the content is dropped.
    pub said: &'a Tensor,
    /// Weight `[width, bands]` and bias `[width]`, of noisy frames and of clean ones.
    pub noisy_layer: [&'a Tensor; 2],
    pub clean_layer: [&'a Tensor; 2],
}

/// `noisy_layer(noisy * (1 - given)) + content * said + clean_layer(clean) * given`: `[rows, width]`. Gradients go to content
/// and layers.
pub fn infill(inputs: &Infill) -> Result<Tensor, Error> {
    let Infill { noisy, clean, given, content, said, noisy_layer, clean_layer } = inputs;
    if !has_kernel(content) || noisy.size()[1] % 8 != 0 {
        return plain::infill(inputs);
    }
    let (rows, bands, width) = (noisy.size()[0], noisy.size()[1], content.size()[1]);
    let (kind, device) = (content.kind(), content.device());
    for (name, frames) in [("noisy", noisy), ("clean", clean)] {
        check_like(&format!("infill: {name}"), frames, &[rows, bands], Kind::Float, device)?;
    }
    for (name, mask) in [("given", given), ("said", said)] {
        check_like(&format!("infill: {name}"), mask, &[rows, 1], Kind::Float, device)?;
    }
    for [weight, bias] in [noisy_layer, clean_layer] {
        check_like("infill: weight", weight, &[width, bands], kind, device)?;
        check_like("infill: bias", bias, &[width], kind, device)?;
    }
    if rows % content.size()[0] != 0 {
        return Err(Error::Argument(format!("infill: {rows} rows share a content of {}", content.size()[0])));
    }
    let program = program(Source::Infill, kind, device)?;
    let layers = [noisy_layer[0], noisy_layer[1], clean_layer[0], clean_layer[1]].map(raw);
    let frames = [noisy, clean, given, said].map(|tensor| raw(tensor));
    // SAFETY: a program of this operation, live tensors whose shapes were checked, and room for the new one.
    make(|output| unsafe { torchx_infill(program, frames.as_ptr(), raw(content), layers.as_ptr(), output) })
}
