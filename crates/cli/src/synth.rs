//! Flags of `myxtts synth`.

use crate::flags::{FlowFlags, VoiceFlags, within};
use host::audio::AudioFormat;
use host::config::speaking::{DEFAULT_LOUDNESS, LOUDNESS, SPEED};
use std::path::PathBuf;

/// Speak a text with a trained voice.
#[derive(clap::Args)]
#[command(after_help = "\
--stream writes samples as they come: mono, signed 16-bit little-endian, at the voice's rate (said on stderr). Play it:
  myxtts synth --checkpoint voice/ --text \"Hello there.\" --stream | aplay -f S16_LE -r 22050
  myxtts synth --checkpoint voice/ --text \"Hello there.\" --stream --format mp3 | mpv -")]
pub struct Args {
    #[command(flatten)]
    pub model: VoiceFlags,
    /// What to say; `-` reads standard input
    #[arg(long, allow_hyphen_values = true, group = "said")]
    pub text: Option<String>,
    /// A file with what to say, of any length
    #[arg(long, value_name = "FILE", group = "said")]
    pub text_file: Option<PathBuf>,
    /// Many texts, each into a file of its own in the folder of -o: lines of text, of `id|text`, or of JSON with text and
    /// any of id, language, reference, voice, speed, seed; `-` reads standard input. Files that are there are kept
    #[arg(long, value_name = "FILE", group = "said", conflicts_with = "stream")]
    pub batch: Option<PathBuf>,
    /// Standard input holds what to say
    #[arg(value_name = "-", value_parser = dash, group = "said")]
    pub stdin: Option<String>,
    /// File to write, whose ending is its format (wav, flac, mp3, opus, raw); `-` for standard output; with --batch a folder
    /// [default: out.wav, or `spoken`]
    #[arg(short, long, value_name = "PATH", conflicts_with = "stream")]
    pub output: Option<PathBuf>,
    /// Of the output [default: as its name says, else wav]
    #[arg(long, value_enum)]
    pub format: Option<AudioFormat>,
    /// Write to standard output as speech comes, beginning with the first clause [format: raw, if no other is given]
    #[arg(long)]
    pub stream: bool,
    /// Language of the text, or `auto` [default: the voice's]
    #[arg(long, value_name = "CODE")]
    pub language: Option<String>,
    /// Recordings of the speaker to sound like, any words: WAV, FLAC, MP3, OGG [default: the checkpoint's own voice]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub reference: Vec<PathBuf>,
    /// A voice of `myxtts voice make`: its file, or its name in `voices/`
    #[arg(long, value_name = "FILE", conflicts_with = "reference")]
    pub voice: Option<PathBuf>,
    /// Above 1 is faster
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, value_parser = within(SPEED))]
    pub speed: f64,
    /// Loudness of speech, LUFS after EBU R128, if the voice's recordings were brought to one
    #[arg(long, value_name = "LUFS", default_value_t = DEFAULT_LOUDNESS, allow_negative_numbers = true, value_parser = within(LOUDNESS))]
    pub loudness: f64,
    #[command(flatten)]
    pub flow: FlowFlags,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

/// A text that stands alone is refused: behind `--reference` it would be taken for a recording.
fn dash(text: &str) -> Result<String, &'static str> {
    if text == "-" { Ok(text.into()) } else { Err("a text goes behind --text; - alone reads standard input") }
}
