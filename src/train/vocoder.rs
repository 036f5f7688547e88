//! Training of a vocoder: on the mel frames of recordings, or on those that a voice predicts for them.

use super::metrics::MetricsWriter;
use super::samples::mel_picture;
use super::step::{Learner, Step};
use super::{HeldOutLoss, OutputFolder, RunOutcome, RunSpec, RunStart, Validate, note, run};
use crate::checkpoint::{Checkpoint, RunState, load_matching_weights};
use crate::feed::{Batch, Features, MelStats, Purpose};
use crate::model::{Sampling, Voice};
use crate::optimizer::ParameterGroup;
use crate::picture::Picture;
use crate::ranks::Ranks;
use crate::run::{RunContext, activation_kind, batch_on, means_over};
use crate::vocoder::AdversarialStep;
use anyhow::Result;
use host::config::{Config, Durations, Training};
use host::loader::Dataset;
use std::sync::Arc;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// How a voice samples the frames that it predicts: in few steps, for each costs as much as a training step's forward pass.
const PREDICTION: Sampling = Sampling { steps: 4, temperature: 0.667, guidance: 1.0, speaker_guidance: 0.0 };
/// Log-mel of silence.
const SILENCE: f64 = -11.512925464970229;

/// Generator and discriminators, and where their mel frames come from.
pub struct VocoderLearner {
    adversarial: AdversarialStep,
    /// Absent where frames are those of the recordings.
    predictor: Option<MelPredictor>,
}

/// A voice that predicts the mel frames of the recorded text along the recorded durations.
struct MelPredictor {
    voice: Voice,
    stats: MelStats,
    /// Holds the voice's weights.
    _store: VarStore,
}

impl Learner for VocoderLearner {
    fn loss_names(&self) -> &'static [&'static str] {
        &AdversarialStep::LOSS_NAMES
    }

    /// The mel distance alone: adversarial losses change their meaning as the discriminators learn.
    fn summed(&self) -> usize {
        1
    }

    fn compared(&self) -> &'static str {
        "mel"
    }

    fn backward(&self, batch: &Batch, weight: &Tensor) -> Tensor {
        let samples = batch.samples.as_ref().expect("a vocoder's batches have samples");
        self.adversarial.backward(samples, &self.log_mel(batch), weight)
    }
}

impl VocoderLearner {
    /// Log-mel frames to generate speech from, not normalised.
    fn log_mel(&self, batch: &Batch) -> Tensor {
        match &self.predictor {
            None => batch.mel.shallow_clone(),
            Some(predictor) => tch::no_grad(|| predictor.log_mel(batch)),
        }
    }
}

impl MelPredictor {
    fn open(checkpoint: &Checkpoint, device: Device, kind: Kind) -> Result<Self> {
        let (store, voice) = checkpoint.voice(device, kind)?;
        Ok(MelPredictor { voice, stats: checkpoint.state.mel_stats, _store: store })
    }

    fn log_mel(&self, batch: &Batch) -> Tensor {
        let predicted = self.stats.restore(&self.voice.imitate(batch, &PREDICTION));
        // Between utterances there is silence, which the voice was never asked for.
        &predicted * &batch.frames.mask + (-&batch.frames.mask + 1.0) * SILENCE
    }
}

/// A run's config as training a vocoder needs it: its own learning rate and betas, and no durations unless a voice needs
/// them.
pub fn configure(config: Config, voice: Option<&Checkpoint>, rate: Option<f64>) -> Config {
    // Frames must be those of the samples.
    let mut config = config.without_augmentation();
    let training: &mut Training = &mut config.training;
    training.learning_rate = Some(rate.unwrap_or(training.vocoder_learning_rate));
    // Shorter memories than a voice's, because the task of generator and discriminators changes as the other learns.
    (training.beta1, training.beta2) = (training.vocoder_beta1, training.vocoder_beta2);
    match voice {
        None => config.data.durations = Durations::Search,
        Some(checkpoint) => {
            let (dim, layers) = (config.model.vocoder_dim, config.model.vocoder_layers);
            config.model = checkpoint.config.model.clone();
            (config.model.vocoder_dim, config.model.vocoder_layers) = (dim, layers);
        }
    }
    config
}

/// Trains a vocoder. `voice`: predicts the frames to learn from, in place of the recordings' own.
pub fn train_vocoder(
    context: &RunContext,
    output: OutputFolder,
    start: RunStart,
    voice: Option<&Checkpoint>,
) -> Result<RunOutcome> {
    let (step, state) = crate::catch(|| begin(context, &start, voice))??;
    let purpose = if voice.is_some() { Purpose::PredictedMel } else { Purpose::Vocoder };
    let validation = Validation::new(context, purpose, state.mel_stats)?;
    let validate = validation.map(|mut validation| -> Validate<VocoderLearner> {
        Box::new(move |step, metrics, number| {
            let ranks = context.ranks.map(|ranks| &**ranks);
            step.groups[0].with_average(number, || validation.run(&step.learner, metrics, number, ranks))
        })
    });
    run(context, output, start.resumed(), RunSpec { step, state, purpose, own_voice: None, validate })
}

