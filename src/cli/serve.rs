//! `myxtts serve`

use super::voice_flags::VoiceFlags;
use super::{print_line, progress, say};
use crate::serve::{ServerSettings, Voices, serve};
use crate::synth::Options;
use anyhow::{Context, Result, ensure};
use std::env;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tch::Device;

const TOKEN: &str = "MYXTTS_TOKEN";

/// Speak for others over HTTP, as OpenAI's clients ask for it; with a page to try it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    voice: VoiceFlags,
    /// Voice files and recordings to offer, each under its file's name
    #[arg(long, value_name = "DIR")]
    voices: Option<PathBuf>,
    /// Let clients send recordings to sound like; kept in memory
    #[arg(long)]
    allow_uploads: bool,
    /// Address to listen on; 0.0.0.0 lets others in
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// 0 picks a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// File with the bearer token that clients must send [default: the variable MYXTTS_TOKEN, or none]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Site whose pages may use this server, as in https://example.org; may be given again
    #[arg(long, value_name = "URL")]
    allow_origin: Vec<String>,
    /// Requests accepted at one time; one more is told to come back
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    queue: u64,
    /// Requests spoken in one forward pass [default: 16 on a GPU, 2 on a CPU]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    batch: Option<u64>,
    /// Characters of one request
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_text: u64,
    /// Seconds that a request may take
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Seconds that requests under way have to finish when the server is told to stop [default: as --timeout, so that
    /// nothing is lost]
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    drain: Option<u64>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let settings = args.settings(args.voice.device()?)?;
    let mut voice = args.voice.load()?;
    voice.warm_up(&Options::default())?;
    voice.notes().iter().for_each(|note| say(format!("note: {note}")));
    let voices = args.voices.as_deref().map(|folder| Voices::load(folder, &voice)).transpose()?.unwrap_or_default();
    if !args.host.is_loopback() && settings.token.is_none() {
        say("note: whoever reaches this address may use it; --token-file asks for a token");
    }
    let stop = progress::stop_flag()?;
    // A program that starts the server reads here which port it got.
    let ready = |address: SocketAddr| drop(print_line(format!("listening on http://{address}")));
    let tell = |failure: &str| say(format!("error: {failure}"));
    let ended = serve(voice, voices, settings, ready, tell, &stop)?;
    if !ended.drained {
        say("some requests were not done in time and were cut; --drain gives them more");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn settings(&self, device: Device) -> Result<ServerSettings> {
        let seconds = Duration::from_secs;
        let usual_batch = if device.is_cuda() { 16 } else { 2 };
        Ok(ServerSettings {
            address: SocketAddr::new(self.host, self.port),
            queue: self.queue as usize,
            batch: self.batch.unwrap_or(usual_batch) as usize,
            max_text: self.max_text as usize,
            timeout: seconds(self.timeout),
            drain: seconds(self.drain.unwrap_or(self.timeout)),
            allow_uploads: self.allow_uploads,
            token: self.token()?,
            origins: self.allow_origin.clone(),
            model: "myxtts".to_owned(),
        })
    }

    /// Never a flag: whoever lists processes would see it.
    fn token(&self) -> Result<Option<blake3::Hash>> {
        let (token, place) = match &self.token_file {
            Some(path) => (Some(read_token(path)?), path.display().to_string()),
            None => (env::var(TOKEN).ok(), TOKEN.to_owned()),
        };
        let Some(token) = token else { return Ok(None) };
        let token = token.trim();
        ensure!(!token.is_empty(), "{place}: empty, and a token is wanted\nhint: `openssl rand -hex 32` makes one");
        Ok(Some(blake3::hash(token.as_bytes())))
    }
}

fn read_token(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))
}
