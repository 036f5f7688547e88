//! `myxtts synth`

use super::{print_line, say};
use crate::audio::{wav_bytes, write_wav};
use crate::feed::Roles;
use crate::synth::{Options, Synthesizer};
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Speak a text with a trained voice.
#[derive(clap::Args)]
pub struct Args {
    /// A checkpoint, or a folder of them (its best one is taken)
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// What to say; `-` reads standard input
    #[arg(long, allow_hyphen_values = true)]
    text: String,
    /// WAV file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "out.wav")]
    output: PathBuf,
    /// Language of the text [default: the voice's]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Above 1 is faster
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, value_parser = within::<50, 200>)]
    speed: f64,
    /// Scale of the noise that speech is made from: lower is flatter
    #[arg(long, default_value_t = Options::default().temperature, allow_negative_numbers = true, value_parser = within::<0, 200>)]
    temperature: f64,
    /// Steps along the flow: more is finer and slower
    #[arg(long, default_value_t = Options::default().steps as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
    /// Of the noise: the same seed gives the same speech
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let text = if args.text == "-" {
        std::io::read_to_string(std::io::stdin()).context("standard input cannot be read as UTF-8 text")?
    } else {
        args.text
    };
    let device = Roles::named(&args.device)?;
    let voice = Synthesizer::load(&args.checkpoint, device)?;
    voice.note().iter().for_each(|note| say(format!("note: {note}")));
    let options = Options {
        steps: args.steps as usize,
        temperature: args.temperature,
        speed: args.speed,
        seed: i64::from(args.seed),
    };
    let unknown = voice.unknown(&text, args.language.as_deref());
    if !unknown.is_empty() {
        say(format!("note: the voice never heard these characters: {}", String::from_iter(unknown)));
    }
    let start = Instant::now();
    let samples = torchx::catch(|| voice.speak(&text, args.language.as_deref(), &options))??;
    let taken = start.elapsed().as_secs_f64();
    let seconds = samples.len() as f64 / f64::from(voice.rate_hz());
    let place = args.output.display();
    if args.output.as_os_str() == "-" {
        std::io::stdout().write_all(&wav_bytes(&samples, voice.rate_hz()))?;
        say(format!("{seconds:.1} s of speech in {taken:.1} s"));
        return Ok(ExitCode::SUCCESS);
    }
    write_wav(&args.output, &samples, voice.rate_hz())?;
    if args.json {
        let made = json!({ "output": args.output, "seconds": seconds, "real_time_factor": taken / seconds });
        print_line(format!("{made:#}"))?;
    } else {
        print_line(format!("{place}: {seconds:.1} s of speech in {taken:.1} s"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A number from `LOW` to `HIGH` hundredths.
fn within<const LOW: u32, const HIGH: u32>(text: &str) -> Result<f64, String> {
    let (low, high) = (f64::from(LOW) / 100.0, f64::from(HIGH) / 100.0);
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("accepted: {low} to {high}")) }
}
