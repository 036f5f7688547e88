//! Flags of `myxtts voice`: voices by example, in files.

use crate::flags::{ThreadFlags, within};
use std::path::PathBuf;

/// Where voices are kept and looked for by name.
pub const FOLDER: &str = "voices";
const JSON: &str = "Print it as JSON";

/// Make, list and mix voices: small files with a stretch of somebody's speech to go on in.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub what: What,
}

impl Args {
    pub fn threads(&self) -> ThreadFlags {
        match self.what {
            What::Make { threads, .. } => threads,
            _ => ThreadFlags::default(),
        }
    }
}

#[derive(clap::Subcommand)]
pub enum What {
    /// From recordings of one speaker, any words
    Make {
        /// The model that shall speak: a checkpoint, or a folder of them [default: the bundled voice]
        #[arg(long, value_name = "DIR")]
        checkpoint: Option<PathBuf>,
        /// WAV, FLAC, MP3 or OGG; several have equal shares
        #[arg(required = true, value_name = "RECORDING")]
        recordings: Vec<PathBuf>,
        /// File to write, or a name in `voices/` [default: named after the first recording]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// auto, cpu, cuda or cuda:N
        #[arg(long, default_value = "auto")]
        device: String,
        #[command(flatten)]
        threads: ThreadFlags,
        #[arg(long, help = JSON)]
        json: bool,
    },
    /// The voices in a folder [default: `voices/`, and the bundled speakers]
    List {
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
        #[arg(long, help = JSON)]
        json: bool,
    },
    /// What is in a voice file
    Info {
        /// Its file, or its name in `voices/`
        voice: PathBuf,
        #[arg(long, help = JSON)]
        json: bool,
    },
    /// One between two others
    Mix {
        a: PathBuf,
        b: PathBuf,
        /// 0 is the first, 1 the second
        #[arg(long, default_value_t = 0.5, value_parser = within(0.0..=1.0))]
        weight: f64,
        /// File to write, or a name in `voices/`
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[arg(long, help = JSON)]
        json: bool,
    },
}
