//! `myxtts synth`

use super::{INTERRUPTED, print_line, progress, say};
use crate::audio::{wav_bytes, write_wav};
use crate::feed::Roles;
use crate::model::Sampling;
use crate::synth::{Options, Request, Synthesizer};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Speak a text with a trained voice.
#[derive(clap::Args)]
pub struct Args {
    /// A checkpoint, or a folder of them (its best one is taken)
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// A checkpoint of `train-vocoder` [default: Griffin-Lim, which needs no training and sounds hollow]
    #[arg(long, value_name = "DIR")]
    vocoder: Option<PathBuf>,
    /// What to say; `-` reads standard input
    #[arg(long, allow_hyphen_values = true, required_unless_present = "text_file")]
    text: Option<String>,
    /// Many texts, each into a file of its own: lines of text, of `id|text`, or of JSON with text, id, language, reference
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    text_file: Option<PathBuf>,
    /// WAV file to write, `-` for standard output; with --text-file a folder, where files that are there are kept
    #[arg(short, long, value_name = "PATH", default_value = "out.wav")]
    output: PathBuf,
    /// Language of the text [default: the voice's]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Recording of the speaker to sound like, any words; several are averaged [default: the checkpoint's own voice]
    #[arg(long, value_name = "FILE")]
    reference: Vec<PathBuf>,
    /// Above 1 is faster
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, value_parser = within::<50, 200>)]
    speed: f64,
    /// Scale of the noise that speech is made from: lower is flatter
    #[arg(long, default_value_t = Options::default().sampling.temperature, allow_negative_numbers = true, value_parser = within::<0, 200>)]
    temperature: f64,
    /// Pull towards text and speaker: above 1 is clearer and less varied, and takes twice the time
    #[arg(long, default_value_t = Options::default().sampling.guidance, allow_negative_numbers = true, value_parser = within::<0, 1000>)]
    guidance: f64,
    /// Steps along the flow: more is finer and slower
    #[arg(long, default_value_t = Options::default().sampling.steps as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
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
    let device = Roles::named(&args.device)?;
    let voice = Synthesizer::load(&args.checkpoint, args.vocoder.as_deref(), device)?;
    voice.note().iter().for_each(|note| say(format!("note: {note}")));
    match &args.text_file {
        Some(file) => speak_all(&args, &voice, file),
        None => speak_one(&args, &voice),
    }
}

impl Args {
    fn options(&self) -> Options {
        let sampling = Sampling { steps: self.steps as usize, temperature: self.temperature, guidance: self.guidance };
        Options { sampling, speed: self.speed, seed: u64::from(self.seed), early: false }
    }

    /// Samples of one text. `language` and `reference` win over the flags.
    fn speak(
        &self,
        voice: &Synthesizer,
        text: &str,
        language: Option<&str>,
        reference: Option<&PathBuf>,
    ) -> Result<Vec<f32>> {
        let language = language.or(self.language.as_deref());
        let references = reference.map_or(self.reference.as_slice(), std::slice::from_ref);
        let heard = (!references.is_empty()).then(|| voice.hear(references)).transpose()?;
        let latents = heard.map(|heard| heard.latents);
        let language = language.map(str::to_owned);
        Ok(voice.speak(&Request { text: text.to_owned(), language, latents, options: self.options() })?.samples)
    }
}

fn speak_one(args: &Args, voice: &Synthesizer) -> Result<ExitCode> {
    let text = match args.text.as_deref() {
        Some("-") | None => {
            std::io::read_to_string(std::io::stdin()).context("standard input cannot be read as UTF-8 text")?
        }
        Some(text) => text.to_owned(),
    };
    let start = Instant::now();
    let samples = args.speak(voice, &text, None, None)?;
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

/// One text of many.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    /// Names the file; without one, its line does.
    id: Option<String>,
    text: String,
    language: Option<String>,
    reference: Option<PathBuf>,
}

/// Texts that cannot be spoken are told and counted; the rest are.
fn speak_all(args: &Args, voice: &Synthesizer, file: &Path) -> Result<ExitCode> {
    let content = fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    fs::create_dir_all(&args.output).with_context(|| format!("{}: cannot be created", args.output.display()))?;
    let stop = progress::stop_flag()?;
    let lines: Vec<(usize, &str)> = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    let bar = progress::bar(lines.len() as u64, "speaking");
    let (start, mut seconds, mut failed) = (Instant::now(), 0.0, 0);
    for (number, line) in lines {
        if stop.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            say("stopped; the same command goes on");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let place = format!("{}:{}", file.display(), number + 1);
        match job(line, number + 1).and_then(|job| speak_job(args, voice, job)) {
            Ok(spoken) => seconds += spoken,
            Err(error) => {
                failed += 1;
                bar.suspend(|| say(format!("{place}: {error:#}")));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let taken = start.elapsed().as_secs_f64();
    print_line(format!("{}: {seconds:.1} s of speech in {taken:.1} s, {failed} failed", args.output.display()))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Seconds that were spoken; 0 for a file that is there already.
fn speak_job(args: &Args, voice: &Synthesizer, job: Job) -> Result<f64> {
    let id = job.id.expect("every job has been given one");
    let path = args.output.join(format!("{id}.wav"));
    if path.exists() {
        return Ok(0.0);
    }
    let samples = args.speak(voice, &job.text, job.language.as_deref(), job.reference.as_ref())?;
    write_wav(&path, &samples, voice.rate_hz())?;
    Ok(samples.len() as f64 / f64::from(voice.rate_hz()))
}

/// A line of JSON, of `id|text`, or of text alone.
fn job(line: &str, number: usize) -> Result<Job> {
    let mut job = if line.trim_start().starts_with('{') {
        serde_json::from_str(line).context("not a JSON object with text and, if need be, id, language and reference")?
    } else {
        let (id, text) = line.split_once('|').map_or((None, line), |(id, text)| (Some(id.to_owned()), text));
        // LJSpeech's lists hold the text twice: as written, and spelled out.
        let text = text.split('|').next().unwrap_or_default().to_owned();
        Job { id, text, language: None, reference: None }
    };
    let id = job.id.get_or_insert_with(|| format!("{number:05}"));
    ensure!(
        !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '\\']),
        "`{id}` cannot name a file\nhint: letters, digits, dots and dashes"
    );
    Ok(job)
}

/// A number from `LOW` to `HIGH` hundredths.
pub(super) fn within<const LOW: u32, const HIGH: u32>(text: &str) -> Result<f64, String> {
    let (low, high) = (f64::from(LOW) / 100.0, f64::from(HIGH) / 100.0);
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("accepted: {low} to {high}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_form_become_jobs() {
        let plain =
            |id: &str, text: &str| Job { id: Some(id.into()), text: text.into(), language: None, reference: None };
        assert_eq!(job("Good morning.", 7).unwrap(), plain("00007", "Good morning."));
        assert_eq!(job("a1|Dr. X|Doctor X", 1).unwrap(), plain("a1", "Dr. X"));
        let full = job(r#"{"text": "Hallo", "language": "de", "reference": "a.wav"}"#, 2).unwrap();
        assert_eq!((full.id.as_deref(), full.language.as_deref()), (Some("00002"), Some("de")));
        assert!(job("../up|text", 1).is_err() && job("{broken", 1).is_err());
    }
}
