//! Small operations of a training step on packed rows `[rows, width]`, each one kernel forward and one or two backward
//! instead of a chain of them. What each must move, and takes, is in `docs/kernels.md`.
//!
//! On CUDA, for f32 and bf16 with a width that is a multiple of 8: kernels compiled at their first use (a few tenths of
//! a second each, so use them before a capture), differentiable, deterministic to the bit. They compute in f32 and
//! round once. On the CPU in f32: what a step spends most on, in `crate::cpu`. Everywhere else: [`plain`], the same in LibTorch's
//! own operations, which is also what tests compare with.

mod attention;
mod convolution;
mod infill;
pub mod plain;
mod planes;
mod program;
mod text;
pub(crate) mod update;

use tch::{Device, Kind, Tensor};

use crate::cpu;
use crate::error::Error;
use crate::ffi::{
    RawSpans, make, make_all, make_list, raw, torchx_adaln, torchx_bias_gelu, torchx_bias_leaky, torchx_depthwise,
    torchx_gated_add, torchx_linear, torchx_rotary, torchx_split,
};
pub use attention::attention;
pub use convolution::{Dropout, LaidWeights, Taps, Weights, conv_norm, feed_forward, norm, residual};
pub use infill::{Infill, infill};
pub(crate) use planes::PlaneLayer;
pub use planes::{conv_leaky, conv_leaky_matched, convolves_planes};
pub(crate) use program::Program;
use program::{Source, program};
pub use text::{Laid, count_loss, embed, lay, square_loss};
pub use update::{Tally, Update};

/// Where the utterances of a packed batch lie: one after the other, in order, each in one piece, gaps between them.
pub struct Spans {
    /// `[rows]`, i32: utterance of each row; the number of utterances in gaps.
    pub owner: Tensor,
    /// `[utterances]`, i32.
    pub starts: Tensor,
    /// `[utterances]`, i32; 0 for utterances that are not there.
    pub lens: Tensor,
}

impl Spans {
    /// From integers of any kind. Make it once for each batch: it casts.
    pub fn new(owner: &Tensor, starts: &Tensor, lens: &Tensor) -> Result<Spans, Error> {
        let list = |name: &str, list: &Tensor| match list.dim() {
            1 => Ok(list.f_to_kind(Kind::Int)?.f_contiguous()?),
            _ => Err(Error::Argument(format!("spans: {name} must be a list, not {:?}", list.size()))),
        };
        let spans = Spans { owner: list("owner", owner)?, starts: list("starts", starts)?, lens: list("lens", lens)? };
        match starts.size() == lens.size() {
            true => Ok(spans),
            false => Err(Error::Argument(format!("spans: {:?} starts and {:?} lens", starts.size(), lens.size()))),
        }
    }

    pub fn utterances(&self) -> i64 {
        self.starts.size()[0]
    }

    fn raw(&self) -> RawSpans {
        RawSpans { owner: raw(&self.owner), starts: raw(&self.starts), lens: raw(&self.lens) }
    }
}

/// Adaptive layer norm, without weights of its own, eps 1e-5: `norm(x) * (1 + scale[owner]) + shift[owner]`; and beside it
/// `x` as it came, for the residual around the norm. Whoever takes it from here has the two gradients of `x` added for nothing.
///
/// The table may be a part of a wider one, such as `split` gives: no copy is made of it. By kernels of ours gaps have no
/// gradient, nor has the table's last row, theirs: mask what comes out of gaps, and that is also its true value.
///
/// # Shapes
/// - x: `[rows, width]`; table: `[utterances + 1, 2 * width]` of the same kind: scales, then shifts
/// - outputs: `[rows, width]` each
pub fn adaln(x: &Tensor, table: &Tensor, spans: &Spans) -> Result<[Tensor; 2], Error> {
    check_rows("adaln", x, spans)?;
    check_table("adaln: table", x, table, spans, 2)?;
    if !has_kernel(x) || x.size()[1] > Source::WIDEST_NORM {
        let normal = if cpu::serves(x) { cpu::rows::adaln(x, table, spans) } else { plain::adaln(x, table, spans) };
        return Ok([normal?, x.shallow_clone()]);
    }
    let program = program(Source::Adaln { width: x.size()[1] }, x.kind(), x.device())?;
    // SAFETY: a program of this operation, live tensors whose shapes were checked, and room for two new ones.
    make_all(|outputs| unsafe { torchx_adaln(program, raw(x), raw(table), spans.raw(), outputs) })
}

