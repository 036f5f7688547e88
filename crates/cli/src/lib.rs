//! The command line: flags of every command, one file each, and the commands that compute nothing with tensors.
//!
//! Two programs share it. `myxtts` is this crate alone: it starts in milliseconds, runs what needs no LibTorch, and hands
//! the rest to `myxtts-torch` beside it, which parses the same flags again.

pub mod align;
pub mod analyze;
pub mod bench;
mod cache;
mod check;
mod completions;
mod config;
pub mod configure;
mod devices;
pub mod diagnose;
pub mod eval;
pub mod export;
pub mod fix;
pub mod flags;
mod live;
mod output;
mod prepare;
pub mod profile;
pub mod progress;
pub mod sample_corpus;
pub mod serve;
pub mod synth;
mod torch;
pub mod train;
pub mod train_vocoder;
mod validate;
pub mod voice;

pub use output::{INTERRUPTED, be_quiet, complain, finish, print_line, report, say};
pub use torch::set_openmp;

use crate::flags::ThreadFlags;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

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
pub enum Command {
    /// Train a voice
    Train(Box<train::Args>),
    /// Show runs in the browser, while they run and later
    Live(live::Args),
    /// Train a vocoder, which makes sound of a voice's frames
    TrainVocoder(Box<train_vocoder::Args>),
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
    /// Write a voice as files that run elsewhere: Piper, sherpa-onnx, onnxruntime
    Export(Box<export::Args>),
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

impl Command {
    /// Threads that compute the command's tensors; absent where it has none.
    fn threads(&self) -> Option<ThreadFlags> {
        Some(match self {
            Self::Train(args) => args.threads,
            Self::TrainVocoder(args) => args.train.threads,
            Self::Align(args) => args.threads,
            Self::Synth(args) => args.model.threads,
            Self::Serve(args) => args.voice.threads,
            Self::Voice(args) => args.threads(),
            Self::Export(args) => args.threads,
            Self::Eval(args) => args.voice.threads,
            Self::Profile(args) => args.threads,
            Self::Diagnose(args) => args.threads,
            Self::Bench(args) => args.threads(),
            Self::Analyze(args) => args.threads,
            Self::Configure(args) => args.threads,
            Self::Fix(args) => args.threads,
            Self::SampleCorpus(args) if args.is_bundled() => ThreadFlags::default(),
            Self::Prepare(_)
            | Self::Cache(_)
            | Self::Live(_)
            | Self::Check(_)
            | Self::Validate(_)
            | Self::Devices(_)
            | Self::Config(_)
            | Self::SampleCorpus(_)
            | Self::Completions(_) => return None,
        })
    }
}

/// All commands with their flags, for who wants to look at them.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The program `myxtts`.
pub fn main() -> ExitCode {
    run(parse()).unwrap_or_else(|error| report(&error))
}

/// Reads the arguments of this process. Wrong ones, `--help` and `--version` are answered here and end it.
pub fn parse() -> Command {
    Cli::parse().command
}

/// Runs a command; one that computes with tensors, by the second program.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    let threads = command.threads().unwrap_or_default();
    match command {
        Command::Prepare(args) => prepare::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Check(args) => check::run(args),
        Command::Live(args) => live::run(args),
        Command::Validate(args) => validate::run(&args),
        Command::Devices(args) => devices::run(args),
        Command::Config(args) => config::run(args),
        Command::SampleCorpus(args) if !args.is_bundled() => sample_corpus::run(args, None),
        Command::Completions(args) => completions::run(args, Cli::command()),
        Command::Train(_)
        | Command::TrainVocoder(_)
        | Command::Align(_)
        | Command::Synth(_)
        | Command::Serve(_)
        | Command::Voice(_)
        | Command::Export(_)
        | Command::Eval(_)
        | Command::Profile(_)
        | Command::Diagnose(_)
        | Command::Bench(_)
        | Command::Analyze(_)
        | Command::Configure(_)
        | Command::Fix(_)
        | Command::SampleCorpus(_) => Err(torch::hand_over(threads)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clap finds flags and groups of the same name only when it is asked to, or in a build with debug assertions.
    #[test]
    fn the_flags_of_all_commands_are_consistent() {
        Cli::command().debug_assert();
    }
}
