//! Training of a voice.

use super::samples::Validation;
use super::step::{Learner, Step};
use super::{OutputFolder, RunOutcome, RunSpec, RunStart, note, run};
use crate::checkpoint::voice::VoiceFile;
use crate::checkpoint::{RunState, load_matching_weights};
use crate::feed::{Batch, Features, Purpose};
use crate::model::{Losses, Voice};
use crate::optimizer::ParameterGroup;
use crate::run::{RunContext, activation_kind, batch_on, mel_stats};
use anyhow::{Context, Result};
use std::sync::Arc;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

/// Seconds that a checkpoint's own voice should have.
const OWN_VOICE_S: i64 = 4;

impl Learner for Voice {
    fn loss_names(&self) -> &'static [&'static str] {
        &Losses::NAMES
    }

    /// The flow alone. Means and durations are soon learned by heart, and their losses of held-out speech rise while what
    /// is heard still gets better: docs/results.md.
    fn compared(&self) -> &'static str {
        Losses::NAMES[Losses::FLOW]
    }

    fn has_one_gradient_each(&self) -> bool {
        true
    }

    fn backward(&self, batch: &Batch, weight: &Tensor) -> Tensor {
        Tensor::stack(&Voice::backward(self, batch, weight).parts(), 0)
    }
}

pub fn train(context: &RunContext, output: OutputFolder, start: RunStart) -> Result<RunOutcome> {
    let (step, state) = crate::catch(|| begin(context, &start))??;
    let log_dir = output.writer.is_some().then_some(output.log_dir.as_path());
    let validation = Validation::new(context, &state, log_dir, start.resumed().is_some())?;
    let validate = validation.map(|mut validation| -> super::Validate<Voice> {
        Box::new(move |step, metrics, number| {
            let ranks = context.ranks.map(|ranks| &**ranks);
            step.groups[0].with_average(number, || validation.run(&step.learner, metrics, number, ranks))
        })
    });
    let own = context.config.model.clones().then(|| representative(context, &state)).transpose()?;
    let spec = RunSpec { step, state, purpose: Purpose::Voice, own_voice: own.as_ref(), validate };
    run(context, output, start.resumed(), spec)
}

/// Frames of a training clip, for a checkpoint to speak with where no other voice is asked for: of a batch the clip whose
/// mean spectrum is nearest to all the others', and long enough if there is one.
fn representative(context: &RunContext, state: &RunState) -> Result<VoiceFile> {
    let RunContext { config, data, .. } = context;
    let config = config.without_augmentation();
    let layout = Arc::new(data.train.layout(&data.budget));
    let features = Features::new(&config, layout, state.mel_stats, Purpose::Voice, Device::Cpu)?;
    let plan = data.train.plan(&data.budget, config.training.seed, 0, 0);
    let (host, batch) = batch_on(&features, &data.train, plan.batch(0), 0)?;
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
    state.start = start.origin();
    if state.change_durations(durations) && matches!(start, RunStart::Resume(_)) {
        note(context.bar, "durations are not those of the run so far: the lowest held-out loss is looked for anew");
    }
    step.join(context.ranks, &config.training)?;
    Ok((step, state))
}
