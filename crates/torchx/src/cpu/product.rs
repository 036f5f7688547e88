//! Matrix products in f32 by vectors of 512 bits, for processors that have them and are not Intel's: there LibTorch's library
//! of products (MKL) keeps to vectors of 256 bits, and takes twice as long.
//!
//! After Goto & van de Geijn (2008): the right side is laid in panels of as many columns as two vectors hold, the left side
//! in tiles of as many rows as there are registers for their sums, both in stretches of terms that stay in a cache. Every sum
//! runs over the same numbers in the same order, however many rows and threads there are.

use tch::{Device, Kind, Tensor};

use super::operation::{Operation, apply_one};
use super::{Out, values};
use crate::error::Error;

/// Below so many rows LibTorch's own products take no longer.
const FEW: i64 = 16;

/// A linear layer; nothing where LibTorch's own is as fast.
///
/// # Shapes
/// As of [`crate::fused::linear`].
pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Option<Tensor>, Error> {
    let mut size = x.size();
    let rows = size.iter().rev().skip(1).product::<i64>();
    if rows < FEW || ![Some(x), Some(weight), bias].into_iter().flatten().all(is_faster) {
        return Ok(None);
    }
    let x = x.f_reshape([rows, weight.size()[1]])?;
    let made = apply_one::<Linear>(&[&x, weight].into_iter().chain(bias).collect::<Vec<_>>())?;
    *size.last_mut().expect("rows have a width") = weight.size()[0];
    Ok(Some(made.f_view(size.as_slice())?))
}

/// A convolution along rows that lie in one sequence; nothing where LibTorch's own is as fast.
///
/// # Shapes
/// - x: `[rows, from]`; weight: `[to, from, taps]`, of an odd number of taps; bias: `[to]`
/// - output: `[rows, to]`
pub(crate) fn convolution(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Option<Tensor>, Error> {
    if x.size()[0] < FEW || ![x, weight, bias].into_iter().all(is_faster) {
        return Ok(None);
    }
    apply_one::<Convolution>(&[x, weight, bias]).map(Some)
}

/// Whether products with this tensor are made faster here than by LibTorch.
fn is_faster(tensor: &Tensor) -> bool {
    tensor.kind() == Kind::Float && tensor.device() == Device::Cpu && has_better_vectors()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_better_vectors() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn has_better_vectors() -> bool {
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS.get_or_init(|| {
        #[allow(unused_unsafe)] // it was unsafe in earlier versions of Rust
        // SAFETY: every x86-64 has this instruction.
        let maker = unsafe { std::arch::x86_64::__cpuid(0) };
        let intel = [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes);
        super::has_avx512() && [maker.ebx, maker.edx, maker.ecx] != intel
    })
}

/// Inputs: rows, weight, and where there is one the bias.
struct Linear;

impl Operation for Linear {
    const OUTPUTS: usize = 1;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![product(&inputs[0], &inputs[1].f_transpose(0, 1)?, inputs.get(2))?])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], wanted: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let [x, weight, ..] = inputs else { unreachable!("two or three inputs") };
        let Some(grad) = &grads[0] else { return Ok(Vec::new()) };
        let by_x = wanted[0].then(|| product(grad, weight, None)).transpose()?;
        let by_weight = wanted[1].then(|| product(&grad.f_transpose(0, 1)?, x, None)).transpose()?;
        let by_bias = wanted.get(2).filter(|wanted| **wanted).map(|_| sum_of_rows(grad)).transpose()?;
        Ok([by_x, by_weight].into_iter().chain(wanted.get(2).map(|_| by_bias)).collect())
    }
}

/// Inputs: rows, weight, bias.
struct Convolution;

impl Convolution {
    /// Each row beside its neighbours, `taps` in all, with zeros beyond both ends. Rows lie one behind the other, so that this
    /// is a view of them.
    fn unfolded(x: &Tensor, taps: i64) -> Result<Tensor, Error> {
        let (rows, width) = x.size2()?;
        let padded = x.f_contiguous()?.f_constant_pad_nd([0, 0, taps / 2, taps / 2])?;
        Ok(padded.f_as_strided([rows, taps * width], [width, 1], None)?)
    }
}

impl Operation for Convolution {
    const OUTPUTS: usize = 1;

