//! Many texts, each into a file of its own: as many at once as a pass holds, the next one begun where one ends.

use super::{hear, options};
use crate::checkpoint::voice::Prompt;
use crate::commands::{stop_flag, voice};
use crate::synth::{Request, Synthesizer, Utterance};
use anyhow::{Context, Result, ensure};
use cli::synth::Args;
use cli::{INTERRUPTED, print_line, progress, say};
use host::audio::{AudioFileWriter, AudioFormat};
use host::config::speaking::SPEED;
use host::error::{Explained, hinted};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Texts that are sorted by length together: alike ones make full passes, and memory stays bounded.
const WINDOW: usize = 512;
/// Speakers that are remembered.
const MOST_SPEAKERS: usize = 64;
/// More texts at once gain nothing on a CPU.
const AT_ONCE_CPU: usize = 4;
const AT_ONCE_GPU: usize = 96;

/// One text of many.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    /// Names the file; without one, its line does.
    id: Option<String>,
    text: String,
    language: Option<String>,
    reference: Option<PathBuf>,
    voice: Option<PathBuf>,
    speed: Option<f64>,
    seed: Option<u64>,
    /// Where it was read.
    #[serde(skip)]
    line: usize,
}

/// What is being spoken.
struct Speaking {
    line: usize,
    utterance: Utterance,
    file: AudioFileWriter,
    path: PathBuf,
}

#[derive(Default)]
struct Tally {
    spoken: u64,
    kept: u64,
    failed: u64,
    seconds: f64,
}

/// Texts that cannot be spoken are told and counted; the rest are.
pub fn run(args: &Args, synthesizer: &Synthesizer, speaker: Option<Prompt>) -> Result<ExitCode> {
    let list = args.batch.as_deref().expect("only where there is a list");
    let folder = args.output.as_deref().unwrap_or(Path::new("spoken"));
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be created", folder.display()))?;
    let stop = stop_flag()?;
    let bar = progress::bar(count_lines(list), "speaking");
    let lines = BufReader::new(open(list)?).lines();
    let mut batch = Batch {
        args,
        synthesizer,
        speaker,
        speakers: HashMap::new(),
        folder,
        list,
        lines: Box::new(lines.enumerate()),
        queue: VecDeque::new(),
        tally: Tally::default(),
        bar,
    };
    let start = Instant::now();
    let done = batch.run(&stop);
    batch.bar.finish_and_clear();
    if !done? {
        say("stopped; the same command goes on");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let (tally, taken_s) = (batch.tally, start.elapsed().as_secs_f64());
    print_line(match args.json {
        true => format!(
            "{:#}",
            json!({
                "output": folder, "spoken": tally.spoken, "kept": tally.kept, "failed": tally.failed,
                "seconds": tally.seconds, "taken_s": taken_s, "times_real_time": tally.seconds / taken_s,
            })
        ),
        false => format!(
            "{}: {} spoken, {} kept, {} failed; {:.1} s of speech in {taken_s:.1} s, {:.0} times real time",
            folder.display(),
            tally.spoken,
            tally.kept,
            tally.failed,
            tally.seconds,
            tally.seconds / taken_s
        ),
    })?;
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn open(list: &Path) -> Result<Box<dyn io::Read>> {
    if list.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(list).with_context(|| format!("{}: cannot be read", list.display()))?))
}

/// For the bar; 0 where the list can be read once only.
fn count_lines(list: &Path) -> u64 {
    if !list.is_file() {
        return 0;
    }
    let Ok(file) = File::open(list) else { return 0 };
    BufReader::new(file).split(b'\n').map_while(Result::ok).filter(|line| !line.trim_ascii().is_empty()).count() as u64
}

struct Batch<'a> {
    args: &'a Args,
    synthesizer: &'a Synthesizer,
    speaker: Option<Prompt>,
    /// Voices and references that texts asked for.
    speakers: HashMap<PathBuf, Prompt>,
    folder: &'a Path,
    list: &'a Path,
    lines: Box<dyn Iterator<Item = (usize, io::Result<String>)>>,
    queue: VecDeque<Job>,
    tally: Tally,
    bar: ProgressBar,
}

