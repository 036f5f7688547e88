//! `myxtts synth`

use crate::audio::write_wav;
use crate::feed::Roles;
use crate::synth::{Options, Synthesizer};
use anyhow::Result;
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
    /// WAV file to write
    #[arg(short, long, value_name = "FILE", default_value = "out.wav")]
    output: PathBuf,
    /// Language of the text [default: the voice's]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Above 1 is faster
    #[arg(long, default_value_t = 1.0, value_parser = within::<50, 200>)]
    speed: f64,
    /// Scale of the noise that speech is made from: lower is flatter
    #[arg(long, default_value_t = Options::default().temperature, value_parser = within::<0, 200>)]
    temperature: f64,
    /// Steps along the flow: more is finer and slower
    #[arg(long, default_value_t = Options::default().steps as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
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
    let text = if args.text == "-" { std::io::read_to_string(std::io::stdin())? } else { args.text };
    let device = Roles::named(&args.device)?;
    let voice = Synthesizer::load(&args.checkpoint, device)?;
    let options = Options {
        steps: args.steps as usize,
        temperature: args.temperature,
        speed: args.speed,
        seed: i64::from(args.seed),
    };
    let unknown = voice.unknown(&text);
    if !unknown.is_empty() {
        eprintln!("note: the voice never heard these characters and cannot speak them: {}", String::from_iter(unknown));
    }
    let start = Instant::now();
    let samples = torchx::catch(|| voice.speak(&text, args.language.as_deref(), &options))??;
    let taken = start.elapsed().as_secs_f64();
    write_wav(&args.output, &samples, voice.rate_hz())?;
    let seconds = samples.len() as f64 / f64::from(voice.rate_hz());
    if args.json {
        let made =
            serde_json::json!({ "output": args.output, "seconds": seconds, "real_time_factor": taken / seconds });
        println!("{made:#}");
    } else {
        println!("{}: {seconds:.1} s of speech in {taken:.1} s", args.output.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// A number from `LOW` to `HIGH` hundredths.
fn within<const LOW: u32, const HIGH: u32>(text: &str) -> Result<f64, String> {
    let (low, high) = (f64::from(LOW) / 100.0, f64::from(HIGH) / 100.0);
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("accepted: {low} to {high}")) }
}
