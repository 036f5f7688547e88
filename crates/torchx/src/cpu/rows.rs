//! The operations of [`crate::fused`], each in one pass over its rows; gradients in one or two. As on a GPU gaps have none: what
//! comes out of gaps is to be masked.

use super::operation::{Operation, apply, apply_one};
use super::parallel::each_part;
use super::{LANES, Out, gelu, gelu_slope, values};
use crate::error::Error;
use crate::fused::Spans;
use std::ops::Range;
use tch::{Kind, Tensor};

/// Values that a thread takes at a time.
const PART: usize = 1 << 15;
/// Rows whose sums are taken together: a fixed number, so that sums do not depend on the threads.
const CHUNK: usize = 64;
/// Columns of one utterance that are summed together.
const COLUMNS: usize = 64;

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

/// Of `a * (b - mean)`.
#[inline(always)]
fn sum_of_products(a: &[f32], b: &[f32], mean: f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += a * (b - mean));
    }
    sums.iter_mut().zip(a_rest).zip(b_rest).for_each(|((sum, a), b)| *sum += a * (b - mean));
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

by_processor! {
    /// `grad`: of what [`normalize`] made. Mean and factor of the row come back too.
    fn normalize_back(row: &[f32], scale: &[f32], grad: &[f32], out: &mut [f32], stats: &mut [f32]) {
        let width = row.len() as f32;
        let mean = sum(row, |x| x) / width;
        let variance = sum(row, |x| (x - mean) * (x - mean)) / width;
        let factor = 1.0 / (variance + 1e-5).sqrt();
        for ((out, grad), scale) in out.iter_mut().zip(grad).zip(scale) {
            *out = grad * (1.0 + scale);
        }
        let along = sum(out, |grad| grad) / width;
        let across = sum_of_products(out, row, mean) * factor * factor / width;
        for (out, x) in out.iter_mut().zip(row) {
            *out = (*out - along - (x - mean) * across) * factor;
        }
        stats.copy_from_slice(&[mean, factor]);
    }
}

by_processor! {
    /// Adds up what rows of one utterance say of some columns' scale and shift.
    fn add_modulation(x: &[f32], grad: &[f32], stats: &[f32], width: usize, rows: Range<usize>, columns: Range<usize>, sums: &mut [[f32; COLUMNS]; 2]) {
        let [scales, shifts] = sums;
        for row in rows {
            let at = row * width + columns.start..row * width + columns.end;
            let (mean, factor) = (stats[2 * row], stats[2 * row + 1]);
            for (((scale, shift), x), grad) in scales.iter_mut().zip(shifts.iter_mut()).zip(&x[at.clone()]).zip(&grad[at]) {
                *scale += grad * (x - mean) * factor;
                *shift += grad;
            }
        }
    }
}

/// Inputs: rows, table, and the three lists of [`Spans`].
struct Adaln;

impl Operation for Adaln {
    const OUTPUTS: usize = 1;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let x = whole(&inputs[0])?;
        let (made, out) = Out::new(&x.size())?;
        // SAFETY: f32 as `serves` says, i32 as `Spans` does; nobody writes to them.
        let (rows, owner) = unsafe { (values::<f32>(&x), values::<i32>(&inputs[2])) };
        let table = Table::of(&inputs[1]);
        each_row(out, |row, out| {
            let x = &rows[row * out.len()..][..out.len()];
            let (scale, shift) = table.row(owner[row]).split_at(out.len());
            normalize(x, scale, shift, out);
        });
        Ok(vec![made])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], wanted: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let Some(grad) = &grads[0] else { return Ok(Vec::new()) };
        let (x, grad) = (whole(&inputs[0])?, whole(grad)?);
        let ((made, out), (_stats, stats)) = (Out::new(&x.size())?, Out::new(&[x.size()[0], 2])?);
        let (table, gap) = (Table::of(&inputs[1]), inputs[3].size()[0] as i32);
        // SAFETY: as in the forward pass.
        let (rows, by_rows, owner) = unsafe { (values::<f32>(&x), values::<f32>(&grad), values::<i32>(&inputs[2])) };
        each_row(out, |row, out| {
            if owner[row] == gap {
                return out.fill(0.0);
            }
            let at = row * out.len()..(row + 1) * out.len();
            let (scale, _) = table.row(owner[row]).split_at(out.len());
            // SAFETY: whoever has a row has its numbers.
            normalize_back(&rows[at.clone()], scale, &by_rows[at], out, unsafe { stats.row(row) });
        });
        let by_table = || {
            // SAFETY: written above, and by nobody from now on.
            let stats = unsafe { std::slice::from_raw_parts(stats.first, stats.rows * 2) };
            by_utterance(&inputs[3..5], out.width, |rows_of, columns, sums| {
                add_modulation(rows, by_rows, stats, out.width, rows_of, columns, sums);
            })
        };
        Ok(vec![Some(made), wanted[1].then(by_table).transpose()?])
    }
}

