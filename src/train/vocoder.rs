//! Training of a vocoder: on the mel frames of recordings, or on those that a voice makes of them.

use super::metrics::MetricsWriter;
use super::samples::mel_picture;
use super::step::{Learner, Step};
use super::{Outcome, OutputFolder, RunSpec, Start, Validate, note, run};
use crate::checkpoint::{Checkpoint, State, load_weights_of};
use crate::feed::{Batch, Features, MelStats, Purpose};
use crate::model::{Sampling, Voice};
use crate::optimizer::Group;
use crate::picture::Picture;
use crate::run::{RunContext, activation_kind, batch_on, means_over};
use crate::vocoder::{AdversarialStep, BETAS};
use anyhow::Result;
use host::config::{Config, Durations, Training};
use host::loader::Dataset;
use std::path::Path;
use std::sync::Arc;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Steps of a voice whose frames are imitated: few, for each is as dear as a training step's forward pass.
const IMITATION: Sampling = Sampling { steps: 4, temperature: 0.667, guidance: 1.0 };
/// Log-mel of silence.
const SILENCE: f64 = -11.512925464970229;

/// Generator and discriminators, and whose frames they hear.
pub struct Trainee {
    adversarial: AdversarialStep,
    imitation: Option<Imitation>,
}

/// A voice that speaks the recorded text along the recorded durations.
struct Imitation {
    voice: Voice,
    stats: MelStats,
    /// Holds the voice's weights.
    _store: VarStore,
}

impl Learner for Trainee {
    fn loss_names(&self) -> &'static [&'static str] {
        &AdversarialStep::NAMES
    }

    /// The distance of mel frames: what the discriminators think changes its meaning as they learn.
    fn summed(&self) -> usize {
        1
    }

    fn backward(&self, batch: &Batch, weight: &Tensor) -> Tensor {
        let samples = batch.samples.as_ref().expect("a vocoder's batches have samples");
        self.adversarial.backward(samples, &self.log_mel(batch), weight)
    }
}

impl Trainee {
    /// Frames to make sound of, not normalised.
    fn log_mel(&self, batch: &Batch) -> Tensor {
        match &self.imitation {
            None => batch.mel.shallow_clone(),
            Some(imitation) => tch::no_grad(|| imitation.log_mel(batch)),
        }
    }
}

impl Imitation {
    fn open(checkpoint: &Checkpoint, device: Device, kind: Kind) -> Result<Self> {
        let (store, voice) = checkpoint.voice(device, kind)?;
        Ok(Imitation { voice, stats: checkpoint.state.mel_stats, _store: store })
    }

    fn log_mel(&self, batch: &Batch) -> Tensor {
        let made = self.stats.restore(&self.voice.imitate(batch, &IMITATION));
        // Between utterances there is silence, which the voice was never asked for.
        &made * &batch.frames.mask + (-&batch.frames.mask + 1.0) * SILENCE
    }
}

/// What a vocoder's run changes in the config: its own rate and moments, and no references unless a voice needs them.
pub fn configure(config: Config, voice: Option<&Checkpoint>, rate: Option<f64>) -> Config {
    // Frames must be those of the samples.
    let mut config = config.unchanged();
    let training: &mut Training = &mut config.training;
    training.learning_rate = rate.unwrap_or(training.vocoder_learning_rate);
    (training.beta1, training.beta2) = BETAS;
    match voice {
        None => (config.model.reference_frames, config.data.durations) = (0, Durations::Search),
        Some(checkpoint) => {
            let (dim, layers) = (config.model.vocoder_dim, config.model.vocoder_layers);
            config.model = checkpoint.config.model.clone();
            (config.model.vocoder_dim, config.model.vocoder_layers) = (dim, layers);
        }
    }
    config
}

