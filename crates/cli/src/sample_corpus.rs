//! `myxtts sample-corpus`: a small corpus to try everything with.

use crate::{INTERRUPTED, print_line, progress};
use host::tools::sample_corpus::{self, SampleCorpusOptions, SampleVoice, Speak};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Make a small corpus of spoken sentences, in the LJSpeech layout
#[derive(clap::Args)]
pub struct Args {
    /// Folder to make
    dir: PathBuf,
    /// Number of clips
    #[arg(long, value_name = "N", default_value_t = SampleCorpusOptions::default().clips)]
    clips: usize,
    /// Which sentences; the same seed gives the same corpus
    #[arg(long, default_value_t = SampleCorpusOptions::default().seed)]
    seed: u64,
    /// Sample rate of the clips
    #[arg(long, value_name = "HZ", default_value_t = SampleCorpusOptions::default().rate_hz)]
    sample_rate: u32,
    /// Who speaks: auto is the bundled voice, a mix of two of its speakers; without it espeak-ng; without that, the formant
    /// synthesiser
    #[arg(long, value_enum, default_value = "auto")]
    voice: Speaker,
    /// Rename a folder that holds other files, and take its place
    #[arg(long)]
    force: bool,
}

#[derive(Clone, clap::ValueEnum)]
enum Speaker {
    Auto,
    Bundled,
    Espeak,
    Formant,
}

impl Args {
    /// Whether the bundled voice shall speak, which computes with tensors.
    pub fn is_bundled(&self) -> bool {
        self.voice() == SampleVoice::Bundled
    }

    fn voice(&self) -> SampleVoice {
        match self.voice {
            Speaker::Auto if sample_corpus::bundled_speaks() => SampleVoice::Bundled,
            Speaker::Auto => SampleVoice::Auto,
            Speaker::Bundled => SampleVoice::Bundled,
            Speaker::Espeak => SampleVoice::Espeak,
            Speaker::Formant => SampleVoice::Formant,
        }
    }
}

/// Makes the corpus. `speak`: the bundled voice, where it is to be had.
pub fn run(args: Args, speak: Option<Speak>) -> anyhow::Result<ExitCode> {
    let voice = args.voice();
    let Args { dir, clips, seed, sample_rate: rate_hz, force, .. } = args;
    let options = SampleCorpusOptions { clips, seed, rate_hz, voice };
    if sample_corpus::is_written(&dir, &options)? {
        print_line(format!("{}: already there, {clips} clips with these options", dir.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if force && let Some(aside) = sample_corpus::move_aside(&dir)? {
        print_line(format!("{}: moved to {}", dir.display(), aside.display()))?;
    }
    let stop = progress::stop_flag(progress::exit)?;
    let bar = progress::bar(clips as u64, "speaking");
    let progress = |done| {
        bar.set_position(done as u64);
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let made = match speak {
        Some(speak) => sample_corpus::write_spoken(&dir, &options, speak, &progress),
        None => sample_corpus::write(&dir, &options, &progress),
    };
    bar.finish_and_clear();
    if let Err(sample_corpus::Error::Interrupted) = made {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let voice = made?;
    print_line(format!("{}: {clips} clips at {rate_hz} Hz, {voice} voice", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
