//! Flags of `myxtts export`.

use crate::flags::{SamplingFlags, ThreadFlags};
use std::path::PathBuf;

/// Write a voice as files that run without this program.
#[derive(clap::Args)]
#[command(after_help = "\
Writes FILE.onnx, FILE.onnx.json and tokens.txt, which Piper, sherpa-onnx and onnxruntime speak with: docs/export.md.
  myxtts export -o anna/anna.onnx --voices anna
  piper -m anna/anna.onnx -f hello.wav -- \"Hello there.\"")]
pub struct Args {
    /// A checkpoint, or a folder of them (its newest one is taken) [default: the bundled voice]
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// A checkpoint of `train-vocoder` [default: the bundled vocoder, if it takes the voice's frames]
    #[arg(long, value_name = "DIR")]
    pub vocoder: Option<PathBuf>,
    /// Voices that the file speaks with: files, folders of them, or names; `default` is the checkpoint's own. Several are
    /// chosen by number, in this order [default: default]
    #[arg(long, value_name = "VOICE", num_args = 1..)]
    pub voices: Vec<PathBuf>,
    /// File to write [default: voice.onnx, or voice.safetensors]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// onnx speaks; safetensors is one file with weights, settings and tokenizer, to build on
    #[arg(long, value_enum, default_value_t = Format::Onnx)]
    pub format: Format,
    /// Language that is spoken [default: the voice's]
    #[arg(long, value_name = "CODE")]
    pub language: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingFlags,
    /// Keep weights in half precision: half the size
    #[arg(long)]
    pub fp16: bool,
    /// Compute products with 8-bit weights: a quarter of the size
    #[arg(long, conflicts_with = "fp16")]
    pub int8: bool,
    /// Take the sound of anybody: adds an input for a voice, and writes FILE.reference.onnx, which makes one of a recording
    #[arg(long)]
    pub reference_encoder: bool,
    /// Speak with the file in onnxruntime and compare with this program
    #[arg(long)]
    pub verify: bool,
    /// Python that has onnxruntime, for --verify
    #[arg(long, value_name = "PROGRAM", default_value = "python3", requires = "verify")]
    pub python: PathBuf,
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

/// Kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Onnx,
    Safetensors,
}