pub(crate) fn adaln(x: &Tensor, table: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    apply_one::<Adaln>(&[x, table, &spans.owner, &spans.starts, &spans.lens])
}

/// A table of `PARTS` sums over the rows of each utterance, side by side: `[utterances + 1, PARTS * width]`. The last row, the
/// gaps', is zero, as are those of utterances that are not there. `lists`: starts and lengths.
fn by_utterance<const PARTS: usize>(
    lists: &[Tensor],
    width: usize,
    add: impl Fn(Range<usize>, Range<usize>, &mut [[f32; COLUMNS]; PARTS]) + Sync,
) -> Result<Tensor, Error> {
    // SAFETY: i32 as `Spans` says; nobody writes to them.
    let [starts, lens] = [0, 1].map(|list| unsafe { values::<i32>(&lists[list]) });
    let blocks = width.div_ceil(COLUMNS);
    let (made, out) = Out::new(&[starts.len() as i64 + 1, (PARTS * width) as i64])?;
    each_part(out.rows * blocks, |part| {
        let (utterance, block) = (part / blocks, part % blocks);
        let columns = block * COLUMNS..((block + 1) * COLUMNS).min(width);
        let mut sums = [[0.0; COLUMNS]; PARTS];
        if let (Some(start), Some(len)) = (starts.get(utterance), lens.get(utterance)) {
            add(*start as usize..(start + len) as usize, columns.clone(), &mut sums);
        }
        for (i, sums) in sums.iter().enumerate() {
            // SAFETY: these columns are this part's alone.
            let out = unsafe { out.columns(utterance, i * width + columns.start..i * width + columns.end) };
            out.copy_from_slice(&sums[..columns.len()]);
        }
    });
    Ok(made)
}

/// Sums over all rows, `[width]`, which `add` takes chunk by chunk.
fn by_chunk(rows: usize, width: usize, add: impl Fn(Range<usize>, &mut [f32]) + Sync) -> Result<Tensor, Error> {
    let (partial, out) = Out::new(&[rows.div_ceil(CHUNK) as i64, width as i64])?;
    each_part(out.rows, |chunk| {
        // SAFETY: each chunk is one part.
        let sums = unsafe { out.row(chunk) };
        sums.fill(0.0);
        add(chunk * CHUNK..((chunk + 1) * CHUNK).min(rows), sums);
    });
    Ok(partial.f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float)?)
}

by_processor! {
    fn add_gated(x: &[f32], y: &[f32], gate: &[f32], out: &mut [f32]) {
        for (((out, x), y), gate) in out.iter_mut().zip(x).zip(y).zip(gate) {
            *out = x + y * gate;
        }
    }
}

by_processor! {
    fn multiply(x: &[f32], y: &[f32], out: &mut [f32]) {
        for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
            *out = x * y;
        }
    }
}

by_processor! {
    /// Adds up what rows of one utterance say of some columns' gate.
    fn add_gates(y: &[f32], grad: &[f32], width: usize, rows: Range<usize>, columns: Range<usize>, sums: &mut [f32]) {
        for row in rows {
            let at = row * width + columns.start..row * width + columns.end;
            for ((sum, y), grad) in sums.iter_mut().zip(&y[at.clone()]).zip(&grad[at]) {
                *sum += y * grad;
            }
        }
    }
}

/// Inputs: two times rows, gates, and the three lists of [`Spans`].
struct GatedAdd;

