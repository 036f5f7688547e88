//! `myxtts serve`

use super::speaking::{device, load};
use super::stop_flag;
use crate::serve::{ServerSettings, Voices, serve};
use crate::synth::Options;
use anyhow::Result;
use cli::serve::Args;
use cli::{print_line, say};
use host::bundled;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tch::Device;

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
        token: web::token::read(args.token_file.as_deref())?.map(|token| blake3::hash(token.as_bytes())),
        origins: args.allow_origin.clone(),
        model: "myxtts".to_owned(),
    })
}
