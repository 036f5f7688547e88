//! How good a voice is: sentences that it never heard, spoken and held against their recordings. docs/evaluation.md
//! defines every figure.

mod cepstra;
mod clip_picture;
mod compare;
mod evaluation;
mod evaluation_set;
mod pitch;
mod recogniser;
mod speech;
mod warp;
mod words;

pub use compare::{ClipFigures, SpeechComparison};
pub use evaluation::{EvaluatedClip, Evaluation, Transcript, Transcripts};
pub use evaluation_set::{Case, EvaluationOptions, EvaluationSet};
pub use recogniser::Recogniser;
pub use speech::{EvaluationFolder, SpeechMode, SpeechSettings, SpokenCase, timed};

use anyhow::{Context, Result};
use host::corpus::Utterance;
use rayon::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
        figures,
        heard: None,
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

/// What a recogniser hears in recordings and speech, in one go; none when stopped.
pub fn listen(
    clips: &mut [EvaluatedClip],
    recogniser: &Recogniser,
    language: &str,
    progress: &dyn Fn(usize),
    stop: &AtomicBool,
) -> Result<Option<()>> {
    let paths: Vec<PathBuf> = clips.iter().flat_map(|clip| [clip.recorded.clone(), clip.spoken.clone()]).collect();
    let Some(heard) = recogniser.hear(&paths, progress, stop)? else { return Ok(None) };
    for (clip, heard) in clips.iter_mut().zip(heard.chunks_exact(2)) {
        let language = clip.language.as_deref().unwrap_or(language);
        let transcript = |heard: &String| {
            let (words, characters) = words::compare(&clip.text, heard, language);
            Transcript { text: heard.clone(), words, characters }
        };
        clip.heard = Some(Transcripts { recorded: transcript(&heard[0]), spoken: transcript(&heard[1]) });
    }
    Ok(Some(()))
}
