//! What other programs call: open a corpus, train on it and watch the run, speak.

use crate::checkpoint::{Checkpoint, RunKind};
use crate::feed::{Caps, Roles};
use crate::run::{Progress, RunContext, choose_kernels};
use crate::synth::{Precision, Request, Synthesizer, bundled_vocoder};
use crate::train::{self, OutputFolder, RunOutcome, RunStart};
use anyhow::Result;
use host::audio;
use host::bundled;
use host::config::Config;
use host::dataset::{self, KnownTokenizer, TrainingData};
use host::error::hinted;
use host::simulate::Hook;
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Recordings ready to train on: metadata read, a part held out, texts turned into tokens, features cached.
pub struct Corpus {
    config: Config,
    data: TrainingData,
}

impl Corpus {
    /// Reads a folder of recordings in any layout that `myxtts check` knows, and builds the features that are missing.
    pub fn open(path: impl AsRef<Path>, mut config: Config) -> Result<Self> {
        config.data.dataset_path = Some(path.as_ref().to_owned());
        let never = AtomicBool::new(false);
        let data = dataset::prepare(&config, KnownTokenizer::Nothing, &|_| (), &never, &Hook::NONE)?;
        Ok(Corpus { config, data })
    }

    /// Clips that are trained on; what is held out is not among them.
    pub fn clips(&self) -> usize {
        self.data.train.lengths().len()
    }

    /// Seconds of speech in those clips.
    pub fn seconds(&self) -> f64 {
        self.data.train.seconds(self.config.data.sample_rate)
    }

    /// How the corpus was read, and every row or clip that was left out, with its reason.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.data.notes.iter().chain(&self.data.findings).map(String::as_str)
    }
}

/// Trains a new voice into `folder` until its steps or epochs are over, held-out speech gets no better, or `watch` breaks;
/// then saves. `watch` is called with the figures of the run every `log_step` steps. Warnings go to standard error.
pub fn train(
    corpus: &Corpus,
    folder: impl AsRef<Path>,
    watch: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<RunOutcome> {
    let (began, folder) = (Instant::now(), folder.as_ref());
    use_own_cores();
    let mut config = corpus.config.clone();
    train::apply_recipe(&mut config, &corpus.data, RunKind::Voice, &RunStart::Fresh);
    config.training.checkpoint_dir = folder.to_owned();
    if let Some(earlier) = Checkpoint::newest(folder)? {
        let fact = format!("{}: holds a run at step {}", folder.display(), earlier.state.step);
        return Err(hinted(fact, "choose another folder"));
    }
    choose_kernels(&config.training)?;
    let roles = Roles::resolve(&config.training)?;
    let caps = Caps::apply(&config.training, roles)?;
    let output = OutputFolder::open(&config.training)?;
    let (stop, bar, watch) = (AtomicBool::new(false), ProgressBar::hidden(), RefCell::new(watch));
    let ask = |progress: &Progress| stop.store(watch.borrow_mut()(progress).is_break(), Ordering::Relaxed);
    let plain = RunContext::new(&config, &corpus.data, (roles, caps), &bar, &stop, began);
    let context = RunContext { watch: &ask, ..plain };
    train::train(&context, output, RunStart::Fresh)
}

/// A trained voice, ready to speak.
pub struct Voice(Synthesizer);

/// Sound of a text.
pub struct Speech {
    /// Mono samples, -1 to 1.
    pub samples: Vec<f32>,
    /// Samples a second.
    pub rate_hz: u32,
    /// What the voice could not say as it was asked to, such as characters that it does not know.
    pub notes: Vec<String>,
}

impl Voice {
    /// The voice that comes with the program, on a GPU where there is one.
    pub fn bundled() -> Result<Self> {
        Self::load(bundled::require()?.voice(), None)
    }

    /// Loads a checkpoint, or the newest one of a folder, onto a GPU where there is one. `vocoder` is a folder of `myxtts
    /// train-vocoder`; without it the bundled one makes the sound, or Griffin-Lim for frames that it does not take.
    pub fn load(checkpoint: impl AsRef<Path>, vocoder: Option<&Path>) -> Result<Self> {
        use_own_cores();
        let checkpoint = checkpoint.as_ref();
        let vocoder = match vocoder {
            Some(path) => Some(path.into()),
            None => bundled_vocoder(&Checkpoint::open(checkpoint)?.config),
        };
        Ok(Voice(Synthesizer::load(checkpoint, vocoder.as_deref(), Roles::named("auto")?, Precision::Light)?))
    }

    /// Speaks a text of any length in the checkpoint's own voice.
    pub fn speak(&self, text: &str) -> Result<Speech> {
        self.say(Request { text: text.to_owned(), ..Request::default() })
    }

    /// Speaks a text in the voice of recordings, whatever is said in them.
    pub fn speak_as(&self, text: &str, recordings: &[PathBuf]) -> Result<Speech> {
        let prompt = Some(self.0.prompt(&self.0.hear(recordings)?.voice));
        self.say(Request { text: text.to_owned(), prompt, ..Request::default() })
    }

    fn say(&self, request: Request) -> Result<Speech> {
        let spoken = self.0.speak(&request)?;
        Ok(Speech { samples: spoken.samples, rate_hz: self.0.rate_hz(), notes: spoken.notes })
    }
}

impl Speech {
    pub fn write_wav(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(audio::write_wav(path.as_ref(), &self.samples, self.rate_hz)?)
    }
}

/// Lets LibTorch use the cores that this process may use: by itself it counts the machine's, and a container's quota may
/// give fewer. The command `myxtts` sets the variable before LibTorch is loaded.
fn use_own_cores() {
    if std::env::var_os("OMP_NUM_THREADS").is_none() {
        tch::set_num_threads(host::machine::compute_threads() as i32);
    }
}
