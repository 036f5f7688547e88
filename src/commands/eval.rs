//! `myxtts eval`: how good a voice is.

use super::speaking::{ChosenVoice, options};
use super::stop_flag;
use crate::synth::{Options, Synthesizer};
use crate::tools::eval::likeness::{self, LEAST_SPEAKERS};
use crate::tools::eval::{
    self, Case, Column, EvaluatedClip, EvaluatedPart, Evaluation, EvaluationFolder, EvaluationOptions, EvaluationPart,
    EvaluationSet, Sentence, SpeechMode, SpeechSettings, SpokenCase,
};
use anyhow::{Context, Result, bail};
use cli::eval::Args;
use cli::{INTERRUPTED, print_line, progress, say};
use host::config::{Config, Overrides};
use host::corpus;
use host::error::Explained;
use host::recogniser::Recogniser;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
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
    let recogniser = args.recogniser.recogniser()?;
    let speaker_recogniser = args.speaker_command.as_deref().map(Recogniser::new).transpose()?;
    let chosen = ChosenVoice::of(&args.voice)?;
    let config = &chosen.config;
    let EvaluationSet { cases, notes } = choose(args, config)?;
    notes.iter().for_each(|note| say(format!("note: {note}")));
    let voice = chosen.load()?;
    voice.notes().iter().for_each(|note| say(format!("note: {note}")));
    let Some(mut parts) = speak(args, &chosen, &cases, &voice, stop)? else { return Ok(None) };
    share_recordings(&mut parts, &cases, config);

    let mut clips: Vec<&mut EvaluatedClip> = parts.iter_mut().flat_map(|part| &mut part.clips).collect();
    if likeness_by_voice(&mut clips, &voice, stop)?.is_none() {
        return Ok(None);
    }
    if let Some(recogniser) = speaker_recogniser
        && likeness_by_recogniser(&mut clips, &recogniser, stop)?.is_none()
    {
        return Ok(None);
    }
    if let Some(recogniser) = recogniser {
        let bar = progress::bar(eval::heard_files(&clips).len() as u64, "listening");
        let heard = eval::listen(&mut clips, &recogniser, &config.data.language, &|n| bar.set_position(n as u64), stop);
        bar.finish_and_clear();
        if heard?.is_none() {
            return Ok(None);
        }
    }
    report(args, &chosen.checkpoint, parts).map(Some)
}

/// One part of an evaluation, or all there is of it.
struct Spoken {
    part: EvaluationPart,
    folder: EvaluationFolder,
    clips: Vec<EvaluatedClip>,
    failures: Vec<String>,
}

/// Speaks and compares every sentence in every way that is asked for; none when stopped.
fn speak(
    args: &Args,
    chosen: &ChosenVoice,
    cases: &[Case],
    voice: &Synthesizer,
    stop: &AtomicBool,
) -> Result<Option<Vec<Spoken>>> {
    let asked = match () {
        () if args.parts => EvaluationPart::all(args.clone, voice.clones()),
        () if args.copy => vec![EvaluationPart::Copy],
        () if args.clone => vec![EvaluationPart::Clone],
        () => vec![EvaluationPart::Spoken],
    };
    if args.parts {
        say("note: there is no part with recorded pitch: this voice predicts no pitch apart from its frames");
    }
    let mut parts = Vec::new();
    for part in asked {
        let cases = part.cases(cases);
        if cases.is_empty() {
            say(format!("note: no {}: there is no other recording of any speaker", part.name()));
            continue;
        }
        // As loud as the recordings that it is held against.
        let manner = part.mode(Options { loudness: None, ..options(&args.flow) });
        let settings = SpeechSettings::of(&chosen.checkpoint, chosen.vocoder.as_deref(), chosen.device, manner)?;
        let place = if args.parts { args.output.join(part.name()) } else { args.output.clone() };
        let (mut folder, mut failures) = (EvaluationFolder::open(&place, &settings)?, Vec::new());
        let speech = Speech { voice, manner };
        let Some(spoken) = speech.all(&cases, &mut folder, &mut failures, stop) else { return Ok(None) };
        let Some(clips) = compare(&spoken, &folder, &mut failures, stop) else { return Ok(None) };
        if clips.is_empty() {
            bail!("no sentence could be spoken and compared: {}", failures.first().map_or("", String::as_str));
        }
        parts.push(Spoken { part, folder, clips, failures });
    }
    Ok(Some(parts))
}

/// Parts have their recordings in common, and so the recordings that likeness is measured by: each is heard once.
fn share_recordings(parts: &mut [Spoken], cases: &[Case], config: &Config) {
    let mut known: HashMap<String, (PathBuf, Option<PathBuf>)> = HashMap::new();
    let others: HashMap<&str, &Case> = cases.iter().map(|case| (case.utterance.id.as_str(), case)).collect();
    for Spoken { clips, folder, .. } in parts {
        for clip in clips {
            if !known.contains_key(&clip.id) {
                // One that cannot be read leaves its sentence without likeness, as if there were none.
                let other = folder.reference(others[clip.id.as_str()], config).ok().flatten();
                known.insert(clip.id.clone(), (clip.recorded.clone(), other));
            }
            (clip.recorded, clip.other) = known[&clip.id].clone();
        }
    }
}

