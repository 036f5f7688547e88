//! `myxtts bench`: one file for each of its own commands.

pub mod pipeline;
pub mod scale;
pub mod synth;

use crate::flags::ThreadFlags;

/// Measure the training pipeline, its scaling, or speaking, on this machine. Nothing is saved.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

impl Args {
    pub fn threads(&self) -> ThreadFlags {
        match &self.what {
            What::Pipeline(args) => args.threads,
            What::Scale(args) => args.threads,
            What::Synth(args) => args.voice.threads,
        }
    }
}

#[derive(clap::Subcommand)]
pub enum What {
    /// How busy the model device is kept, and what stands in the way
    Pipeline(Box<pipeline::Args>),
    /// What the exchange of gradients costs, and what more GPUs would bring
    Scale(Box<scale::Args>),
    /// How fast a voice speaks: real-time factor, first sound, many texts at once
    Synth(synth::Args),
}
