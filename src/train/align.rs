//! Durations of every clip, as a trained voice finds them: what `myxtts align` writes into the cache.

use super::checkpoint::{Checkpoint, weights_file};
use super::{Surroundings, activation_kind, start_feed};
use crate::cache::durations::{self, Aligned};
use crate::feed::{Batch, MelStats, Purpose};
use crate::loader::{Dataset, Position, plan};
use crate::model::Voice;
use crate::synth::voice::fingerprint;
use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tch::{Device, Tensor};

/// A token that lasts longer is suspicious: a pause, or text that was not spoken.
const LONG_S: f64 = 1.0;
/// So many tokens in a row with one frame each are suspicious: nobody speaks that fast.
const HURRIED_TOKENS: usize = 8;
/// Suspicious clips that are named.
const NAMED: usize = 10;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub file: PathBuf,
    /// Hash of the weights that aligned.
    pub checkpoint: String,
    /// Clips, or pieces of long ones.
    pub clips: usize,
    pub frames: usize,
    pub tokens: usize,
    pub frames_per_token: f64,
    pub suspicious: usize,
    pub suspicious_share: f64,
    /// The most suspicious ones, worst first.
    pub worst: Vec<Suspect>,
    /// Clips that turned out to be damaged, and have no durations.
    pub failures: Vec<String>,
}

/// A clip whose alignment does not look like speech.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    pub id: String,
    pub longest_token_s: f64,
    /// Tokens in a row with one frame each.
    pub hurried_tokens: usize,
}

impl Suspect {
    fn of(id: &str, durations: &[i32], frame_s: f64) -> Self {
        let (mut hurried, mut run) = (0, 0);
        for &frames in durations {
            run = if frames == 1 { run + 1 } else { 0 };
            hurried = hurried.max(run);
        }
        let longest = durations.iter().copied().max().unwrap_or(0);
        Suspect { id: id.to_owned(), longest_token_s: f64::from(longest) * frame_s, hurried_tokens: hurried }
    }

    /// How far it is from what is still speech; suspicious above 1.
    fn badness(&self) -> f64 {
        // A run is suspicious from the limit on, not only above it.
        let hurried = (self.hurried_tokens + 1) as f64 / HURRIED_TOKENS as f64;
        (self.longest_token_s / LONG_S).max(hurried)
    }
}

/// Aligns all clips of a run, training and validation, and writes what was found. Nothing is written where it is
/// interrupted: `None`.
pub fn align(around: &Surroundings, checkpoint: &Checkpoint) -> Result<Option<Summary>> {
    let Surroundings { config, data, roles, bar, stop, .. } = *around;
    let kind = activation_kind(&config.training, roles.model)?;
    let (_store, voice) = checkpoint.voice(roles.model, kind)?;
    let stats = checkpoint.state.mel_stats;
    let sets: Vec<&Arc<Dataset>> = [&data.train].into_iter().chain(&data.validation).collect();
    bar.set_length(sets.iter().map(|set| set.lengths().len() as u64).sum());
    let (mut aligned, mut failures) = (Vec::new(), Vec::new());
    for set in sets {
        let part = data.with(set.clone(), data.budget);
        let set = Set { around: &Surroundings { data: &part, ..*around }, voice: &voice, stats };
        failures.extend(torchx::catch(|| tch::no_grad(|| set.align(&mut aligned)))??);
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    let hash = fingerprint(&weights_file(checkpoint.folder(), "model"))?.to_hex().to_string();
    let file = durations::write(config, &data.tokenizer, hash.clone(), &aligned, stop)?;
    let frame_s = config.model.hop_length as f64 / f64::from(config.data.sample_rate);
    Ok(Some(summarise(&aligned, frame_s, file, hash, failures)))
}

/// One set of clips, and who aligns them.
struct Set<'a> {
    around: &'a Surroundings<'a>,
    voice: &'a Voice,
    /// That it was trained with.
    stats: MelStats,
}

impl Set<'_> {
    /// One epoch through the training's own pipeline. Returns what was damaged.
    fn align(&self, into: &mut Vec<Aligned>) -> Result<Vec<String>> {
        let Surroundings { config, data, bar, stop, .. } = *self.around;
        let stretches: Vec<_> = data.train.stretches().collect();
        let plans = plan(data.train.lengths(), &data.budget, config.training.seed, 0);
        let mut feed = start_feed(self.around, Position::default(), self.stats, Purpose::Voice)?;
        let mut input = None;
        while !stop.load(Ordering::Relaxed) {
            let next = feed.next(&mut input)?.resume_at;
            // A batch that could not be made is left out, so the position tells which one this is.
            let number = match (next.epoch, next.batch) {
                (0, next) => next as usize - 1,
                (1, 0) => plans.len() - 1,
                _ => break, // the epoch's last batch was left out
            };
            let batch = input.as_ref().expect("a batch was delivered");
            let paths = Paths::of(self.voice, batch);
            for (index, &clip) in plans[number].iter().enumerate() {
                let (id, stretch) = &stretches[clip];
                let durations = paths.durations(index);
                if !durations.is_empty() {
                    into.push(Aligned { id: (*id).to_owned(), stretch: stretch.clone(), durations });
                }
            }
            bar.inc(plans[number].len() as u64);
            if number + 1 == plans.len() {
                break;
            }
        }
        Ok(feed.loader().failures().iter().map(ToString::to_string).collect())
    }
}

