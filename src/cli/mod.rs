//! The command line. One file a command; each parses, calls the library, and prints.

mod align;
mod analyze;
mod bench;
mod bench_setup;
mod cache;
mod check;
mod completions;
mod config;
mod configure;
mod devices;
mod diagnose;
mod eval;
mod fix;
mod flow_flags;
mod layout;
mod prepare;
mod profile;
mod progress;
mod run_flags;
mod sample_corpus;
mod serve;
mod synth;
mod train;
mod validate;
mod voice;
mod voice_flags;

use clap::{CommandFactory, Parser, Subcommand};
use host::cache::Error as CacheError;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Exit codes: 0 done; 1 done, with findings; 2 an error or wrong usage; 130 interrupted.
const INTERRUPTED: u8 = 130;

/// Train a voice from a folder of recordings, and speak with it.
#[derive(Parser)]
#[command(name = "myxtts", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Start here:
  myxtts sample-corpus sample           a small corpus to try things with
  myxtts check sample                   what is in a corpus, and what is wrong with it
  myxtts train --train-data sample      a voice, with checkpoints every so often
  myxtts synth --checkpoint checkpoints --text \"Hello there\" -o hello.wav

Exit codes: 0 done · 1 done, with findings · 2 error · 130 interrupted";

#[derive(Subcommand)]
enum Command {
    /// Train a voice
    Train(Box<train::Args>),
    /// Train a vocoder, which makes sound of a voice's frames
    TrainVocoder(Box<train::VocoderArgs>),
    /// Find the frames of every token once, so that training need not search
    Align(align::Args),
    /// Turn a corpus into cached features (train does this by itself)
    Prepare(prepare::Args),
    /// List cached features, or remove what is no longer needed
    Cache(cache::Args),
    /// Report what is in a corpus and what is wrong with it
    Check(check::Args),
    /// Speak a text with a trained voice
    Synth(Box<synth::Args>),
    /// Speak for others over HTTP, with a page to try it
    Serve(Box<serve::Args>),
    /// Make, list and mix voices
    Voice(voice::Args),
    /// Measure how good a voice is: sentences it never heard against their recordings
    Eval(Box<eval::Args>),
    /// Say where the time of a training step goes, and what to change
    Profile(Box<profile::Args>),
    /// Look at this machine and a short run on it: what costs how much
    Diagnose(Box<diagnose::Args>),
    /// Measure training (is the GPU ever kept waiting?) or speaking
    Bench(Box<bench::Args>),
    /// Measure the data path stage by stage: what caps it, and what would help
    Analyze(Box<analyze::Args>),
    /// Find settings for this machine and corpus by trying them, and write a config
    Configure(Box<configure::Args>),
    /// Diagnose, find better settings, verify them, and print the train command
    Fix(Box<fix::Args>),
    /// Check a configuration against this machine and corpus
    Validate(Box<validate::Args>),
    /// List GPUs, their memory, links and topology
    Devices(devices::Args),
    /// Print the resolved configuration
    Config(config::Args),
    /// Make a small corpus to try things with
    SampleCorpus(sample_corpus::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(&args),
        Command::TrainVocoder(args) => train::run_vocoder(&args),
        Command::Align(args) => align::run(&args),
        Command::Prepare(args) => prepare::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Check(args) => check::run(args),
        Command::Synth(args) => synth::run(*args),
        Command::Serve(args) => serve::run(&args),
        Command::Voice(args) => voice::run(args),
        Command::Eval(args) => eval::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Bench(args) => bench::run(*args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Configure(args) => configure::run(&args),
        Command::Fix(args) => fix::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Devices(args) => devices::run(args),
        Command::Config(args) => config::run(args),
        Command::SampleCorpus(args) => sample_corpus::run(args),
        Command::Completions(args) => completions::run(args, Cli::command()),
    };
    result.unwrap_or_else(|error| report(&error))
}

/// A line for programs and people, on stdout. A full disk is then an error, not a panic.
/// Takes numbers of a range.
fn within(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
        let (low, high) = (range.start(), range.end());
        if range.contains(&value) { Ok(value) } else { Err(format!("accepted: {low} to {high}")) }
    }
}

fn print_line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// A line for people, on stderr. Where nobody can read it, nothing is lost.
fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Facts on the first line, from the outside in; then each hint on a line of its own.
fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<io::Error>()
        && error.kind() == ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS; // the reader of our output has seen enough
    }
    let interrupted = matches!(error.downcast_ref(), Some(CacheError::Interrupted { .. }));
    let (mut facts, mut hints) = (Vec::new(), Vec::new());
    for cause in error.chain() {
        let text = cause.to_string();
        let (fact, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
        // A wrapper that repeats its cause word for word says nothing new.
        if !facts.iter().any(|said: &String| said.contains(fact)) {
            facts.push(fact.to_owned());
        }
        hints.extend((!hint.is_empty()).then(|| hint.to_owned()));
    }
    say(format!("error: {}", facts.join(": ")));
    hints.iter().for_each(|hint| say(format!("hint: {hint}")));
    ExitCode::from(if interrupted { INTERRUPTED } else { 2 })
}
