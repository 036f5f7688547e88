//! Flags of `myxtts serve`.

use crate::flags::VoiceFlags;
use std::net::IpAddr;
use std::path::PathBuf;

/// Speak for others over HTTP, as OpenAI's clients ask for it; with a page to try it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub voice: VoiceFlags,
    /// Voice files and recordings to offer, each under its file's name [default: the bundled speakers, with the bundled voice]
    #[arg(long, value_name = "DIR")]
    pub voices: Option<PathBuf>,
    /// Let clients send recordings to sound like; kept in memory
    #[arg(long)]
    pub allow_uploads: bool,
    /// Address to listen on; 0.0.0.0 lets others in
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// 0 picks a free one
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// File with the bearer token that clients must send [default: the variable MYXTTS_TOKEN, or none]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Site whose pages may use this server, as in https://example.org; may be given again
    #[arg(long, value_name = "URL")]
    pub allow_origin: Vec<String>,
    /// Requests accepted at one time; one more is told to come back
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub queue: u64,
    /// Requests spoken in one forward pass [default: 16 on a GPU, 2 on a CPU]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub batch: Option<u64>,
    /// Characters of one request
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub max_text: u64,
    /// Seconds that a request may take
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Seconds that requests under way have to finish when the server is told to stop [default: as --timeout, so that
    /// nothing is lost]
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub drain: Option<u64>,
}
