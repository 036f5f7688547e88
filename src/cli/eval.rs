//! `myxtts eval`: how good a voice is.

use super::flow_flags::FlowFlags;
use super::layout::Layout;
use super::voice_flags::VoiceFlags;
use super::{INTERRUPTED, print_line, progress, say};
use crate::checkpoint::{Checkpoint, RunKind};
use crate::synth::Synthesizer;
use crate::tools::eval::{
    self, Case, Choice, Clip, Folder, Manner, Part, Recogniser, Report, Settings, Spoken, Wanted,
};
use anyhow::{Context, Result, bail};
use host::config::{Config, Overrides};
use host::corpus;
use host::error::Explained;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Speak sentences that the voice never heard, and hold them against their recordings
///
/// Mel-cepstral distortion, errors of pitch and voicing after alignment, duration, speed; word error through a recogniser
/// of yours. The folder keeps what was spoken, so the same command goes on where it was stopped.
///
/// Exit code 0: every sentence was compared; 1: some could not be, each is listed; 2: nothing could.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    voice: VoiceFlags,
    /// Corpus to speak sentences of [default: that of the training]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    layout: Layout,
    /// Which of its clips
    #[arg(long, value_enum, default_value = "auto")]
    part: Part,
    /// Sentences to speak, at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Speak each in the voice of another recording of its speaker [default: the checkpoint's own voice]
    #[arg(long)]
    clone: bool,
    /// Put the recordings through the vocoder instead of speaking: the best that any voice can sound with it
    #[arg(long, conflicts_with_all = ["clone", "steps", "temperature", "guidance", "seed"])]
    copy: bool,
    /// Recogniser: a program that is run for each file, `prog {wav}`, and prints what it hears; or, without `{wav}`, once,
    /// with a path a line on standard input, and prints lines `path|text`
    #[arg(long, value_name = "COMMAND")]
    asr_command: Option<String>,
    /// Folder for speech, pictures and report.json
    #[arg(short, long, value_name = "DIR", default_value = "eval")]
    output: PathBuf,
    /// Pictures of the worst sentences
    #[arg(long, value_name = "N", default_value_t = 5)]
    pictures: usize,
    #[command(flatten)]
    flow: FlowFlags,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = progress::stop_flag()?;
    let finished = evaluate(args, &stop)?;
    if finished.is_none() {
        say("stopped; the same command goes on");
    }
    Ok(finished.unwrap_or(ExitCode::from(INTERRUPTED)))
}

/// None when stopped.
fn evaluate(args: &Args, stop: &AtomicBool) -> Result<Option<ExitCode>> {
    let recogniser = args.asr_command.as_deref().map(Recogniser::new).transpose()?;
    let config = Checkpoint::open(args.voice.checkpoint())?.of_kind(RunKind::Voice)?.config;
    let Choice { cases, notes } = args.choose(&config)?;
    notes.iter().for_each(|note| say(format!("note: {note}")));
    let voice = args.voice.load()?;
    voice.notes().iter().for_each(|note| say(format!("note: {note}")));
    let manner = if args.copy { Manner::Copy } else { Manner::Speak(args.flow.options()) };
    let settings = Settings::of(args.voice.checkpoint(), args.voice.vocoder(), args.voice.device()?, manner)?;
    let mut folder = Folder::open(&args.output, &settings)?;

    let mut failures = Vec::new();
    let speech = Speech { voice: &voice, manner };
    let Some(spoken) = speech.all(&cases, &mut folder, &mut failures, stop) else { return Ok(None) };
    let Some(mut clips) = compare(&spoken, &folder, &mut failures, stop) else { return Ok(None) };
    if clips.is_empty() {
        bail!("no sentence could be spoken and compared: {}", failures.first().map_or("", String::as_str));
    }
    if let Some(recogniser) = recogniser {
        let bar = progress::bar(2 * clips.len() as u64, "listening");
        let heard = eval::listen(&mut clips, &recogniser, &config.data.language, &|n| bar.set_position(n as u64), stop);
        bar.finish_and_clear();
        if heard?.is_none() {
            return Ok(None);
        }
    }
    let report = Report::of(clips, failures);
    let pictures = eval::pictures(&report, &folder, args.pictures)?;
    args.tell(&report, &folder, &pictures)?;
    Ok(Some(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

impl Args {
    fn choose(&self, config: &Config) -> Result<Choice> {
        let mut flags = Overrides::default();
        self.layout.set(&mut flags);
        let layout = corpus::ReadOptions::of(&Config::resolve(None, flags)?.data)?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Choice::of(config, &Wanted { data: self.data.as_deref(), layout, part: self.part, limit, clone: self.clone })
    }

    fn tell(&self, report: &Report, folder: &Folder, pictures: &[PathBuf]) -> Result<()> {
        let json = serde_json::to_string_pretty(report)?;
        let path = folder.report();
        fs::write(&path, &json).with_context(|| format!("{}: cannot be written", path.display()))?;
        if self.json {
            print_line(json)?;
            return Ok(());
        }
        let Report { clips, failures, .. } = report;
        let seconds: f64 = clips.iter().map(|clip| clip.figures.spoken_seconds).sum();
        print_line(format!("{} sentences, {seconds:.0} s of speech", clips.len()))?;
        print_line(report.table())?;
        print_line(format!("report    {}", path.display()))?;
        pictures.iter().try_for_each(|path| print_line(format!("picture   {}", path.display())))?;
        failures.iter().try_for_each(|failure| print_line(format!("failed    {failure}")))?;
        Ok(())
    }
}

struct Speech<'a> {
    voice: &'a Synthesizer,
    manner: Manner,
}

impl Speech<'_> {
    /// What was spoken, now or before; none when stopped.
    fn all(
        &self,
        cases: &[Case],
        folder: &mut Folder,
        failures: &mut Vec<String>,
        stop: &AtomicBool,
    ) -> Option<Vec<Spoken>> {
        let bar = progress::bar(cases.len() as u64, "speaking");
        let (mut spoken, mut warm) = (Vec::new(), false);
        for case in cases {
            if stop.load(Ordering::Relaxed) {
                bar.finish_and_clear();
                return None;
            }
            let one = folder.kept(case).map_or_else(|| self.one(case, folder, &mut warm), Ok);
            spoken.extend(one.map_err(|error| failures.push(told(case, &error))));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Some(spoken)
    }

    fn one(&self, case: &Case, folder: &mut Folder, warm: &mut bool) -> Result<Spoken> {
        if let Manner::Speak(options) = self.manner
            && !std::mem::replace(warm, true)
        {
            // The first sentence pays for what is set up once; its time says nothing of the voice.
            eval::timed(case, self.voice, &options)?;
        }
        folder.speak(case, self.voice, self.manner)
    }
}

fn compare(spoken: &[Spoken], folder: &Folder, failures: &mut Vec<String>, stop: &AtomicBool) -> Option<Vec<Clip>> {
    let bar = progress::bar(spoken.len() as u64, "comparing");
    let compared = eval::compare(spoken, folder, &|done| bar.set_position(done as u64), stop);
    bar.finish_and_clear();
    let mut clips = Vec::new();
    for (spoken, compared) in spoken.iter().zip(compared?) {
        clips.extend(compared.map_err(|error| failures.push(told(&spoken.case, &error))));
    }
    Some(clips)
}

/// A failure on one line; its hint would be repeated for every clip.
fn told(case: &Case, error: &anyhow::Error) -> String {
    format!("{}: {}", case.utterance.id, Explained::of(error.as_ref()).fact)
}
