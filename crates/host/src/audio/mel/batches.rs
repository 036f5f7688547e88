//! Frames whose length is a power of two, as many at a time as a vector has lanes, and one frame in each lane: window,
//! transform, magnitudes, filters and logarithm are then the same plain arithmetic for all of them.
//!
//! A frame of `2n` real samples is transformed as `n` complex ones. A first pass of radix 8 reads the samples and
//! leaves 8 shorter transforms, each small enough for the first-level cache; they are done in pairs whose spectra
//! mirror each other, so that magnitudes come out at once and the whole spectrum is never written.

use super::super::simd_fft::{Butterfly, Complex, Eight, FftPlan, times, twiddle};
use super::{Band, FLOOR, Sample, hann, ln};
use pulp::{Arch, Simd, WithSimd, bytemuck};

/// Samples of the shortest window: two complex numbers for each of the 8 shorter transforms.
pub const SHORTEST: usize = 32;
/// Bytes of a cache line: vectors that lie across two of them take twice as long to load.
const CACHE_LINE_BYTES: usize = 64;

/// Extracts frames whose length is a power of two.
pub struct Batches {
    /// `[n]`: the window over even and over odd samples, halved, since the last step adds two halves.
    window: Vec<[f32; 2]>,
    /// `[n / 8][7]`: factors between the first pass and the shorter transforms.
    first: Vec<[[f32; 2]; 7]>,
    /// Plan of the shorter transforms.
    plan: FftPlan,
    /// `[n]`: factors that make a spectrum of `n` complex numbers one of `2n` real ones.
    last: Vec<[f32; 2]>,
    hop_samples: usize,
    bands: Vec<Band>,
}

impl Batches {
    pub fn new(n_fft: usize, hop_samples: usize, bands: Vec<Band>) -> Self {
        let n = n_fft / 2;
        Batches {
            window: (0..n).map(|k| [0.5 * hann(2 * k, n_fft), 0.5 * hann(2 * k + 1, n_fft)]).collect(),
            first: (0..n / 8).map(|p| std::array::from_fn(|j| twiddle(p * (j + 1), n))).collect(),
            plan: FftPlan::new(n / 8),
            last: (0..n).map(|k| twiddle(k, n_fft)).collect(),
            hop_samples,
            bands,
        }
    }

    /// Fills `mel`, which has the length that it shall have.
    pub fn log_mel<T: Sample>(&self, samples: &[T], vectors: &mut Vec<f32>, mel: &mut [f32]) {
        Arch::new().dispatch(Run { batches: self, samples, vectors, mel });
    }
}

struct Run<'a, T> {
    batches: &'a Batches,
    samples: &'a [T],
    vectors: &'a mut Vec<f32>,
    mel: &'a mut [f32],
}

impl<T: Sample> WithSimd for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Run { batches, samples, vectors, mel } = self;
        let (n, hop, n_mels) = (batches.window.len(), batches.hop_samples, batches.bands.len());
        let rows = Rows::new(hop, 2 * n, S::F32_LANES);
        let sizes = [rows.floats(), 2 * n, 2 * n / 8, n + 1, n_mels];
        let sizes = sizes.map(|vectors| vectors * S::F32_LANES).map(|floats| floats.next_multiple_of(16));
        vectors.resize(sizes.iter().sum::<usize>() + 16, 0.0);
        let aligned = vectors.as_ptr().align_offset(CACHE_LINE_BYTES).min(16);
        let (table, rest) = vectors[aligned..].split_at_mut(sizes[0]);
        let (shorter, rest) = rest.split_at_mut(sizes[1]);
        let (help, rest) = rest.split_at_mut(sizes[2]);
        let (magnitudes, bands) = rest.split_at_mut(sizes[3]);
        let bands = &mut bands[..n_mels * S::F32_LANES];
        for (index, mel) in mel.chunks_mut(S::F32_LANES * n_mels).enumerate() {
            rows.fill(samples, index * S::F32_LANES, table);
            batches.first_pass::<S>(simd, &rows, table, complex::<S>(shorter));
            batches.spectrum(simd, complex::<S>(shorter), complex::<S>(help), S::as_mut_simd_f32s(magnitudes).0);
            batches.apply_bands(simd, S::as_simd_f32s(magnitudes).0, S::as_mut_simd_f32s(bands).0);
            for value in &mut *bands {
                *value = ln(value.max(FLOOR));
            }
            for (frame, mel) in mel.chunks_exact_mut(n_mels).enumerate() {
                for (out, band) in mel.iter_mut().zip(bands.chunks_exact(S::F32_LANES)) {
                    *out = band[frame];
                }
            }
        }
    }
}

#[inline(always)]
fn complex<S: Simd>(floats: &mut [f32]) -> &mut [Complex<S::f32s>] {
    bytemuck::cast_slice_mut(floats)
}

/// The samples of a batch as a table: a row for each sample of a hop, a column for each hop. Sample `i` of all frames
/// is then a stretch of row `i % hop` from column `i / hop` on, and samples that frames share are there once.
struct Rows {
    columns: usize,
    /// Samples of silence before the first one.
    lead_samples: usize,
    hop_samples: usize,
    /// `[n]`: indices where even and odd samples of the first frame lie.
    places: Vec<[u32; 2]>,
}

