//! Between a text and its frames: rows of a table of tokens, and losses.

use tch::{Kind, Tensor};

use super::program::{Source, program};
use super::{Spans, check_like, check_matrix, has_kernel, plain};
use crate::error::Error;
use crate::ffi::{make, make_all, raw, torchx_count_loss, torchx_embed, torchx_lay, torchx_square_loss};

/// A table of tokens along the frames.
pub struct Laid {
    /// `[frames, mels]`, f32: the table's first columns.
    pub mean: Tensor,
    /// `[frames, width - mels]`, in the table's kind: the others.
    pub content: Tensor,
    /// `[text, 1]`, f32: frames of each token. It has no gradient.
    pub lasted: Tensor,
}

/// The row of each frame's token. Tokens' frames must follow one another inside their utterance; gaps may hold any token,
/// and on CUDA no gradient comes from them: mask what comes out of gaps, and that is also its true value.
///
/// # Shapes
/// - table: `[text, width]`, `mels` a multiple of 8 for the kernel; token_of_frame: `[frames]`, i32
pub fn lay(table: &Tensor, token_of_frame: &Tensor, mels: i64, text: &Spans, frames: &Spans) -> Result<Laid, Error> {
    check_matrix("lay", table)?;
    check_like("lay: token_of_frame", token_of_frame, &frames.owner.size(), Kind::Int, table.device())?;
    check_like("lay: owner", &text.owner, &table.size()[..1], Kind::Int, table.device())?;
    if !has_kernel(table) || mels % 8 != 0 || mels >= table.size()[1] || token_of_frame.numel() == 0 {
        return plain::lay(table, token_of_frame, mels, frames);
    }
    let program = program(Source::Lay, table.kind(), table.device())?;
    // SAFETY: a program of this operation, live tensors whose shapes were checked, and room for three new ones.
    let [mean, content, lasted] = make_all(|outputs| unsafe {
        torchx_lay(program, raw(table), raw(token_of_frame), mels, raw(&text.owner), frames.raw(), outputs)
    })?;
    Ok(Laid { mean, content, lasted })
}

/// More entries take LibTorch's way, which sorts: ours writes a table for each stretch of the rows.
const MOST_ENTRIES: i64 = 1024;

/// Rows of a small table at `index`, times `scale`, in the kind `kind`.
///
/// # Shapes
/// - table: `[entries, width]`, f32; index: `[rows]`, i32
/// - output: `[rows, width]`
pub fn embed(table: &Tensor, index: &Tensor, scale: f64, kind: Kind) -> Result<Tensor, Error> {
    check_matrix("embed", table)?;
    let served = has_kernel(table) && table.kind() == Kind::Float && matches!(kind, Kind::Float | Kind::BFloat16);
    if !served || index.kind() != Kind::Int || index.numel() == 0 || table.size()[0] > MOST_ENTRIES {
        return plain::embed(table, index, scale, kind);
    }
    check_like("embed: index", index, &[index.numel() as i64], Kind::Int, table.device())?;
    let program = program(Source::Embed, kind, table.device())?;
    // SAFETY: as in `lay`, with room for one.
    make(|output| unsafe { torchx_embed(program, raw(table), raw(index), scale, kind == Kind::BFloat16, output) })
}

/// `factor` times the mean squared error over the rows that `mask` counts, less those that `except` takes away: 0-d, f32.
/// Only the guess has a gradient.
///
/// # Shapes
/// - guess, target: `[rows, width]`, the target f32; mask, except: `[rows, 1]`, f32
pub fn square_loss(
    guess: &Tensor,
    target: &Tensor,
    mask: &Tensor,
    except: Option<&Tensor>,
    factor: f64,
) -> Result<Tensor, Error> {
    check_matrix("square_loss", guess)?;
    let (size, device) = (guess.size(), guess.device());
    check_like("square_loss: target", target, &size, Kind::Float, device)?;
    for rows in [Some(mask), except].into_iter().flatten() {
        check_like("square_loss: mask", rows, &[size[0], 1], Kind::Float, device)?;
    }
    if !has_kernel(guess) {
        return plain::square_loss(guess, target, mask, except, factor);
    }
    let program = program(Source::SquareLoss, guess.kind(), device)?;
    let except = except.map_or(std::ptr::null(), raw);
    // SAFETY: as in `lay`, with room for one; what may be null is.
    make(|output| unsafe { torchx_square_loss(program, raw(guess), raw(target), raw(mask), except, factor, output) })
}

/// Half the deviance of Poisson counts from their predicted logarithms, in nats for each that is counted: 0-d, f32. Only
/// the predicted have a gradient.
///
/// # Shapes
/// - predicted, counts, mask: `[rows, 1]`, f32; counts 0 where the mask is
pub fn count_loss(predicted: &Tensor, counts: &Tensor, mask: &Tensor) -> Result<Tensor, Error> {
    let (size, device) = (predicted.size(), predicted.device());
    for (name, rows) in [("predicted", predicted), ("counts", counts), ("mask", mask)] {
        check_like(&format!("count_loss: {name}"), rows, &size, Kind::Float, device)?;
    }
    if !device.is_cuda() || predicted.numel() == 0 {
        return plain::count_loss(predicted, counts, mask);
    }
    let program = program(Source::CountLoss, Kind::Float, device)?;
    // SAFETY: as in `lay`, with room for one.
    make(|output| unsafe { torchx_count_loss(program, raw(predicted), raw(counts), raw(mask), output) })
}
