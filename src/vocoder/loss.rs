//! Losses of generator and discriminators: hinge losses, feature matching, and distances of log-mel frames. As in Vocos,
//! with mel frames at several resolutions as in DAC.

use super::discriminators::DiscriminatorOutput;
use crate::feed::MelExtractor;
use host::config::{self, Config};
use tch::{Device, Kind, Tensor};
use torchx::stream::side_by_side;

/// Mean distance of log-mel frames, at the model's own resolution and at three others: what one cannot see between its
/// frames or between its bands, another can.
pub struct MelDistance {
    scales: Vec<MelExtractor>,
}

impl MelDistance {
    pub fn new(config: &Config, device: Device) -> Self {
        let own = &config.model;
        let resolved = |n_fft: i64, n_mels: i64| config::Model { n_fft, n_mels, hop_length: n_fft / 4, ..own.clone() };
        let models = [
            own.clone(),
            resolved(own.n_fft * 2, own.n_mels * 2),
            resolved(own.n_fft / 2, own.n_mels / 2),
            resolved(own.n_fft / 4, own.n_mels / 4),
        ];
        let rate_hz = config.data.sample_rate;
        MelDistance { scales: models.iter().map(|model| MelExtractor::new(model, rate_hz, device)).collect() }
    }

    /// Waves `[batch, samples]` → 0-d.
    pub fn between(&self, generated: &Tensor, real: &Tensor) -> Tensor {
        let of = |scale: &MelExtractor| distance(&scale.log_mel(generated), &scale.log_mel(real));
        let at = |number: usize| of(&self.scales[number]);
        mean(side_by_side(real.device(), "mel distances", self.scales.len(), at).expect("streams of this device"))
    }

    /// The same without a graph, and its gradient by the generated waves.
    pub fn with_gradient(&self, generated: &Tensor, real: &Tensor) -> (Tensor, Tensor) {
        let leaf = generated.detach().set_requires_grad(true);
        // The gradients of all scales meet where this view was taken, on the stream of this call.
        let distance = self.between(&leaf.view_as(&leaf), real);
        let gradient = Tensor::run_backward(&[&distance], &[&leaf], false, false).remove(0);
        (distance.detach(), gradient)
    }
}

/// Hinge loss of the discriminators on real and on generated speech: how far their logits are from at least 1 and at most
/// -1.
pub fn discriminator(real: &[DiscriminatorOutput], generated: &[DiscriminatorOutput]) -> [Tensor; 2] {
    [mean_hinge(real, 1.0), mean_hinge(generated, -1.0)]
}

/// Hinge loss of the generator: how far the logits of generated speech are from at least 1.
pub fn adversarial(generated: &[DiscriminatorOutput]) -> Tensor {
    mean_hinge(generated, 1.0)
}

/// Distance between the discriminators' feature maps of generated and of real speech, summed over the layers of each.
pub fn feature_matching(generated: &[DiscriminatorOutput]) -> Tensor {
    mean(generated.iter().map(|output| output.distances.iter().sum::<Tensor>()).collect())
}

fn mean_hinge(outputs: &[DiscriminatorOutput], sign: f64) -> Tensor {
    mean(outputs.iter().map(|output| hinge(&output.logits, sign)).collect())
}

fn hinge(logits: &Tensor, sign: f64) -> Tensor {
    (logits.to_kind(Kind::Float) * -sign + 1.0).relu().mean(Kind::Float)
}

fn distance(a: &Tensor, b: &Tensor) -> Tensor {
    (a - b).abs().mean(Kind::Float)
}

fn mean(parts: Vec<Tensor>) -> Tensor {
    Tensor::stack(&parts, 0).mean(Kind::Float)
}