impl Rows {
    fn new(hop_samples: usize, n_fft: usize, lanes: usize) -> Self {
        let columns = lanes + (n_fft - 1) / hop_samples;
        let place = |sample: usize| (sample % hop_samples * columns + sample / hop_samples) as u32;
        let places = (0..n_fft / 2).map(|k| [place(2 * k), place(2 * k + 1)]).collect();
        Rows { columns, lead_samples: n_fft / 2, hop_samples, places }
    }

    fn floats(&self) -> usize {
        self.hop_samples * self.columns
    }

    #[inline(always)]
    fn fill<T: Sample>(&self, samples: &[T], first_frame: usize, table: &mut [f32]) {
        let hop = self.hop_samples;
        for column in 0..self.columns {
            // Counted from the silence before the clip.
            let start = (first_frame + column) * hop;
            let piece = start.checked_sub(self.lead_samples).and_then(|start| samples.get(start..start + hop));
            let rows = table.chunks_exact_mut(self.columns);
            if let Some(piece) = piece {
                for (row, sample) in rows.zip(piece) {
                    row[column] = sample.to_f32();
                }
            } else {
                for (n, row) in rows.take(hop).enumerate() {
                    let sample = (start + n).checked_sub(self.lead_samples).and_then(|at| samples.get(at));
                    row[column] = sample.map_or(0.0, |sample| sample.to_f32());
                }
            }
        }
    }
}

#[inline(always)]
fn load<S: Simd>(table: &[f32], place: u32) -> S::f32s {
    let place = place as usize;
    S::as_simd_f32s(&table[place..place + S::F32_LANES]).0[0]
}

impl Batches {
    #[inline(always)]
    fn first_pass<S: Simd>(&self, simd: S, rows: &Rows, table: &[f32], out: &mut [Complex<S::f32s>]) {
        let length = self.first.len();
        for (p, twiddles) in self.first.iter().enumerate() {
            let mut x = [[simd.splat_f32s(0.0); 2]; 8];
            for (k, x) in x.iter_mut().enumerate() {
                let ([even, odd], [a, b]) = (rows.places[p + length * k], self.window[p + length * k]);
                let (a, b) = (simd.splat_f32s(a), simd.splat_f32s(b));
                *x = [simd.mul_f32s(load::<S>(table, even), a), simd.mul_f32s(load::<S>(table, odd), b)];
            }
            let y = Eight::apply(simd, x);
            out[p] = y[0];
            for k in 1..8 {
                out[p + length * k] = times(simd, y[k], twiddles[k - 1]);
            }
        }
    }

    /// Shorter transform `j` gives bins `8 q + j`, whose mirror images are those of transform `8 - j`, backwards.
    #[inline(always)]
    fn spectrum<S: Simd>(
        &self,
        simd: S,
        shorter: &mut [Complex<S::f32s>],
        help: &mut [Complex<S::f32s>],
        magnitudes: &mut [S::f32s],
    ) {
        let (n, length) = (self.window.len(), self.first.len());
        for j in 0..8 {
            self.plan.run(simd, &mut shorter[j * length..(j + 1) * length], help);
        }
        for j in 0..=4 {
            let count = [length / 2 + 1, length, length, length, length.div_ceil(2)][j];
            let mirror = if j == 0 { length } else { (8 - j) * length + length - 1 };
            for q in 0..count {
                let z = shorter[j * length + q];
                let mirrored = shorter[if j == 0 && q == 0 { 0 } else { mirror - q }];
                let [low, high] = untangle(simd, z, mirrored, self.last[8 * q + j]);
                magnitudes[8 * q + j] = low;
                magnitudes[n - 8 * q - j] = high;
            }
        }
    }

    /// Sums of each band's magnitudes by its weights.
    #[inline(always)]
    fn apply_bands<S: Simd>(&self, simd: S, magnitudes: &[S::f32s], mel: &mut [S::f32s]) {
        for (band, out) in self.bands.iter().zip(mel) {
            // Two sums, since each addition waits for the one before.
            let mut sums = [simd.splat_f32s(0.0); 2];
            let bins = &magnitudes[band.first_bin..band.first_bin + band.weights.len()];
            for (bins, weights) in bins.chunks(2).zip(band.weights.chunks(2)) {
                for k in 0..bins.len() {
                    sums[k] = simd.mul_add_f32s(bins[k], simd.splat_f32s(weights[k]), sums[k]);
                }
            }
            *out = simd.add_f32s(sums[0], sums[1]);
        }
    }
}

/// Magnitudes of bins `k` and `n - k` of the real frame, from the same bins of the complex one: with `E` the spectrum
/// of even samples and `O` that of odd ones, they are `|E ± w O|`.
#[inline(always)]
fn untangle<S: Simd>(simd: S, z: Complex<S::f32s>, mirrored: Complex<S::f32s>, factor: [f32; 2]) -> [S::f32s; 2] {
    let even = [simd.add_f32s(z[0], mirrored[0]), simd.sub_f32s(z[1], mirrored[1])];
    let odd = [simd.add_f32s(z[1], mirrored[1]), simd.sub_f32s(mirrored[0], z[0])];
    let odd = times(simd, odd, factor);
    [
        size(simd, simd.add_f32s(even[0], odd[0]), simd.add_f32s(even[1], odd[1])),
        size(simd, simd.sub_f32s(even[0], odd[0]), simd.sub_f32s(even[1], odd[1])),
    ]
}

#[inline(always)]
fn size<S: Simd>(simd: S, re: S::f32s, im: S::f32s) -> S::f32s {
    simd.sqrt_f32s(simd.mul_add_f32s(re, re, simd.mul_f32s(im, im)))
}
