//! Training of a vocoder: on the mel frames of recordings, or on those that a voice makes of them.

use super::checkpoint::{Checkpoint, State};
use super::data::{batch_on, means_over};
use super::group::Group;
use super::metrics::Metrics;
use super::samples::mel_picture;
use super::step::{Learner, Step};
use super::{Course, Outcome, Picture, Place, Start, Surroundings, Validate, activation_kind, import, run};
use crate::config::{Config, Durations, Training};
use crate::feed::{Batch, Features, MelStats, Purpose};
use crate::loader::Dataset;
use crate::model::{Sampling, Voice};
use crate::vocoder::{BETAS, Duel};
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Steps of a voice whose frames are imitated: few, for each is as dear as a training step's forward pass.
const IMITATION: Sampling = Sampling { steps: 4, temperature: 0.667, guidance: 1.0, speaker_guidance: 0.0 };
/// Log-mel of silence.
const SILENCE: f64 = -11.512925464970229;

/// Generator and judges, and whose frames they hear.
pub struct Trainee {
    duel: Duel,
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
        &Duel::NAMES
    }

    /// The distance of mel frames: what the judges think changes its meaning as they learn.
    fn summed(&self) -> usize {
        1
    }

    fn backward(&self, batch: &Batch, weight: &Tensor) -> Tensor {
        let samples = batch.samples.as_ref().expect("a vocoder's batches have samples");
        self.duel.backward(samples, &self.log_mel(batch), weight)
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

/// What a vocoder's run changes in the config: its own rate and moments, and no durations unless a voice needs them.
pub fn configure(config: Config, voice: Option<&Checkpoint>, rate: Option<f64>) -> Config {
    // Frames must be those of the samples.
    let mut config = config.unchanged();
    let training: &mut Training = &mut config.training;
    training.learning_rate = rate.unwrap_or(training.vocoder_learning_rate);
    (training.beta1, training.beta2) = BETAS;
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

/// `voice`: whose frames to learn from, instead of the recordings'.
pub fn train_vocoder(around: &Surroundings, place: Place, start: Start, voice: Option<&Checkpoint>) -> Result<Outcome> {
    let (step, state) = torchx::catch(|| begin(around, &start, voice))??;
    let purpose = if voice.is_some() { Purpose::Imitation } else { Purpose::Vocoder };
    let validation = Validation::new(around, purpose, state.mel_stats)?;
    let validate = validation.map(|mut validation| -> Validate<Trainee> {
        Box::new(move |step, metrics, number| {
            step.groups[0].with_average(number, || validation.run(&step.learner, metrics, number))
        })
    });
    let nothing_else = |_: &Step<Trainee>, _: u64, _: &Path| Ok(());
    run(around, place, start.resumed(), Course { step, state, purpose, extras: &nothing_else, validate })
}

fn begin(around: &Surroundings, start: &Start, voice: Option<&Checkpoint>) -> Result<(Step<Trainee>, State)> {
    let (config, device) = (around.config, around.roles.model);
    let kind = activation_kind(&config.training, device)?;
    tch::manual_seed(config.training.seed as i64);
    let (generator, judges) = (VarStore::new(device), VarStore::new(device));
    let duel = Duel::new(&generator, &judges, config, kind);
    let imitation = voice.map(|checkpoint| Imitation::open(checkpoint, device, kind)).transpose()?;
    let stats = imitation.as_ref().map_or_else(MelStats::identity, |imitation| imitation.stats);
    let groups = vec![
        Group::new("model", generator, &config.training, true)?,
        Group::new("judges", judges, &config.training, false)?,
    ];
    let mut step = Step::new(Trainee { duel, imitation }, groups, &config.training, kind, device)?;
    let state = match start {
        Start::Resume(checkpoint) => {
            checkpoint.restore(&mut step)?;
            checkpoint.state.clone()
        }
        Start::From(source) => {
            for group in &step.groups {
                import::load(source, group, None, around)?;
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
    fn new(around: &Surroundings, purpose: Purpose, stats: MelStats) -> Result<Option<Self>> {
        let Some(dataset) = around.data.validation.clone() else { return Ok(None) };
        let layout = Arc::new(dataset.layout(&around.data.budget));
        let features = Features::new(&around.config.unchanged(), layout, stats, purpose, around.roles.model)?;
        Ok(Some(Validation { dataset, features, rate_hz: around.config.data.sample_rate }))
    }

    fn run(&mut self, trainee: &Trainee, metrics: &mut Metrics, step: u64) -> Result<(f64, Result<()>)> {
        let distance = |batch: &Batch| {
            let samples = batch.samples.as_ref().expect("a vocoder's batches have samples");
            [trainee.duel.loss(samples, &trainee.log_mel(batch)).double_value(&[])]
        };
        let [loss] = means_over(&self.features, &self.dataset, distance)?;
        let logged = metrics.log(step, &[("validation/mel", loss)]).and_then(|()| self.speak(trainee, metrics, step));
        Ok((loss, logged))
    }

    fn speak(&self, trainee: &Trainee, metrics: &mut Metrics, step: u64) -> Result<()> {
        let (host, batch) = batch_on(&self.features, &self.dataset, &[0], 0)?;
        let frames = host.frame_spans[0].len as i64;
        let log_mel = trainee.log_mel(&batch).narrow(0, 0, frames);
        let wave = trainee.duel.generator.waveform(&log_mel);
        let again = self.features.log_mel_of(&wave).narrow(0, 0, frames);
        let picture = Picture::stack(&[mel_picture(&log_mel), mel_picture(&again)]);
        metrics.image("mel/given above, of the sound below", step, &picture)?;
        metrics.audio("spoken", step, &wave, self.rate_hz)
    }
}
