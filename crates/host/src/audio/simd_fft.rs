//! Fourier transforms of many signals at once, one in each lane of a vector. No step moves a number from lane to lane,
//! so all of it is plain arithmetic at whatever width the processor has: 16 signals with AVX-512, 8 with AVX2, 4 with
//! NEON.
//!
//! Whatever touches vectors is `#[inline(always)]`, and no closure stands between: a function that is not inlined into
//! the one that `pulp` compiled for the processor would do without its instructions, at a tenth of the speed.

use pulp::Simd;
use std::f64::consts::TAU;

/// A complex number in each lane: real parts, imaginary parts.
pub type Complex<V> = [V; 2];

/// A transform whose length is a power of two. Stockham's: every pass reads one buffer and writes another, and the last
/// leaves the spectrum in order.
pub struct FftPlan {
    passes: Vec<Pass>,
    len: usize,
}

struct Pass {
    radix: usize,
    /// `[len / stride / radix][radix - 1]`: factors of the outputs but the first.
    twiddles: Vec<[f32; 2]>,
    stride: usize,
}

impl FftPlan {
    pub fn new(len: usize) -> Self {
        let (mut passes, mut stride) = (vec![], 1);
        while stride < len {
            let left = len / stride;
            let radix = [8, 4, 2].into_iter().find(|radix| left.is_multiple_of(*radix) && left != 16).unwrap_or(4);
            let factor = |n: usize| twiddle(n / (radix - 1) * (n % (radix - 1) + 1), left);
            let twiddles = (0..left / radix * (radix - 1)).map(factor).collect();
            passes.push(Pass { radix, twiddles, stride });
            stride *= radix;
        }
        FftPlan { passes, len }
    }

    /// Transforms `x`; `help` has room for as much.
    #[inline(always)]
    pub fn run<S: Simd>(&self, simd: S, x: &mut [Complex<S::f32s>], help: &mut [Complex<S::f32s>]) {
        let (x, help) = (&mut x[..self.len], &mut help[..self.len]);
        for pair in self.passes.chunks(2) {
            pair[0].run(simd, x, help);
            match pair.get(1) {
                Some(second) => second.run(simd, help, x),
                None => x.copy_from_slice(help),
            }
        }
    }
}

impl Pass {
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, from: &[Complex<S::f32s>], to: &mut [Complex<S::f32s>]) {
        match self.radix {
            2 => self.run_radix::<S, Two, 2>(simd, from, to),
            4 => self.run_radix::<S, Four, 4>(simd, from, to),
            _ => self.run_radix::<S, Eight, 8>(simd, from, to),
        }
    }

    #[inline(always)]
    fn run_radix<S: Simd, B: Butterfly<R>, const R: usize>(
        &self,
        simd: S,
        from: &[Complex<S::f32s>],
        to: &mut [Complex<S::f32s>],
    ) {
        let (stride, apart) = (self.stride, from.len() / R);
        let groups = to.chunks_exact_mut(R * stride).zip(self.twiddles.chunks_exact(R - 1));
        for (group, (out, twiddles)) in groups.enumerate() {
            let from = &from[group * stride..];
            for n in 0..stride {
                let mut x = [from[n]; R];
                for k in 1..R {
                    x[k] = from[n + k * apart];
                }
                let y = B::apply(simd, x);
                out[n] = y[0];
                for k in 1..R {
                    // All factors of the last pass are 1.
                    out[n + k * stride] = if stride == apart { y[k] } else { times(simd, y[k], twiddles[k - 1]) };
                }
            }
        }
    }
}

/// `exp(-2πi n / len)`
pub fn twiddle(n: usize, len: usize) -> [f32; 2] {
    let angle = TAU * n as f64 / len as f64;
    [angle.cos() as f32, -angle.sin() as f32]
}

/// The product of each lane's number and one that all lanes share.
#[inline(always)]
pub fn times<S: Simd>(simd: S, x: Complex<S::f32s>, [re, im]: [f32; 2]) -> Complex<S::f32s> {
    let (re, im) = (simd.splat_f32s(re), simd.splat_f32s(im));
    [simd.negate_mul_add_f32s(x[1], im, simd.mul_f32s(x[0], re)), simd.mul_add_f32s(x[0], im, simd.mul_f32s(x[1], re))]
}

/// A transform of `R` numbers.
pub trait Butterfly<const R: usize> {
    fn apply<S: Simd>(simd: S, x: [Complex<S::f32s>; R]) -> [Complex<S::f32s>; R];
}

struct Two;
struct Four;
pub struct Eight;

impl Butterfly<2> for Two {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, [a, b]: [Complex<S::f32s>; 2]) -> [Complex<S::f32s>; 2] {
        [add(simd, a, b), sub(simd, a, b)]
    }
}

