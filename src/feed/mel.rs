//! Log-mel frames of a whole packed batch in one pass, on whichever device holds the samples.
//!
//! Utterances start on a hop and are a gap apart that is wider than half a window, so one STFT over the batch gives
//! each utterance exactly the frames it would have alone between zeros (`librosa` with `center=True`,
//! `pad_mode="constant"`): no loop, no per-clip padding.

use super::batch::Batch;
use host::audio::mel::filterbank;
use host::config;
use host::onnx::{Attribute, Graph, Value};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

/// Quieter bins count as this loud: about -100 dB of full scale.
pub(super) const FLOOR: f64 = 1e-5;

/// Computes log-mel frames by tensor operations.
pub struct MelExtractor {
    /// `[n_fft]`, Hann, periodic.
    window: Tensor,
    /// `[bins, n_mels]`.
    filters: Tensor,
    hop_samples: i64,
}

/// Mean and deviation of a corpus's log-mel values; the model sees them as mean 0, deviation 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MelStats {
    pub mean: f64,
    pub std: f64,
}

impl MelExtractor {
    pub fn new(config: &config::Model, rate_hz: u32, device: Device) -> Self {
        MelExtractor {
            window: Tensor::hann_window(config.n_fft, (Kind::Float, device)),
            filters: mel_filters(config, rate_hz).transpose(0, 1).to_device(device),
            hop_samples: config.hop_length,
        }
    }

    /// `samples`: `[.., frames * hop]` in -1..1 → `[.., frames, n_mels]`.
    pub fn log_mel(&self, samples: &Tensor) -> Tensor {
        self.bands(&self.magnitude(samples))
    }

    /// `[.., frames * hop]` → `[.., frames, bins]`.
    pub fn magnitude(&self, samples: &Tensor) -> Tensor {
        let frames = samples.size().last().expect("a waveform has samples") / self.hop_samples;
        stft(samples, &self.window, self.hop_samples).narrow(-2, 0, frames).abs()
    }

    /// `[.., frames, bins]` → log-mel `[.., frames, n_mels]`.
    pub fn bands(&self, magnitude: &Tensor) -> Tensor {
        magnitude.matmul(&self.filters).clamp_min(FLOOR).log()
    }

    /// `log_mel` in a graph: `[samples]` → `[frames, n_mels]`. The transform is a convolution, whose kernel is computed when
    /// the file is loaded.
    pub fn graph(&self, samples: &Value, g: &mut Graph) -> Value {
        let MelExtractor { window, filters, hop_samples } = self;
        let (n_fft, bins, n_mels) = (window.size()[0], filters.size()[0], filters.size()[1]);
        let floats = |tensor: &Tensor| -> Vec<f32> { Vec::try_from(tensor.contiguous().view(-1)).expect("floats") };
        let window = g.floats(&[n_fft as usize], &floats(window));
        let kernels = [f64::cos as fn(f64) -> f64, |angle| -angle.sin()].map(|of| {
            let wave = g.fourier(bins, n_fft, of);
            g.mul(&wave, &window)
        });
        let kernel = g.concat(&[&kernels[0], &kernels[1]], 0);
        let kernel = g.unsqueeze(&kernel, 1);
        let wave = g.reshape(samples, &[1, 1, -1]);
        let half = n_fft / 2;
        let attributes = vec![
            ("strides", Attribute::Ints(vec![*hop_samples])),
            ("kernel_shape", Attribute::Ints(vec![n_fft])),
            ("pads", Attribute::Ints(vec![half, half])),
        ];
        let spectrum = g.op("Conv", &[&wave, &kernel], attributes);
        let spectrum = g.squeeze(&spectrum, 0);
        let (zero, samples, hop) = (g.ints(&[0]), g.len(&wave, 2), g.ints(&[*hop_samples]));
        let frames = g.op("Div", &[&samples, &hop], vec![]);
        let spectrum = g.slice(&spectrum, &zero, &frames, 1);
        let squares = g.mul(&spectrum, &spectrum);
        let parts = g.split(&squares, &[bins, bins], 0);
        let power = g.add(&parts[0], &parts[1]);
        let magnitude = g.op("Sqrt", &[&power], vec![]);
        let magnitude = g.transpose(&magnitude, &[1, 0]);
        let filters = g.floats(&[bins as usize, n_mels as usize], &floats(filters));
        let bands = g.op("MatMul", &[&magnitude, &filters], vec![]);
        let floor = g.float(FLOOR);
        let bands = g.op("Max", &[&bands, &floor], vec![]);
        g.op("Log", &[&bands], vec![])
    }

    pub fn device(&self) -> Device {
        self.window.device()
    }
}

