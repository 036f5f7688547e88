//! The pitch of frames: the generator tells it as weights of bins a quarter of a semitone apart (as CREPE does, Kim et al.
//! 2018), which are learned from the recordings' pitch.

use crate::model::graph::GraphWriter;
use crate::model::layers::Linear;
use host::onnx::{Attribute, Value};
use std::f64::consts::LN_2;
use tch::nn::{Path, VarStore};
use tch::{Kind, Tensor};

/// Pitches that there are. Bins go from the lowest to three octaves and a third above it.
pub const LOWEST_HZ: f64 = 60.0;
pub const HIGHEST_HZ: f64 = 600.0;
const BINS_PER_OCTAVE: i64 = 48;
const BINS: i64 = 160;
/// Weights are taken to this power before their mean is the pitch: a second pitch that is half as likely moves it by a
/// sixteenth of the way, and there is no step from one to the other.
const SHARPENED: f64 = 4.0;
/// Deviation of the bins' weights around the true pitch, in bins.
const SPREAD: f64 = 1.0;

/// A linear layer over bins of pitch.
pub struct PitchHead {
    linear: Linear,
    /// `[BINS]`: 0, 1, 2 …
    bins: Tensor,
}

impl PitchHead {
    pub fn new(path: Path, dim: i64) -> Self {
        let bins = Tensor::arange(BINS, (Kind::Float, path.device()));
        PitchHead { linear: Linear::full_precision(path, dim, BINS), bins }
    }

    /// `[.., dim]` → logarithms of weights, `[.., BINS]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        self.linear.forward(hidden)
    }

    /// `[.., BINS]` → Hz, `[..]`.
    pub fn hz(&self, logits: &Tensor) -> Tensor {
        let weights = (logits * SHARPENED).softmax(-1, Kind::Float);
        let bin = (weights * &self.bins).sum_dim_intlist(-1, false, Kind::Float);
        (bin * (LN_2 / BINS_PER_OCTAVE as f64)).exp() * LOWEST_HZ
    }

    /// The same in a graph: `[frames, dim]` → `[frames, 1]`.
    pub fn graph(&self, hidden: &Value, g: &mut GraphWriter) -> Value {
        let logits = self.linear.graph_full_precision(hidden, g);
        let sharpened = g.float(SHARPENED);
        let logits = g.mul(&logits, &sharpened);
        let weights = g.op("Softmax", &[&logits], vec![("axis", Attribute::Int(1))]);
        let bins = g.values("pitch.bins", &self.bins.unsqueeze(1));
        let bin = g.op("MatMul", &[&weights, &bins], vec![]);
        let (step, lowest) = (g.float(LN_2 / BINS_PER_OCTAVE as f64), g.float(LOWEST_HZ));
        let octaves = g.mul(&bin, &step);
        let ratio = g.op("Exp", &[&octaves], vec![]);
        g.mul(&ratio, &lowest)
    }

    /// Cross-entropy of the bins around the pitch `hz` (`[..]`), where `weight` (`[..]`, 0 to 1) says that there is one: 0-d.
    pub fn loss(&self, logits: &Tensor, hz: &Tensor, weight: &Tensor) -> Tensor {
        let bin = (hz / LOWEST_HZ).log2() * BINS_PER_OCTAVE;
        let off = (&self.bins - bin.unsqueeze(-1)) / SPREAD;
        let wanted = (off.square() * -0.5).softmax(-1, Kind::Float);
        let each = -(wanted * logits.log_softmax(-1, Kind::Float)).sum_dim_intlist(-1, false, Kind::Float);
        (each * weight).sum(Kind::Float) / (weight.sum(Kind::Float) + 1.0)
    }
}

/// Makes the head of random weights nearly as sure of a pitch as a trained one is. Phases add up what it is off by: one that is
/// sure of nothing would make sound of the last digit of its input.
pub fn settle(vocoder: &VarStore, hz: f64) {
    let mut weights = vocoder.variables();
    let mut of = |name| weights.remove(name).expect("a vocoder's store");
    let (mut weight, mut bias) = (of("pitch.weight"), of("pitch.bias"));
    let off = Tensor::arange(BINS, (Kind::Float, bias.device())) - (hz / LOWEST_HZ).log2() * BINS_PER_OCTAVE as f64;
    tch::no_grad(|| {
        bias.copy_(&(off.square() * -0.5));
        let _ = weight.g_mul_scalar_(0.05);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    fn head() -> (VarStore, PitchHead) {
        let store = VarStore::new(Device::Cpu);
        let head = PitchHead::new(store.root() / "pitch", 4);
        (store, head)
    }

    /// Truth: the weights that the loss asks for are those that the pitch is read from.
    #[test]
    fn what_is_learned_is_what_is_read() {
        let (_store, head) = head();
        let hz = Tensor::from_slice(&[60.0f32, 61.3, 117.9, 220.0, 440.0, 593.0]);
        let bin = (&hz / LOWEST_HZ).log2() * BINS_PER_OCTAVE;
        let logits = (&head.bins - bin.unsqueeze(-1)).square() * -0.5;
        let cents = ((head.hz(&logits) / &hz).log2() * 1200.0).abs();
        assert!(cents.narrow(0, 2, 3).max().double_value(&[]) < 1.0, "{cents}");
        // Beside the lowest and the highest bin there are fewer to tell it by.
        assert!(cents.max().double_value(&[]) < 15.0, "{cents}");
        let weight = hz.ones_like();
        let least = head.loss(&logits, &hz, &weight).double_value(&[]);
        let other = head.loss(&(&logits + logits.randn_like() * 0.1), &hz, &weight).double_value(&[]);
        assert!(least < other, "{least} {other}");
    }

    /// An octave below that is half as likely hardly pulls the pitch towards it.
    #[test]
    fn of_two_pitches_one_is_told() {
        let (_store, head) = head();
        let near = |bin: i64| ((&head.bins - bin).square() * -0.5).exp();
        let logits = (near(100) + near(52) * 0.5).log().clamp_min(-40.0);
        let bin = (head.hz(&logits) / LOWEST_HZ).log2().double_value(&[]) * BINS_PER_OCTAVE as f64;
        assert!((97.0..100.0).contains(&bin), "{bin}");
    }

    #[test]
    fn frames_without_a_pitch_teach_nothing() {
        let (_store, head) = head();
        let logits = Tensor::randn([2, BINS], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let loss = head.loss(&logits, &Tensor::from_slice(&[100f32, 200.0]), &Tensor::from_slice(&[1f32, 0.0]));
        loss.backward();
        assert!(logits.grad().get(0).abs().max().double_value(&[]) > 0.0);
        assert_eq!(logits.grad().get(1).abs().max().double_value(&[]), 0.0);
    }
}
