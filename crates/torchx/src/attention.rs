//! Self-attention over sequences laid end to end: each row attends to the rows of its own segment, and to no other.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::ffi::{make, raw, torchx_efficient_attention, torchx_flash_attention};

/// Attention within each segment, not causal; differentiable.
///
/// On CUDA, bf16 and f16 use flash attention (`head_dim` a multiple of 8, at most 256) and f32 memory-efficient
/// attention; the host never waits, so nothing there checks the values of `cu_seqlens`. The CPU does check them.
///
/// # Shapes
/// - q, k, v: `[total, heads, head_dim]`, of one kind
/// - cu_seqlens: `[segments + 1]`, i32, on the same device: where each segment starts, the last entry being `total`.
///   Segments may be empty. Rows that no segment covers would come out undefined, so cover them all.
/// - max_len: at least the longest segment's length; a bound that never changes keeps captured graphs valid
/// - scale: of the scores, 1 / √head_dim when not given
/// - output: `[total, heads, head_dim]`
pub fn varlen_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    cu_seqlens: &Tensor,
    max_len: i64,
    scale: Option<f64>,
) -> Result<Tensor, Error> {
    check_shapes(q, k, v, cu_seqlens)?;
    if q.device() == Device::Cpu {
        return by_length(q, k, v, &lengths(cu_seqlens, q.size()[0], max_len)?, scale);
    }
    let attention = match (q.kind(), q.size()[2]) {
        (Kind::BFloat16 | Kind::Half, head_dim) if head_dim % 8 != 0 || head_dim > 256 => {
            let limits = "on CUDA it must be a multiple of 8, and at most 256";
            return Err(Error::Argument(format!("attention: head_dim {head_dim}: {limits}")));
        }
        (Kind::BFloat16 | Kind::Half, _) => torchx_flash_attention,
        _ => torchx_efficient_attention,
    };
    let scale = scale.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: live tensors, a pointer to a number or null, and room for the new tensor.
    make(|output| unsafe { attention(raw(q), raw(k), raw(v), raw(cu_seqlens), max_len, scale, output) })
}

/// On the CPU: segments of equal length are stacked and attended at once, without padding and without a mask.
///
/// Measured, forward and backward, 64 utterances with gaps of 4 rows between them, 2 heads of 48, one core, as a share of
/// the time that one segment after another takes: utterances of 20 to 60 rows 0.6 (padded and masked: 1.8), of 100 to
/// 300 rows 1.0 (padded and masked: 3.2).
fn by_length(q: &Tensor, k: &Tensor, v: &Tensor, lengths: &[i64], scale: Option<f64>) -> Result<Tensor, Error> {
    if lengths.iter().all(|&length| length == 0) {
        return Ok(v.f_zeros_like()?);
    }
    // One split, not many slices: the backward of a slice fills a whole tensor with zeros.
    let [q, k, v] = [q, k, v].map(|rows| rows.f_split_with_sizes(lengths, 0));
    let (q, k, v) = (q?, k?, v?);
    let mut outputs: Vec<Option<Tensor>> = lengths.iter().map(|_| None).collect();
    for segments in same_length(lengths).values() {
        let [q, k, v] = [&q, &k, &v].map(|rows| stack(rows, segments));
        let output = Tensor::f_scaled_dot_product_attention(&q?, &k?, &v?, None::<Tensor>, 0.0, false, scale, false)?;
        for (&segment, rows) in segments.iter().zip(output.f_transpose(1, 2)?.f_unbind(0)?) {
            outputs[segment] = Some(rows);
        }
    }
    let outputs: Vec<Tensor> = outputs.into_iter().flatten().collect();
    Ok(Tensor::f_cat(&outputs, 0)?)
}

/// The segments of each length but zero.
fn same_length(lengths: &[i64]) -> BTreeMap<i64, Vec<usize>> {
    let mut groups = BTreeMap::<i64, Vec<usize>>::new();
    for (segment, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        groups.entry(length).or_default().push(segment);
    }
    groups
}

/// `[segments, heads, length, head_dim]`
fn stack(rows: &[Tensor], segments: &[usize]) -> Result<Tensor, Error> {
    let stacked = match segments {
        [segment] => rows[*segment].f_unsqueeze(0)?, // a view
        _ => Tensor::f_stack(&segments.iter().map(|&segment| &rows[segment]).collect::<Vec<_>>(), 0)?,
    };
    Ok(stacked.f_transpose(1, 2)?)
}

fn lengths(cu_seqlens: &Tensor, total: i64, max_len: i64) -> Result<Vec<i64>, Error> {
    let starts: Vec<i32> = Vec::try_from(cu_seqlens)?;
    let lengths: Vec<i64> = starts.windows(2).map(|pair| i64::from(pair[1]) - i64::from(pair[0])).collect();
    let (first, last) = (starts[0], starts[starts.len() - 1]);
    if first != 0 || i64::from(last) != total || lengths.iter().any(|&length| length < 0) {
        return Err(Error::Argument(format!("attention: cu_seqlens must rise from 0 to {total}, not {starts:?}")));
    }
    match lengths.iter().max() {
        Some(&longest) if longest > max_len => {
            Err(Error::Argument(format!("attention: a segment of {longest} rows, and max_len is {max_len}")))
        }
        _ => Ok(lengths),
    }
}

