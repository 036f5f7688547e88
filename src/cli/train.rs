//! `myxtts train`

use super::run_flags::RunFlags;
use super::{INTERRUPTED, print_line, progress, say};
use crate::checkpoint::{self, Checkpoint, RunKind, WeightSource};
use crate::feed::{self, Caps, Roles};
use crate::run::{RunContext, activation_kind};
use crate::train::{self, OutputFolder, RunOutcome, RunStart};
use anyhow::{Result, bail, ensure};
use host::config::{CacheContent, Config, Overrides};
use host::dataset::{self, Known, Prepared};
use host::simulate::Delays;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tch::Kind;

/// Train a voice from a corpus. Flags win over the config file, and that over the presets.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunFlags,
    /// Where checkpoints go
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
    /// Go on from the newest checkpoint
    #[arg(long, conflicts_with_all = ["reset_training", "init_from"])]
    resume: bool,
    /// Start over; earlier checkpoints are moved aside, not deleted
    #[arg(long)]
    reset_training: bool,
    /// Start with the weights of another run, by name: a checkpoint, a folder of them, or a safetensors file
    #[arg(long, value_name = "PATH")]
    init_from: Option<PathBuf>,

    /// Where TensorBoard logs go [default: `logs` in the checkpoint directory]
    #[arg(long, value_name = "DIR")]
    tensorboard_log_dir: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Train a vocoder, which makes sound of a voice's mel frames. Any speech will do: it learns no text.
#[derive(clap::Args)]
pub struct VocoderArgs {
    #[command(flatten)]
    args: Args,
    /// Learn from the frames that this voice makes, instead of the recordings': for the last steps of a vocoder
    #[arg(long, value_name = "DIR")]
    voice: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.train(RunKind::Voice, "./checkpoints", None)
}

pub fn run_vocoder(args: &VocoderArgs) -> Result<ExitCode> {
    let open = |path: &PathBuf| Checkpoint::open(path)?.of_kind(RunKind::Voice);
    let voice = args.voice.as_ref().map(open).transpose()?;
    args.args.train(RunKind::Vocoder, "./vocoder", voice.as_ref())
}