impl Batch<'_> {
    /// Whether it came to the end.
    fn run(&mut self, stop: &AtomicBool) -> Result<bool> {
        let at_once = if self.synthesizer.device().is_cuda() { AT_ONCE_GPU } else { AT_ONCE_CPU };
        let mut speaking: Vec<Speaking> = Vec::new();
        loop {
            while speaking.len() < at_once {
                let Some(job) = self.next_job()? else { break };
                speaking.extend(self.begin(job, &speaking));
            }
            if speaking.is_empty() {
                return Ok(true);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let mut utterances: Vec<&mut Utterance> = speaking.iter_mut().map(|one| &mut one.utterance).collect();
            let spoken = self.synthesizer.advance(&mut utterances)?;
            let mut broken = Vec::new();
            for (one, samples) in speaking.iter_mut().zip(spoken) {
                match samples {
                    Ok(samples) => one.file.push(&samples)?,
                    Err(error) => broken.push((one.line, error)),
                }
            }
            for (line, error) in broken {
                speaking.retain(|one| one.line != line); // its file was never whole, and goes
                self.refuse(line, &error);
            }
            for one in speaking.extract_if(.., |one| one.utterance.is_done()) {
                self.tally.seconds += one.utterance.seconds();
                self.tally.spoken += 1;
                for note in one.utterance.notes() {
                    self.bar.suspend(|| say(format!("{}:{}: note: {note}", self.list.display(), one.line)));
                }
                one.file.finish()?;
                self.bar.inc(1);
            }
            let speed = self.tally.seconds / self.bar.elapsed().as_secs_f64().max(1e-3);
            self.bar.set_message(format!("{:.0} s of speech, {speed:.1} times real time", self.tally.seconds));
        }
    }

    /// The next text of the window; the longest come first, so that those of a pass end together.
    fn next_job(&mut self) -> Result<Option<Job>> {
        if self.queue.is_empty() {
            let mut window = Vec::new();
            while window.len() < WINDOW {
                let Some((index, line)) = self.lines.next() else { break };
                let line = line.with_context(|| format!("{}: cannot be read as UTF-8 text", self.list.display()))?;
                if line.trim().is_empty() {
                    continue;
                }
                match job(&line, index + 1) {
                    Ok(job) => window.push(job),
                    Err(error) => self.refuse(index + 1, &error),
                }
            }
            window.sort_by_key(|job| std::cmp::Reverse(job.text.len()));
            self.queue = window.into();
        }
        Ok(self.queue.pop_front())
    }

    fn begin(&mut self, job: Job, others: &[Speaking]) -> Option<Speaking> {
        let format = self.args.format.unwrap_or(AudioFormat::Wav);
        let path = self.folder.join(format!("{}.{}", job.id(), format.extension()));
        if path.exists() || others.iter().any(|other| other.path == path) {
            self.tally.kept += 1;
            self.bar.inc(1);
            return None;
        }
        let line = job.line;
        let begun = self.request(job).and_then(|request| self.synthesizer.begin(&request));
        let begun = begun.and_then(|utterance| {
            let file = AudioFileWriter::create(&path, format, self.synthesizer.rate_hz())?;
            Ok(Speaking { line, utterance, file, path })
        });
        begun.map_err(|error| self.refuse(line, &error)).ok()
    }

    fn refuse(&mut self, line: usize, error: &anyhow::Error) {
        self.tally.failed += 1;
        self.bar.inc(1);
        let why = Explained::of(error.as_ref());
        self.bar.suspend(|| say(format!("{}:{line}: {why}", self.list.display())));
    }

    fn request(&mut self, job: Job) -> Result<Request> {
        let mut options = options(self.args);
        options.speed = job.speed.unwrap_or(options.speed);
        options.seed = job.seed.unwrap_or(options.seed);
        let (slowest, fastest) = (SPEED.start(), SPEED.end());
        ensure!(SPEED.contains(&options.speed), "speed {}: accepted are {slowest} to {fastest}", options.speed);
        let prompt = match job.voice.as_ref().or(job.reference.as_ref()) {
            Some(path) => Some(self.speaker(path, job.voice.is_some())?),
            None => self.speaker.clone(),
        };
        Ok(Request { text: job.text, language: job.language.or(self.args.language.clone()), prompt, options })
    }

    fn speaker(&mut self, path: &Path, is_voice: bool) -> Result<Prompt> {
        if let Some(known) = self.speakers.get(path) {
            return Ok(known.clone());
        }
        let prompt = match is_voice {
            true => self.synthesizer.voice(&voice::find(path))?,
            false => hear(self.synthesizer, &[path.to_path_buf()])?.expect("one recording was given"),
        };
        if self.speakers.len() >= MOST_SPEAKERS {
            self.speakers.clear();
        }
        self.speakers.insert(path.to_path_buf(), prompt.clone());
        Ok(prompt)
    }
}

impl Job {
    fn id(&self) -> String {
        self.id.clone().unwrap_or_else(|| format!("{:05}", self.line))
    }
}

/// A line of JSON, of `id|text`, or of text alone.
fn job(line: &str, number: usize) -> Result<Job> {
    let mut job: Job = if line.trim_start().starts_with('{') {
        serde_json::from_str(line).context("not a JSON object with text and, if need be, id, language and reference")?
    } else {
        let (id, text) = line.split_once('|').map_or((None, line), |(id, text)| (Some(id.to_owned()), text));
        // LJSpeech's lists hold the text twice: as written, and spelled out.
        let text = text.split('|').next().unwrap_or_default().to_owned();
        Job { id, text, ..Job::default() }
    };
    job.line = number;
    let id = job.id();
    if id.is_empty() || id.len() >= 200 || id.starts_with('.') || id.contains(['/', '\\', '\0']) {
        return Err(hinted(format!("`{id}` cannot name a file"), "letters, digits, dots and dashes"));
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_form_become_jobs() {
        let told = |line: &str, number: usize| job(line, number).map(|job| (job.id(), job.text));
        assert_eq!(told("Good morning.", 7).unwrap(), ("00007".into(), "Good morning.".into()));
        assert_eq!(told("a1|Dr. X|Doctor X", 1).unwrap(), ("a1".into(), "Dr. X".into()));
        let full = job(r#"{"text": "Hallo", "language": "de", "reference": "a.wav", "speed": 1.5}"#, 2).unwrap();
        assert_eq!((full.id().as_str(), full.language.as_deref(), full.speed), ("00002", Some("de"), Some(1.5)));
        assert!(job("../up|text", 1).is_err() && job("{broken", 1).is_err() && job("..|text", 1).is_err());
    }
}
