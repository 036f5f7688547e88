//! `myxtts serve`

use super::speaking::{device, load};
use super::stop_flag;
use crate::serve::{ServerSettings, Voices, serve};
use crate::synth::Options;
use anyhow::{Context, Result};
use cli::serve::Args;
use cli::{print_line, say};
use host::bundled;
use host::error::hinted;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tch::Device;

const TOKEN: &str = "MYXTTS_TOKEN";

pub fn run(args: &Args) -> Result<ExitCode> {
    let settings = settings(args, device(&args.voice)?)?;
    let mut voice = load(&args.voice)?;
    voice.warm_up(&Options::default())?;
    voice.notes().iter().for_each(|note| say(format!("note: {note}")));
    let bundled = if args.voice.is_bundled() { bundled::find().map(|bundled| bundled.speakers()) } else { None };
    let note = |note: &str| say(format!("note: {note}"));
    let voices = args.voices.clone().or(bundled).map(|folder| Voices::load(&folder, &voice, &note)).transpose()?;
    let voices = voices.unwrap_or_default();
    if !args.host.is_loopback() && settings.token.is_none() {
        say("note: whoever reaches this address may use it; --token-file asks for a token");
    }
    let stop = stop_flag()?;
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

fn settings(args: &Args, device: Device) -> Result<ServerSettings> {
    let seconds = Duration::from_secs;
    let usual_batch = if device.is_cuda() { 16 } else { 2 };
    Ok(ServerSettings {
        address: SocketAddr::new(args.host, args.port),
        queue: args.queue as usize,
        batch: args.batch.unwrap_or(usual_batch) as usize,
        max_text: args.max_text as usize,
        timeout: seconds(args.timeout),
        drain: seconds(args.drain.unwrap_or(args.timeout)),
        allow_uploads: args.allow_uploads,
        token: token(args.token_file.as_deref())?,
        origins: args.allow_origin.clone(),
        model: "myxtts".to_owned(),
    })
}

/// The token that clients must send. Never a flag: whoever lists processes would see it.
fn token(file: Option<&Path>) -> Result<Option<blake3::Hash>> {
    let (token, place) = match file {
        Some(path) => (Some(read_token(path)?), path.display().to_string()),
        None => (env::var(TOKEN).ok(), TOKEN.to_owned()),
    };
    let Some(token) = token else { return Ok(None) };
    let token = token.trim();
    if token.is_empty() {
        return Err(hinted(format!("{place}: empty, and a token is wanted"), "`openssl rand -hex 32` makes one"));
    }
    Ok(Some(blake3::hash(token.as_bytes())))
}

fn read_token(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))
}
