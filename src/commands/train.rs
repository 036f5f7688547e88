//! `myxtts train`, and what `myxtts train-vocoder` has in common with it.

use super::ranks::{in_ranks, same_data};
use super::stop_flag;
use crate::checkpoint::{self, BundledStart, Checkpoint, RunKind, WeightSource};
use crate::feed::{self, Caps, Roles};
use crate::ranks::Ranks;
use crate::run::{RunContext, activations, choose_kernels, delaying};
use crate::tools::live::Reporter;
use crate::train::{self, OutputFolder, RunEnd, RunOutcome, RunStart};
use anyhow::{Context, Result};
use cli::train::Args;
use cli::{INTERRUPTED, complain, progress, say};
use host::config::{Config, Overrides};
use host::dataset::{self, KnownTokenizer, TrainingData};
use host::error::hinted;
use host::run_log::{LOGS, RunFolder};
use host::simulate::{Delays, Hook};
use host::telemetry::console;
use host::telemetry::gpu_processes::remember_processes;
use indicatif::ProgressBar;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use web::live::{Hub, LiveServer, LiveSettings, RunTable};

pub fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    in_ranks(resolve(args)?, |config, ranks| train(args, config, RunKind::Voice, None, ranks, began))
}

/// Settings of the run, with what these commands set beyond its flags.
pub fn resolve(args: &Args) -> Result<Config> {
    let mut flags = Overrides::default();
    flags
        .set("training.checkpoint_dir", args.checkpoint_dir.as_ref())
        .set("training.tensorboard_log_dir", args.tensorboard_log_dir.as_ref())
        .set("training.log_every", args.log_every)
        .set("training.log_file", args.log_file.as_ref());
    args.ranks.set(&mut flags);
    args.run.resolve(flags)
}