fn check_shapes(q: &Tensor, k: &Tensor, v: &Tensor, cu_seqlens: &Tensor) -> Result<(), Error> {
    let same = |x: &Tensor| x.size() == q.size() && x.kind() == q.kind() && x.device() == q.device();
    if q.dim() != 3 || !same(k) || !same(v) {
        let [q, k, v] = [q, k, v].map(describe);
        return Err(Error::Argument(format!(
            "attention: q, k, v must be [total, heads, head_dim] alike: {q}; {k}; {v}"
        )));
    }
    let list = cu_seqlens.dim() == 1 && cu_seqlens.size()[0] >= 1 && cu_seqlens.kind() == Kind::Int;
    if !list || cu_seqlens.device() != q.device() {
        let (given, device) = (describe(cu_seqlens), q.device());
        return Err(Error::Argument(format!("attention: cu_seqlens must be a list of i32 on {device:?}, not {given}")));
    }
    Ok(())
}

fn describe(tensor: &Tensor) -> String {
    format!("{:?} {:?} on {:?}", tensor.size(), tensor.kind(), tensor.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    /// softmax(q kᵀ · scale) v, segment by segment, from the definition.
    fn naive(q: &Tensor, k: &Tensor, v: &Tensor, lengths: &[i64], scale: f64) -> Tensor {
        let mut start = 0;
        let mut outputs = vec![];
        for &length in lengths {
            let [q, k, v] = [q, k, v].map(|rows| rows.narrow(0, start, length).transpose(0, 1));
            let weights = (q.matmul(&k.transpose(1, 2)) * scale).softmax(-1, Kind::Float);
            outputs.push(weights.matmul(&v).transpose(0, 1));
            start += length;
        }
        Tensor::cat(&outputs, 0)
    }

    fn starts(lengths: &[i64]) -> Tensor {
        let ends = lengths.iter().scan(0, |end, length| {
            *end += *length as i32;
            Some(*end)
        });
        Tensor::from_slice(&std::iter::once(0).chain(ends).collect::<Vec<i32>>())
    }

    fn leaves(total: i64) -> [Tensor; 3] {
        std::array::from_fn(|_| Tensor::randn([total, 3, 8], FLOAT_CPU).set_requires_grad(true))
    }

    fn difference(a: &Tensor, b: &Tensor) -> f64 {
        assert_eq!(a.size(), b.size());
        if a.numel() == 0 { 0.0 } else { (a - b).abs().max().double_value(&[]) }
    }

    /// Output and gradients against the definition.
    fn agrees(lengths: &[i64], scale: Option<f64>) {
        let total = lengths.iter().sum();
        let ([q, k, v], upstream) = (leaves(total), Tensor::randn([total, 3, 8], FLOAT_CPU));
        let longest = *lengths.iter().max().unwrap();
        let ours = varlen_attention(&q, &k, &v, &starts(lengths), longest, scale).unwrap();
        let truth = naive(&q, &k, &v, lengths, scale.unwrap_or(8f64.sqrt().recip()));
        assert!(difference(&ours, &truth) < 1e-5, "{lengths:?}");
        let grads = |y: &Tensor| Tensor::run_backward(&[(y * &upstream).sum(Kind::Float)], &[&q, &k, &v], true, false);
        for (ours, truth) in grads(&ours).iter().zip(grads(&truth)) {
            assert!(difference(ours, &truth) < 1e-4, "{lengths:?}");
        }
    }

    #[test]
    fn equals_attention_of_each_segment_alone() {
        agrees(&[5, 1, 9], None);
        agrees(&[7], Some(0.3));
        agrees(&[4, 11, 4, 4, 30, 4, 0, 0], None);
        agrees(&[0, 3, 0, 0, 3, 1, 1], None);
        for seed in 0..20 {
            let mut state = seed * 7919 + 1;
            let mut draw = || {
                state = (state * 1103515245 + 12345) % (1 << 31);
                (state >> 16) % 12
            };
            agrees(&(0..1 + seed % 9).map(|_| draw()).chain([2]).collect::<Vec<i64>>(), None);
        }
    }

    #[test]
    fn only_empty_segments_give_an_empty_output() {
        let [q, k, v] = leaves(0);
        let output = varlen_attention(&q, &k, &v, &starts(&[0, 0]), 4, None).unwrap();
        assert_eq!(output.size(), [0, 3, 8]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [q, k, v] = leaves(6);
        let message =
            |q: &Tensor, starts: &Tensor| varlen_attention(q, &k, &v, starts, 4, None).unwrap_err().to_string();
        assert!(message(&q, &starts(&[3, 4])).contains("must rise from 0 to 6, not [0, 3, 7]"));
        assert!(message(&q, &Tensor::from_slice(&[0, 4, 2, 6])).contains("must rise"));
        assert!(message(&q, &starts(&[1, 5])).contains("a segment of 5 rows, and max_len is 4"));
        assert!(message(&q, &starts(&[3, 3]).to_kind(Kind::Int64)).contains("a list of i32 on Cpu"));
        assert!(message(&q.narrow(0, 0, 5), &starts(&[3, 3])).contains("[total, heads, head_dim] alike"));
        assert!(message(&q, &starts(&[]).narrow(0, 0, 0)).contains("a list of i32"));
    }
}
