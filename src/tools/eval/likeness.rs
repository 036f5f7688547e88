//! Whether speech sounds like its speaker: how near it is to another recording of theirs, and to those of the others.
//!
//! What counts is the gap between own and other, as a share of the gap that recordings have, and how often the own one is
//! nearest: a cosine alone flatters, because any two people are somewhat alike.

use super::EvaluatedClip;
use anyhow::{Result, bail};
use host::error::hinted;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// With fewer speakers the voice's own descriptions cannot be put on a scale.
pub const LEAST_SPEAKERS: usize = 5;

/// A clip beside recordings of its speaker and of others. Cosines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Likeness {
    pub own: f64,
    /// Mean over the other speakers; none where there are none.
    pub other: Option<f64>,
    /// Whether its own speaker's is the nearest of all.
    pub nearest: Option<bool>,
}

/// Likeness of a recording and of the same sentence as spoken, each to another recording of the speaker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LikenessPair {
    pub recorded: Likeness,
    pub spoken: Likeness,
}

/// The same by our own encoder (the voice's decoder), and by a recogniser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Likenesses {
    pub voice: Option<LikenessPair>,
    pub recogniser: Option<LikenessPair>,
}

/// What describes the speaker of each file.
pub type Descriptions = HashMap<PathBuf, Vec<f64>>;

/// Every file that must be described, once.
pub fn files(clips: &[&mut EvaluatedClip]) -> Vec<PathBuf> {
    let of = |clip: &EvaluatedClip| Some([clip.other.clone()?, clip.recorded.clone(), clip.spoken.clone()]);
    clips.iter().filter_map(|clip| of(clip)).flatten().collect::<BTreeSet<_>>().into_iter().collect()
}

/// One recording of each speaker.
fn references(clips: &[&mut EvaluatedClip]) -> BTreeMap<String, PathBuf> {
    clips.iter().rev().filter_map(|clip| Some((clip.speaker.clone(), clip.other.clone()?))).collect()
}

pub fn speakers(clips: &[&mut EvaluatedClip]) -> usize {
    references(clips).len()
}