impl Operation for GatedAdd {
    const OUTPUTS: usize = 1;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let (x, y) = (whole(&inputs[0])?, whole(&inputs[1])?);
        let (made, out) = Out::new(&x.size())?;
        // SAFETY: as in `Adaln`.
        let (xs, ys, owner) = unsafe { (values::<f32>(&x), values::<f32>(&y), values::<i32>(&inputs[3])) };
        let (gate, utterances) = (Table::of(&inputs[2]), inputs[4].size()[0] as i32);
        each_row(out, |row, out| match owner[row] {
            owner if owner < utterances => {
                let at = row * out.len()..(row + 1) * out.len();
                add_gated(&xs[at.clone()], &ys[at], gate.row(owner), out);
            }
            _ => out.fill(0.0),
        });
        Ok(vec![made])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], wanted: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let Some(grad) = &grads[0] else { return Ok(Vec::new()) };
        let (y, grad) = (whole(&inputs[1])?, whole(grad)?);
        let ((by_x, x_out), (by_y, y_out)) = (Out::new(&y.size())?, Out::new(&y.size())?);
        let (gate, gap) = (Table::of(&inputs[2]), inputs[4].size()[0] as i32);
        // SAFETY: as in the forward pass.
        let (ys, by_rows, owner) = unsafe { (values::<f32>(&y), values::<f32>(&grad), values::<i32>(&inputs[3])) };
        each_row(x_out, |row, by_x| {
            // SAFETY: whoever has a row of the one has that of the other.
            let by_y = unsafe { y_out.row(row) };
            if owner[row] == gap {
                by_x.fill(0.0);
                return by_y.fill(0.0);
            }
            let grad = &by_rows[row * by_x.len()..][..by_x.len()];
            by_x.copy_from_slice(grad);
            multiply(grad, gate.row(owner[row]), by_y);
        });
        let by_gate = || {
            by_utterance(&inputs[4..6], y_out.width, |rows, columns, [sums]: &mut [_; 1]| {
                add_gates(ys, by_rows, y_out.width, rows, columns, sums);
            })
        };
        Ok(vec![Some(by_x), Some(by_y), wanted[2].then(by_gate).transpose()?])
    }
}

pub(crate) fn gated_add(x: &Tensor, y: &Tensor, gate: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    apply_one::<GatedAdd>(&[x, y, gate, &spans.owner, &spans.starts, &spans.lens])
}

by_processor! {
    fn add_product(sum: &mut [f32], x: &[f32], factor: &[f32]) {
        for ((sum, x), factor) in sum.iter_mut().zip(x).zip(factor) {
            *sum += x * factor;
        }
    }
}

/// Inputs: rows, weight, bias, and of the lists of [`Spans`] owners and starts.
struct Depthwise;

/// Rows of a packed axis, and how they see each other.
struct Neighbours<'a> {
    owner: &'a [i32],
    gap: i32,
    half: usize,
}

impl<'a> Neighbours<'a> {
    fn of(inputs: &'a [Tensor]) -> Self {
        // SAFETY: i32 as `Spans` says; nobody writes to them.
        let owner = unsafe { values::<i32>(&inputs[3]) };
        Neighbours { owner, gap: inputs[4].size()[0] as i32, half: inputs[1].size()[2] as usize / 2 }
    }

    fn is_gap(&self, row: usize) -> bool {
        self.owner[row] == self.gap
    }

    /// What a row sees through a tap: a row of its own utterance.
    fn seen(&self, row: usize, tap: usize) -> Option<usize> {
        (row + tap).checked_sub(self.half).filter(|other| self.owner.get(*other) == Some(&self.owner[row]))
    }

    /// Every row's neighbours, each times its tap's factors (`by_tap`), and `first` added.
    fn mix(&self, rows: &[f32], by_tap: &[f32], first: &[f32], out: Out) {
        each_row(out, |row, out| {
            if self.is_gap(row) {
                return out.fill(0.0);
            }
            out.copy_from_slice(first);
            for (tap, factor) in by_tap.chunks_exact(out.len()).enumerate() {
                if let Some(other) = self.seen(row, tap) {
                    add_product(out, &rows[other * out.len()..][..out.len()], factor);
                }
            }
        });
    }
}