/// The mel filters of a voice, `[n_mels, bins]`, on the CPU.
pub fn mel_filters(config: &config::Model, rate_hz: u32) -> Tensor {
    let f_max = config.f_max.unwrap_or(f64::from(rate_hz) / 2.0);
    let filters = filterbank(rate_hz, config.n_fft as usize, config.n_mels as usize, config.f_min, f_max);
    Tensor::from_slice(&filters).view([config.n_mels, -1])
}

/// `[.., samples]` → complex `[.., frames, bins]`, frame `t` centred on sample `t * hop`, zeros beyond the ends.
pub fn stft(samples: &Tensor, window: &Tensor, hop_samples: i64) -> Tensor {
    let n_fft = window.size()[0];
    let padded = samples.constant_pad_nd([n_fft / 2, n_fft / 2]);
    (padded.unfold(-1, n_fft, hop_samples) * window).fft_rfft(None, -1, "backward")
}

impl MelStats {
    /// Log-mel values as the model sees them.
    pub fn apply(&self, log_mel: &Tensor) -> Tensor {
        (log_mel - self.mean) / self.std
    }

    /// The same in a graph.
    pub fn graph_apply(&self, log_mel: &Value, g: &mut Graph) -> Value {
        let (mean, std) = (g.float(self.mean), g.float(self.std));
        let centred = g.sub(log_mel, &mean);
        g.op("Div", &[&centred, &std], vec![])
    }

    /// Log-mel values from what the model made.
    pub fn restore(&self, normalised: &Tensor) -> Tensor {
        normalised * self.std + self.mean
    }

    /// The same in a graph.
    pub fn graph_restore(&self, normalised: &Value, g: &mut Graph) -> Value {
        let (mean, std) = (g.float(self.mean), g.float(self.std));
        let spread = g.mul(normalised, &std);
        g.add(&spread, &mean)
    }

    /// Statistics that change no value, for frames that are not to be normalised.
    pub fn identity() -> Self {
        MelStats { mean: 0.0, std: 1.0 }
    }

    /// Measures the frames inside utterances of some batches, which must not be normalised.
    pub fn of<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Self {
        let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
        for batch in batches {
            let (mel, mask) = (batch.mel.to_kind(Kind::Double), batch.frames.mask.to_kind(Kind::Double));
            sum += (&mel * &mask).sum(Kind::Double).double_value(&[]);
            squares += (mel.square() * &mask).sum(Kind::Double).double_value(&[]);
            count += mask.sum(Kind::Double).double_value(&[]) * mel.size()[1] as f64;
        }
        let mean = sum / count;
        MelStats { mean, std: (squares / count - mean * mean).max(1e-6).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::config::Config;

    /// Frame, band, value; `host::audio::mel` says how librosa was asked.
    const CHIRP: &str = include_str!("../../tests/data/librosa-chirp.tsv");

    fn extractor() -> MelExtractor {
        let config = Config::default();
        MelExtractor::new(&config.model, 22_050, Device::Cpu)
    }

    #[test]
    fn equals_librosa() {
        let time = Tensor::arange(40 * 256, (Kind::Double, Device::Cpu)) / 22_050.0;
        let tau = std::f64::consts::TAU;
        let chirp = ((&time * 200.0 + time.square() * 3000.0) * tau).sin() * 0.5;
        let wave = (chirp + (&time * (5000.0 * tau)).sin() * 0.1).to_kind(Kind::Float);
        let mel = extractor().log_mel(&wave);
        assert_eq!(mel.size(), [40, 80]);
        for line in CHIRP.lines() {
            let [frame, band, value] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let value: f64 = value.parse().unwrap();
            let ours = mel.double_value(&[frame.parse().unwrap(), band.parse().unwrap()]);
            assert!((ours - value).abs() < 1e-3, "frame {frame}, band {band}: {ours} and librosa {value}");
        }
    }

    #[test]
    fn an_utterance_in_a_batch_has_the_frames_it_has_alone() {
        tch::manual_seed(1);
        let gap = host::loader::GAP as i64;
        let noise = |frames: i64| Tensor::randn([frames * 256], (Kind::Float, Device::Cpu)) * 0.1;
        let silence = Tensor::zeros([gap * 256], (Kind::Float, Device::Cpu));
        let (a, b) = (noise(9), noise(7));
        let packed = extractor().log_mel(&Tensor::cat(&[&a, &silence, &b, &silence], 0));
        for (wave, start) in [(&a, 0), (&b, 9 + gap)] {
            let alone = extractor().log_mel(wave);
            let error = (&alone - packed.narrow(0, start, alone.size()[0])).abs().max();
            assert!(error.double_value(&[]) < 1e-4);
        }
    }
}