impl Args {
    /// `folder`: where checkpoints go unless something else is said.
    fn train(&self, kind: RunKind, folder: &str, voice: Option<&Checkpoint>) -> Result<ExitCode> {
        let began = Instant::now();
        let config = self.resolve(kind, folder, voice)?;
        if config.training.deterministic_kernels {
            torchx::require_deterministic()?;
        }
        let stop = progress::stop_flag()?;
        let start = self.start(&config, kind)?;
        let roles = Roles::resolve(&config.training)?;
        let caps = Caps::apply(&config.training, roles)?;
        let place = OutputFolder::open(&config.training)?;

        let bar = progress::bar(0, "preparing");
        let known = voice.map_or_else(|| start.known(), |voice| Known::Exactly(&voice.tokenizer));
        let data = dataset::prepare(&config, known, &progress::of_cache(&bar), &stop);
        bar.finish_and_clear();
        let data = data?;
        describe(&config, &data, roles, caps);
        if self.reset_training
            && let Some(aside) = checkpoint::archive_earlier_run(&config.training.checkpoint_dir)?
        {
            say(format!("earlier checkpoints are in {}", aside.display()));
        }

        let bar = progress::status("training");
        let delays = Delays::default();
        let context = RunContext { config: &config, data: &data, roles, caps, bar: &bar, stop: &stop, began, delays };
        let outcome = match kind {
            RunKind::Voice => train::train(&context, place, start),
            RunKind::Vocoder => train::train_vocoder(&context, place, start, voice),
        };
        bar.finish_and_clear();
        let outcome = outcome?;
        print(&outcome, self.json)?;
        Ok(match outcome.interrupted {
            true => ExitCode::from(INTERRUPTED),
            false if data.findings.is_empty() && outcome.failures.is_empty() => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }

    fn resolve(&self, kind: RunKind, folder: &str, voice: Option<&Checkpoint>) -> Result<Config> {
        let mut flags = Overrides::default();
        flags
            .set("training.checkpoint_dir", self.checkpoint_dir.as_ref())
            .set("training.tensorboard_log_dir", self.tensorboard_log_dir.as_ref());
        let mut config = self.run.resolve(flags)?;
        if kind == RunKind::Voice {
            return Ok(config);
        }
        if config.training.checkpoint_dir == Config::default().training.checkpoint_dir {
            config.training.checkpoint_dir = folder.into();
        }
        ensure!(
            config.data.cache_content == CacheContent::Pcm,
            "a vocoder learns from samples, and `cache_content` is mel\nhint: set it to pcm"
        );
        Ok(train::configure_vocoder(config, voice, self.run.lr()))
    }

    /// What to begin with. A folder that holds checkpoints is never overwritten without a word.
    fn start(&self, config: &Config, kind: RunKind) -> Result<RunStart> {
        let folder = &config.training.checkpoint_dir;
        let fresh = || match &self.init_from {
            None => Ok(RunStart::Fresh),
            Some(path) => Ok(RunStart::FineTune(WeightSource::open(path.clone())?)),
        };
        if self.reset_training {
            return fresh();
        }
        let newest = Checkpoint::newest(folder)?;
        match (newest, self.resume) {
            (Some(checkpoint), true) => {
                let checkpoint = checkpoint.of_kind(kind)?;
                checkpoint::require_same_network(config, &checkpoint)?;
                say(format!("going on from {}", checkpoint.folder().display()));
                Ok(RunStart::Resume(Box::new(checkpoint)))
            }
            (None, true) => bail!(
                "{}: no checkpoint to resume\nhint: leave out --resume to start, or name the folder with --checkpoint-dir",
                folder.display()
            ),
            (Some(checkpoint), false) => bail!(
                "{}: holds a run at step {}\nhint: --resume goes on with it, --reset-training starts over, \
                 --checkpoint-dir chooses another folder",
                folder.display(),
                checkpoint.state.step
            ),
            (None, false) => fresh(),
        }
    }
}

/// What is about to happen, on stderr.
fn describe(config: &Config, data: &Prepared, roles: Roles, caps: Caps) {
    data.notes.iter().chain(&data.findings).for_each(|note| say(format!("note: {note}")));
    if let (false, Some(corpus)) = (data.findings.is_empty(), &config.data.dataset_path) {
        say(format!("hint: `myxtts check {}` lists every problem of the corpus", corpus.display()));
    }
    let clips = data.train.lengths().len();
    let minutes = data.train.seconds(config.data.sample_rate) / 60.0;
    let held_out = data.validation.as_ref().map_or(0, |set| set.lengths().len());
    let form = if data.budget.padded { "padded" } else { "packed" };
    say(format!("{clips} clips to train on ({minutes:.1} min), {held_out} held out"));
    say(format!("batches: {form}, {} frames and {} tokens each", data.budget.frames, data.budget.tokens));
    let precision = match activation_kind(&config.training, roles.model) {
        Ok(Kind::BFloat16) => "bf16",
        Ok(Kind::Half) => "f16",
        _ => "f32",
    };
    say(format!("devices: data on {}, model on {}, {precision}", feed::name(roles.data), feed::name(roles.model)));
    if config.training.enable_memory_isolation {
        say(caps.to_string());
    }
}

fn print(outcome: &RunOutcome, json: bool) -> Result<()> {
    if json {
        return Ok(print_line(serde_json::to_string_pretty(outcome)?)?);
    }
    let RunOutcome { step, .. } = outcome;
    let loss = |value: Option<f64>| value.map_or("–".into(), |loss| format!("{loss:.3}"));
    let (first, last, held_out) = (outcome.first_loss, outcome.last_loss, outcome.validation_loss);
    match (outcome.interrupted, first) {
        (_, None) => print_line(format!("already at step {step}: raise --steps or --epochs to go on"))?,
        (true, _) => print_line(format!("stopped at step {step}; go on with the same command and --resume"))?,
        (false, _) => print_line(format!("done at step {step}"))?,
    }
    if first.is_some() {
        print_line(format!("loss:        {} → {}, held out {}", loss(first), loss(last), loss(held_out)))?;
    }
    for failure in &outcome.failures {
        print_line(format!("left out:    {failure}"))?;
    }
    print_line(format!("checkpoint:  {}", outcome.checkpoint.display()))?;
    if let Some(best) = outcome.best.as_ref().filter(|best| best.step < *step) {
        let (path, loss, since) = (best.checkpoint.display(), best.validation_loss, step - best.step);
        print_line(format!("best:        {path}, held out {loss:.3}; {since} steps since then have not lowered it"))?;
    }
    Ok(print_line(format!("TensorBoard: {}", outcome.log_dir.display()))?)
}