impl Butterfly<4> for Four {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, [a, b, c, d]: [Complex<S::f32s>; 4]) -> [Complex<S::f32s>; 4] {
        let (even, odd) = (Two::apply(simd, [a, c]), Two::apply(simd, [b, d]));
        [
            add(simd, even[0], odd[0]),
            sub_turned(simd, even[1], odd[1]),
            sub(simd, even[0], odd[0]),
            add_turned(simd, even[1], odd[1]),
        ]
    }
}

impl Butterfly<8> for Eight {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, x: [Complex<S::f32s>; 8]) -> [Complex<S::f32s>; 8] {
        let even = Four::apply(simd, [x[0], x[2], x[4], x[6]]);
        let odd = Four::apply(simd, [x[1], x[3], x[5], x[7]]);
        let (first, third) = (eighth_turn(simd, odd[1]), eighth_turn(simd, odd[3]));
        [
            add(simd, even[0], odd[0]),
            add(simd, even[1], first),
            sub_turned(simd, even[2], odd[2]),
            sub_turned(simd, even[3], third),
            sub(simd, even[0], odd[0]),
            sub(simd, even[1], first),
            add_turned(simd, even[2], odd[2]),
            add_turned(simd, even[3], third),
        ]
    }
}

#[inline(always)]
fn add<S: Simd>(simd: S, a: Complex<S::f32s>, b: Complex<S::f32s>) -> Complex<S::f32s> {
    [simd.add_f32s(a[0], b[0]), simd.add_f32s(a[1], b[1])]
}

#[inline(always)]
fn sub<S: Simd>(simd: S, a: Complex<S::f32s>, b: Complex<S::f32s>) -> Complex<S::f32s> {
    [simd.sub_f32s(a[0], b[0]), simd.sub_f32s(a[1], b[1])]
}

/// a + i b
#[inline(always)]
fn add_turned<S: Simd>(simd: S, a: Complex<S::f32s>, b: Complex<S::f32s>) -> Complex<S::f32s> {
    [simd.sub_f32s(a[0], b[1]), simd.add_f32s(a[1], b[0])]
}

/// a - i b
#[inline(always)]
fn sub_turned<S: Simd>(simd: S, a: Complex<S::f32s>, b: Complex<S::f32s>) -> Complex<S::f32s> {
    [simd.add_f32s(a[0], b[1]), simd.sub_f32s(a[1], b[0])]
}

/// z (1 - i) / √2
#[inline(always)]
fn eighth_turn<S: Simd>(simd: S, z: Complex<S::f32s>) -> Complex<S::f32s> {
    let scale = simd.splat_f32s(std::f32::consts::FRAC_1_SQRT_2);
    [simd.mul_f32s(scale, simd.add_f32s(z[0], z[1])), simd.mul_f32s(scale, simd.sub_f32s(z[1], z[0]))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd, bytemuck};

    struct Transform<'a>(&'a FftPlan, &'a [[f32; 2]]);

    impl WithSimd for Transform<'_> {
        type Output = Vec<[f64; 2]>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let Transform(plan, signal) = self;
            let mut x: Vec<_> = signal.iter().map(|z| z.map(|part| simd.splat_f32s(part))).collect();
            let mut help = x.clone();
            plan.run(simd, &mut x, &mut help);
            x.iter()
                .map(|z| z.map(|lanes| f64::from(bytemuck::cast_slice::<_, f32>(&[lanes])[S::F32_LANES - 1])))
                .collect()
        }
    }

    /// Truth: the sum that defines a discrete Fourier transform, in f64.
    #[test]
    fn spectra_are_those_of_the_definition() {
        for len in [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024] {
            let mut rng = crate::rng::Rng::new(&[len as u64]);
            let mut number = || rng.below(2001) as f32 / 1000.0 - 1.0;
            let signal: Vec<[f32; 2]> = (0..len).map(|_| [number(), number()]).collect();
            let plan = FftPlan::new(len);
            let wide = Arch::new().dispatch(Transform(&plan, &signal));
            let narrow = Transform(&plan, &signal).with_simd(pulp::Scalar);
            for spectrum in [wide, narrow] {
                for (bin, ours) in spectrum.iter().enumerate() {
                    let mut truth = [0.0; 2];
                    for (n, [re, im]) in signal.iter().map(|z| z.map(f64::from)).enumerate() {
                        let (sin, cos) = (TAU * (n * bin % len) as f64 / len as f64).sin_cos();
                        truth = [truth[0] + re * cos + im * sin, truth[1] + im * cos - re * sin];
                    }
                    let error = (ours[0] - truth[0]).hypot(ours[1] - truth[1]);
                    assert!(error < 2e-6 * len as f64, "length {len}, bin {bin}: {error}");
                }
            }
        }
    }
}
