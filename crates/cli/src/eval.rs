//! Flags of `myxtts eval`.

use crate::flags::{FlowFlags, Layout, RecogniserFlags, VoiceFlags};
use host::dataset::Part;
use std::path::PathBuf;

/// Speak sentences that the voice never heard, and hold them against their recordings
///
/// Mel-cepstral distortion, errors of pitch and voicing after alignment, duration, speed; likeness to the speaker and to
/// others by the voice's own decoder; word error and likeness through recognisers of yours. The folder keeps what was spoken, so the same command goes on where it was stopped.
///
/// Exit code 0: every sentence was compared; 1: some could not be, each is listed; 2: nothing could.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// Corpus to speak sentences of [default: that of the training]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub layout: Layout,
    /// Which of its clips
    #[arg(long, value_enum, default_value = "auto")]
    pub part: Part,
    /// Sentences to speak, at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Speak each in the voice of another recording of its speaker [default: the checkpoint's own voice]
    #[arg(long)]
    pub clone: bool,
    /// Put the recordings through the vocoder instead of speaking: the best that any voice can sound with it
    #[arg(long, conflicts_with_all = ["clone", "steps", "temperature", "guidance", "seed"])]
    pub copy: bool,
    /// Tell where quality goes: the recordings through the vocoder, then recorded durations, then everything predicted, then
    /// clones, each in a folder of its own
    #[arg(long, conflicts_with = "copy")]
    pub parts: bool,
    #[command(flatten)]
    pub recogniser: RecogniserFlags,
    /// Recogniser of speakers: run as the other is, and prints the numbers of an embedding for each file
    #[arg(long, value_name = "COMMAND")]
    pub speaker_command: Option<String>,
    /// Folder for speech, pictures, report.json, and listen.html, a page to listen with
    #[arg(short, long, value_name = "DIR", default_value = "eval")]
    pub output: PathBuf,
    /// Pictures of the worst sentences
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub pictures: usize,
    #[command(flatten)]
    pub flow: FlowFlags,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
