//! The operations of [`super`] as LibTorch's own: on the CPU, for other kinds, and as what the kernels are held to.

use tch::{Kind, Tensor};

use super::{Dropout, Infill, Laid, Spans, Weights};
use crate::cpu;
use crate::error::Error;
use crate::narrow::narrowed;

pub fn adaln(x: &Tensor, table: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    let norm = x.f_layer_norm([x.size()[1]], None::<&Tensor>, None::<&Tensor>, 1e-5, true)?;
    let parts = table.f_chunk(2, 1)?;
    let [scale, shift] = [&parts[0], &parts[1]].map(|table| table.f_index_select(0, &spans.owner));
    Ok(norm.f_mul(&scale?.f_add_scalar(1.0)?)?.f_add(&shift?)?)
}

pub fn gated_add(x: &Tensor, y: &Tensor, gate: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    let sum = x.f_add(&y.f_mul(&gate.f_index_select(0, &spans.owner)?)?)?;
    Ok(sum.f_mul(&mask(spans, x.kind())?)?)
}

/// `[rows, 1]`: 0 in gaps.
fn mask(spans: &Spans, kind: Kind) -> Result<Tensor, Error> {
    Ok(spans.owner.f_lt(spans.utterances())?.f_to_kind(kind)?.f_unsqueeze(1)?)
}

pub fn depthwise(x: &Tensor, weight: &Tensor, bias: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    let (channels, half) = (x.size()[1], weight.size()[2] / 2);
    let mask = mask(spans, x.kind())?;
    let (weight, bias) = (weight.f_to_kind(x.kind())?, bias.f_to_kind(x.kind())?);
    let columns = x.f_mul(&mask)?.f_transpose(0, 1)?.f_unsqueeze(0)?;
    let mixed = columns.f_conv1d(&weight, Some(&bias), [1], [half], [1], channels)?;
    Ok(mixed.f_squeeze_dim(0)?.f_transpose(0, 1)?.f_mul(&mask)?)
}

pub fn norm(x: &Tensor, weights: Weights) -> Result<[Tensor; 2], Error> {
    let [weight, bias] = [weights.weight, weights.bias].map(|param| narrowed(param, x.kind()));
    Ok([x.f_layer_norm([x.size()[1]], Some(&weight), Some(&bias), 1e-5, true)?, x.shallow_clone()])
}

pub fn residual(x: &Tensor, y: &Tensor, dropout: &Dropout) -> Result<Tensor, Error> {
    Ok(x.f_add(&dropout.apply(y)?)?)
}

pub fn feed_forward(
    x: &Tensor,
    norm: Weights,
    widen: Weights,
    narrow: Weights,
    dropout: &Dropout,
    spans: &Spans,
) -> Result<Tensor, Error> {
    let [normal, x] = self::norm(x, norm)?;
    let wide = convolution(&normal, widen, spans)?.f_relu()?;
    residual(&x, &convolution(&wide, narrow, spans)?, dropout)
}

pub fn conv_norm(
    x: &Tensor,
    conv: Weights,
    norm: Weights,
    add: bool,
    dropout: &Dropout,
    spans: &Spans,
) -> Result<Tensor, Error> {
    let [local, _] = self::norm(&convolution(x, conv, spans)?.f_relu()?, norm)?;
    if add { residual(x, &local, dropout) } else { dropout.apply(&local) }
}

/// Nobody looks at what comes out of gaps.
fn convolution(x: &Tensor, weights: Weights, spans: &Spans) -> Result<Tensor, Error> {
    let half = weights.weight.size()[2] / 2;
    let mask = mask(spans, x.kind())?;
    let [weight, bias] = [weights.weight, weights.bias].map(|param| narrowed(param, x.kind()));
    let rows = x.f_mul(&mask)?;
    if let Some(made) = cpu::product::convolution(&rows, &weight, &bias)? {
        return Ok(made);
    }
    let made = rows.f_transpose(0, 1)?.f_unsqueeze(0)?.f_conv1d(&weight, Some(&bias), [1], [half], [1], 1)?;
    Ok(made.f_squeeze_dim(0)?.f_transpose(0, 1)?)
}

pub fn rotary(qkv: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<[Tensor; 3], Error> {
    let [cos, sin] = [cos, sin].map(|table| table.f_unsqueeze(1)?.f_to_kind(qkv.kind()));
    let (cos, sin) = (cos?, sin?);
    let turn = |x: &Tensor| -> Result<Tensor, Error> {
        let halves = x.f_chunk(2, -1)?;
        let (a, b) = (&halves[0], &halves[1]);
        Ok(Tensor::f_cat(&[a.f_mul(&cos)? - b.f_mul(&sin)?, a.f_mul(&sin)? + b.f_mul(&cos)?], -1)?)
    };
    let parts = qkv.f_unbind(1)?;
    Ok([turn(&parts[0])?, turn(&parts[1])?, parts[2].shallow_clone()])
}

pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    Ok(x.f_linear(weight, bias)?)
}

pub fn bias_gelu(x: &Tensor, bias: &Tensor) -> Result<Tensor, Error> {
    let bias: Tensor = bias.f_to_kind(x.kind())?;
    Ok(x.f_add(&bias)?.f_gelu("tanh")?)
}

pub fn bias_leaky(x: &Tensor, bias: &Tensor, slope: f64) -> Result<Tensor, Error> {
    let sum = x.f_add(&bias.f_to_kind(x.kind())?)?;
    Ok(sum.f_prelu(&Tensor::f_full([1], slope, (x.kind(), x.device()))?)?)
}

