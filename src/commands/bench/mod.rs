//! `myxtts bench`: one file for each of its own commands.

mod pipeline;
mod scale;
mod synth;

use cli::bench::{Args, What};
use std::process::ExitCode;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Pipeline(args) => pipeline::run(args),
        What::Scale(args) => scale::run(args),
        What::Synth(args) => synth::run(args),
    }
}