/// Parts of a table, side by side, for [`adaln`] and [`gated_add`]: on CUDA their gradients may be made aside (see
/// [`crate::gradients::Aside`]), and only here are they waited for.
///
/// # Shapes
/// - table: `[rows, sum of widths]`; outputs: `[rows, width]` each
pub fn split(table: &Tensor, widths: &[i64]) -> Result<Vec<Tensor>, Error> {
    if !table.device().is_cuda() {
        return Ok(table.f_split_with_sizes(widths, 1)?);
    }
    // SAFETY: a live tensor, a list with its length, and room for as many new tensors.
    make_list(widths.len(), |parts| unsafe { torchx_split(raw(table), widths.as_ptr(), widths.len(), parts) })
}

/// `x + y * gate[owner]`, zeros in gaps; as for [`adaln`], the gaps' gate has no gradient.
///
/// # Shapes
/// - x, y: `[rows, width]`; gate: `[utterances + 1, width]`, all of one kind
/// - output: `[rows, width]`
pub fn gated_add(x: &Tensor, y: &Tensor, gate: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    check_rows("gated_add", x, spans)?;
    check_like("gated_add: y", y, &x.size(), x.kind(), x.device())?;
    check_table("gated_add: gate", x, gate, spans, 1)?;
    if !has_kernel(x) {
        return if cpu::serves(x) {
            cpu::rows::gated_add(x, y, gate, spans)
        } else {
            plain::gated_add(x, y, gate, spans)
        };
    }
    let program = program(Source::GatedAdd, x.kind(), x.device())?;
    // SAFETY: as in `adaln`.
    make(|output| unsafe { torchx_gated_add(program, raw(x), raw(y), raw(gate), spans.raw(), output) })
}

/// Convolution along the rows with a filter of its own for every column, no transposes. A row sees the rows of its own
/// utterance and zeros beside them; gaps come out zero. On the CPU that holds where gaps are at least `taps / 2` wide.
///
/// # Shapes
/// - x: `[rows, width]`; weight: `[width, 1, taps]`, taps odd and at most 7; bias: `[width]`; both f32 whatever x is
/// - output: `[rows, width]`
pub fn depthwise(x: &Tensor, weight: &Tensor, bias: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    check_rows("depthwise", x, spans)?;
    let (width, taps) = (x.size()[1], weight.size().last().copied().unwrap_or(0));
    check_like("depthwise: weight", weight, &[width, 1, taps], Kind::Float, x.device())?;
    check_like("depthwise: bias", bias, &[width], Kind::Float, x.device())?;
    check_taps("depthwise", taps)?;
    if !has_kernel(x) {
        return if cpu::serves(x) {
            cpu::rows::depthwise(x, weight, bias, spans)
        } else {
            plain::depthwise(x, weight, bias, spans)
        };
    }
    let program = program(Source::Depthwise { taps }, x.kind(), x.device())?;
    // SAFETY: as in `adaln`.
    make(|output| unsafe { torchx_depthwise(program, raw(x), raw(weight), raw(bias), spans.raw(), output) })
}

