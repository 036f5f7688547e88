//! `myxtts sample-corpus`: a small corpus to try everything with.

use crate::corpus::sample::{self, Options, Voice};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a small corpus of spoken sentences, in the LJSpeech layout
#[derive(clap::Args)]
pub struct Args {
    /// Folder to make
    dir: PathBuf,
    /// Number of clips
    #[arg(long, value_name = "N", default_value_t = Options::default().clips)]
    clips: usize,
    /// Which sentences; the same seed gives the same corpus
    #[arg(long, default_value_t = Options::default().seed)]
    seed: u64,
    #[arg(long, value_name = "HZ", default_value_t = Options::default().rate_hz)]
    sample_rate: u32,
    /// Who speaks: auto takes espeak-ng where it is installed
    #[arg(long, value_enum, default_value = "auto")]
    voice: Speaker,
    /// Rename a folder that holds other files, and take its place
    #[arg(long)]
    force: bool,
}

#[derive(Clone, clap::ValueEnum)]
enum Speaker {
    Auto,
    Espeak,
    Formant,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { dir, clips, seed, sample_rate: rate_hz, voice, force } = args;
    let voice = match voice {
        Speaker::Auto => Voice::Auto,
        Speaker::Espeak => Voice::Espeak,
        Speaker::Formant => Voice::Formant,
    };
    let options = Options { clips, seed, rate_hz, voice };
    if sample::is_written(&dir, &options)? {
        println!("{}: already there, {clips} clips with these options", dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    if force && let Some(aside) = sample::set_aside(&dir)? {
        println!("{}: moved to {}", dir.display(), aside.display());
    }
    let bar = ProgressBar::new(clips as u64)
        .with_style(ProgressStyle::with_template("{msg:>12} [{bar:32}] {pos}/{len} clips, {per_sec}, {eta} left")?);
    bar.set_message("speaking");
    let voice = sample::write(&dir, &options, &|done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    println!("{}: {clips} clips at {rate_hz} Hz, {voice} voice", dir.display());
    Ok(ExitCode::SUCCESS)
}
