//! How good a voice is: sentences that it never heard, spoken and held against their recordings. docs/evaluation.md
//! defines every figure.

mod clip_picture;
mod compare;
mod evaluation;
mod evaluation_set;
pub mod likeness;
mod page;
mod parts;
mod speech;
mod warp;

pub use compare::{ClipFigures, SpeechComparison};
pub use evaluation::{EvaluatedClip, Evaluation, Transcript, Transcripts};
pub use evaluation_set::{Case, EvaluationOptions, EvaluationSet};
pub use page::{Column, Sentence, page};
pub use parts::{EvaluatedPart, EvaluationPart, table as parts_table};
pub use speech::{EvaluationFolder, SpeechMode, SpeechSettings, SpokenCase, timed};

use crate::synth::Synthesizer;
use anyhow::{Context, Result};
use host::audio;
use host::corpus::Utterance;
use host::recogniser::{Recogniser, words};
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How the voice's own decoder describes the speakers of all files; none when stopped.
pub fn describe(
    files: &[PathBuf],
    voice: &Synthesizer,
    progress: &dyn Fn(usize),
    stop: &AtomicBool,
) -> Result<Option<likeness::Descriptions>> {
    let mut described = likeness::Descriptions::new();
    for (done, path) in files.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let numbers = voice.describe(&audio::decode(path)?).with_context(|| path.display().to_string())?;
        described.insert(path.clone(), numbers.into_iter().map(f64::from).collect());
        progress(done + 1);
    }
    Ok(Some(described))
}

/// Holds every spoken sentence against its recording, on all cores; none when stopped.
pub fn compare(
    spoken: &[SpokenCase],
    folder: &EvaluationFolder,
    progress: &(dyn Fn(usize) + Sync),
    stop: &AtomicBool,
) -> Option<Vec<Result<EvaluatedClip>>> {
    let done = AtomicUsize::new(0);
    let one = |spoken: &SpokenCase| {
        let clip = (!stop.load(Ordering::Relaxed)).then(|| clip(spoken, folder));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        clip
    };
    spoken.par_iter().map(one).collect()
}

fn clip(SpokenCase { case, real_time_factor }: &SpokenCase, folder: &EvaluationFolder) -> Result<EvaluatedClip> {
    let (recorded, spoken) = (folder.recorded(&case.name), folder.spoken(&case.name));
    let figures = SpeechComparison::of(&recorded, &spoken)?.figures(*real_time_factor);
    let Utterance { id, text, speaker, language, .. } = case.utterance.clone();
    Ok(EvaluatedClip {
        id,
        speaker,
        language,
        text,
        recorded,
        spoken,
        reference: case.reference_name(),
        other: None,
        figures,
        heard: None,
        likeness: likeness::Likenesses::default(),
    })
}

/// Draws the worst sentences, each into a file that says what it is bad at.
pub fn pictures(report: &Evaluation, folder: &EvaluationFolder, count: usize) -> Result<Vec<PathBuf>> {
    let place = folder.worst()?;
    let draw = |(number, (flaw, clip)): (usize, (&str, &EvaluatedClip))| {
        let picture = clip_picture::draw(clip, flaw, &SpeechComparison::of(&clip.recorded, &clip.spoken)?);
        let name = clip.spoken.file_stem().unwrap_or_default().to_string_lossy();
        let path = place.join(format!("{}-{flaw}-{name}.png", number + 1));
        fs::write(&path, picture.png()).with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(path)
    };
    report.worst(count).into_iter().enumerate().map(draw).collect()
}

/// Recordings and speech, each once: parts of one evaluation share their recordings.
pub fn heard_files(clips: &[&mut EvaluatedClip]) -> Vec<PathBuf> {
    let paths = clips.iter().flat_map(|clip| [clip.recorded.clone(), clip.spoken.clone()]);
    paths.collect::<BTreeSet<_>>().into_iter().collect()
}

/// What a recogniser hears in recordings and speech, in one go; none when stopped.
pub fn listen(
    clips: &mut [&mut EvaluatedClip],
    recogniser: &Recogniser,
    language: &str,
    progress: &dyn Fn(usize),
    stop: &AtomicBool,
) -> Result<Option<()>> {
    let paths = heard_files(clips);
    let Some(heard) = recogniser.hear(&paths, progress, &|| stop.load(Ordering::Relaxed))? else { return Ok(None) };
    let heard: HashMap<PathBuf, String> = paths.into_iter().zip(heard).collect();
    for clip in clips {
        let language = clip.language.as_deref().unwrap_or(language);
        let transcript = |path: &PathBuf| {
            let (words, characters) = words::compare(&clip.text, &heard[path], language);
            Transcript { text: heard[path].clone(), words, characters }
        };
        clip.heard = Some(Transcripts { recorded: transcript(&clip.recorded), spoken: transcript(&clip.spoken) });
    }
    Ok(Some(()))
}
