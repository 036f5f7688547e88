//! Attention with rotary positions, inside each utterance of rows laid end to end.

use tch::{Kind, Tensor};

use super::program::{Source, program};
use super::{Spans, check_like, check_lists, rotary};
use crate::attention::varlen_attention;
use crate::error::Error;
use crate::ffi::{make, raw, torchx_attention};

/// Channels of a head that the kernel is made for.
const HEAD_DIM: i64 = 64;

/// Rotary positions on queries and keys ([`rotary`]), then attention inside each utterance. What comes out of gaps has no
/// meaning, and must have no gradient.
///
/// On CUDA, bf16 with heads of 64 channels has a kernel of its own, whose gradient comes out the same to the bit each time;
/// everything else goes by [`varlen_attention`], for which gaps are segments like others.
///
/// # Shapes
/// - qkv: `[rows, 3, heads, head_dim]`; cos, sin: `[rows, head_dim / 2]`, f32
/// - cu_seqlens, max_len: as for [`varlen_attention`]; spans: the utterances among these segments
/// - output: `[rows, heads * head_dim]`
pub fn attention(
    qkv: &Tensor,
    [cos, sin]: [&Tensor; 2],
    cu_seqlens: &Tensor,
    max_len: i64,
    spans: &Spans,
) -> Result<Tensor, Error> {
    let size = qkv.size();
    let &[rows, 3, heads, head_dim] = size.as_slice() else {
        return Err(Error::Argument(format!("attention: qkv must be [rows, 3, heads, head_dim], not {size:?}")));
    };
    let has_kernel = qkv.device().is_cuda() && qkv.kind() == Kind::BFloat16 && head_dim == HEAD_DIM;
    if !has_kernel || rows * heads == 0 {
        let [q, k, v] = rotary(qkv, cos, sin)?;
        return Ok(varlen_attention(&q, &k, &v, cu_seqlens, max_len, None)?.f_reshape([rows, heads * head_dim])?);
    }
    check_like("attention: cos", cos, &[rows, head_dim / 2], Kind::Float, qkv.device())?;
    check_like("attention: sin", sin, &[rows, head_dim / 2], Kind::Float, qkv.device())?;
    check_lists("attention", spans, qkv.device())?;
    let [own, turn] = [Source::Attention, Source::Rotary].map(|source| program(source, qkv.kind(), qkv.device()));
    let (own, turn) = (own?, turn?);
    // SAFETY: programs of these operations, live tensors whose shapes were checked, and room for the new one.
    make(|output| unsafe { torchx_attention(own, turn, raw(qkv), raw(cos), raw(sin), spans.raw(), output) })
}