    fn forward(inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let [x, weight, bias] = inputs else { unreachable!("three inputs") };
        let (to, from, taps) = weight.size3()?;
        let laid = weight.f_transpose(1, 2)?.f_reshape([to, taps * from])?;
        Ok(vec![product(&Self::unfolded(x, taps)?, &laid.f_transpose(0, 1)?, Some(bias))?])
    }

    fn backward(inputs: &[Tensor], grads: &[Option<Tensor>], wanted: &[bool]) -> Result<Vec<Option<Tensor>>, Error> {
        let [x, weight, _] = inputs else { unreachable!("three inputs") };
        let Some(grad) = &grads[0] else { return Ok(Vec::new()) };
        let (to, from, taps) = weight.size3()?;
        let by_x = || {
            // What a row gave to the one behind it comes back from there.
            let turned = (0..taps).rev().map(|tap| weight.f_select(2, tap)).collect::<Result<Vec<Tensor>, _>>()?;
            product(&Self::unfolded(grad, taps)?, &Tensor::f_cat(&turned, 0)?, None)
        };
        let by_weight = || -> Result<Tensor, Error> {
            let laid = product(&grad.f_transpose(0, 1)?, &Self::unfolded(x, taps)?, None)?;
            Ok(laid.f_view([to, taps, from])?.f_transpose(1, 2)?.f_contiguous()?)
        };
        Ok(vec![
            wanted[0].then(by_x).transpose()?,
            wanted[1].then(by_weight).transpose()?,
            wanted[2].then(|| sum_of_rows(grad)).transpose()?,
        ])
    }
}

fn sum_of_rows(rows: &Tensor) -> Result<Tensor, Error> {
    Ok(rows.f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float)?)
}

/// `left · right`, and a number added to each column where there is a bias. Either side may be transposed, or a view of
/// rows that overlap.
fn product(left: &Tensor, right: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let ((rows, terms), (_, columns)) = (left.size2()?, right.size2()?);
    assert!(terms == right.size()[0] && rows.min(terms).min(columns) > 0 && super::has_avx512());
    let (made, out) = Out::new(&[rows, columns])?;
    let bias = bias.map(Tensor::f_contiguous).transpose()?;
    // SAFETY: f32 on the CPU, and nobody writes to it.
    let bias = bias.as_ref().map(|bias| unsafe { values::<f32>(bias) });
    // SAFETY: matrices of these sizes, and none is empty; the processor was asked for its instructions.
    unsafe { avx512::multiply(&Matrix::of(left), &Matrix::of(right), bias, out) };
    Ok(made)
}

