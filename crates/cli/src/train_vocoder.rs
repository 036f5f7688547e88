//! Flags of `myxtts train-vocoder`.

use crate::train;
use std::path::PathBuf;

/// Train a vocoder, which makes sound of a voice's mel frames. Any speech will do: it learns no text.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    pub train: train::Args,
    /// Learn from the frames that this voice makes, instead of the recordings': for the last steps of a vocoder
    #[arg(long, value_name = "DIR")]
    pub voice: Option<PathBuf>,
}
