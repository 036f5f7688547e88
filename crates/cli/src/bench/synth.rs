//! Flags of `myxtts bench synth`.

use crate::flags::VoiceFlags;
use host::config::Size;
use host::config::speaking::DEFAULT_STEPS;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// In place of a voice: random weights of this size, vocoder included, that speak ten seconds
    #[arg(long, value_enum, conflicts_with_all = ["checkpoint", "vocoder"])]
    pub model_size: Option<Size>,
    /// Steps along the flow
    #[arg(long, default_value_t = DEFAULT_STEPS as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub steps: u64,
    /// Measurements of each figure; their median is told
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}
