//! One adversarial training pass of generator and discriminators on a packed batch. Shapes are fixed, random numbers are
//! drawn on the device and nothing is read back, so that a GPU can capture the whole as one graph.

use super::discriminators::{DiscriminatorOutput, Discriminators};
use super::generator::Vocoder;
use super::loss::{self, MelDistance};
use super::pulses::PulseTracker;
use crate::model::{STREAMS, along};
use host::config::Config;
use tch::nn::VarStore;
use tch::{Kind, Tensor};
use torchx::gradients;
use torchx::stream::{beside, settled};

/// The segments of a pass together are one part in this many of the batch.
const BATCH_SHARE: i64 = 2;
/// Weight of the pitch's cross-entropy beside the mel distance, of which it is some ten times.
const PITCH_WEIGHT: f64 = 0.05;

/// Generator and discriminators, and the losses that they are trained by.
pub struct AdversarialStep {
    pub generator: Vocoder,
    pub(super) discriminators: Discriminators,
    discriminator_weights: Vec<Tensor>,
    mel_distance: MelDistance,
    pulses: PulseTracker,
    mel_weight: f64,
    segment_frames: i64,
}

/// What the discriminators say about real and generated waves.
pub(super) struct Judged {
    real: Vec<DiscriminatorOutput>,
    generated: Vec<DiscriminatorOutput>,
    /// The generated waves as they saw them: a leaf, so that their gradients end here.
    seen: Tensor,
}

/// Stretches of a batch, drawn at random.
pub(super) struct Segments {
    /// `[segments, frames, n_mels]`
    pub log_mel: Tensor,
    /// `[segments, frames * hop]`
    pub waves: Tensor,
}

impl AdversarialStep {
    pub const LOSS_NAMES: [&'static str; 6] =
        ["mel", "feature_matching", "adversarial", "discriminator_real", "discriminator_generated", "pitch"];

    /// Generator and discriminators have a store each, and so an optimizer each; both on one device.
    pub fn new(generator: &VarStore, discriminators: &VarStore, config: &Config, kind: Kind) -> Self {
        let networks = Discriminators::new(&discriminators.root(), &config.model, kind);
        AdversarialStep {
            generator: Vocoder::new(&generator.root(), config),
            discriminators: networks,
            discriminator_weights: discriminators.trainable_variables(),
            mel_distance: MelDistance::new(config, generator.device()),
            pulses: PulseTracker::new(config, generator.device()),
            mel_weight: config.training.vocoder_mel_weight,
            segment_frames: config.training.vocoder_segment_frames,
        }
    }

    /// Adds `weight` (0-d) times the losses' gradients to the parameters of generator and discriminators. The losses come
    /// back as `LOSS_NAMES` lists them, `[6]`, without a graph.
    ///
    /// `samples` (`[frames * hop]`) and `log_mel` (`[frames, n_mels]`) are a whole packed batch. The frames need not be
    /// those of the samples: trained on predicted frames, the generator makes up for the faults of the voice.
    pub fn backward(&self, samples: &Tensor, log_mel: &Tensor, weight: &Tensor) -> Tensor {
        let pass = || self.pass(samples, log_mel, weight);
        settled(samples.device(), "adversarial pass", &samples.size(), pass).expect(STREAMS)
    }

    fn pass(&self, samples: &Tensor, log_mel: &Tensor, weight: &Tensor) -> Tensor {
        let segments = Segments::draw(samples, log_mel, self.segment_frames);
        let device = samples.device();
        let pulses = tch::no_grad(|| self.pulses.track(&segments.waves));
        let waves = &(&segments.waves * &pulses.polarity);
        // Neither waits for the other: real speech is judged while the generator works, and the mel distance is measured
        // while generated speech is judged.
        let generator = beside(device, "generator", || self.generator.following(&segments.log_mel, &pulses));
        let generator = generator.expect(STREAMS);
        let real = self.discriminators.forward(waves);
        let made = generator.join().expect(STREAMS);
        let generated = &made.waves;
        let mel = beside(device, "mel", || self.mel_distance.with_gradient(generated, waves)).expect(STREAMS);
        let judged = self.judge(real, generated);
        let [on_real, on_generated] = self.discriminator_step(&judged, weight);
        let ([matching, adversarial], by_judges) = self.judgement(judged);
        let (mel, by_mel) = mel.join().expect(STREAMS);
        let pitch = self.generator.pitch_loss(&made, &pulses);
        let loss = (along(generated, &(by_judges + by_mel)) + &pitch * PITCH_WEIGHT) * weight;
        torchx::with_rounded_products(|| loss.backward()).expect("a setting");
        Tensor::stack(&[mel, matching, adversarial, on_real, on_generated, pitch], 0).detach()
    }

    /// One pass of the discriminators serves both steps, for their weights do not change in between. `real`: what they say
    /// about real speech.
    pub(super) fn judge(&self, real: Vec<DiscriminatorOutput>, generated: &Tensor) -> Judged {
        let seen = generated.detach().set_requires_grad(true);
        // Their gradients meet where this view was taken, on the stream of this pass.
        let outputs = self.discriminators.matched(&seen.view_as(&seen), &real);
        Judged { real, generated: outputs, seen }
    }

    /// Backward pass of the discriminators' loss, whose parts on real and generated speech come back.
    pub(super) fn discriminator_step(&self, judged: &Judged, weight: &Tensor) -> [Tensor; 2] {
        let losses = loss::discriminator(&judged.real, &judged.generated);
        let loss = (&losses[0] + &losses[1]) * weight;
        gradients::backward(&loss, &self.discriminator_weights, true).expect("a graph of its own");
        losses
    }

    /// What the generator learns from the discriminators, which learn nothing from it: feature matching and adversarial loss,
    /// and their gradient by the generated waves.
    pub(super) fn judgement(&self, judged: Judged) -> ([Tensor; 2], Tensor) {
        let (matching, adversarial) = (loss::feature_matching(&judged.generated), loss::adversarial(&judged.generated));
        // Divided by the weight of the mel distance, so that gradients have the usual size whatever it is.
        let judgement = (&matching + &adversarial) / self.mel_weight;
        let mut by_waves = Tensor::run_backward(&[judgement], &[&judged.seen], false, false);
        ([matching, adversarial], by_waves.remove(0))
    }

    /// Mel distance of a whole batch, for validation: nothing is drawn, and there is no gradient.
    pub fn loss(&self, samples: &Tensor, log_mel: &Tensor) -> Tensor {
        let distance = || {
            let generated = self.generator.forward(&log_mel.unsqueeze(0));
            self.mel_distance.between(&generated, &samples.unsqueeze(0))
        };
        let whole = || settled(samples.device(), "mel distance of a batch", &samples.size(), distance).expect(STREAMS);
        tch::no_grad(whole)
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
