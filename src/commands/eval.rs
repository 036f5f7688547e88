//! `myxtts eval`: how good a voice is.

use super::speaking::{ChosenVoice, options};
use super::stop_flag;
use crate::synth::Synthesizer;
use crate::tools::eval::{
    self, Case, EvaluatedClip, Evaluation, EvaluationFolder, EvaluationOptions, EvaluationSet, Recogniser, SpeechMode,
    SpeechSettings, SpokenCase,
};
use anyhow::{Context, Result, bail};
use cli::eval::Args;
use cli::{INTERRUPTED, print_line, progress, say};
use host::config::{Config, Overrides};
use host::corpus;
use host::error::Explained;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = stop_flag()?;
    let finished = evaluate(args, &stop)?;
    if finished.is_none() {
        say("stopped; the same command goes on");
    }
    Ok(finished.unwrap_or(ExitCode::from(INTERRUPTED)))
}

/// None when stopped.
fn evaluate(args: &Args, stop: &AtomicBool) -> Result<Option<ExitCode>> {
    let recogniser = args.asr_command.as_deref().map(Recogniser::new).transpose()?;
    let chosen = ChosenVoice::of(&args.voice)?;
    let config = &chosen.config;
    let EvaluationSet { cases, notes } = choose(args, config)?;
    notes.iter().for_each(|note| say(format!("note: {note}")));
    let voice = chosen.load()?;
    voice.notes().iter().for_each(|note| say(format!("note: {note}")));
    let manner = if args.copy { SpeechMode::Copy } else { SpeechMode::Speak(options(&args.flow)) };
    let settings = SpeechSettings::of(&chosen.checkpoint, chosen.vocoder.as_deref(), chosen.device, manner)?;
    let mut folder = EvaluationFolder::open(&args.output, &settings)?;

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
    let report = Evaluation::of(clips, failures);
    let pictures = eval::pictures(&report, &folder, args.pictures)?;
    print(&report, &folder, &pictures, args.json)?;
    Ok(Some(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

fn choose(args: &Args, config: &Config) -> Result<EvaluationSet> {
    let mut flags = Overrides::default();
    args.layout.set(&mut flags);
    let layout = corpus::ReadOptions::of(&Config::resolve(None, flags)?.data)?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    EvaluationSet::of(
        config,
        &EvaluationOptions { data: args.data.as_deref(), layout, part: args.part, limit, clone: args.clone },
    )
}

fn print(report: &Evaluation, folder: &EvaluationFolder, pictures: &[PathBuf], as_json: bool) -> Result<()> {
    let json = serde_json::to_string_pretty(report)?;
    let path = folder.report();
    fs::write(&path, &json).with_context(|| format!("{}: cannot be written", path.display()))?;
    if as_json {
        print_line(json)?;
        return Ok(());
    }
    let Evaluation { clips, failures, .. } = report;
    let seconds: f64 = clips.iter().map(|clip| clip.figures.spoken_seconds).sum();
    print_line(format!("{} sentences, {seconds:.0} s of speech", clips.len()))?;
    print_line(report.table())?;
    print_line(format!("report    {}", path.display()))?;
    pictures.iter().try_for_each(|path| print_line(format!("picture   {}", path.display())))?;
    failures.iter().try_for_each(|failure| print_line(format!("failed    {failure}")))?;
    Ok(())
}

struct Speech<'a> {
    voice: &'a Synthesizer,
    manner: SpeechMode,
}

impl Speech<'_> {
    /// What was spoken, now or before; none when stopped.
    fn all(
        &self,
        cases: &[Case],
        folder: &mut EvaluationFolder,
        failures: &mut Vec<String>,
        stop: &AtomicBool,
    ) -> Option<Vec<SpokenCase>> {
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

    fn one(&self, case: &Case, folder: &mut EvaluationFolder, warm: &mut bool) -> Result<SpokenCase> {
        if let SpeechMode::Speak(options) = self.manner
            && !std::mem::replace(warm, true)
        {
            // The first sentence pays for what is set up once; its time says nothing of the voice.
            eval::timed(case, self.voice, &options)?;
        }
        folder.speak(case, self.voice, self.manner)
    }
}

fn compare(
    spoken: &[SpokenCase],
    folder: &EvaluationFolder,
    failures: &mut Vec<String>,
    stop: &AtomicBool,
) -> Option<Vec<EvaluatedClip>> {
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
    let text = format!("{}: {}", case.utterance.id, Explained::of(error.as_ref()).fact);
    text.lines().next().unwrap_or_default().to_owned()
}