/// `voice`: whose frames to learn from, instead of the recordings'.
pub fn train_vocoder(
    context: &RunContext,
    place: OutputFolder,
    start: Start,
    voice: Option<&Checkpoint>,
) -> Result<Outcome> {
    let (step, state) = torchx::catch(|| begin(context, &start, voice))??;
    let purpose = if voice.is_some() { Purpose::Imitation } else { Purpose::Vocoder };
    let validation = Validation::new(context, purpose, state.mel_stats)?;
    let validate = validation.map(|mut validation| -> Validate<Trainee> {
        Box::new(move |step, metrics, number| {
            step.groups[0].with_average(number, || validation.run(&step.learner, metrics, number))
        })
    });
    let nothing_else = |_: &Step<Trainee>, _: u64, _: &Path| Ok(());
    run(context, place, start.resumed(), RunSpec { step, state, purpose, extras: &nothing_else, validate })
}

fn begin(context: &RunContext, start: &Start, voice: Option<&Checkpoint>) -> Result<(Step<Trainee>, State)> {
    let (config, device) = (context.config, context.roles.model);
    let kind = activation_kind(&config.training, device)?;
    tch::manual_seed(config.training.seed as i64);
    let (generator, discriminators) = (VarStore::new(device), VarStore::new(device));
    let adversarial = AdversarialStep::new(&generator, &discriminators, config, kind);
    let imitation = voice.map(|checkpoint| Imitation::open(checkpoint, device, kind)).transpose()?;
    let stats = imitation.as_ref().map_or_else(MelStats::identity, |imitation| imitation.stats);
    let groups = vec![
        Group::new("model", generator, &config.training, true)?,
        Group::new("discriminators", discriminators, &config.training, false)?,
    ];
    let mut step = Step::new(Trainee { adversarial, imitation }, groups, &config.training, kind, device)?;
    let state = match start {
        Start::Resume(checkpoint) => {
            checkpoint.restore(&mut step.groups, &mut step.scale)?;
            checkpoint.state.clone()
        }
        Start::From(source) => {
            for group in &step.groups {
                note(context.bar, &load_weights_of(source, group, None)?);
            }
            State::vocoder(stats)
        }
        Start::Fresh => State::vocoder(stats),
    };
    Ok((step, state))
}

/// Held-out speech through the vocoder: its mel distance, and one clip as sound and picture.
struct Validation {
    dataset: Arc<Dataset>,
    features: Features,
    rate_hz: u32,
}

impl Validation {
    fn new(context: &RunContext, purpose: Purpose, stats: MelStats) -> Result<Option<Self>> {
        let Some(dataset) = context.data.validation.clone() else { return Ok(None) };
        let layout = Arc::new(dataset.layout(&context.data.budget));
        let features = Features::new(&context.config.unchanged(), layout, stats, purpose, context.roles.model)?;
        Ok(Some(Validation { dataset, features, rate_hz: context.config.data.sample_rate }))
    }

    fn run(&mut self, trainee: &Trainee, metrics: &mut MetricsWriter, step: u64) -> Result<(f64, Result<()>)> {
        let distance = |batch: &Batch| {
            let samples = batch.samples.as_ref().expect("a vocoder's batches have samples");
            [trainee.adversarial.loss(samples, &trainee.log_mel(batch)).double_value(&[])]
        };
        let [loss] = means_over(&self.features, &self.dataset, distance)?;
        let logged = metrics.log(step, &[("validation/mel", loss)]).and_then(|()| self.speak(trainee, metrics, step));
        Ok((loss, logged))
    }

    fn speak(&self, trainee: &Trainee, metrics: &mut MetricsWriter, step: u64) -> Result<()> {
        let (host, batch) = batch_on(&self.features, &self.dataset, &[0], 0)?;
        let frames = host.frame_spans[0].len as i64;
        let log_mel = trainee.log_mel(&batch).narrow(0, 0, frames);
        let wave = trainee.adversarial.generator.waveform(&log_mel);
        let again = self.features.log_mel_of(&wave).narrow(0, 0, frames);
        let picture = Picture::stack(&[mel_picture(&log_mel), mel_picture(&again)]);
        metrics.image("mel/given above, of the sound below", step, &picture)?;
        metrics.audio("spoken", step, &wave, self.rate_hz)
    }
}