fn likeness_by_voice(clips: &mut [&mut EvaluatedClip], voice: &Synthesizer, stop: &AtomicBool) -> Result<Option<()>> {
    if !voice.clones() || likeness::speakers(clips) < LEAST_SPEAKERS {
        return Ok(Some(()));
    }
    let files = likeness::files(clips);
    let bar = progress::bar(files.len() as u64, "describing");
    let described = eval::describe(&files, voice, &|done| bar.set_position(done as u64), stop);
    bar.finish_and_clear();
    let Some(mut described) = described? else { return Ok(None) };
    likeness::standardise(&mut described, clips);
    let found = likeness::measure(clips, &described);
    clips.iter_mut().zip(found).for_each(|(clip, pair)| clip.likeness.voice = pair);
    Ok(Some(()))
}

fn likeness_by_recogniser(
    clips: &mut [&mut EvaluatedClip],
    recogniser: &Recogniser,
    stop: &AtomicBool,
) -> Result<Option<()>> {
    let files = likeness::files(clips);
    if files.is_empty() {
        say("note: no speaker has another recording, so there is nothing to compare voices with");
        return Ok(Some(()));
    }
    let bar = progress::bar(files.len() as u64, "telling speakers");
    let lines = recogniser.hear(&files, &|done| bar.set_position(done as u64), &|| stop.load(Ordering::Relaxed));
    bar.finish_and_clear();
    let Some(lines) = lines? else { return Ok(None) };
    let found = likeness::measure(clips, &likeness::printed(files, &lines)?);
    clips.iter_mut().zip(found).for_each(|(clip, pair)| clip.likeness.recogniser = pair);
    Ok(Some(()))
}

/// Writes and prints what was found.
fn report(args: &Args, voice: &Path, parts: Vec<Spoken>) -> Result<ExitCode> {
    let root = args.output.canonicalize()?;
    let (mut evaluated, mut pictures) = (Vec::new(), Vec::new());
    for Spoken { part, folder, clips, failures } in parts {
        let report = Evaluation::of(clips, failures);
        pictures.extend(eval::pictures(&report, &folder, args.pictures)?);
        if args.parts {
            write(&folder.report(), &serde_json::to_string_pretty(&report)?)?;
        }
        evaluated.push(EvaluatedPart { part, about: part.about(), report });
    }
    let json = match args.parts {
        true => serde_json::to_string_pretty(&evaluated)?,
        false => serde_json::to_string_pretty(&evaluated[0].report)?,
    };
    let files = Written { report: root.join("report.json"), page: root.join("listen.html"), pictures };
    write(&files.report, &json)?;
    listening_page(&files.page, &voice.display().to_string(), &evaluated)?;
    if args.json {
        print_line(json)?
    } else {
        print(&evaluated, &files)?
    };
    let whole = evaluated.iter().all(|part| part.report.failures.is_empty());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Files of a report.
struct Written {
    report: PathBuf,
    page: PathBuf,
    pictures: Vec<PathBuf>,
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))
}

/// Recordings and every part, to be heard side by side.
fn listening_page(path: &Path, voice: &str, parts: &[EvaluatedPart]) -> Result<()> {
    let files = |part: &EvaluatedPart, file: fn(&EvaluatedClip) -> &PathBuf| {
        part.report.clips.iter().map(|clip| (clip.id.clone(), file(clip).clone())).collect()
    };
    let recordings = files(&parts[0], |clip| &clip.recorded);
    let mut columns = vec![Column { name: "recording", about: "as training hears it", files: recordings }];
    columns.extend(parts.iter().map(|part| Column {
        name: part.part.name(),
        about: part.about,
        files: files(part, |clip| &clip.spoken),
    }));
    let sentence = |clip: &EvaluatedClip| {
        let EvaluatedClip { id, text, speaker, language, .. } = clip.clone();
        Sentence { id, text, speaker, language }
    };
    let sentences: Vec<Sentence> = parts[0].report.clips.iter().map(sentence).collect();
    let reports: Vec<&Evaluation> = parts.iter().map(|part| &part.report).collect();
    let title = format!("{voice}, beside recordings");
    eval::page(path, &title, &columns, &sentences, &Evaluation::side_by_side(&reports))
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

fn print(parts: &[EvaluatedPart], files: &Written) -> Result<()> {
    let [first, others @ ..] = parts else { return Ok(()) };
    let seconds: f64 = first.report.clips.iter().map(|clip| clip.figures.spoken_seconds).sum();
    print_line(format!("{} sentences, {seconds:.0} s of speech", first.report.clips.len()))?;
    print_line(if others.is_empty() { first.report.table() } else { eval::parts_table(parts) })?;
    print_line(format!("report    {}", files.report.display()))?;
    print_line(format!("listen    {}", files.page.display()))?;
    files.pictures.iter().try_for_each(|path| print_line(format!("picture   {}", path.display())))?;
    for part in parts {
        part.report.failures.iter().try_for_each(|failure| print_line(format!("failed    {failure}")))?;
    }
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
