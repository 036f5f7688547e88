//! `myxtts synth`

mod batch;
mod sink;

use super::flow_flags::FlowFlags;
use super::voice_flags::VoiceFlags;
use super::{INTERRUPTED, print_line, progress, say, voice, within};
use crate::audio::Format;
use crate::synth::voice::Prompt;
use crate::synth::{Options, Request, SPEED, Synthesizer, Utterance};
use anyhow::{Context, Result};
use serde_json::json;
use sink::Sink;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Speak a text with a trained voice.
#[derive(clap::Args)]
#[command(after_help = "\
--stream writes samples as they come: mono, signed 16-bit little-endian, at the voice's rate (said on stderr). Play it:
  myxtts synth --checkpoint voice/ --text \"Hello there.\" --stream | aplay -f S16_LE -r 22050")]
pub struct Args {
    #[command(flatten)]
    model: VoiceFlags,
    /// What to say; `-` reads standard input
    #[arg(long, allow_hyphen_values = true, group = "said")]
    text: Option<String>,
    /// A file with what to say, of any length
    #[arg(long, value_name = "FILE", group = "said")]
    text_file: Option<PathBuf>,
    /// Many texts, each into a file of its own in the folder of -o: lines of text, of `id|text`, or of JSON with text and
    /// any of id, language, reference, voice, speed, seed; `-` reads standard input. Files that are there are kept
    #[arg(long, value_name = "FILE", group = "said", conflicts_with = "stream")]
    batch: Option<PathBuf>,
    /// Standard input holds what to say
    #[arg(value_name = "-", value_parser = dash, group = "said")]
    stdin: Option<String>,
    /// File to write, `-` for standard output; with --batch a folder [default: out.wav, or `spoken`]
    #[arg(short, long, value_name = "PATH", conflicts_with = "stream")]
    output: Option<PathBuf>,
    /// Of the output [default: as its name says, else wav]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to standard output as speech comes, beginning with the first clause [format: raw, if no other is given]
    #[arg(long)]
    stream: bool,
    /// Language of the text, or `auto` [default: the voice's]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Recordings of the speaker to sound like, any words: WAV, FLAC, MP3, OGG [default: the checkpoint's own voice]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    reference: Vec<PathBuf>,
    /// A voice of `myxtts voice make`: its file, or its name in `voices/`
    #[arg(long, value_name = "FILE", conflicts_with = "reference")]
    voice: Option<PathBuf>,
    /// Above 1 is faster
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, value_parser = within(SPEED))]
    speed: f64,
    #[command(flatten)]
    flow: FlowFlags,
    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

/// A text that stands alone is refused: behind `--reference` it would be taken for a recording.
fn dash(text: &str) -> Result<String, &'static str> {
    if text == "-" { Ok(text.into()) } else { Err("a text goes behind --text; - alone reads standard input") }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let began = Instant::now();
    // What cannot be read is told before a voice is loaded.
    let text = args.batch.is_none().then(|| args.given_text()).transpose()?;
    let synthesizer = args.model.load()?;
    synthesizer.notes().iter().for_each(|note| say(format!("note: {note}")));
    let prompt = args.speaker(&synthesizer)?;
    match text {
        Some(text) => speak_one(&args, &synthesizer, prompt, text, began),
        None => batch::run(&args, &synthesizer, prompt),
    }
}

impl Args {
    fn options(&self) -> Options {
        Options { speed: self.speed, early: self.stream, ..self.flow.options() }
    }

    fn given_text(&self) -> Result<String> {
        let bytes = match (&self.text, &self.text_file) {
            (Some(text), _) if text != "-" => return Ok(text.clone()),
            (_, Some(file)) if file.as_os_str() != "-" => {
                fs::read(file).with_context(|| format!("{}: cannot be read", file.display()))?
            }
            (None, None) if self.stdin.is_none() => anyhow::bail!(
                "nothing to say\nhint: --text \"Hello there.\", --text-file FILE, --batch FILE, or - for standard input"
            ),
            _ => {
                let mut bytes = Vec::new();
                std::io::copy(&mut std::io::stdin(), &mut bytes).context("standard input cannot be read")?;
                bytes
            }
        };
        String::from_utf8(bytes).context("the text is not UTF-8\nhint: `iconv -t utf-8` converts it")
    }

    /// Who the flags say shall speak.
    fn speaker(&self, synthesizer: &Synthesizer) -> Result<Option<Prompt>> {
        match &self.voice {
            Some(name) => synthesizer.voice(&voice::find(name)).map(Some),
            None => hear(synthesizer, &self.reference),
        }
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
    let request = Request { text, language: args.language.clone(), prompt, options: args.options() };
    let mut utterance = synthesizer.begin(&request)?;
    drop(request);
    let mut sink = Sink::open(output, args.format, args.stream, synthesizer.rate_hz())?;
    let stop = progress::stop_flag()?;
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
