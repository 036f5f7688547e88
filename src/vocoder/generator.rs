//! The generator: ConvNeXt blocks over frames (Liu et al. 2022, in one dimension), then for each frame the logarithm of
//! the magnitudes and the phases of a spectrum. As in Vocos, but that phases are those of the pitch's harmonics and what
//! the network adds to them.
//!
//! In f32 throughout: phases of ten radians and more come out of it, and with the eight bits of bf16 they are off by 0.04,
//! which is noise 28 dB below the speech, in training too, and other speech on a GPU than on a CPU. Gradients need less: products
//! of the backward pass are rounded (`adversarial.rs`).

use super::harmonics::Harmonics;
use super::istft::Istft;
use super::pitch::PitchHead;
use super::pulses::Pulses;
use crate::model::conv::Conv;
use crate::model::graph::GraphWriter;
use crate::model::layers::{LayerNorm, Linear};
use host::config::Config;
use host::onnx::Value;
use tch::nn::{Init, Path};
use tch::{Device, Tensor};

/// Log-mel values of speech lie around this mean with about this deviation; the first norm evens out what remains.
const USUAL_MEL: (f64, f64) = (-5.0, 2.0);
const KERNEL: i64 = 7;
/// Channels inside a block, as a multiple of those between blocks.
const WIDENING: i64 = 3;

/// Vocos' generator: log-mel frames to waveform.
pub struct Vocoder {
    embed: Conv,
    embed_norm: LayerNorm,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
    pitch: PitchHead,
    harmonics: Harmonics,
    istft: Istft,
    /// Logarithm of the largest magnitude that full scale can have: the sum of a Hann window.
    loudest: f64,
}

/// What the generator makes of frames.
pub struct Generated {
    /// `[batch, frames * hop]`
    pub waves: Tensor,
    /// What it takes for the pitch, as its head says it: `[batch, frames, ..]`.
    pub pitch: Tensor,
}

struct Block {
    depthwise: Conv,
    norm: LayerNorm,
    widen: Linear,
    narrow: Linear,
    /// `[dim]`, small at first: a deep stack begins as a shallow one.
    scale: Tensor,
}

impl Vocoder {
    pub fn new(path: &Path, config: &Config) -> Self {
        let (model, device) = (&config.model, path.device());
        let (dim, layers) = (model.vocoder_dim, model.vocoder_layers);
        Vocoder {
            embed: Conv::full_precision(path / "embed", model.n_mels, dim, KERNEL),
            embed_norm: LayerNorm::new(path / "embed_norm", dim),
            blocks: (0..layers).map(|i| Block::new(path / "block" / i, dim, 1.0 / layers as f64)).collect(),
            norm: LayerNorm::new(path / "norm", dim),
            head: Linear::full_precision(path / "head", dim, model.n_fft + 2),
            pitch: PitchHead::new(path / "pitch", dim),
            harmonics: Harmonics::new(config, device),
            istft: Istft::new(model, device),
            loudest: (model.n_fft as f64 / 2.0).ln(),
        }
    }

    /// # Shapes
    /// - log_mel: `[batch, frames, n_mels]`, natural logarithm of magnitudes, not normalised, f32
    /// - output: `[batch, frames * hop]`, f32
    pub fn forward(&self, log_mel: &Tensor) -> Tensor {
        self.generate(log_mel, None, None).waves
    }

    /// The same with harmonics that follow the pulses of recordings, for training: then its speech can lie where theirs does.
    pub fn following(&self, log_mel: &Tensor, pulses: &Pulses) -> Generated {
        self.generate(log_mel, None, Some(pulses))
    }

    /// Waveform of utterances laid end to end, each as it sounds alone: gaps (0 in `mask`, at least 4 frames wide) are silent.
    ///
    /// # Shapes
    /// - log_mel: `[frames, n_mels]`; mask: `[frames, 1]`, f32
    /// - output: `[frames * hop]`, f32
    pub fn packed(&self, log_mel: &Tensor, mask: &Tensor) -> Tensor {
        self.generate(&log_mel.unsqueeze(0), Some(mask), None).waves.squeeze_dim(0)
    }

    /// `log_mel`: `[frames, n_mels]`, natural logarithm of magnitudes, not normalised → samples.
    pub fn waveform(&self, log_mel: &Tensor) -> Vec<f32> {
        let wave = tch::no_grad(|| self.forward(&log_mel.unsqueeze(0)).squeeze_dim(0).to_device(Device::Cpu));
        Vec::try_from(wave.contiguous()).expect("an f32 vector on the CPU")
    }

