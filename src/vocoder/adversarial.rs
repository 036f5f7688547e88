//! One adversarial training pass of generator and discriminators on a packed batch. Shapes are fixed, random numbers are
//! drawn on the device and nothing is read back, so that a GPU can capture the whole as one graph.

use super::discriminators::{DiscriminatorOutput, Discriminators};
use super::generator::Vocoder;
use super::loss::{self, MelDistance};
use host::config::Config;
use tch::nn::VarStore;
use tch::{Kind, Tensor};

/// The segments of a pass together are one part in this many of the batch.
const BATCH_SHARE: i64 = 2;

/// Generator and discriminators, and the losses that they are trained by.
pub struct AdversarialStep {
    pub generator: Vocoder,
    pub(super) discriminators: Discriminators,
    /// The discriminators' weights, frozen during the generator's step.
    discriminator_weights: Vec<Tensor>,
    mel_distance: MelDistance,
    mel_weight: f64,
    segment_frames: i64,
}

/// Stretches of a batch, drawn at random.
pub(super) struct Segments {
    /// `[segments, frames, n_mels]`
    pub log_mel: Tensor,
    /// `[segments, frames * hop]`
    pub waves: Tensor,
}

impl AdversarialStep {
    pub const LOSS_NAMES: [&'static str; 5] =
        ["mel", "feature_matching", "adversarial", "discriminator_real", "discriminator_generated"];

    /// Generator and discriminators have a store each, and so an optimizer each; both on one device.
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

    /// Adds `weight` (0-d) times the losses' gradients to the parameters of generator and discriminators. The losses come
    /// back as `LOSS_NAMES` lists them, `[5]`, without a graph.
    ///
    /// `samples` (`[frames * hop]`) and `log_mel` (`[frames, n_mels]`) are a whole packed batch. The frames need not be
    /// those of the samples: trained on predicted frames, the generator makes up for the faults of the voice.
    pub fn backward(&self, samples: &Tensor, log_mel: &Tensor, weight: &Tensor) -> Tensor {
        let segments = Segments::draw(samples, log_mel, self.segment_frames);
        let generated = self.generator.forward(&segments.log_mel);
        let (real, [on_real, on_generated]) = self.discriminator_step(&segments.waves, &generated.detach(), weight);
        let [mel, matching, adversarial] = self.generator_step(&segments.waves, &generated, &real, weight);
        Tensor::stack(&[mel, matching, adversarial, on_real, on_generated], 0).detach()
    }

    /// Backward pass of the discriminators' loss, whose parts on real and generated speech come back. So do the outputs on
    /// the real waves: the generator's step needs them, and weights do not change in between.
    pub(super) fn discriminator_step(
        &self,
        waves: &Tensor,
        generated: &Tensor,
        weight: &Tensor,
    ) -> (Vec<DiscriminatorOutput>, [Tensor; 2]) {
        // One pass over both halves: half the kernels of two.
        let outputs = self.discriminators.forward(&Tensor::cat(&[waves, generated], 0));
        let (real, generated): (Vec<_>, Vec<_>) = outputs.iter().map(DiscriminatorOutput::halves).unzip();
        let losses = loss::discriminator(&real, &generated);
        ((&losses[0] + &losses[1]) * weight).backward();
        (real.iter().map(DiscriminatorOutput::detach).collect(), losses)
    }

    /// Backward pass of the generator's loss through frozen discriminators; its parts come back.
    pub(super) fn generator_step(
        &self,
        waves: &Tensor,
        generated: &Tensor,
        real: &[DiscriminatorOutput],
        weight: &Tensor,
    ) -> [Tensor; 3] {
        self.freeze_discriminators(true);
        let outputs = self.discriminators.matched(generated, real);
        let mel = self.mel_distance.between(generated, waves);
        let (matching, adversarial) = (loss::feature_matching(&outputs), loss::adversarial(&outputs));
        // Divided by the weight of the mel distance, so that gradients have the usual size whatever it is.
        let total = &mel + (&matching + &adversarial) / self.mel_weight;
        (total * weight).backward();
        self.freeze_discriminators(false);
        [mel, matching, adversarial]
    }

    /// Frozen weights collect no gradients, and the backward pass leaves out their part.
    fn freeze_discriminators(&self, frozen: bool) {
        for weight in &self.discriminator_weights {
            let _ = weight.set_requires_grad(!frozen);
        }
    }

    /// Mel distance of a whole batch, for validation: nothing is drawn, and there is no gradient.
    pub fn loss(&self, samples: &Tensor, log_mel: &Tensor) -> Tensor {
        tch::no_grad(|| {
            let generated = self.generator.forward(&log_mel.unsqueeze(0));
            self.mel_distance.between(&generated, &samples.unsqueeze(0))
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