/// What the search found in a batch, on the host.
struct Paths {
    token_of_frame: Vec<i32>,
    /// First index and length of each utterance.
    text: Vec<(i32, i32)>,
    frames: Vec<(i32, i32)>,
}

impl Paths {
    fn of(voice: &Voice, batch: &Batch) -> Self {
        let list = |tensor: &Tensor| -> Vec<i32> {
            Vec::try_from(tensor.to_device(Device::Cpu)).expect("an i32 vector on the CPU")
        };
        let spans = |starts: &Tensor, lens: &Tensor| list(starts).into_iter().zip(list(lens)).collect();
        Paths {
            token_of_frame: list(&voice.align(batch)),
            text: spans(&batch.text.starts, &batch.text.lens),
            frames: spans(&batch.frames.starts, &batch.frames.lens),
        }
    }

    /// Frames of each token of an utterance; none where its clip is damaged.
    fn durations(&self, utterance: usize) -> Vec<i32> {
        let ((first, tokens), (start, frames)) = (self.text[utterance], self.frames[utterance]);
        let mut durations = vec![0; tokens as usize];
        for token in &self.token_of_frame[start as usize..(start + frames) as usize] {
            durations[(token - first) as usize] += 1;
        }
        durations
    }
}

fn summarise(aligned: &[Aligned], frame_s: f64, file: PathBuf, checkpoint: String, failures: Vec<String>) -> Summary {
    let tokens: usize = aligned.iter().map(|clip| clip.durations.len()).sum();
    let frames = aligned.iter().flat_map(|clip| &clip.durations).map(|&frames| frames as usize).sum();
    let mut worst: Vec<Suspect> = aligned
        .iter()
        .map(|clip| Suspect::of(&clip.id, &clip.durations, frame_s))
        .filter(|suspect| suspect.badness() > 1.0)
        .collect();
    worst.sort_by(|a, b| b.badness().total_cmp(&a.badness()).then_with(|| a.id.cmp(&b.id)));
    let suspicious = worst.len();
    worst.truncate(NAMED);
    Summary {
        file,
        checkpoint,
        clips: aligned.len(),
        frames,
        tokens,
        frames_per_token: frames as f64 / tokens.max(1) as f64,
        suspicious,
        suspicious_share: suspicious as f64 / aligned.len().max(1) as f64,
        worst,
        failures,
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::{Known, batch_on, prepare};
    use super::super::{Caps, Prepared, Start, begin_voice};
    use super::*;
    use crate::config::{self, Config};
    use crate::corpus::sample;
    use crate::feed::{Features, Roles};
    use indicatif::ProgressBar;
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;
    use tch::Kind;
    use tch::nn::VarStore;

    const CLIPS: usize = 12;
    const STATS: MelStats = MelStats { mean: -5.0, std: 2.0 };
    static NEVER: AtomicBool = AtomicBool::new(false);

    /// A small corpus, and what it takes to train on it. The seed is what `batch_on` draws with.
    struct Case {
        _dir: tempfile::TempDir,
        config: Config,
    }

    impl Case {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let options = sample::Options { clips: CLIPS, seed: 1, rate_hz: 22_050, voice: sample::Voice::Formant };
            sample::write(&dir.path().join("corpus"), &options, &|_| ControlFlow::Continue(())).unwrap();
            let text = "model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, \
                        decoder_heads: 2}\n\
                        training: {seed: 0, optimization_level: basic, device: cpu}\n\
                        data: {batch_size: 4, num_workers: 1, val_split: 0.2, tokenizer: characters, language: en}";
            let mut config = Config::parse(text, Path::new("a.yaml")).unwrap();
            config.data.dataset_path = Some(dir.path().join("corpus"));
            config.data.cache_dir = Some(dir.path().join("cache"));
            Case { _dir: dir, config }
        }

        fn prepare(&self, durations: config::Durations) -> Prepared {
            let mut config = self.config.clone();
            config.data.durations = durations;
            prepare(&config, Known::Nothing, &|_| (), &NEVER).unwrap()
        }

        fn around<'a>(&'a self, data: &'a Prepared, bar: &'a ProgressBar, device: Device) -> Surroundings<'a> {
            let (roles, caps) = (Roles { data: device, model: device }, Caps::default());
            let (began, delays) = (Instant::now(), Default::default());
            Surroundings { config: &self.config, data, roles, caps, bar, stop: &NEVER, began, delays }
        }

        /// What a voice finds in all clips, written into the cache.
        fn align(&self, data: &Prepared, voice: &Voice) -> Vec<Aligned> {
            let (mut aligned, bar) = (Vec::new(), ProgressBar::hidden());
            for train in [&data.train].into_iter().chain(&data.validation) {
                let part = data.with(train.clone(), data.budget);
                let set = Set { around: &self.around(&part, &bar, Device::Cpu), voice, stats: STATS };
                assert!(tch::no_grad(|| set.align(&mut aligned)).unwrap().is_empty());
            }
            durations::write(&self.config, &data.tokenizer, "a".into(), &aligned, &NEVER).unwrap();
            aligned
        }

        fn voice(&self, data: &Prepared) -> (VarStore, Voice) {
            let store = VarStore::new(Device::Cpu);
            let tokenizer = &data.tokenizer;
            let (vocabulary, languages) = (tokenizer.vocab_size(), tokenizer.languages().len());
            let voice = Voice::new(&store.root(), &self.config.model, vocabulary, languages, Kind::Float).unwrap();
            (store, voice)
        }

        fn features(&self, data: &Prepared) -> Features {
            let layout = Arc::new(data.train.layout(&data.budget));
            Features::new(&self.config, layout, STATS, Purpose::Voice, Device::Cpu).unwrap()
        }
    }

    #[test]
    fn frozen_durations_are_those_of_the_search_bit_for_bit_and_so_are_the_losses() {
        tch::set_num_threads(1);
        let case = Case::new();
        let searching = case.prepare(config::Durations::Search);
        let (_store, voice) = case.voice(&searching);
        let aligned = case.align(&searching, &voice);
        assert_eq!(aligned.len(), CLIPS, "training and validation");
        let frozen = case.prepare(config::Durations::Frozen);
        assert_eq!(frozen.durations.as_ref().unwrap().about().checkpoint, "a");
        let (plain, known) = (case.features(&searching), case.features(&frozen));
        for (number, clips) in plan(frozen.train.lengths(), &frozen.budget, 0, 0).iter().enumerate() {
            let (_, searched) = batch_on(&plain, &searching.train, clips, number as u64).unwrap();
            let (_, held) = batch_on(&known, &frozen.train, clips, number as u64).unwrap();
            assert!(searched.token_of_frame.is_none());
            tch::no_grad(|| {
                assert_eq!(held.token_of_frame.as_ref().unwrap(), &voice.align(&searched));
                // What depends on no draw; the flow's loss follows from the same path (`known_durations_replace_the_search`).
                let (by_search, by_file) = (voice.losses(&searched), voice.losses(&held));
                assert_eq!((by_file.prior, by_file.duration), (by_search.prior, by_search.duration));
            });
        }
    }

    #[test]
    fn a_clip_is_suspicious_when_it_stands_still_or_hurries() {
        let clip = |durations: &[i32]| Suspect::of("a", durations, 1.0 / 64.0);
        let hurried = |tokens: usize| clip(&[vec![5; 3], vec![1; tokens], vec![5; 3], vec![1; 2]].concat());
        assert_eq!((hurried(8).hurried_tokens, clip(&[2, 96, 7]).longest_token_s), (8, 1.5));
        assert!(hurried(8).badness() > 1.0 && clip(&[2, 65, 7]).badness() > 1.0);
        assert!(hurried(7).badness() <= 1.0 && clip(&[2, 64, 7]).badness() <= 1.0);
        assert!(hurried(20).badness() > clip(&[2, 96, 7]).badness());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_captured_step_with_frozen_durations_equals_the_eager_one() {
        torchx::cuda::load().unwrap();
        torchx::require_full_f32().unwrap();
        let mut case = Case::new();
        let searching = case.prepare(config::Durations::Search);
        let (_store, voice) = case.voice(&searching);
        case.align(&searching, &voice);
        let data = case.prepare(config::Durations::Frozen);
        let mut losses = |captured: bool| -> Vec<Vec<f64>> {
            case.config.training.enable_xla = captured;
            let bar = ProgressBar::hidden();
            let around = case.around(&data, &bar, Device::Cuda(0));
            let (mut step, state) = begin_voice(&around, &Start::Fresh).unwrap();
            let mut feed = start_feed(&around, Position::default(), state.mel_stats, Purpose::Voice).unwrap();
            let mut run = |number| {
                step.run(&mut feed, number, 1e-3).unwrap();
                step.request_reading(number).unwrap();
                step.poll(true).unwrap().unwrap().means
            };
            let losses = (0..10).map(&mut run).collect();
            assert!(step.is_settled());
            losses
        };
        let (eager, captured) = (losses(false), losses(true));
        for (step, (eager, captured)) in eager.iter().zip(&captured).enumerate() {
            for (eager, captured) in eager.iter().zip(captured) {
                let error = (eager - captured).abs();
                assert!(error <= 5e-3 * eager.abs().max(1e-3), "step {step}: eager {eager}, captured {captured}");
            }
        }
    }
}
