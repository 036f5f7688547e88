//! Log-mel frames of a whole packed batch in one pass, on whichever device holds the samples.
//!
//! Utterances start on a hop and are a gap apart that is wider than half a window, so one STFT over the batch gives
//! each utterance exactly the frames it would have alone between zeros (`librosa` with `center=True`,
//! `pad_mode="constant"`): no loop, no per-clip padding.

use super::batch::Batch;
use super::packed::Packed;
use crate::audio::mel::filterbank;
use crate::cache::SoundBuf;
use crate::config;
use crate::loader::HostBatch;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};
use torchx::stream::pin;

/// Quieter bins count as this loud: about -100 dB of full scale.
const FLOOR: f64 = 1e-5;

pub struct MelExtractor {
    /// `[n_fft]`, Hann, periodic.
    window: Tensor,
    /// `[bins, n_mels]`.
    filters: Tensor,
    hop_samples: i64,
    device: Device,
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
            device,
        }
    }

    /// `samples`: `[frames * hop]` in -1..1 → `[frames, n_mels]`.
    pub fn log_mel(&self, samples: &Tensor) -> Tensor {
        let frames = samples.size()[0] / self.hop_samples;
        let magnitude = stft(samples, &self.window, self.hop_samples).narrow(0, 0, frames).abs();
        magnitude.matmul(&self.filters).clamp_min(FLOOR).log()
    }

    /// The batch on the data device. With `pinned`, copies there do not block the host.
    pub fn batch(&self, host: &HostBatch, stats: &MelStats, pinned: bool) -> Batch {
        let pinned = pinned && self.device.is_cuda();
        let moved = |tensor: Tensor| {
            let tensor = if pinned { pin(&tensor).expect("a CPU tensor, beside a GPU") } else { tensor };
            tensor.to_device_(self.device, tensor.kind(), pinned, false)
        };
        let text = Packed::new(&host.text, moved);
        let frames = Packed::new(&host.frames, moved);
        let mel = (self.sound(&host.sound, moved) - stats.mean) / stats.std * &frames.mask;
        Batch { tokens: moved(Tensor::from_slice(&host.tokens)).to_kind(Kind::Int64), mel, text, frames }
    }

    /// Log-mel frames of what the cache holds, `[frames, n_mels]`, not normalised.
    fn sound(&self, sound: &SoundBuf, moved: impl Fn(Tensor) -> Tensor) -> Tensor {
        match sound {
            SoundBuf::Pcm(samples) => {
                self.log_mel(&(moved(Tensor::from_slice(samples)).to_kind(Kind::Float) / 32768.0))
            }
            SoundBuf::Mel(frames) => {
                let n_mels = self.filters.size()[1];
                moved(Tensor::from_slice(frames)).to_kind(Kind::Float).view([-1, n_mels])
            }
        }
    }

    /// Sum, sum of squares and count of the values inside utterances: what `MelStats` is made from.
    pub fn moments(&self, host: &HostBatch) -> (f64, f64, f64) {
        let mel = self.sound(&host.sound, |tensor| tensor.to_device(self.device));
        let rows: Vec<Tensor> =
            host.frame_spans.iter().map(|span| mel.narrow(0, span.start as i64, span.len as i64)).collect();
        let values = Tensor::cat(&rows, 0).to_kind(Kind::Double);
        (
            values.sum(Kind::Double).double_value(&[]),
            values.square().sum(Kind::Double).double_value(&[]),
            values.numel() as f64,
        )
    }
}

/// The mel filters of a voice, `[n_mels, bins]`, on the CPU.
pub fn mel_filters(config: &config::Model, rate_hz: u32) -> Tensor {
    let f_max = config.f_max.unwrap_or(f64::from(rate_hz) / 2.0);
    let filters = filterbank(rate_hz, config.n_fft as usize, config.n_mels as usize, config.f_min, f_max);
    Tensor::from_slice(&filters).view([config.n_mels, -1])
}

/// `[samples]` → complex `[frames, bins]`, frame `t` centred on sample `t * hop`, zeros beyond the ends.
pub fn stft(samples: &Tensor, window: &Tensor, hop_samples: i64) -> Tensor {
    let n_fft = window.size()[0];
    let padded = samples.constant_pad_nd([n_fft / 2, n_fft / 2]);
    (padded.unfold(0, n_fft, hop_samples) * window).fft_rfft(None, -1, "backward")
}

impl MelStats {
    /// Log-mel values from what the model made.
    pub fn restore(&self, normalised: &Tensor) -> Tensor {
        normalised * self.std + self.mean
    }

    pub fn from_moments(moments: Vec<(f64, f64, f64)>) -> Self {
        let (sum, squares, count) = moments.into_iter().fold((0.0, 0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
        let mean = sum / count;
        MelStats { mean, std: (squares / count - mean * mean).max(1e-6).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn extractor() -> MelExtractor {
        let config = Config::default();
        MelExtractor::new(&config.model, 22_050, Device::Cpu)
    }

    #[test]
    fn equals_librosa() {
        // y = 0.5 sin(2π (200 t + 3000 t²)) + 0.1 sin(2π 5000 t), 40 hops; librosa 0.11:
        // log(max(1e-5, melspectrogram(y=y, sr=22050, n_fft=1024, hop_length=256, center=True, pad_mode="constant",
        //                              power=1.0, n_mels=80, fmin=0, fmax=11025)))[band, frame]
        let time = Tensor::arange(40 * 256, (Kind::Double, Device::Cpu)) / 22_050.0;
        let tau = std::f64::consts::TAU;
        let chirp = ((&time * 200.0 + time.square() * 3000.0) * tau).sin() * 0.5;
        let wave = (chirp + (&time * (5000.0 * tau)).sin() * 0.1).to_kind(Kind::Float);
        let mel = extractor().log_mel(&wave);
        assert_eq!(mel.size(), [40, 80]);
        let reference = [
            (0, 0, -0.83778),
            (0, 10, -2.30196),
            (5, 8, -2.83897),
            (10, 20, 1.01510),
            (20, 30, -5.30379),
            (20, 60, -8.31447),
            (39, 40, -3.92701),
            (39, 79, -4.96495),
        ];
        for (frame, band, value) in reference {
            let ours = mel.double_value(&[frame, band]);
            assert!((ours - value).abs() < 1e-3, "frame {frame}, band {band}: {ours} and librosa {value}");
        }
    }

    #[test]
    fn an_utterance_in_a_batch_has_the_frames_it_has_alone() {
        tch::manual_seed(1);
        let gap = crate::loader::GAP as i64;
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