impl Operation for Depthwise {
    const OUTPUTS: usize = 1;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let x = whole(&inputs[0])?;
        let (made, out) = Out::new(&x.size())?;
        // By tap, so that a row is read from end to end.
        let by_tap = whole(&inputs[1].f_squeeze_dim(1)?.f_transpose(0, 1)?)?;
        let bias = whole(&inputs[2])?;
        // SAFETY: as in `Adaln`; the parameters are f32, as was checked.
        let (rows, by_tap, bias) = unsafe { (values::<f32>(&x), values::<f32>(&by_tap), values::<f32>(&bias)) };
        Neighbours::of(inputs).mix(rows, by_tap, bias, out);
        Ok(vec![made])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], wanted: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let Some(grad) = &grads[0] else { return Ok(Vec::new()) };
        let (x, grad, near) = (whole(&inputs[0])?, whole(grad)?, Neighbours::of(inputs));
        let (width, taps) = (x.size()[1] as usize, inputs[1].size()[2] as usize);
        // SAFETY: as in the forward pass.
        let (rows, by_rows) = unsafe { (values::<f32>(&x), values::<f32>(&grad)) };
        let by_x = || -> Result<Tensor, Error> {
            // What a row gave to the one behind it comes back from there.
            let turned = whole(&inputs[1].f_squeeze_dim(1)?.f_transpose(0, 1)?.f_flip([0])?)?;
            let (made, out) = Out::new(&x.size())?;
            // SAFETY: as above.
            near.mix(by_rows, unsafe { values::<f32>(&turned) }, &vec![0.0; width], out);
            Ok(made)
        };
        let sums = by_chunk(x.size()[0] as usize, (taps + 1) * width, |chunk, sums| {
            let (by_tap, by_bias) = sums.split_at_mut(taps * width);
            for row in chunk.filter(|row| !near.is_gap(*row)) {
                let grad = &by_rows[row * width..][..width];
                by_bias.iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad);
                for (tap, sums) in by_tap.chunks_exact_mut(width).enumerate() {
                    if let Some(other) = near.seen(row, tap) {
                        add_product(sums, &rows[other * width..][..width], grad);
                    }
                }
            }
        })?;
        let sums = sums.f_view([taps as i64 + 1, width as i64])?;
        let by_weight = sums.f_narrow(0, 0, taps as i64)?.f_transpose(0, 1)?.f_unsqueeze(1)?.f_contiguous()?;
        Ok(vec![wanted[0].then(by_x).transpose()?, Some(by_weight), Some(sums.f_select(0, taps as i64)?)])
    }
}

pub(crate) fn depthwise(x: &Tensor, weight: &Tensor, bias: &Tensor, spans: &Spans) -> Result<Tensor, Error> {
    apply_one::<Depthwise>(&[x, weight, bias, &spans.owner, &spans.starts])
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

by_processor! {
    /// The other way.
    fn turn_back(x: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
        let ((a, b), (first, second)) = (x.split_at(x.len() / 2), out.split_at_mut(x.len() / 2));
        for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
            *first = a[i] * cos[i] + b[i] * sin[i];
            *second = b[i] * cos[i] - a[i] * sin[i];
        }
    }
}

/// Inputs: queries, keys and values side by side, cosines, sines. Outputs: the three.
struct Rotary;

