//! Log-mel frames of 16-bit samples on a GPU in one launch. The values are those of `mel.rs`; `mel.cu` tells how.

use super::mel::{MelStats, mel_filters};
use host::audio::mel::band_bins;
use host::config;
use std::f64::consts::TAU;
use std::ops::Range;
use tch::{Device, Kind, Tensor};
use torchx::{Arg, Kernel};

const SOURCE: &str = include_str!("mel.cu");
/// As in the source: bins of a band come in fours, and a block has at least so many threads.
const FOUR: usize = 4;
const THREADS: i64 = 128;

/// Computes log-mel frames in one kernel.
pub struct MelKernel {
    kernel: Kernel,
    /// `[n_fft]`, Hann, for samples as they are; halved, because two frames that come apart are doubled.
    window: Tensor,
    /// Turns between the passes of a transform, complex.
    turns: Tensor,
    /// `[2, n_mels]`, i32: first bin of each band, and how many fours of bins.
    bands: Tensor,
    /// `[fours of the widest, n_mels, 4]`.
    weights: Tensor,
    hop_samples: i64,
    /// Threads of one transform.
    team: i64,
}

/// Which frames are made; those whose entry in `table` is not in `live` are written as zeros.
pub struct LiveFrames<'a> {
    /// `[frames]`, i32.
    pub table: &'a Tensor,
    pub live: Range<i32>,
}

impl MelKernel {
    /// Compiles the kernel. `None` where tensor operations must do: on the CPU, and for a transform that shared memory does
    /// not hold.
    pub fn new(config: &config::Model, rate_hz: u32, device: Device) -> Result<Option<Self>, torchx::Error> {
        let Some(radices) = radices(config.n_fft).filter(|_| device.is_cuda()) else { return Ok(None) };
        let (bands, weights) = bands(config, rate_hz);
        Ok(Some(MelKernel {
            kernel: Kernel::compile(&source(config, radices), "log_mel", device)?,
            window: Tensor::hann_window(config.n_fft, (Kind::Float, device)) * (0.5 / 32768.0),
            turns: Tensor::from_slice(&turns(radices)).to_device(device),
            bands: bands.to_device(device),
            weights: weights.to_device(device),
            hop_samples: config.hop_length,
            team: config.n_fft / radices[0] as i64,
        }))
    }

    /// `samples`: `[frames * hop]`, i16 → normalised log-mel `[frames, n_mels]`.
    pub fn log_mel(&self, samples: &Tensor, rows: &LiveFrames, stats: &MelStats) -> Result<Tensor, torchx::Error> {
        let (frames, n_mels) = (samples.size()[0] / self.hop_samples, self.bands.size()[1]);
        let mel = Tensor::empty([frames, n_mels], (Kind::Float, samples.device()));
        let threads = THREADS.max(self.team);
        let frames_a_block = 2 * threads / self.team;
        let tensors = [samples, &self.window, &self.turns, &self.bands, &self.weights, rows.table, &mel];
        let numbers = [
            Arg::I32(frames as i32),
            Arg::I32(rows.live.start),
            Arg::I32(rows.live.end),
            Arg::F32(stats.mean as f32),
            Arg::F32(stats.std.recip() as f32),
        ];
        let args = [&tensors.map(Arg::Tensor)[..], &numbers].concat();
        let blocks = (frames + frames_a_block - 1) / frames_a_block;
        self.kernel.launch([blocks as u32, 1, 1], [threads as u32, 1, 1], 0, &args)?;
        Ok(mel)
    }
}

/// What the passes of a transform multiply up to its length; a thread holds as many values as the first says.
fn radices(n_fft: i64) -> Option<[usize; 3]> {
    Some(match n_fft {
        64 => [8, 8, 1],
        128 => [16, 8, 1],
        256 => [16, 16, 1],
        512 => [32, 16, 1],
        1024 => [32, 32, 1],
        2048 => [16, 16, 8],
        4096 => [16, 16, 16],
        _ => return None,
    })
}

fn source(config: &config::Model, radices: [usize; 3]) -> String {
    let [r1, r2, r3] = radices;
    let config::Model { n_fft, hop_length, n_mels, .. } = config;
    let sizes = format!("#define N {n_fft}\n#define HOP {hop_length}\n#define N_MELS {n_mels}\n");
    sizes + &format!("#define R1 {r1}\n#define R2 {r2}\n#define R3 {r3}\n") + SOURCE
}