/// Trains a voice, or a vocoder on the frames of recordings or of `voice`.
pub fn train(
    args: &Args,
    mut config: Config,
    kind: RunKind,
    voice: Option<&Checkpoint>,
    ranks: Option<&Arc<Ranks>>,
    began: Instant,
) -> Result<ExitCode> {
    let is_first = ranks.is_none_or(|ranks| ranks.is_first());
    choose_kernels(&config.training)?;
    if let (Some(path), true) = (&config.training.log_file, is_first) {
        console::log_to(path).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let live = if is_first { args.live.settings()? } else { None };
    remember_processes();
    let stop = stop_flag()?;
    let start = start(args, &config, kind, ranks)?;
    let roles = Roles::resolve(&config.training)?;
    let caps = Caps::apply(&config.training, roles)?;
    let place = match is_first {
        true => OutputFolder::open(&config.training)?,
        false => OutputFolder::elsewhere(&config.training),
    };

    let bar = progress::bar(0, "preparing");
    let known = voice.map_or_else(|| start.known(), |voice| KnownTokenizer::Exactly(&voice.tokenizer));
    let data = prepare(&config, known, ranks, &bar, &stop);
    bar.finish_and_clear();
    let data = data?;
    describe(&config, &data, roles, caps);
    train::apply_recipe(&mut config, &data, kind, &start).into_iter().for_each(say);
    if args.reset_training
        && is_first
        && let Some(aside) = checkpoint::archive_earlier_run(&config.training.checkpoint_dir)?
    {
        say(format!("earlier checkpoints are in {}", aside.display()));
    }

    let shown = live.map(|live| show(live, args, &config, &stop)).transpose()?;
    let (server, shown) = shown.map_or((None, None), |(server, hub)| (Some(server), Some(hub)));
    let shown = shown.zip(server.as_ref()).map(|(hub, server)| (hub, format!("http://{}/", server.address)));
    let reporter = Reporter { shown };
    let delays = args.simulate.delays()?;
    if delays != Delays::default() {
        say(format!("note: slowed down on purpose: {delays}"));
    }
    let hook = delaying(delays, roles.model)?;
    let bar = progress::status("training");
    let plain = RunContext::new(&config, &data, (roles, caps), &bar, &stop, began);
    let context = RunContext {
        says_lines: is_first && !console::is_watched(),
        observer: Some(&reporter),
        hook: &hook,
        ranks,
        ..plain
    };
    let outcome = match kind {
        RunKind::Voice => train::train(&context, place, start),
        RunKind::Vocoder => train::train_vocoder(&context, place, start, voice),
    };
    bar.finish_and_clear();
    let left = server.as_ref().map_or(0, LiveServer::unheard);
    drop(server);
    let outcome = outcome?;
    if left > 0 {
        let folder = config.training.checkpoint_dir.display();
        say(format!("note: {left} samples were not listened to yet; `myxtts live {folder} --asr-command …` goes on"));
    }
    if is_first {
        print(&outcome, args.json)?;
    }
    Ok(match outcome.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false if data.findings.is_empty() && outcome.failures.is_empty() => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Starts the live view of the run, and says where it is.
fn show(
    settings: LiveSettings,
    args: &Args,
    config: &Config,
    stop: &Arc<AtomicBool>,
) -> Result<(LiveServer, Arc<Hub>)> {
    let folder = &config.training.checkpoint_dir;
    let log_dir = config.training.tensorboard_log_dir.clone().unwrap_or_else(|| folder.join(LOGS));
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.clone());
    let name = whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned();
    let hub = Arc::new(Hub::new(args.live.live_control, stop.clone()));
    let server = LiveServer::start(settings, RunTable::only(RunFolder { name, log_dir }), Some(hub.clone()))?;
    say(format!("live view: {}", server.url));
    Ok((server, hub))
}

/// Reads the corpus and opens its cache. Of several ranks on a machine the first builds what is missing, with all cores.
fn prepare(
    config: &Config,
    known: KnownTokenizer,
    ranks: Option<&Arc<Ranks>>,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> Result<TrainingData> {
    let open = || dataset::prepare(config, known, &progress::of_cache(bar), stop, &Hook::NONE);
    let Some(ranks) = ranks else { return open() };
    let builder = ranks.neighbours().next().expect("this one at least");
    if ranks.me.rank != builder {
        ranks.wait_for::<bool>("features", builder)?;
    }
    let data = open()?;
    ranks.show("features", &true)?;
    if ranks.me.rank == builder && builder > 0 && data.building.built > 0 {
        let (name, built) = (ranks.name(builder), data.building.built);
        complain(format!("{name}: built {built} clips for its machine, which does not share rank 0's cache_dir"));
    }
    same_data(ranks, &data)?;
    Ok(data)
}

/// What to begin with: as rank 0 finds it.
fn start(args: &Args, config: &Config, kind: RunKind, ranks: Option<&Arc<Ranks>>) -> Result<RunStart> {
    let Some(ranks) = ranks else { return find_start(args, config, kind) };
    let folder = &config.training.checkpoint_dir;
    let found = if ranks.is_first() { Some(find_start(args, config, kind)?) } else { None };
    let resumed = found.as_ref().and_then(|start| match start {
        RunStart::Resume(checkpoint) => Some(checkpoint.folder().file_name()?.to_string_lossy().into_owned()),
        _ => None,
    });
    let Some(name) = ranks.of_first("resumed", &resumed)? else {
        return found.map_or_else(|| fresh(args, config, kind), Ok);
    };
    ranks.share_folder(&folder.join(&name), checkpoint::STATE)?;
    match found {
        Some(start) => Ok(start),
        None => Ok(RunStart::Resume(Box::new(Checkpoint::open(&folder.join(&name))?.of_kind(kind)?))),
    }
}

fn fresh(args: &Args, config: &Config, kind: RunKind) -> Result<RunStart> {
    if let Some(path) = &args.init_from {
        return Ok(RunStart::FineTune(WeightSource::open(path.clone())?));
    }
    if args.from_scratch || kind != RunKind::Voice {
        return Ok(RunStart::Fresh);
    }
    Ok(match checkpoint::bundled_start(config)? {
        BundledStart::Fits(source) => {
            say("begins with the bundled voice; --from-scratch begins with random weights");
            RunStart::FineTune(source)
        }
        BundledStart::Differs(what) => {
            say(format!("begins with random weights: the bundled voice is another network ({what})"));
            RunStart::Fresh
        }
        BundledStart::Missing => RunStart::Fresh,
    })
}

/// What to begin with. A folder that holds checkpoints is never overwritten without a word.
fn find_start(args: &Args, config: &Config, kind: RunKind) -> Result<RunStart> {
    let folder = &config.training.checkpoint_dir;
    if args.reset_training {
        return fresh(args, config, kind);
    }
    let newest = Checkpoint::newest(folder)?;
    match (newest, args.resume) {
        (Some(checkpoint), true) => {
            let checkpoint = checkpoint.of_kind(kind)?;
            checkpoint::require_same_network(config, &checkpoint)?;
            say(format!("going on from {}", checkpoint.folder().display()));
            Ok(RunStart::Resume(Box::new(checkpoint)))
        }
        (None, true) => {
            say(format!("{}: nothing to resume yet, so this run starts fresh", folder.display()));
            fresh(args, config, kind)
        }
        (Some(checkpoint), false) => Err(hinted(
            format!("{}: holds a run at step {}", folder.display(), checkpoint.state.step),
            "--resume goes on with it, --reset-training starts over, --checkpoint-dir chooses another folder",
        )),
        (None, false) => fresh(args, config, kind),
    }
}

/// What is about to happen, on stderr.
fn describe(config: &Config, data: &TrainingData, roles: Roles, caps: Caps) {
    data.notes.iter().chain(&data.findings).for_each(|note| say(format!("note: {note}")));
    if let (false, Some(corpus)) = (data.findings.is_empty(), &config.data.dataset_path) {
        say(format!("hint: `myxtts check {}` lists every problem of the corpus", corpus.display()));
    }
    say(data.features_told());
    let clips = data.train.lengths().len();
    let minutes = data.train.seconds(config.data.sample_rate) / 60.0;
    let held_out = data.validation.as_ref().map_or(0, |set| set.lengths().len());
    let form = if data.budget.padded { "padded" } else { "packed" };
    say(format!("{clips} clips to train on ({minutes:.1} min), {held_out} held out"));
    say(format!("batches: {form}, {} frames and {} tokens each", data.budget.frames, data.budget.tokens));
    let precision = activations(&config.training, roles.model);
    say(format!("devices: data on {}, model on {}, {precision}", feed::name(roles.data), feed::name(roles.model)));
    if config.training.enable_memory_isolation {
        say(caps.to_string());
    }
}

fn print(outcome: &RunOutcome, json: bool) -> Result<()> {
    if json {
        return Ok(cli::print_line(serde_json::to_string_pretty(outcome)?)?);
    }
    let RunOutcome { step, .. } = outcome;
    let loss = |value: Option<f64>| value.map_or("–".into(), |loss| format!("{loss:.3}"));
    let (first, last, held_out) = (outcome.first_loss, outcome.last_loss, outcome.validation_loss);
    match (outcome.interrupted, first) {
        (_, None) => print_and_log(format!("already at step {step}: raise --steps or --epochs to go on"))?,
        (true, _) => print_and_log(format!("stopped at step {step}; go on with the same command and --resume"))?,
        (false, _) => print_and_log(format!("done at step {step}{}", reason(outcome)))?,
    }
    if first.is_some() {
        print_and_log(format!("loss:        {} → {}, held out {}", loss(first), loss(last), loss(held_out)))?;
    }
    for failure in &outcome.failures {
        print_and_log(format!("left out:    {failure}"))?;
    }
    print_and_log(format!("checkpoint:  {}", outcome.checkpoint.display()))?;
    if let Some(best) = outcome.best.as_ref().filter(|best| best.step < *step) {
        let (path, loss, since) = (best.checkpoint.display(), best.validation_loss, step - best.step);
        let name = best.compared;
        print_and_log(format!(
            "best:        {path}, {name} held out {loss:.4}; {since} steps since then have not lowered it"
        ))?;
    }
    Ok(print_and_log(format!("TensorBoard: {}", outcome.log_dir.display()))?)
}

/// Why the run is over, behind a colon.
fn reason(outcome: &RunOutcome) -> String {
    match (outcome.ended, &outcome.best) {
        (None, _) => String::new(),
        (Some(end @ (RunEnd::Steps | RunEnd::Epochs)), _) | (Some(end), None) => format!(": {}", end.told()),
        (Some(RunEnd::NoBetter), Some(best)) => {
            format!(": held-out speech has got no better since step {}; --steps goes on all the same", best.step)
        }
    }
}

/// A line of the outcome: on stdout, and in the log file.
fn print_and_log(line: String) -> io::Result<()> {
    console::log(&line);
    cli::print_line(line)
}