impl Operation for Rotary {
    const OUTPUTS: usize = 3;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let (size, qkv) = (inputs[0].size(), whole(&inputs[0])?);
        let (head_dim, channels) = (size[3] as usize, (size[2] * size[3]) as usize);
        let each = [size[0], size[2], size[3]];
        let [(queries, to_queries), (keys, to_keys), (others, to_others)] =
            [Out::new(&each)?, Out::new(&each)?, Out::new(&each)?];
        let (cos, sin) = (whole(&inputs[1])?, whole(&inputs[2])?);
        // SAFETY: as in `Adaln`; the tables are f32, as was checked.
        let (rows, cos, sin) = unsafe { (values::<f32>(&qkv), values::<f32>(&cos), values::<f32>(&sin)) };
        each_row(to_queries, |row, queries| {
            let half = row * head_dim / 2..(row + 1) * head_dim / 2;
            let (cos, sin) = (&cos[half.clone()], &sin[half]);
            let (from, values) = rows[row * 3 * channels..][..3 * channels].split_at(2 * channels);
            // SAFETY (both): whoever has a row of the queries has those of the others.
            let (keys, others) = unsafe { (to_keys.row(row), to_others.row(row)) };
            let heads = queries.chunks_exact_mut(head_dim).chain(keys.chunks_exact_mut(head_dim));
            heads.zip(from.chunks_exact(head_dim)).for_each(|(out, x)| turn(x, cos, sin, out));
            others.copy_from_slice(values);
        });
        Ok(vec![queries, keys, others])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], _: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let size = inputs[0].size();
        let (head_dim, channels) = (size[3] as usize, (size[2] * size[3]) as usize);
        let grads = grads.iter().map(|grad| grad.as_ref().map(whole).transpose()).collect::<Result<Vec<_>, _>>()?;
        let (cos, sin, (made, out)) = (whole(&inputs[1])?, whole(&inputs[2])?, Out::new(&size)?);
        // SAFETY: as in the forward pass.
        let (cos, sin) = unsafe { (values::<f32>(&cos), values::<f32>(&sin)) };
        // SAFETY: as above.
        let grads: Vec<_> = grads.iter().map(|grad| grad.as_ref().map(|grad| unsafe { values::<f32>(grad) })).collect();
        each_row(out, |row, out| {
            let half = row * head_dim / 2..(row + 1) * head_dim / 2;
            let (cos, sin) = (&cos[half.clone()], &sin[half]);
            for (i, (out, grad)) in out.chunks_exact_mut(channels).zip(&grads).enumerate() {
                let Some(grad) = grad.map(|grad| &grad[row * channels..][..channels]) else {
                    out.fill(0.0);
                    continue;
                };
                match i {
                    2 => out.copy_from_slice(grad),
                    _ => {
                        let heads = out.chunks_exact_mut(head_dim).zip(grad.chunks_exact(head_dim));
                        heads.for_each(|(out, grad)| turn_back(grad, cos, sin, out));
                    }
                }
            }
        });
        Ok(vec![Some(made)])
    }
}

pub(crate) fn rotary(qkv: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<[Tensor; 3], Error> {
    Ok(apply::<Rotary>(&[qkv, cos, sin])?.try_into().expect("three outputs"))
}

by_processor! {
    fn add_and_gelu(x: &[f32], bias: &[f32], out: &mut [f32]) {
        for ((out, x), bias) in out.iter_mut().zip(x).zip(bias) {
            *out = gelu(x + bias);
        }
    }
}

by_processor! {
    /// `grad`: of what [`add_and_gelu`] made. It is added to `sums` too.
    fn add_and_gelu_back(x: &[f32], bias: &[f32], grad: &[f32], out: &mut [f32], sums: &mut [f32]) {
        for ((((out, x), bias), grad), sum) in out.iter_mut().zip(x).zip(bias).zip(grad).zip(sums) {
            *out = grad * gelu_slope(x + bias);
            *sum += *out;
        }
    }
}

/// Inputs: rows, bias.
struct BiasGelu;

impl Operation for BiasGelu {
    const OUTPUTS: usize = 1;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let (x, bias) = (whole(&inputs[0])?, whole(&inputs[1])?);
        let (made, out) = Out::new(&x.size())?;
        // SAFETY: as in `Depthwise`.
        let (rows, bias) = unsafe { (values::<f32>(&x), values::<f32>(&bias)) };
        each_row(out, |row, out| add_and_gelu(&rows[row * out.len()..][..out.len()], bias, out));
        Ok(vec![made])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], _: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let Some(grad) = &grads[0] else { return Ok(Vec::new()) };
        let (x, bias, grad) = (whole(&inputs[0])?, whole(&inputs[1])?, whole(grad)?);
        let (made, out) = Out::new(&x.size())?;
        // SAFETY: as in the forward pass.
        let (rows, bias, by_rows) = unsafe { (values::<f32>(&x), values::<f32>(&bias), values::<f32>(&grad)) };
        let sums = by_chunk(out.rows, out.width, |chunk, sums| {
            for row in chunk {
                let at = row * out.width..(row + 1) * out.width;
                // SAFETY: each row is in one chunk, and each chunk has one thread.
                add_and_gelu_back(&rows[at.clone()], bias, &by_rows[at], unsafe { out.row(row) }, sums);
            }
        })?;
        Ok(vec![Some(made), Some(sums)])
    }
}

pub(crate) fn bias_gelu(x: &Tensor, bias: &Tensor) -> Result<Tensor, Error> {
    apply_one::<BiasGelu>(&[x, bias])
}