/// For each pass but the first, `exp(-2πi r j / (done * radix))` as `[radix, done]`, real and imaginary in turn.
fn turns(radices: [usize; 3]) -> Vec<f32> {
    let mut done = radices[0];
    let mut turns = Vec::new();
    for radix in radices[1..].iter().copied().filter(|&radix| radix > 1) {
        let angle = |r: usize, j: usize| -TAU * (r * j) as f64 / (done * radix) as f64;
        let places = (0..radix).flat_map(|r| (0..done).map(move |j| (r, j)));
        turns.extend(places.flat_map(|(r, j)| [angle(r, j).cos() as f32, angle(r, j).sin() as f32]));
        done *= radix;
    }
    turns
}

/// The filterbank without its zeros, on the CPU.
fn bands(config: &config::Model, rate_hz: u32) -> (Tensor, Tensor) {
    let filters = Vec::<f32>::try_from(mel_filters(config, rate_hz).view(-1)).expect("an f32 vector on the CPU");
    let n_mels = config.n_mels as usize;
    let rows: Vec<&[f32]> = filters.chunks(filters.len() / n_mels).collect();
    let heard: Vec<Range<usize>> = rows.iter().map(|row| band_bins(row)).collect();
    let fours = |bins: &Range<usize>| bins.len().div_ceil(FOUR);
    let widest = heard.iter().map(fours).max().unwrap_or(0);
    let mut weights = vec![[0f32; FOUR]; widest * n_mels];
    for (band, (row, bins)) in rows.iter().zip(&heard).enumerate() {
        for (bin, weight) in row[bins.clone()].iter().enumerate() {
            weights[bin / FOUR * n_mels + band][bin % FOUR] = *weight;
        }
    }
    let starts = heard.iter().map(|bins| bins.start as i32);
    let table: Vec<i32> = starts.chain(heard.iter().map(|bins| fours(bins) as i32)).collect();
    (Tensor::from_slice(&table).view([2, -1]), Tensor::from_slice(weights.as_flattened()).view([-1, config.n_mels, 4]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Interval, MelExtractor};
    use host::config::Config;

    const RATE_HZ: u32 = 22_050;
    const GPU: Device = Device::Cuda(0);
    const STATS: MelStats = MelStats { mean: -5.0, std: 2.0 };

    fn sizes(n_fft: i64, hop_length: i64, n_mels: i64) -> config::Model {
        config::Model { n_fft, hop_length, n_mels, ..Config::default().model }
    }

    #[test]
    fn bands_are_the_filterbank_without_its_zeros() {
        for config in [sizes(1024, 256, 80), sizes(512, 128, 200), sizes(2048, 512, 100)] {
            let (table, weights) = bands(&config, RATE_HZ);
            let filters = mel_filters(&config, RATE_HZ);
            let bins = config.n_fft / 2 + 1;
            let rebuilt = Tensor::zeros([config.n_mels, bins + FOUR as i64], (Kind::Float, Device::Cpu));
            for band in 0..config.n_mels {
                let (first, fours) = (table.int64_value(&[0, band]), table.int64_value(&[1, band]));
                let row = weights.select(1, band).narrow(0, 0, fours).reshape([-1]);
                rebuilt.get(band).narrow(0, first, fours * FOUR as i64).copy_(&row);
            }
            assert_eq!(rebuilt.narrow(1, 0, bins), filters);
        }
    }

    #[test]
    fn radices_multiply_to_the_length() {
        for n_fft in (6..=12).map(|log2| 1 << log2) {
            let [r1, r2, r3] = radices(n_fft).unwrap();
            assert!((r1 * r2 * r3) as i64 == n_fft && r1 >= r2 && r2 >= r3);
        }
        assert_eq!((radices(32), radices(1000), radices(8192)), (None, None, None));
    }

    /// Loud, quiet, silent and changing sound, one after the other, as 16-bit samples.
    fn sound(samples: i64) -> Tensor {
        let part = samples / 5;
        let noise = |level: f64| (Tensor::rand([part], (Kind::Float, Device::Cpu)) * 2.0 - 1.0) * level;
        let time = Tensor::arange(samples - 4 * part, (Kind::Float, Device::Cpu)) / f64::from(RATE_HZ);
        let swell = (&time * 20.0).sin().square();
        let chirp = ((&time * 200.0 + time.square() * 3000.0) * TAU).sin() * 8000.0 * swell;
        let hiss = Tensor::randn_like(&chirp) * 100.0;
        let parts = [noise(32_767.0), noise(3.0), noise(0.0), noise(2000.0), chirp + hiss];
        Tensor::cat(&parts, 0).round().to_kind(Kind::Int16)
    }

    /// What the tensors make of the same on the CPU.
    fn by_tensors(config: &config::Model, samples: &Tensor, rows: &LiveFrames) -> Tensor {
        let extractor = MelExtractor::new(config, RATE_HZ, Device::Cpu);
        let mel = STATS.apply(&extractor.log_mel(&(samples.to_kind(Kind::Float) / 32768.0)));
        let entries = rows.table.to_device(Device::Cpu);
        let live = entries.ge(i64::from(rows.live.start)).logical_and(&entries.lt(i64::from(rows.live.end)));
        mel * live.to_kind(Kind::Float).unsqueeze(1)
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn the_kernel_makes_what_tensors_make() {
        torchx::cuda::load().unwrap();
        tch::manual_seed(3);
        let cases = [
            (1024, 256, 80, 301),
            (1024, 256, 80, 280),
            (1024, 128, 80, 303),
            (1024, 512, 100, 99),
            (512, 128, 80, 301),
            (2048, 512, 100, 151),
            (4096, 1024, 128, 84),
            (256, 64, 40, 305),
            (128, 32, 30, 301),
            (64, 16, 20, 301),
        ];
        for (n_fft, hop, n_mels, frames) in cases {
            let config = sizes(n_fft, hop, n_mels);
            let kernel = MelKernel::new(&config, RATE_HZ, GPU).unwrap().unwrap();
            let samples = sound(frames * hop);
            let table = Tensor::randint(4, [frames], (Kind::Int, Device::Cpu)).to_device(GPU);
            for live in [0..3, i32::MIN..i32::MAX] {
                let rows = LiveFrames { table: &table, live };
                let found = kernel.log_mel(&samples.to_device(GPU), &rows, &STATS).unwrap().to_device(Device::Cpu);
                let wanted = by_tensors(&config, &samples, &rows);
                assert_eq!(found.size(), wanted.size());
                let error = (found - wanted).abs().max().double_value(&[]);
                assert!(error < 1e-3, "n_fft {n_fft}, hop {hop}, {n_mels} bands: off by {error}");
            }
        }
    }

    /// Prints what docs/kernels.md says of it.
    #[test]
    #[ignore = "needs a GPU"]
    fn time_of_a_batch() {
        torchx::cuda::load().unwrap();
        let config = sizes(1024, 256, 80);
        let kernel = MelKernel::new(&config, RATE_HZ, GPU).unwrap().unwrap();
        let extractor = MelExtractor::new(&config, RATE_HZ, GPU);
        let inputs = [18_304, 9_408].map(|frames| {
            let owner = Tensor::zeros([frames], (Kind::Int, GPU));
            (sound(frames * 256).to_device(GPU), owner)
        });
        let in_one = || {
            for (samples, table) in &inputs {
                let rows = LiveFrames { table, live: 0..1 };
                let _ = kernel.log_mel(samples, &rows, &STATS).unwrap();
            }
        };
        let by_tensors = || {
            for (samples, owner) in &inputs {
                let mel = STATS.apply(&extractor.log_mel(&(samples.to_kind(Kind::Float) / 32768.0)));
                let _ = mel * owner.lt(1).to_kind(Kind::Float).unsqueeze(1);
            }
        };
        let us = |work: &dyn Fn()| {
            work();
            let many = || -> Result<(), torchx::Error> {
                (0..50).for_each(|_| work());
                Ok(())
            };
            let ((), span) = Interval::of(GPU, many).unwrap();
            span.end.wait().unwrap();
            span.start.ms_until(&span.end).unwrap() * 1e3 / 50.0
        };
        println!("18304 and 9408 frames: kernel {:.1} µs, tensors {:.1} µs", us(&in_one), us(&by_tensors));
    }
}
