//! Commands that compute with tensors, one file each: the program `myxtts-torch`. Flags are parsed by the crate `cli`,
//! which also runs every other command.

mod align;
mod analyze;
mod bench;
mod bench_setup;
mod configure;
mod diagnose;
mod eval;
mod export;
mod fix;
mod profile;
mod ranks;
mod sample_corpus;
mod serve;
mod speaking;
mod synth;
mod train;
mod train_vocoder;
mod voice;

use anyhow::Result;
use cli::Command;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The program `myxtts-torch`.
pub fn main() -> ExitCode {
    torchx::keep_freed_memory();
    run(cli::parse()).unwrap_or_else(|error| cli::report(&error))
}

fn run(command: Command) -> Result<ExitCode> {
    cli::set_openmp(&command)?;
    match command {
        Command::Train(args) => train::run(&args),
        Command::TrainVocoder(args) => train_vocoder::run(&args),
        Command::Align(args) => align::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Voice(args) => voice::run(args),
        Command::Export(args) => export::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Configure(args) => configure::run(&args),
        Command::Fix(args) => fix::run(&args),
        Command::SampleCorpus(args) if args.is_bundled() => sample_corpus::run(args),
        // All by name: a command that neither program runs would be handed over for ever.
        other @ (Command::Prepare(_)
        | Command::Cache(_)
        | Command::Live(_)
        | Command::Check(_)
        | Command::Validate(_)
        | Command::Devices(_)
        | Command::Config(_)
        | Command::SampleCorpus(_)
        | Command::Completions(_)) => cli::run(other),
    }
}

/// A flag that Ctrl-C sets; the second one leaves without LibTorch's destructors, whose threads are at work.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    cli::progress::stop_flag(torchx::exit_now)
}
