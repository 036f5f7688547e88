//! `myxtts synth`

mod batch;
mod sink;

use super::{speaking, stop_flag, voice};
use crate::checkpoint::voice::Prompt;
use crate::synth::{Options, Request, Synthesizer, Utterance};
use anyhow::{Context, Result};
use cli::synth::Args;
use cli::{INTERRUPTED, print_line, progress, say};
use host::error::{WithHint, hinted};
use serde_json::json;
use sink::Sink;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    // What cannot be read is told before a voice is loaded.
    let text = args.batch.is_none().then(|| given_text(args)).transpose()?;
    let synthesizer = speaking::load(&args.model)?;
    synthesizer.notes().iter().for_each(|note| say(format!("note: {note}")));
    let prompt = speaker(args, &synthesizer)?;
    match text {
        Some(text) => speak_one(args, &synthesizer, prompt, text, began),
        None => batch::run(args, &synthesizer, prompt),
    }
}

fn options(args: &Args) -> Options {
    let loudness = Some(args.loudness);
    Options { speed: args.speed, loudness, early: args.stream, ..speaking::options(&args.flow) }
}

fn given_text(args: &Args) -> Result<String> {
    let bytes = match (&args.text, &args.text_file) {
        (Some(text), _) if text != "-" => return Ok(text.clone()),
        (_, Some(file)) if file.as_os_str() != "-" => {
            fs::read(file).with_context(|| format!("{}: cannot be read", file.display()))?
        }
        (None, None) if args.stdin.is_none() => {
            let ways = "--text \"Hello there.\", --text-file FILE, --batch FILE, or - for standard input";
            return Err(hinted("nothing to say", ways));
        }
        _ => {
            let mut bytes = Vec::new();
            std::io::copy(&mut std::io::stdin(), &mut bytes).context("standard input cannot be read")?;
            bytes
        }
    };
    String::from_utf8(bytes).hint("`iconv -t utf-8` converts it").context("the text is not UTF-8")
}

/// Who the flags say shall speak.
fn speaker(args: &Args, synthesizer: &Synthesizer) -> Result<Option<Prompt>> {
    match &args.voice {
        Some(name) => synthesizer.voice(&voice::find(name)).map(Some),
        None => hear(synthesizer, &args.reference),
    }
}

/// The voice of recordings, where there are any; what is to be said of them goes to stderr.
fn hear(synthesizer: &Synthesizer, recordings: &[PathBuf]) -> Result<Option<Prompt>> {
    if recordings.is_empty() {
        return Ok(None);
    }
    let heard = synthesizer.hear(recordings)?;
    heard.notes.iter().for_each(|note| say(format!("note: {note}")));
    Ok(Some(synthesizer.prompt(&heard.voice)))
}

fn speak_one(
    args: &Args,
    synthesizer: &Synthesizer,
    prompt: Option<Prompt>,
    text: String,
    began: Instant,
) -> Result<ExitCode> {
    let output = args.output.as_deref().unwrap_or(Path::new("out.wav"));
    let start = Instant::now();
    let request = Request { text, language: args.language.clone(), prompt, options: options(args) };
    let mut utterance = synthesizer.begin(&request)?;
    drop(request);
    let mut sink = Sink::open(output, args.format, args.stream, synthesizer.rate_hz())?;
    let stop = stop_flag()?;
    let bar = progress::bar(100, "speaking");
    let mut first_audio_s = None;
    while !utterance.is_done() && !stop.load(Ordering::Relaxed) {
        let samples = synthesizer.advance(&mut [&mut utterance])?.remove(0)?;
        sink.push(&samples)?;
        if !samples.is_empty() && first_audio_s.is_none() {
            first_audio_s = Some(start.elapsed().as_secs_f64());
        }
        bar.set_position((utterance.progress() * 100.0) as u64);
        bar.set_message(format!("{:.0} s of speech", utterance.seconds()));
    }
    bar.finish_and_clear();
    if !utterance.is_done() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let place = sink.place();
    sink.finish()?;
    utterance.notes().iter().for_each(|note| say(format!("note: {note}")));
    let times = Times {
        load_s: (start - began).as_secs_f64(),
        first_audio_s: first_audio_s.unwrap_or_default(),
        taken_s: start.elapsed().as_secs_f64(),
    };
    let told = if args.json { as_json(&place, &utterance, &times) } else { as_text(&place, &utterance, &times) };
    // Standard output may hold the speech itself.
    match place.as_str() {
        "-" => say(told),
        _ => print_line(told)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How long things took.
struct Times {
    load_s: f64,
    /// From the request on, as the next.
    first_audio_s: f64,
    taken_s: f64,
}

fn as_text(place: &str, utterance: &Utterance, times: &Times) -> String {
    let (seconds, peak_db) = (utterance.seconds(), 20.0 * utterance.peak().log10());
    let limited = match utterance.limited_db() {
        db if db >= 0.1 => format!(", its loudest moment turned down by {db:.1} dB"),
        _ => String::new(),
    };
    format!(
        "{place}: {seconds:.1} s of speech in {:.1} s (real-time factor {:.3}), first sound after {:.2} s, \
         peak {peak_db:.1} dB{limited}",
        times.taken_s,
        times.taken_s / seconds,
        times.first_audio_s,
    )
}

fn as_json(place: &str, utterance: &Utterance, times: &Times) -> String {
    let seconds = utterance.seconds();
    let made = json!({
        "output": place,
        "seconds": seconds,
        "taken_s": times.taken_s,
        "real_time_factor": times.taken_s / seconds,
        "first_audio_s": times.first_audio_s,
        "load_s": times.load_s,
        "peak": utterance.peak(),
        "limited_db": utterance.limited_db(),
        "notes": utterance.notes(),
    });
    format!("{made:#}")
}