    /// How far the pitch that was told is from that of the recordings.
    pub fn pitch_loss(&self, generated: &Generated, pulses: &Pulses) -> Tensor {
        self.pitch.loss(&generated.pitch, &pulses.hz, &pulses.voiced)
    }

    fn generate(&self, log_mel: &Tensor, mask: Option<&Tensor>, pulses: Option<&Pulses>) -> Generated {
        let (mean, deviation) = USUAL_MEL;
        let mel = (log_mel - mean) / deviation;
        let first = self.embed_norm.forward(&along_time(&self.embed, &mel, mask));
        let last = self.blocks.iter().fold(first, |x, block| block.forward(&x, mask));
        let last = self.norm.forward(&last);
        let pitch = self.pitch.logits(&last);
        let (hz, periods) = match pulses {
            Some(pulses) => (pulses.hz.shallow_clone(), pulses.periods.shallow_clone()),
            None => {
                let hz = self.pitch.hz(&pitch);
                let periods = self.harmonics.periods(&hz, mask);
                (hz, periods)
            }
        };
        let halves = self.head.forward(&last).chunk(2, -1);
        // Held before the exponential: beyond it an infinity would make the gradient no number.
        let magnitude = halves[0].clamp_max(self.loudest).exp();
        let [real, imaginary] = self.harmonics.turn(&halves[1], &hz, &periods).map(|part| part * &magnitude);
        let waves = self.istft.forward(&real, &imaginary, mask);
        Generated { waves, pitch }
    }

    /// The same in a graph, of one utterance: log-mel `[frames, n_mels]` → `[1, 1, frames * hop]`.
    pub fn graph(&self, log_mel: &Value, g: &mut GraphWriter) -> Value {
        let Vocoder { embed, embed_norm, blocks, norm, head, pitch, harmonics, istft, loudest } = self;
        let [mean, deviation] = [USUAL_MEL.0, 1.0 / USUAL_MEL.1].map(|value| g.float(value));
        let mel = g.sub(log_mel, &mean);
        let mel = g.mul(&mel, &deviation);
        let first = embed.graph(&mel, g);
        let first = embed_norm.graph(&first, g);
        let last = blocks.iter().fold(first, |x, block| block.graph(&x, g));
        let last = norm.graph(&last, g);
        let spectrum = head.graph_full_precision(&last, g);
        let bins = head.width() / 2;
        let halves = g.split(&spectrum, &[bins, bins], 1);
        let loudest = g.float(*loudest);
        let magnitude = g.op("Min", &[&halves[0], &loudest], vec![]);
        let magnitude = g.op("Exp", &[&magnitude], vec![]);
        let hz = pitch.graph(&last, g);
        let [real, imaginary] = harmonics.graph(&halves[1], &hz, g).map(|part| g.mul(&magnitude, &part));
        istft.graph(&real, &imaginary, g)
    }
}

impl Block {
    fn new(path: Path, dim: i64, scale: f64) -> Self {
        Block {
            depthwise: Conv::depthwise(&path / "depthwise", dim, KERNEL),
            norm: LayerNorm::new(&path / "norm", dim),
            widen: Linear::full_precision(&path / "widen", dim, WIDENING * dim),
            narrow: Linear::full_precision(&path / "narrow", WIDENING * dim, dim),
            scale: path.var("scale", &[dim], Init::Const(scale)),
        }
    }

    /// `[batch, frames, dim]` in and out.
    fn forward(&self, x: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let local = along_time(&self.depthwise, x, mask);
        let wide = self.widen.forward(&self.norm.forward(&local)).gelu("tanh");
        x + self.narrow.forward(&wide) * &self.scale
    }

    /// `[frames, dim]` in and out.
    fn graph(&self, x: &Value, g: &mut GraphWriter) -> Value {
        let Block { depthwise, norm, widen, narrow, scale } = self;
        let local = depthwise.graph(x, g);
        let local = norm.graph(&local, g);
        let wide = widen.graph(&local, g);
        let wide = g.gelu(&wide);
        let narrow = narrow.graph(&wide, g);
        let scale = g.weight(scale);
        let scaled = g.mul(&narrow, &scale);
        g.add(x, &scaled)
    }
}

/// A convolution of `[batch, frames, channels]` that reads silence in gaps.
fn along_time(conv: &Conv, x: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let heard = mask.map_or_else(|| x.shallow_clone(), |mask| x * mask);
    conv.forward(&heard.transpose(1, 2)).transpose(1, 2)
}
