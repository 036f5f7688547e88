//! The operations of [`crate::fused`], each in one pass over its rows.

use super::parallel::each_part;
use super::{LANES, Out, gelu, values};
use crate::error::Error;
use crate::fused::Spans;
use tch::Tensor;

/// Values that a thread takes at a time.
const PART: usize = 1 << 15;

/// Compiles a loop over rows for the vectors of this processor. The body is inlined into each.
macro_rules! by_processor {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),*) $body:block) => {
        $(#[$doc])*
        fn $name($($arg: $kind),*) {
            #[inline(always)]
            fn body($($arg: $kind),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn wide($($arg: $kind),*) { body($($arg),*) }
                #[target_feature(enable = "avx2")]
                fn middle($($arg: $kind),*) { body($($arg),*) }
                if super::has_avx512() {
                    // SAFETY: the processor has what it was compiled for.
                    return unsafe { wide($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: as above.
                    return unsafe { middle($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

/// Calls `work` with the number of every row and the room for it.
fn each_row(out: Out, work: impl Fn(usize, &mut [f32]) + Sync) {
    let rows = (PART / out.width.max(1)).max(1);
    each_part(out.rows.div_ceil(rows), |part| {
        for row in part * rows..((part + 1) * rows).min(out.rows) {
            // SAFETY: each row is in one part, and each part has one thread.
            work(row, unsafe { out.row(row) });
        }
    });
}

/// Rows of a table that lie apart, such as `chunk` leaves them.
struct Table<'a> {
    values: &'a [f32],
    stride: usize,
    width: usize,
}

impl<'a> Table<'a> {
    /// `table`: `[rows, width]`, f32 on the CPU, of unit stride in a row.
    fn of(table: &'a Tensor) -> Self {
        let (size, strides) = (table.size(), table.stride());
        assert!(strides[1] == 1 || size[1] <= 1);
        let (rows, width, stride) = (size[0] as usize, size[1] as usize, strides[0] as usize);
        // SAFETY: from the first value to the last of a tensor that is borrowed; nobody writes to it.
        let values = unsafe { std::slice::from_raw_parts(table.data_ptr().cast(), (rows - 1) * stride + width) };
        Table { values, stride, width }
    }

    fn row(&self, row: i32) -> &'a [f32] {
        &self.values[row as usize * self.stride..][..self.width]
    }
}

/// In one piece: a copy where it was not.
fn whole(x: &Tensor) -> Result<Tensor, Error> {
    Ok(x.f_contiguous()?)
}

#[inline(always)]
fn sum(row: &[f32], value: impl Fn(f32) -> f32) -> f32 {
    let (lanes, rest) = row.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in lanes {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += value(*x));
    }
    sums.iter_mut().zip(rest).for_each(|(sum, x)| *sum += value(*x));
    sums.iter().sum()
}

by_processor! {
    fn normalize(row: &[f32], scale: &[f32], shift: &[f32], out: &mut [f32]) {
        let width = row.len() as f32;
        let mean = sum(row, |x| x) / width;
        let variance = sum(row, |x| (x - mean) * (x - mean)) / width;
        let factor = 1.0 / (variance + 1e-5).sqrt();
        for (((out, x), scale), shift) in out.iter_mut().zip(row).zip(scale).zip(shift) {
            *out = (x - mean) * factor * (1.0 + scale) + shift;
        }
    }
}

pub(crate) fn adaln(x: &Tensor, table: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    let (x, (made, out)) = (whole(x)?, Out::new(&x.size())?);
    // SAFETY: f32 as `serves` says, i32 as `Spans` does; nobody writes to them.
    let (rows, owner) = unsafe { (values::<f32>(&x), values::<i32>(&spans.owner)) };
    let table = Table::of(table);
    each_row(out, |row, out| {
        let x = &rows[row * out.len()..][..out.len()];
        let (scale, shift) = table.row(owner[row]).split_at(out.len());
        normalize(x, scale, shift, out);
    });
    Ok(made)
}

by_processor! {
    fn add_gated(x: &[f32], y: &[f32], gate: &[f32], out: &mut [f32]) {
        for (((out, x), y), gate) in out.iter_mut().zip(x).zip(y).zip(gate) {
            *out = x + y * gate;
        }
    }
}

pub(crate) fn gated_add(x: &Tensor, y: &Tensor, gate: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    let (x, y, (made, out)) = (whole(x)?, whole(y)?, Out::new(&x.size())?);
    // SAFETY: as in `adaln`.
    let (xs, ys, owner) = unsafe { (values::<f32>(&x), values::<f32>(&y), values::<i32>(&spans.owner)) };
    let (gate, utterances) = (Table::of(gate), spans.utterances() as i32);
    each_row(out, |row, out| match owner[row] {
        owner if owner < utterances => {
            let at = row * out.len()..(row + 1) * out.len();
            add_gated(&xs[at.clone()], &ys[at], gate.row(owner), out);
        }
        _ => out.fill(0.0),
    });
    Ok(made)
}

by_processor! {
    fn add_product(sum: &mut [f32], x: &[f32], factor: &[f32]) {
        for ((sum, x), factor) in sum.iter_mut().zip(x).zip(factor) {
            *sum += x * factor;
        }
    }
}

pub(crate) fn depthwise(x: &Tensor, weight: &Tensor, bias: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    let (x, (made, out)) = (whole(x)?, Out::new(&x.size())?);
    // By tap, so that a row is read from end to end.
    let by_tap = whole(&weight.f_squeeze_dim(1)?.f_transpose(0, 1)?)?;
    let bias = whole(bias)?;
    // SAFETY: as in `adaln`; the parameters are f32, as was checked.
    let (rows, owner) = unsafe { (values::<f32>(&x), values::<i32>(&spans.owner)) };
    // SAFETY: as above.
    let (by_tap, bias) = unsafe { (values::<f32>(&by_tap), values::<f32>(&bias)) };
    let (gap, width, half) = (spans.utterances() as i32, out.width, (by_tap.len() / out.width.max(1)) / 2);
    each_row(out, |row, out| {
        if owner[row] == gap {
            return out.fill(0.0);
        }
        out.copy_from_slice(bias);
        for (tap, factor) in by_tap.chunks_exact(width).enumerate() {
            let Some(other) = (row + tap).checked_sub(half).filter(|other| owner.get(*other) == Some(&owner[row]))
            else {
                continue;
            };
            add_product(out, &rows[other * width..][..width], factor);
        }
    });
    Ok(made)
}

by_processor! {
    /// `x`: one head's values of one row.
    fn turn(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
        let ((a, b), (first, second)) = (x.split_at(x.len() / 2), out.split_at_mut(x.len() / 2));
        for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
            *first = a[i] * cos[i] - b[i] * sin[i];
            *second = a[i] * sin[i] + b[i] * cos[i];
        }
    }
}

pub(crate) fn rotary(qkv: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<[Tensor; 3], Error> {
    let (size, qkv) = (qkv.size(), whole(qkv)?);
    let (head_dim, channels) = (size[3] as usize, (size[2] * size[3]) as usize);
    let ((queries, to_queries), (keys, to_keys)) =
        (Out::new(&[size[0], size[2], size[3]])?, Out::new(&[size[0], size[2], size[3]])?);
    let (cos, sin) = (whole(cos)?, whole(sin)?);
    // SAFETY: as in `adaln`; the tables are f32, as was checked.
    let (rows, cos, sin) = unsafe { (values::<f32>(&qkv), values::<f32>(&cos), values::<f32>(&sin)) };
    each_row(to_queries, |row, queries| {
        let half = row * head_dim / 2..(row + 1) * head_dim / 2;
        let (cos, sin) = (&cos[half.clone()], &sin[half]);
        let from = &rows[row * 3 * channels..][..2 * channels];
        // SAFETY: whoever has a row of the queries has that of the keys.
        let keys = unsafe { to_keys.row(row) };
        let heads = queries.chunks_exact_mut(head_dim).chain(keys.chunks_exact_mut(head_dim));
        heads.zip(from.chunks_exact(head_dim)).for_each(|(out, x)| turn(x, cos, sin, out));
    });
    Ok([queries, keys, qkv.f_select(1, 2)?])
}

by_processor! {
    fn add_and_gelu(x: &[f32], bias: &[f32], out: &mut [f32]) {
        for ((out, x), bias) in out.iter_mut().zip(x).zip(bias) {
            *out = gelu(x + bias);
        }
    }
}

pub(crate) fn bias_gelu(x: &Tensor, bias: &Tensor) -> Result<Tensor, Error> {
    let (x, bias, (made, out)) = (whole(x)?, whole(bias)?, Out::new(&x.size())?);
    // SAFETY: as in `depthwise`.
    let (rows, bias) = unsafe { (values::<f32>(&x), values::<f32>(&bias)) };
    each_row(out, |row, out| add_and_gelu(&rows[row * out.len()..][..out.len()], bias, out));
    Ok(made)
}
