//! What the two sides of the duel minimise: hinge losses, feature matching, and distances of log-mel frames. As in Vocos,
//! with mel frames at several resolutions as in DAC.

use super::discriminators::Logits;
use crate::feed::MelExtractor;
use host::config::{self, Config};
use tch::{Device, Kind, Tensor};

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
    pub fn between(&self, made: &Tensor, recorded: &Tensor) -> Tensor {
        let of = |scale: &MelExtractor| distance(&scale.log_mel(made), &scale.log_mel(recorded));
        mean(self.scales.iter().map(of).collect())
    }
}

/// How far the discriminators' scores are from at least 1 for recordings and at most -1 for what was made, for each of the two.
pub fn of_judges(recorded: &[Logits], made: &[Logits]) -> [Tensor; 2] {
    let doubt = |logits: &[Logits], sign: f64| mean(logits.iter().map(|v| hinge(&v.score, sign)).collect());
    [doubt(recorded, 1.0), doubt(made, -1.0)]
}

/// How far what was made is from a score of at least 1.
pub fn adversarial(made: &[Logits]) -> Tensor {
    mean(made.iter().map(|verdict| hinge(&verdict.score, 1.0)).collect())
}

/// Distance of what the discriminators see in the one from what they see in the other; of each discriminator the sum over its layers.
pub fn features(made: &[Logits], recorded: &[Logits]) -> Tensor {
    let of_judge = |(made, recorded): (&Logits, &Logits)| {
        made.features.iter().zip(&recorded.features).map(|(a, b)| distance(a, b)).sum::<Tensor>()
    };
    mean(made.iter().zip(recorded).map(of_judge).collect())
}

fn hinge(score: &Tensor, sign: f64) -> Tensor {
    (score.to_kind(Kind::Float) * -sign + 1.0).relu().mean(Kind::Float)
}

fn distance(a: &Tensor, b: &Tensor) -> Tensor {
    (a - b).abs().mean(Kind::Float)
}

fn mean(parts: Vec<Tensor>) -> Tensor {
    Tensor::stack(&parts, 0).mean(Kind::Float)
}
