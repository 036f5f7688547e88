//! Training of a voice.

use super::samples::Validation;
use super::step::{Learner, Step};
use super::{OutputFolder, RunOutcome, RunSpec, RunStart, note, run};
use crate::checkpoint::voice::{self, VoiceFile};
use crate::checkpoint::{RunState, load_matching_weights, weights_file};
use crate::feed::{Batch, Features, Purpose};
use crate::model::{Losses, Voice};
use crate::optimizer::ParameterGroup;
use crate::run::{RunContext, activation_kind, batch_on, mel_stats};
use anyhow::Result;
use host::loader::plan;
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

pub fn train(context: &RunContext, output: OutputFolder, start: RunStart) -> Result<RunOutcome> {
    let (step, state) = crate::catch(|| begin(context, &start))??;
    let validation = Validation::new(context.config, context.data, &state, context.roles.model)?;
    let validate = validation.map(|mut validation| -> super::Validate<Voice> {
        Box::new(move |step, metrics, number| {
            step.groups[0].with_average(number, || validation.run(&step.learner, metrics, number))
        })
    });
    let references = references(context, &state)?;
    let own_voice = |step: &Step<Voice>, updates: u64, folder: &Path| {
        let hear = || tch::no_grad(|| step.learner.latents(&references));
        let Some(latents) = step.groups[0].with_average(updates, hear) else { return Ok(()) };
        let model = voice::fingerprint(&weights_file(folder, step.groups[0].name))?;
        VoiceFile { latents: voice::average(&latents), model, seconds: None }.write(&folder.join(voice::FILE))
    };
    let spec = RunSpec { step, state, purpose: Purpose::Voice, extras: &own_voice, validate };
    run(context, output, start.resumed(), spec)
}

/// Slices of training clips; their mean voice is what a checkpoint speaks with where no other is asked for.
fn references(context: &RunContext, state: &RunState) -> Result<Tensor> {
    let RunContext { config, data, roles, .. } = context;
    let layout = Arc::new(data.train.layout(&data.budget));
    let features = Features::new(config, layout, state.mel_stats, Purpose::Voice, roles.model)?;
    let plans = plan(data.train.lengths(), &data.budget, config.training.seed, 0);
    let (host, batch) = batch_on(&features, &data.train, &plans[0], 0)?;
    Ok(batch.reference.narrow(0, 0, host.utterances() as i64))
}

/// The network and its state: fresh, as a checkpoint holds them, or with another run's weights.
pub fn begin(context: &RunContext, start: &RunStart) -> Result<(Step<Voice>, RunState)> {
    let (config, data, device) = (context.config, context.data, context.roles.model);
    let kind = activation_kind(&config.training, device)?;
    tch::manual_seed(config.training.seed as i64);
    let store = VarStore::new(device);
    let tokenizer = &data.tokenizer;
    let voice = Voice::new(&store.root(), &config.model, tokenizer.vocab_size(), tokenizer.languages().len(), kind)?;
    let group = ParameterGroup::new("model", store, &config.training, true)?;
    let mut step = Step::new(voice, vec![group], &config.training, kind, device)?;
    step.hook = context.hook.clone();
    let durations = data.durations.as_ref().map(|durations| durations.fingerprint());
    let mut state = match start {
        RunStart::Resume(checkpoint) => {
            checkpoint.restore(&mut step.groups, &mut step.scale)?;
            checkpoint.state.clone()
        }
        RunStart::FineTune(source) => {
            note(context.bar, &load_matching_weights(source, &step.groups[0], Some(tokenizer))?);
            // Weights belong to the normalisation that they were trained with.
            RunState::new(match source.checkpoint() {
                Some(checkpoint) => checkpoint.state.mel_stats,
                None => mel_stats(data, config)?,
            })
        }
        RunStart::Fresh => RunState::new(mel_stats(data, config)?),
    };
    if state.change_durations(durations) && matches!(start, RunStart::Resume(_)) {
        note(context.bar, "durations are not those of the run so far: the lowest held-out loss is looked for anew");
    }
    Ok((step, state))
}