fn begin(
    context: &RunContext,
    start: &RunStart,
    voice: Option<&Checkpoint>,
) -> Result<(Step<VocoderLearner>, RunState)> {
    let (config, device) = (context.config, context.roles.model);
    let kind = activation_kind(&config.training, device)?;
    tch::manual_seed(config.training.seed as i64);
    let (generator, discriminators) = (VarStore::new(device), VarStore::new(device));
    let adversarial = AdversarialStep::new(&generator, &discriminators, config, kind);
    let predictor = voice.map(|checkpoint| MelPredictor::open(checkpoint, device, kind)).transpose()?;
    let stats = predictor.as_ref().map_or_else(MelStats::identity, |predictor| predictor.stats);
    let groups = vec![
        ParameterGroup::new("model", generator, &config.training, true)?,
        ParameterGroup::new("discriminators", discriminators, &config.training, false)?,
    ];
    let mut step = Step::new(VocoderLearner { adversarial, predictor }, groups, &config.training, kind, device)?;
    let mut state = match start {
        RunStart::Resume(checkpoint) => {
            checkpoint.restore(&mut step.groups, &mut step.scale)?;
            checkpoint.state.clone()
        }
        RunStart::FineTune(source) => {
            let [generator, discriminators] = &step.groups[..] else { unreachable!("a generator and its judges") };
            note(context.bar, &load_matching_weights(source, generator, None)?);
            // Published vocoders leave them out, for nobody speaks with them.
            match source.holds(discriminators.name) {
                true => note(context.bar, &load_matching_weights(source, discriminators, None)?),
                false => note(context.bar, "the discriminators, which it does not hold, begin anew"),
            }
            RunState::vocoder(stats)
        }
        RunStart::Fresh => RunState::vocoder(stats),
    };
    state.start = start.origin();
    step.join(context.ranks, &config.training)?;
    Ok((step, state))
}

/// Validation on held-out speech: the mel distance, and one clip as sound and picture.
pub(super) struct Validation {
    pub(super) dataset: Arc<Dataset>,
    pub(super) features: Features,
    rate_hz: u32,
}

impl Validation {
    pub(super) fn new(context: &RunContext, purpose: Purpose, stats: MelStats) -> Result<Option<Self>> {
        let Some(dataset) = context.data.validation.clone() else { return Ok(None) };
        let layout = Arc::new(dataset.layout(&context.data.budget));
        let features =
            Features::new(&context.config.without_augmentation(), layout, stats, purpose, context.roles.model)?;
        Ok(Some(Validation { dataset, features, rate_hz: context.config.data.sample_rate }))
    }

    fn run(
        &mut self,
        learner: &VocoderLearner,
        metrics: Option<&mut MetricsWriter>,
        step: u64,
        ranks: Option<&Ranks>,
    ) -> Result<(HeldOutLoss, Result<()>)> {
        let distance = |batch: &Batch| {
            let samples = batch.samples.as_ref().expect("a vocoder's batches have samples");
            [learner.adversarial.loss(samples, &learner.log_mel(batch)).double_value(&[])]
        };
        let [loss] = means_over(&self.features, &self.dataset, ranks, distance)?;
        let held_out = HeldOutLoss { loss, compared: loss };
        let Some(metrics) = metrics else { return Ok((held_out, Ok(()))) };
        let logged = metrics.log(step, &[("validation/mel", loss)]).and_then(|()| self.speak(learner, metrics, step));
        Ok((held_out, logged))
    }

    fn speak(&self, learner: &VocoderLearner, metrics: &mut MetricsWriter, step: u64) -> Result<()> {
        let (host, batch) = batch_on(&self.features, &self.dataset, &[0], 0)?;
        let frames = host.frame_spans[0].len as i64;
        let log_mel = learner.log_mel(&batch).narrow(0, 0, frames);
        let wave = learner.adversarial.generator.waveform(&log_mel);
        let again = self.features.log_mel_of(&wave).narrow(0, 0, frames);
        let picture = Picture::stack(&[mel_picture(&log_mel), mel_picture(&again)]);
        metrics.image("mel/given above, of the sound below", step, &picture)?;
        metrics.audio("spoken", step, &wave, self.rate_hz)
    }
}
