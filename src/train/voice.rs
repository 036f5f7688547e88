//! Training of a voice.

use super::checkpoint::{State, weights_file};
use super::data::batch_on;
use super::group::Group;
use super::samples::Validation;
use super::step::{Learner, Step};
use super::{Course, Outcome, Place, Start, Surroundings, activation_kind, import, note, run};
use crate::feed::{Batch, Features, Purpose};
use crate::loader::plan;
use crate::model::{Losses, Voice};
use crate::synth::voice::{self, VoiceFile};
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use tch::Tensor;
use tch::nn::VarStore;

impl Learner for Voice {
    fn loss_names(&self) -> &'static [&'static str] {
        &Losses::NAMES
    }

    fn backward(&self, batch: &Batch, weight: &Tensor) -> Tensor {
        Tensor::stack(&Voice::backward(self, batch, weight).parts(), 0)
    }
}

pub fn train(around: &Surroundings, place: Place, start: Start) -> Result<Outcome> {
    let (step, state) = torchx::catch(|| begin(around, &start))??;
    let validation = Validation::new(around.config, around.data, &state, around.roles.model)?;
    let validate = validation.map(|mut validation| -> super::Validate<Voice> {
        Box::new(move |step, metrics, number| {
            step.groups[0].with_average(number, || validation.run(&step.learner, metrics, number))
        })
    });
    let references = references(around, &state)?;
    let own_voice = |step: &Step<Voice>, updates: u64, folder: &Path| {
        let hear = || tch::no_grad(|| step.learner.latents(&references));
        let Some(latents) = step.groups[0].with_average(updates, hear) else { return Ok(()) };
        let model = voice::fingerprint(&weights_file(folder, step.groups[0].name))?;
        VoiceFile { latents: voice::average(&latents), model, seconds: None }.write(&folder.join(voice::FILE))
    };
    let course = Course { step, state, purpose: Purpose::Voice, extras: &own_voice, validate };
    run(around, place, start.resumed(), course)
}

/// Slices of training clips; their mean voice is what a checkpoint speaks with where no other is asked for.
fn references(around: &Surroundings, state: &State) -> Result<Tensor> {
    let Surroundings { config, data, roles, .. } = around;
    let layout = Arc::new(data.train.layout(&data.budget));
    let features = Features::new(config, layout, state.mel_stats, Purpose::Voice, roles.model)?;
    let plans = plan(data.train.lengths(), &data.budget, config.training.seed, 0);
    let (host, batch) = batch_on(&features, &data.train, &plans[0], 0)?;
    Ok(batch.reference.narrow(0, 0, host.utterances() as i64))
}

/// The network and its state: fresh, as a checkpoint holds them, or with another run's weights.
pub fn begin(around: &Surroundings, start: &Start) -> Result<(Step<Voice>, State)> {
    let (config, data, device) = (around.config, around.data, around.roles.model);
    let kind = activation_kind(&config.training, device)?;
    tch::manual_seed(config.training.seed as i64);
    let store = VarStore::new(device);
    let tokenizer = &data.tokenizer;
    let voice = Voice::new(&store.root(), &config.model, tokenizer.vocab_size(), tokenizer.languages().len(), kind)?;
    let group = Group::new("model", store, &config.training, true)?;
    let mut step = Step::new(voice, vec![group], &config.training, kind, device)?;
    step.slow_down(around.delays)?;
    let durations = data.durations.as_ref().map(|durations| durations.fingerprint());
    let mut state = match start {
        Start::Resume(checkpoint) => {
            checkpoint.restore(&mut step)?;
            checkpoint.state.clone()
        }
        Start::From(source) => {
            import::load(source, &step.groups[0], Some(tokenizer), around)?;
            // Weights belong to the normalisation that they were trained with.
            State::new(match source.checkpoint() {
                Some(checkpoint) => checkpoint.state.mel_stats,
                None => data.mel_stats(config)?,
            })
        }
        Start::Fresh => State::new(data.mel_stats(config)?),
    };
    if state.change_durations(durations) && matches!(start, Start::Resume(_)) {
        note(around.bar, "durations are not those of the run so far: the lowest held-out loss is looked for anew");
    }
    Ok((step, state))
}