/// Rotary positions (Su et al. 2021; halves, as in GPT-NeoX) on the output of a common projection: queries and keys
/// turned, values as they are (maybe a view: do not write to them).
///
/// # Shapes
/// - qkv: `[rows, 3, heads, head_dim]`, head_dim a multiple of 16 for the kernel; cos, sin: `[rows, head_dim / 2]`, f32
/// - outputs: q, k, v, each `[rows, heads, head_dim]`
pub fn rotary(qkv: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<[Tensor; 3], Error> {
    let &[rows, 3, heads, head_dim] = qkv.size().as_slice() else {
        return Err(Error::Argument(format!("rotary: qkv must be [rows, 3, heads, head_dim], not {:?}", qkv.size())));
    };
    check_like("rotary: cos", cos, &[rows, head_dim / 2], Kind::Float, qkv.device())?;
    check_like("rotary: sin", sin, &[rows, head_dim / 2], Kind::Float, qkv.device())?;
    if !qkv.device().is_cuda()
        || !matches!(qkv.kind(), Kind::Float | Kind::BFloat16)
        || rows * heads == 0
        || head_dim % 16 != 0
    {
        return if cpu::serves(qkv) { cpu::rows::rotary(qkv, cos, sin) } else { plain::rotary(qkv, cos, sin) };
    }
    let program = program(Source::Rotary, qkv.kind(), qkv.device())?;
    // SAFETY: as in `adaln`, with room for three tensors.
    make_all(|outputs| unsafe { torchx_rotary(program, raw(qkv), raw(cos), raw(sin), outputs) })
}

/// A linear layer, `x · weightᵀ + bias`, on rows of any shape.
///
/// # Shapes
/// - x: `[…, from]`; weight: `[to, from]`; bias: `[to]`, all of one kind
/// - output: `[…, to]`
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let to = weight.size()[0];
    if x.dim() != 2 || !has_kernel(x) || to % 8 != 0 {
        return match cpu::product::linear(x, weight, bias)? {
            Some(made) => Ok(made),
            None => plain::linear(x, weight, bias),
        };
    }
    check_like("linear: weight", weight, &[to, x.size()[1]], x.kind(), x.device())?;
    if let Some(bias) = bias {
        check_like("linear: bias", bias, &[to], x.kind(), x.device())?;
    }
    let (program, bias) = (program(Source::Linear, x.kind(), x.device())?, bias.map_or(std::ptr::null(), raw));
    // SAFETY: as in `adaln`; no bias is null.
    make(|output| unsafe { torchx_linear(program, raw(x), raw(weight), bias, output) })
}

/// `gelu(x + bias)`, GELU by tanh. Give it the output of a linear layer without its bias.
///
/// # Shapes
/// - x: `[rows, width]`; bias: `[width]`, f32 whatever x is
/// - output: `[rows, width]`
pub fn bias_gelu(x: &Tensor, bias: &Tensor) -> Result<Tensor, Error> {
    check_matrix("bias_gelu", x)?;
    check_like("bias_gelu: bias", bias, &[x.size()[1]], Kind::Float, x.device())?;
    if !has_kernel(x) {
        return if cpu::serves(x) { cpu::rows::bias_gelu(x, bias) } else { plain::bias_gelu(x, bias) };
    }
    let program = program(Source::BiasGelu, x.kind(), x.device())?;
    // SAFETY: as in `adaln`.
    make(|output| unsafe { torchx_bias_gelu(program, raw(x), raw(bias), output) })
}

/// `x + bias`, of which what lies below zero is multiplied by `slope`. Give it the output of a convolution without its bias.
///
/// # Shapes
/// - x: `[rows, width]`, with 32, 64, 128, … columns for the kernel; bias: `[width]`, f32 whatever x is
/// - output: `[rows, width]`
pub fn bias_leaky(x: &Tensor, bias: &Tensor, slope: f64) -> Result<Tensor, Error> {
    check_matrix("bias_leaky", x)?;
    check_like("bias_leaky: bias", bias, &[x.size()[1]], Kind::Float, x.device())?;
    if !has_leaky_kernel(x) {
        return plain::bias_leaky(x, bias, slope);
    }
    let program = program(Source::BiasLeaky { matched: false }, x.kind(), x.device())?;
    // SAFETY: as in `adaln`, with no target, so that one tensor is made.
    make(|output| unsafe { torchx_bias_leaky(program, raw(x), raw(bias), std::ptr::null(), slope, output) })
}