/// A matrix somewhere in memory.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
struct Matrix {
    first: *const f32,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

// SAFETY: it is read, and nobody writes where it lies, until the product is made.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// Of a tensor that outlives it.
    fn of(tensor: &Tensor) -> Self {
        let (size, strides) = (tensor.size(), tensor.stride());
        let [columns, row_stride, column_stride] = [size[1], strides[0], strides[1]].map(|number| number as usize);
        Matrix { first: tensor.data_ptr().cast_const().cast(), columns, row_stride, column_stride }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod avx512 {
    use super::super::Out;
    use super::Matrix;

    pub(super) unsafe fn multiply(_: &Matrix, _: &Matrix, _: Option<&[f32]>, _: Out) {
        unreachable!("nobody asks for it where there are no such vectors");
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::super::parallel::{each_part, threads};
    use super::super::{LANES, Out};
    use super::Matrix;
    use std::arch::x86_64::*;
    use std::cell::RefCell;
    use std::ops::Range;

    /// Columns of a panel: two vectors.
    const PANEL: usize = 2 * LANES;
    /// Rows of a tile: their sums take 24 registers of 32.
    const TILE: usize = 12;
    /// Terms whose sum stays in registers: so much of a panel fits into the nearest cache.
    const STRETCH: usize = 256;
    /// Rows that a thread takes at a time, at most: a stretch of them fits into the second cache.
    const BLOCK: usize = 10 * TILE;

    #[derive(Clone, Copy)]
    #[repr(C, align(64))]
    struct Vector([f32; LANES]);

    /// Memory that a thread keeps from product to product.
    struct Room(RefCell<Vec<Vector>>);

    thread_local! {
        static PANELS: Room = const { Room(RefCell::new(Vec::new())) };
        static TILES: Room = const { Room(RefCell::new(Vec::new())) };
    }

    impl Room {
        /// Lends room for so many numbers, whatever is in it.
        fn lend<R>(&self, numbers: usize, work: impl FnOnce(*mut f32) -> R) -> R {
            let mut vectors = self.0.borrow_mut();
            let needed = numbers.div_ceil(LANES);
            if vectors.len() < needed {
                vectors.resize(needed, Vector([0.0; LANES]));
            }
            work(vectors.as_mut_ptr().cast())
        }
    }

    /// Where several threads write, each to its own part.
    #[derive(Clone, Copy)]
    struct Shared(*mut f32);

    // SAFETY: those who use it say which part is whose.
    unsafe impl Sync for Shared {}

    impl Shared {
        fn first(&self) -> *mut f32 {
            self.0
        }
    }

    /// # Safety
    /// `left` is `[rows, terms]`, `right` `[terms, columns]`, `bias` `[columns]`, and `out` `[rows, columns]` and nobody
    /// else's. The processor has the instructions.
    pub(super) unsafe fn multiply(left: &Matrix, right: &Matrix, bias: Option<&[f32]>, out: Out) {
        let (terms, panels) = (left.columns, right.columns.div_ceil(PANEL));
        PANELS.with(|room| {
            room.lend(terms * panels * PANEL, |laid| {
                let laid = Shared(laid);
                each_part(terms.div_ceil(STRETCH) * panels, |part| {
                    let (terms, panel) = (stretch(terms, part / panels), part % panels);
                    let columns = PANEL.min(right.columns - panel * PANEL);
                    // SAFETY: these terms and columns are inside the matrix, and this place of the room is for them alone.
                    unsafe {
                        let from =
                            right.first.add(terms.start * right.row_stride + panel * PANEL * right.column_stride);
                        let to = laid.first().add(place(&terms, panels, panel));
                        lay::<PANEL>(from, columns, right.column_stride, terms.len(), right.row_stride, to);
                    }
                });
                let blocks = out.rows.div_ceil(BLOCK).next_multiple_of(threads());
                let rows = out.rows.div_ceil(blocks).next_multiple_of(TILE);
                each_part(out.rows.div_ceil(rows), |part| {
                    let rows = part * rows..((part + 1) * rows).min(out.rows);
                    // SAFETY: the panels are laid, the rows are this part's alone, and the processor has the instructions.
                    unsafe { block(left, rows, laid.first(), bias, out) };
                });
            });
        });
    }

    fn stretch(terms: usize, index: usize) -> Range<usize> {
        index * STRETCH..((index + 1) * STRETCH).min(terms)
    }

    /// Where a panel's stretch begins: stretches follow one another, in each the panels.
    fn place(terms: &Range<usize>, panels: usize, panel: usize) -> usize {
        (terms.start * panels + terms.len() * panel) * PANEL
    }

    /// Lays `lines` of `terms` numbers term by term, each in `WIDTH` places; zeros for lines that there are not.
    ///
    /// # Safety
    /// All that is inside by these strides may be read, and `terms * WIDTH` numbers from `to` written.
    unsafe fn lay<const WIDTH: usize>(
        from: *const f32,
        lines: usize,
        line_stride: usize,
        terms: usize,
        term_stride: usize,
        to: *mut f32,
    ) {
        /// Terms of a line that are read at once: they share cache lines.
        const AT_ONCE: usize = 16;
        // SAFETY: as the caller says.
        unsafe {
            if lines < WIDTH {
                to.write_bytes(0, terms * WIDTH);
            }
            if line_stride == 1 {
                for term in 0..terms {
                    from.add(term * term_stride).copy_to_nonoverlapping(to.add(term * WIDTH), lines);
                }
                return;
            }
            for some in (0..terms).step_by(AT_ONCE) {
                for line in 0..lines {
                    for term in some..(some + AT_ONCE).min(terms) {
                        *to.add(term * WIDTH + line) = *from.add(line * line_stride + term * term_stride);
                    }
                }
            }
        }
    }

    /// All columns of some rows.
    ///
    /// # Safety
    /// As for [`multiply`], of which `panels` are the right side; nobody else writes these rows.
    #[target_feature(enable = "avx512f")]
    unsafe fn block(left: &Matrix, rows: Range<usize>, panels: *const f32, bias: Option<&[f32]>, out: Out) {
        let (terms, count, tiles) = (left.columns, out.width.div_ceil(PANEL), rows.len().div_ceil(TILE));
        TILES.with(|room| {
            room.lend(tiles * TILE * STRETCH, |laid| {
                for index in 0..terms.div_ceil(STRETCH) {
                    let terms = stretch(terms, index);
                    for tile in 0..tiles {
                        let (row, at) = (rows.start + tile * TILE, tile * TILE * terms.len());
                        let lines = TILE.min(rows.end - row);
                        // SAFETY: these rows and terms are inside the matrix, and the room is this thread's.
                        unsafe {
                            let from = left.first.add(row * left.row_stride + terms.start * left.column_stride);
                            lay::<TILE>(from, lines, left.row_stride, terms.len(), left.column_stride, laid.add(at));
                        }
                    }
                    for panel in 0..count {
                        let columns = panel * PANEL..((panel + 1) * PANEL).min(out.width);
                        // SAFETY: the panels hold it.
                        let right = unsafe { panels.add(place(&terms, count, panel)) };
                        let masks = masks(columns.len());
                        let start = bias.map(|bias| load(&bias[columns.start..], masks));
                        for tile in 0..tiles {
                            // SAFETY: laid above; and the panel's stretch.
                            let sums = unsafe { tile_sums(laid.add(tile * TILE * terms.len()), right, terms.len()) };
                            let lines = TILE.min(rows.len() - tile * TILE);
                            for (line, sums) in sums[..lines].iter().enumerate() {
                                // SAFETY: the caller has these rows.
                                let row = unsafe { out.row(rows.start + tile * TILE + line) };
                                let before = if index == 0 { start } else { Some(load(&row[columns.start..], masks)) };
                                store(&mut row[columns.start..], masks, *sums, before);
                            }
                        }
                    }
                }
            });
        });
    }

    /// Which places of two vectors so many columns take.
    fn masks(columns: usize) -> [__mmask16; 2] {
        [columns.min(LANES), columns.saturating_sub(LANES)].map(|count| ((1u32 << count) - 1) as u16)
    }

    #[target_feature(enable = "avx512f")]
    fn load(row: &[f32], masks: [__mmask16; 2]) -> [__m512; 2] {
        // SAFETY: what lies beyond the row is masked, and so is not read.
        [0, 1].map(|i| unsafe { _mm512_maskz_loadu_ps(masks[i], row.as_ptr().wrapping_add(i * LANES)) })
    }

    #[target_feature(enable = "avx512f")]
    fn store(row: &mut [f32], masks: [__mmask16; 2], sums: [__m512; 2], before: Option<[__m512; 2]>) {
        for i in 0..2 {
            let sum = before.map_or(sums[i], |before| _mm512_add_ps(before[i], sums[i]));
            // SAFETY: what lies beyond the row is masked, and so is not written.
            unsafe { _mm512_mask_storeu_ps(row.as_mut_ptr().wrapping_add(i * LANES), masks[i], sum) };
        }
    }

    /// Sums of a tile's rows with a panel's columns.
    ///
    /// # Safety
    /// `terms` times a tile's rows and a panel's columns may be read.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn tile_sums(tile: *const f32, panel: *const f32, terms: usize) -> [[__m512; 2]; TILE] {
        let mut sums = [[_mm512_setzero_ps(); 2]; TILE];
        for term in 0..terms {
            // SAFETY: as the caller says; panels lie as vectors do.
            unsafe {
                let right = [0, LANES].map(|at| _mm512_load_ps(panel.add(term * PANEL + at)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let left = _mm512_set1_ps(*tile.add(term * TILE + row));
                    *sums = [_mm512_fmadd_ps(left, right[0], sums[0]), _mm512_fmadd_ps(left, right[1], sums[1])];
                }
            }
        }
        sums
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    /// An output and the gradients of leaves, where the output counts as `wanted` says.
    fn run(made: Tensor, wanted: &Tensor, leaves: [&Tensor; 3]) -> Vec<Tensor> {
        (&made * wanted).sum(Kind::Float).backward();
        let grads = leaves.map(|leaf| leaf.grad().copy());
        leaves.into_iter().for_each(|leaf| leaf.shallow_clone().zero_grad());
        [made.detach()].into_iter().chain(grads).collect()
    }

    fn leaf(size: &[i64]) -> Tensor {
        Tensor::randn(size, FLOAT_CPU).set_requires_grad(true)
    }

    #[test]
    fn a_convolution_and_its_gradients_are_those_of_libtorch() {
        if !crate::cpu::has_avx512() {
            return eprintln!("skipped: this processor has no AVX-512");
        }
        tch::manual_seed(7);
        for taps in [1, 3, 5] {
            let (x, weight, bias) = (leaf(&[70, 50]), leaf(&[40, 50, taps]), leaf(&[40]));
            let (wanted, leaves) = (leaf(&[70, 40]).detach(), [&x, &weight, &bias]);
            let ours = run(apply_one::<Convolution>(&[&x, &weight, &bias]).unwrap(), &wanted, leaves);
            let theirs = x.transpose(0, 1).unsqueeze(0).conv1d(&weight, Some(&bias), [1], [taps / 2], [1], 1);
            let theirs = run(theirs.squeeze_dim(0).transpose(0, 1), &wanted, leaves);
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert!(ours.allclose(&theirs, 1e-4, 1e-4, false), "{taps} taps");
            }
        }
    }

    #[test]
    fn a_linear_layer_and_its_gradients_are_those_of_libtorch() {
        if !crate::cpu::has_avx512() {
            return eprintln!("skipped: this processor has no AVX-512");
        }
        tch::manual_seed(6);
        let (x, weight, bias) = (leaf(&[70, 50]), leaf(&[90, 50]), leaf(&[90]));
        let (wanted, leaves) = (leaf(&[70, 90]).detach(), [&x, &weight, &bias]);
        let ours = run(apply_one::<Linear>(&[&x, &weight, &bias]).unwrap(), &wanted, leaves);
        for (ours, theirs) in ours.iter().zip(run(x.linear(&weight, Some(&bias)), &wanted, leaves)) {
            assert!(ours.allclose(&theirs, 1e-4, 1e-4, false));
        }
        // A gradient that lies in one place for all rows and columns, and none for the rows.
        let plain = x.detach();
        apply_one::<Linear>(&[&plain, &weight]).unwrap().sum(Kind::Float).backward();
        let sums = plain.sum_dim_intlist([0i64].as_slice(), true, Kind::Float);
        assert!(weight.grad().allclose(&sums.expand([90, 50], false), 1e-4, 1e-4, false));
    }

    /// Products in f64, either side transposed or not.
    #[test]
    fn products_are_those_of_f64() {
        if !crate::cpu::has_avx512() {
            return eprintln!("skipped: this processor has no AVX-512");
        }
        tch::manual_seed(5);
        for (rows, terms, columns) in
            [(1, 1, 1), (12, 256, 32), (13, 257, 33), (121, 600, 47), (300, 31, 16), (7, 513, 130)]
        {
            let drawn = |rows: i64, columns: i64| {
                let plain = Tensor::randn([rows, columns], FLOAT_CPU);
                let turned = Tensor::randn([columns, rows], FLOAT_CPU).transpose(0, 1);
                [plain, turned]
            };
            let bias = Tensor::randn([columns], FLOAT_CPU);
            for left in drawn(rows, terms) {
                for right in drawn(terms, columns) {
                    let exact = left.to_kind(Kind::Double).matmul(&right.to_kind(Kind::Double));
                    for (bias, exact) in [(None, exact.shallow_clone()), (Some(&bias), &exact + &bias)] {
                        let made = product(&left, &right, bias).unwrap();
                        let off = (&made - &exact).abs().max().double_value(&[]);
                        assert!(off < 1e-6 * (terms as f64).sqrt() * 10.0, "{rows}×{terms}×{columns}: {off}");
                        // A row alone is the same to the bit.
                        let alone = product(&left.narrow(0, rows - 1, 1), &right, bias).unwrap();
                        assert_eq!(alone, made.narrow(0, rows - 1, 1));
                    }
                }
            }
        }
    }
}
