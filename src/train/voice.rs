//! Training of a voice.

use super::checkpoint::State;
use super::data::batch_on;
use super::group::Group;
use super::samples::Validation;
use super::step::{Learner, Step};
use super::{Course, Outcome, Place, Start, Surroundings, activation_kind, import, note, run};
use crate::feed::{Batch, Features, Purpose};
use crate::loader::plan;
use crate::model::{Losses, Voice};
use crate::synth::voice::{self, VoiceFile};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Seconds that a checkpoint's own voice should have.
const OWN_VOICE_S: i64 = 4;

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
    let own = around.config.model.clones().then(|| representative(around, &state)).transpose()?;
    let own_voice = |_: &Step<Voice>, _: u64, folder: &Path| match &own {
        Some(own) => own.write(&folder.join(voice::FILE)),
        None => Ok(()),
    };
    let course = Course { step, state, purpose: Purpose::Voice, extras: &own_voice, validate };
    run(around, place, start.resumed(), course)
}

/// Frames of a training clip, for a checkpoint to speak with where no other voice is asked for: of a batch the clip whose
/// mean spectrum is nearest to all the others', and long enough if there is one.
fn representative(around: &Surroundings, state: &State) -> Result<VoiceFile> {
    let Surroundings { config, data, .. } = around;
    let config = config.unchanged();
    let layout = Arc::new(data.train.layout(&data.budget));
    let features = Features::new(&config, layout, state.mel_stats, Purpose::Voice, Device::Cpu)?;
    let plans = plan(data.train.lengths(), &data.budget, config.training.seed, 0);
    let (host, batch) = batch_on(&features, &data.train, &plans[0], 0)?;
    let clips: Vec<Tensor> = host
        .frame_spans
        .iter()
        .filter(|span| span.len > 0)
        .map(|span| batch.mel.narrow(0, span.start as i64, span.len as i64))
        .collect();
    let spectra: Vec<Tensor> = clips.iter().map(|clip| clip.mean_dim([0i64].as_slice(), false, Kind::Float)).collect();
    let centre = Tensor::stack(&spectra, 0).mean_dim([0i64].as_slice(), false, Kind::Float);
    let distance = |spectrum: &Tensor| (spectrum - &centre).square().sum(Kind::Float).double_value(&[]);
    let short = |clip: &Tensor| clip.size()[0] < config.data.sample_rate as i64 * OWN_VOICE_S / config.model.hop_length;
    let nearest = clips.iter().zip(&spectra).min_by(|(clip, spectrum), (other, others)| {
        short(clip).cmp(&short(other)).then(distance(spectrum).total_cmp(&distance(others)))
    });
    let (clip, _) = nearest.context("no clip of the first batch could be read")?;
    Ok(VoiceFile::of(&state.mel_stats.restore(clip), &config))
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