/// The same, and beside it the mean distance of its values from those of `target`, 0-d, f32. The target has no gradient.
///
/// # Shapes
/// - x, target: `[rows, width]`, of one kind; bias: `[width]`, f32 whatever x is
pub fn bias_leaky_matched(x: &Tensor, bias: &Tensor, slope: f64, target: &Tensor) -> Result<[Tensor; 2], Error> {
    check_matrix("bias_leaky", x)?;
    check_like("bias_leaky: bias", bias, &[x.size()[1]], Kind::Float, x.device())?;
    check_like("bias_leaky: target", target, &x.size(), x.kind(), x.device())?;
    let target = target.detach();
    if !has_leaky_kernel(x) {
        return plain::bias_leaky_matched(x, bias, slope, &target);
    }
    let program = program(Source::BiasLeaky { matched: true }, x.kind(), x.device())?;
    // SAFETY: as in `adaln`, with room for the two tensors that a call with a target makes.
    make_all(|outputs| unsafe { torchx_bias_leaky(program, raw(x), raw(bias), raw(&target), slope, outputs) })
}

/// Whether every thread of a block of 256 meets the same columns in each of its vectors of 16 bytes.
fn has_leaky_kernel(x: &Tensor) -> bool {
    let bytes = x.size()[1] * if x.kind() == Kind::BFloat16 { 2 } else { 4 };
    has_kernel(x) && bytes % 16 == 0 && 256 % (bytes / 16) == 0
}

fn has_kernel(x: &Tensor) -> bool {
    let kind = matches!(x.kind(), Kind::Float | Kind::BFloat16);
    x.device().is_cuda() && kind && x.numel() > 0 && x.size()[1] % 8 == 0
}

fn check_matrix(name: &str, x: &Tensor) -> Result<(), Error> {
    match x.dim() {
        2 => Ok(()),
        _ => Err(Error::Argument(format!("{name}: x must be [rows, width], not {:?}", x.size()))),
    }
}

fn check_rows(name: &str, x: &Tensor, spans: &Spans) -> Result<(), Error> {
    check_matrix(name, x)?;
    check_like(&format!("{name}: owner"), &spans.owner, &x.size()[..1], Kind::Int, x.device())?;
    check_lists(name, spans, x.device())
}

fn check_lists(name: &str, spans: &Spans, device: Device) -> Result<(), Error> {
    check_like(&format!("{name}: starts"), &spans.starts, &[spans.utterances()], Kind::Int, device)?;
    check_like(&format!("{name}: lens"), &spans.lens, &[spans.utterances()], Kind::Int, device)
}

fn check_table(name: &str, x: &Tensor, table: &Tensor, spans: &Spans, parts: i64) -> Result<(), Error> {
    check_like(name, table, &[spans.utterances() + 1, parts * x.size()[1]], x.kind(), x.device())
}

fn check_taps(name: &str, taps: i64) -> Result<(), Error> {
    match taps % 2 == 1 && taps <= 7 {
        true => Ok(()),
        false => Err(Error::Argument(format!("{name}: {taps} taps: they must be odd and at most 7"))),
    }
}

fn check_like(name: &str, tensor: &Tensor, size: &[i64], kind: Kind, device: Device) -> Result<(), Error> {
    if tensor.size() == size && tensor.kind() == kind && tensor.device() == device {
        return Ok(());
    }
    let given = (tensor.size(), tensor.kind(), tensor.device());
    Err(Error::Argument(format!("{name}: must be {size:?} {kind:?} on {device:?}, not {given:?}")))
}

#[cfg(test)]
mod tests;