pub fn bias_leaky_matched(x: &Tensor, bias: &Tensor, slope: f64, target: &Tensor) -> Result<[Tensor; 2], Error> {
    let made = bias_leaky(x, bias, slope)?;
    let distance = made.f_sub(target)?.f_abs()?.f_mean(Kind::Float)?;
    Ok([made, distance])
}

pub fn conv_leaky(x: &Tensor, weights: Weights, stride: [i64; 2], slope: f64) -> Result<Tensor, Error> {
    let (weight, bias) = (narrowed(weights.weight, x.kind()), weights.bias);
    let (to, from) = (weight.size()[0], weight.size()[1]);
    let half: Vec<i64> = weight.size()[2..].iter().map(|taps| taps / 2).collect();
    let planes = x.f_narrow(3, 0, from)?.f_permute([0, 3, 1, 2])?;
    let made = planes.f_conv2d(&weight, None::<&Tensor>, stride, half, [1, 1], 1)?.f_permute([0, 2, 3, 1])?;
    Ok(bias_leaky(&made.f_reshape([-1, to])?, bias, slope)?.f_view(made.size().as_slice())?)
}

pub fn conv_leaky_matched(
    x: &Tensor,
    weights: Weights,
    stride: [i64; 2],
    slope: f64,
    target: &Tensor,
) -> Result<[Tensor; 2], Error> {
    let made = conv_leaky(x, weights, stride, slope)?;
    let distance = made.f_sub(target)?.f_abs()?.f_mean(Kind::Float)?;
    Ok([made, distance])
}

pub fn infill(inputs: &Infill) -> Result<Tensor, Error> {
    let Infill { noisy, clean, given, content, said, noisy_layer, clean_layer } = inputs;
    let kind = content.kind();
    let not_given = given.f_neg()?.f_add_scalar(1.0)?;
    let x = linear(&noisy.f_mul(&not_given)?.f_to_kind(kind)?, noisy_layer[0], Some(noisy_layer[1]))?;
    let (len, own) = (x.size()[0], content.size()[0]);
    let (x, said) = (x.f_view([len / own, own, -1])?, said.f_to_kind(kind)?.f_view([len / own, own, 1])?);
    let x = x.f_addcmul(&content.f_unsqueeze(0)?, &said)?.f_view([len, -1])?;
    let clean = linear(&clean.f_mul(given)?.f_to_kind(kind)?, clean_layer[0], Some(clean_layer[1]))?;
    Ok(x.f_addcmul(&clean, &given.f_to_kind(kind)?)?)
}

pub fn lay(table: &Tensor, token_of_frame: &Tensor, mels: i64, frames: &Spans) -> Result<Laid, Error> {
    let rows = rows_of(table, token_of_frame)?;
    let parts = rows.f_split_with_sizes([mels, table.size()[1] - mels], 1)?;
    let lasted = lasted(token_of_frame, table.size()[0], &mask(frames, Kind::Float)?)?;
    Ok(Laid { mean: parts[0].f_to_kind(Kind::Float)?, content: parts[1].shallow_clone(), lasted })
}

/// Frames of each of `text` tokens among those that `mask` (`[frames, 1]`, f32) counts: `[text, 1]`, f32.
pub fn lasted(token_of_frame: &Tensor, text: i64, mask: &Tensor) -> Result<Tensor, Error> {
    Ok(Tensor::f_zeros([text, 1], (Kind::Float, mask.device()))?.f_index_add(0, token_of_frame, mask)?)
}

pub fn embed(table: &Tensor, index: &Tensor, scale: f64, kind: Kind) -> Result<Tensor, Error> {
    Ok(rows_of(table, index)?.f_mul_scalar(scale)?.f_to_kind(kind)?)
}

/// Unlike `index_select`'s, this gradient sorts instead of adding atomically: it comes out the same every time.
fn rows_of(table: &Tensor, index: &Tensor) -> Result<Tensor, Error> {
    Ok(Tensor::f_embedding(table, index, -1, false, false)?)
}

pub fn square_loss(
    guess: &Tensor,
    target: &Tensor,
    mask: &Tensor,
    except: Option<&Tensor>,
    factor: f64,
) -> Result<Tensor, Error> {
    let mask = except.map_or_else(|| Ok(mask.shallow_clone()), |except| mask.f_sub(except))?;
    let errors = guess.f_sub(target)?.f_square()?.f_mul(&mask)?.f_sum(Kind::Float)?;
    let elements = mask.f_sum(Kind::Float)?.f_clamp_min(1.0)?.f_mul_scalar(guess.size()[1] as f64)?;
    let mean = errors.f_div(&elements)?;
    Ok(if factor == 1.0 { mean } else { mean.f_mul_scalar(factor)? })
}

pub fn count_loss(predicted: &Tensor, counts: &Tensor, mask: &Tensor) -> Result<Tensor, Error> {
    let missed = counts.f_clamp_min(1.0)?.f_log()?.f_sub(predicted)?;
    let surprise = counts.f_mul(&missed)?.f_sub(counts)?.f_add(&predicted.f_exp()?)?;
    Ok(surprise.f_mul(mask)?.f_sum(Kind::Float)?.f_div(&counts.f_sum(Kind::Float)?.f_clamp_min(1.0)?)?)
}
