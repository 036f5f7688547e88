//! One training pass of generator and discriminators on a packed batch. Shapes are fixed, chance is drawn on the device and
//! nothing is read back, so that a GPU can capture the whole as one graph.

use super::discriminators::{Discriminators, Logits};
use super::generator::Vocoder;
use super::loss::{self, MelDistance};
use host::config::Config;
use tch::nn::VarStore;
use tch::{Kind, Tensor};

/// Decay of AdamW's moments for both sides: shorter than for a voice, because each side's task changes as the other
/// learns. As in the program of Vocos.
pub const BETAS: (f64, f64) = (0.8, 0.9);
/// Segments together are one part in this many of the batch.
const BATCH_SHARE: i64 = 2;

pub struct AdversarialStep {
    pub generator: Vocoder,
    pub(super) discriminators: Discriminators,
    /// The discriminators' weights, to be held while the generator learns.
    discriminator_weights: Vec<Tensor>,
    mel_distance: MelDistance,
    mel_weight: f64,
    segment_frames: i64,
}

/// Stretches of a batch.
pub(super) struct Segments {
    /// `[segments, frames, n_mels]`
    pub log_mel: Tensor,
    /// `[segments, frames * hop]`
    pub waves: Tensor,
}

impl AdversarialStep {
    pub const NAMES: [&'static str; 5] = ["mel", "features", "adversarial", "judges_recorded", "judges_made"];

    /// Each side has a store of its own, and so an optimizer of its own; both on one device.
    pub fn new(generator: &VarStore, discriminators: &VarStore, config: &Config, kind: Kind) -> Self {
        let networks = Discriminators::new(&discriminators.root(), &config.model, kind);
        AdversarialStep {
            generator: Vocoder::new(&generator.root(), &config.model, kind),
            discriminators: networks,
            discriminator_weights: discriminators.trainable_variables(),
            mel_distance: MelDistance::new(config, generator.device()),
            mel_weight: config.training.vocoder_mel_weight,
            segment_frames: config.training.vocoder_segment_frames,
        }
    }

    /// Adds `weight` (0-d) times the losses' gradients to both sides' parameters. The losses come back as `NAMES` lists them,
    /// `[5]`, without a graph.
    ///
    /// `samples` (`[frames * hop]`) and `log_mel` (`[frames, n_mels]`) are a whole packed batch. The frames need not be
    /// those of the samples: a voice's own frames teach the generator to make up for the voice's faults.
    pub fn backward(&self, samples: &Tensor, log_mel: &Tensor, weight: &Tensor) -> Tensor {
        let segments = Segments::draw(samples, log_mel, self.segment_frames);
        let made = self.generator.forward(&segments.log_mel);
        let (recorded, [doubt, belief]) = self.teach_discriminators(&segments.waves, &made.detach(), weight);
        let [mel, features, adversarial] = self.teach_generator(&segments.waves, &made, &recorded, weight);
        Tensor::stack(&[mel, features, adversarial, doubt, belief], 0).detach()
    }

    /// Returns what the discriminators saw in the recordings too: their weights are the same until both sides have learned.
    pub(super) fn teach_discriminators(
        &self,
        waves: &Tensor,
        made: &Tensor,
        weight: &Tensor,
    ) -> (Vec<Logits>, [Tensor; 2]) {
        // One pass over both halves: half the kernels of two.
        let logits = self.discriminators.forward(&Tensor::cat(&[waves, made], 0));
        let (recorded, made): (Vec<_>, Vec<_>) = logits.iter().map(Logits::halves).unzip();
        let losses = loss::of_judges(&recorded, &made);
        ((&losses[0] + &losses[1]) * weight).backward();
        (recorded.iter().map(Logits::detach).collect(), losses)
    }

    pub(super) fn teach_generator(
        &self,
        waves: &Tensor,
        made: &Tensor,
        recorded: &[Logits],
        weight: &Tensor,
    ) -> [Tensor; 3] {
        self.hold_judges(true);
        let logits = self.discriminators.forward(made);
        let mel = self.mel_distance.between(made, waves);
        let (features, adversarial) = (loss::features(&logits, recorded), loss::adversarial(&logits));
        // Divided by the weight of the mel distance, so that gradients have the usual size whatever it is.
        let total = &mel + (&features + &adversarial) / self.mel_weight;
        (total * weight).backward();
        self.hold_judges(false);
        [mel, features, adversarial]
    }

    /// Held weights collect no gradients, and the backward pass leaves out their part.
    fn hold_judges(&self, held: bool) {
        for weight in &self.discriminator_weights {
            let _ = weight.set_requires_grad(!held);
        }
    }

    /// The mel distance of a whole batch, for validation: no chance, no gradient.
    pub fn loss(&self, samples: &Tensor, log_mel: &Tensor) -> Tensor {
        tch::no_grad(|| {
            let made = self.generator.forward(&log_mel.unsqueeze(0));
            self.mel_distance.between(&made, &samples.unsqueeze(0))
        })
    }
}

impl Segments {
    pub fn draw(samples: &Tensor, log_mel: &Tensor, segment_frames: i64) -> Self {
        let (frames, n_mels) = log_mel.size2().expect("[frames, n_mels]");
        let len = segment_frames.min(frames);
        let count = (frames / (BATCH_SHARE * len)).max(1);
        let on_device = (Kind::Int64, log_mel.device());
        let starts = Tensor::randint(frames - len + 1, [count, 1], on_device);
        let rows = (starts + Tensor::arange(len, on_device)).view(-1);
        Segments {
            log_mel: log_mel.index_select(0, &rows).view([count, len, n_mels]),
            waves: samples.view([frames, -1]).index_select(0, &rows).view([count, -1]),
        }
    }
}