/// Shifts and scales every channel so that one recording of each speaker has mean 0 and deviation 1: what all have in
/// common then says nothing.
pub fn standardise(descriptions: &mut Descriptions, clips: &[&mut EvaluatedClip]) {
    let references: Vec<Vec<f64>> = references(clips).values().map(|path| descriptions[path].clone()).collect();
    let count = references.len() as f64;
    let channels = references.first().map_or(0, Vec::len);
    for channel in 0..channels {
        let mean = references.iter().map(|one| one[channel]).sum::<f64>() / count;
        let variance = references.iter().map(|one| (one[channel] - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance.sqrt() + 1e-6);
        descriptions.values_mut().for_each(|one| one[channel] = (one[channel] - mean) * scale);
    }
}

/// Likeness of every clip whose speaker has another recording.
pub fn measure(clips: &[&mut EvaluatedClip], descriptions: &Descriptions) -> Vec<Option<LikenessPair>> {
    let references = references(clips);
    let of = |clip: &EvaluatedClip, file: &Path| {
        let near = |other: &Path| cosine(&descriptions[file], &descriptions[other]);
        let others = references.iter().filter(|(speaker, _)| **speaker != clip.speaker);
        let others: Vec<f64> = others.map(|(_, path)| near(path)).collect();
        let own = near(clip.other.as_deref()?);
        let some = !others.is_empty();
        let (mean, most) =
            (others.iter().sum::<f64>() / others.len() as f64, others.iter().copied().fold(f64::MIN, f64::max));
        Some(Likeness { own, other: some.then_some(mean), nearest: some.then_some(own > most) })
    };
    let pair = |clip: &&mut EvaluatedClip| {
        Some(LikenessPair { recorded: of(clip, &clip.recorded)?, spoken: of(clip, &clip.spoken)? })
    };
    clips.iter().map(pair).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

/// The numbers that a recogniser of speakers printed for each file, whatever it put between them.
pub fn printed(files: Vec<PathBuf>, lines: &[String]) -> Result<Descriptions> {
    let hint =
        "a recogniser of speakers prints the numbers of an embedding, `path|0.12 -0.03 …`, as many for every file";
    let mut descriptions = Descriptions::new();
    let mut count = None;
    for (path, line) in files.into_iter().zip(lines) {
        let words =
            line.split(|sign: char| sign.is_whitespace() || ",;[]()".contains(sign)).filter(|word| !word.is_empty());
        let Ok(numbers) = words.map(str::parse).collect::<Result<Vec<f64>, _>>() else {
            let start: String = line.chars().take(60).collect();
            return Err(hinted(format!("{}: the recogniser printed no numbers: {start}", path.display()), hint));
        };
        let wanted = *count.get_or_insert(numbers.len());
        if wanted == 0 || numbers.len() != wanted || !numbers.iter().all(|number| number.is_finite()) {
            let fact =
                format!("{}: the recogniser printed {} numbers, and {wanted} before", path.display(), numbers.len());
            return Err(hinted(fact, hint));
        }
        descriptions.insert(path, numbers);
    }
    if descriptions.is_empty() {
        bail!("no file was described");
    }
    Ok(descriptions)
}

#[cfg(test)]
mod tests {
    use super::super::evaluation::tests::clip;
    use super::*;

    fn of(speaker: &str, name: &str) -> EvaluatedClip {
        EvaluatedClip {
            speaker: speaker.into(),
            recorded: format!("{name}-recorded").into(),
            spoken: format!("{name}-spoken").into(),
            other: Some(format!("{name}-other").into()),
            ..clip(name, 1.0, 1.0, 0)
        }
    }

    /// Angles on a circle: cosines are known.
    fn at(angles: &[(&str, f64)]) -> Descriptions {
        let on_circle = |angle: f64| vec![angle.to_radians().cos(), angle.to_radians().sin()];
        angles.iter().map(|(name, angle)| (PathBuf::from(name), on_circle(*angle))).collect()
    }

    #[test]
    fn own_other_and_nearest_are_counted() {
        let mut clips = [of("a", "a"), of("b", "b")];
        let clips: Vec<&mut EvaluatedClip> = clips.iter_mut().collect();
        let described = at(&[
            ("a-other", 0.0),
            ("a-recorded", 0.0),
            ("a-spoken", 60.0),
            ("b-other", 90.0),
            ("b-recorded", 90.0),
            ("b-spoken", 0.0),
        ]);
        let found = measure(&clips, &described);
        let (a, b) = (found[0].unwrap(), found[1].unwrap());
        assert!((a.recorded.own - 1.0).abs() < 1e-9 && a.recorded.nearest == Some(true));
        // 60 degrees from its own, 30 from the other.
        assert!((a.spoken.own - 0.5).abs() < 1e-9 && (a.spoken.other.unwrap() - 0.75f64.sqrt()).abs() < 1e-9);
        assert_eq!((a.spoken.nearest, b.spoken.nearest), (Some(false), Some(false)));
        assert_eq!((files(&clips).len(), speakers(&clips)), (6, 2));
    }

    #[test]
    fn one_speaker_alone_has_no_others() {
        let mut clips = [of("a", "a")];
        let clips: Vec<&mut EvaluatedClip> = clips.iter_mut().collect();
        let found = measure(&clips, &at(&[("a-other", 0.0), ("a-recorded", 0.0), ("a-spoken", 90.0)]))[0].unwrap();
        assert_eq!((found.spoken.other, found.spoken.nearest), (None, None));
    }

    #[test]
    fn what_all_speakers_share_says_nothing() {
        let mut clips: Vec<EvaluatedClip> = ["a", "b"].map(|name| of(name, name)).into();
        let clips: Vec<&mut EvaluatedClip> = clips.iter_mut().collect();
        let mut described: Descriptions = files(&clips)
            .into_iter()
            .map(|path| (path.clone(), vec![100.0, if path.starts_with("a-other") { 3.0 } else { 5.0 }]))
            .collect();
        standardise(&mut described, &clips);
        assert!(described.values().all(|one| one[0] == 0.0 && (one[1].abs() - 1.0).abs() < 1e-5), "{described:?}");
    }

    #[test]
    fn embeddings_are_read_however_they_are_printed() {
        let read = |lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            printed((0..lines.len()).map(|n| format!("{n}").into()).collect(), &lines)
        };
        assert_eq!(read(&["[0.5, -1e-2]", "1 2"]).unwrap()[Path::new("0")], [0.5, -0.01]);
        assert!(read(&["hello there"]).unwrap_err().to_string().contains("no numbers: hello"));
        assert!(read(&["1 2", "1 2 3"]).unwrap_err().to_string().contains("3 numbers, and 2 before"));
        assert!(read(&[""]).is_err() && read(&["NaN 1"]).is_err());
    }
}
