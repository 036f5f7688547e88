//! Which sentences are spoken, and what they are held against.

use anyhow::{Result, ensure};
use host::config::{Config, CorpusFormat, Data};
use host::corpus::{self, AudioSource, Corpus, Utterance, UtteranceRef, Utterances};
use host::dataset::{self, Part};
use host::error::hinted;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Which sentences are asked for.
pub struct EvaluationOptions<'a> {
    /// The corpus; none: what the voice held out.
    pub data: Option<&'a Path>,
    /// How the corpus is to be read; what is left open is as it was when the voice was trained on it.
    pub layout: corpus::ReadOptions,
    pub part: Part,
    pub limit: usize,
    /// Whether each is spoken after another recording of its speaker.
    pub clone: bool,
}

/// A sentence, who recorded it, and whose voice it is to have.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of its files, without their ending.
    pub name: String,
    pub utterance: Utterance,
    /// Recording that it is spoken after; none: in the checkpoint's own voice.
    pub reference: Option<AudioSource<'static>>,
    /// Another recording of its speaker, that likeness is measured by; none where there is no other.
    pub other: Option<AudioSource<'static>>,
}

impl Case {
    /// Name of the recording whose voice it is to have.
    pub fn reference_name(&self) -> Option<PathBuf> {
        self.reference.as_ref().map(|source| source.to_string().into())
    }

    /// The same sentence after another recording of its speaker, where there is one.
    pub fn cloned_voice(&self) -> Option<Case> {
        Some(Case { reference: Some(self.other.clone()?), ..self.clone() })
    }
}

/// Sentences to speak, and what there is to say about their choice.
pub struct EvaluationSet {
    pub cases: Vec<Case>,
    pub notes: Vec<String>,
}

impl EvaluationSet {
    pub fn of(config: &Config, wanted: &EvaluationOptions) -> Result<Self> {
        let source = EvaluationCorpus::of(&config.data, wanted)?;
        let corpus = corpus::read(&source.path, &source.layout)?;
        let mut notes = vec![format!("{}: read as {}: {}", source.path.display(), corpus.format, corpus.why)];
        notes.extend(corpus.problems.iter().map(ToString::to_string));
        let all = corpus.utterances.clone();
        let chosen = source.choose(corpus, &config.data, wanted.part, &mut notes)?;
        let mut cases = with_others(chosen, &all);
        if wanted.clone {
            cases = with_references(&cases, &mut notes);
        }
        ensure!(!cases.is_empty(), "{}: no clip is left to speak", source.path.display());
        if !wanted.clone && config.model.clones() {
            notes.extend(one_voice_for_many(&cases));
        }
        limit(&mut cases, wanted.limit);
        Ok(EvaluationSet { cases: with_names(cases), notes })
    }
}

/// A corpus, and what the voice has heard of it.
struct EvaluationCorpus {
    path: PathBuf,
    layout: corpus::ReadOptions,
    relation: Relation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    TrainedOn,
    HeldOut,
    Foreign,
}

impl EvaluationCorpus {
    fn of(data: &Data, wanted: &EvaluationOptions) -> Result<Self> {
        let own = data.val_data.as_deref().or(data.dataset_path.as_deref());
        let path = wanted.data.or(own).ok_or_else(|| hinted("no corpus was named", "--data DIR"))?;
        let is = |other: &Option<PathBuf>| other.as_deref().is_some_and(|other| same(path, other));
        let relation = match () {
            () if is(&data.val_data) => Relation::HeldOut,
            () if is(&data.dataset_path) => Relation::TrainedOn,
            () => Relation::Foreign,
        };
        let layout = match relation {
            Relation::Foreign => wanted.layout.clone(),
            _ => as_asked(&wanted.layout, corpus::ReadOptions::of(data)?),
        };
        Ok(EvaluationCorpus { path: path.into(), layout, relation })
    }

    fn choose(&self, corpus: Corpus, data: &Data, part: Part, notes: &mut Vec<String>) -> Result<Vec<Utterance>> {
        let (path, clips) = (self.path.display(), corpus.utterances.len());
        let held_out = match (part, self.relation) {
            (Part::All, _) | (Part::Auto, Relation::Foreign | Relation::HeldOut) => false,
            (Part::HeldOut, relation) => relation != Relation::HeldOut,
            (Part::Auto, Relation::TrainedOn) => true,
        };
        if !held_out {
            let heard = match self.relation {
                Relation::TrainedOn => "most of them were trained on",
                Relation::HeldOut => "held out from training",
                Relation::Foreign => "not the corpus that the voice was trained on",
            };
            notes.push(format!("{path}: all {clips} clips; {heard}"));
            return Ok(corpus.utterances.iter().map(UtteranceRef::into_owned).collect());
        }
        let nothing = data.val_data.is_some() && self.relation == Relation::TrainedOn;
        let chosen = if nothing { vec![] } else { dataset::parts(corpus, data).1 };
        if chosen.is_empty() {
            let fact = format!("{path}: nothing of it was held out from training");
            return Err(hinted(fact, "--data with another corpus, or --part all"));
        }
        notes.push(format!("{path}: {} of {clips} clips were held out from training", chosen.len()));
        Ok(chosen)
    }
}

fn same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// What was asked for, and else what was so.
fn as_asked(asked: &corpus::ReadOptions, own: corpus::ReadOptions) -> corpus::ReadOptions {
    let format = if asked.format == CorpusFormat::Auto { own.format } else { asked.format };
    corpus::ReadOptions { format, speaker_pattern: asked.speaker_pattern.clone().or(own.speaker_pattern) }
}

/// Each with the next recording of the same speaker, never the one that is compared.
fn with_others(chosen: Vec<Utterance>, all: &Utterances) -> Vec<Case> {
    let mut speakers: HashMap<&str, Vec<AudioSource>> = HashMap::new();
    all.iter().for_each(|clip| speakers.entry(clip.speaker).or_default().push(clip.audio));
    let other = |utterance: &Utterance| {
        let recordings = &speakers[utterance.speaker.as_str()];
        let at = recordings.iter().position(|audio| *audio == utterance.audio)?;
        let mut others = recordings[at..].iter().chain(&recordings[..at]).filter(|audio| **audio != utterance.audio);
        Some(others.next()?.clone().into_owned())
    };
    let case =
        |utterance: Utterance| Case { name: String::new(), other: other(&utterance), utterance, reference: None };
    chosen.into_iter().map(case).collect()
}

/// Each spoken after that recording.
fn with_references(cases: &[Case], notes: &mut Vec<String>) -> Vec<Case> {
    let cloned: Vec<Case> = cases.iter().filter_map(Case::cloned_voice).collect();
    if cloned.len() < cases.len() {
        let left_out = cases.len() - cloned.len();
        notes.push(format!("{left_out} clips left out: there is no other recording of their speaker"));
    }
    cloned
}

fn one_voice_for_many(cases: &[Case]) -> Option<String> {
    let speakers: HashSet<&str> = cases.iter().map(|case| case.utterance.speaker.as_str()).collect();
    let told =
        || format!("{} speakers, all held against the checkpoint's own voice; --clone takes theirs", speakers.len());
    (speakers.len() > 1).then(told)
}

/// The same ones whatever else is in the corpus, in its order; a lower limit takes some of those of a higher one.
fn limit(cases: &mut Vec<Case>, limit: usize) {
    let mut places: Vec<f64> = cases.iter().map(|case| corpus::hash_fraction(&case.utterance.id)).collect();
    places.sort_by(f64::total_cmp);
    if let Some(border) = places.get(limit) {
        cases.retain(|case| corpus::hash_fraction(&case.utterance.id) < *border);
    }
}

/// Ids as names of files: what a file system or a program might trip over becomes `_`, and no two are alike.
fn with_names(mut cases: Vec<Case>) -> Vec<Case> {
    let mut taken = HashSet::new();
    for (number, case) in cases.iter_mut().enumerate() {
        let safe = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
        let name: String = case.utterance.id.chars().take(100).map(safe).collect();
        let name = name.trim_start_matches(['.', '-']).to_owned();
        case.name = if !name.is_empty() && taken.insert(name.clone()) { name } else { format!("{name}_{number}") };
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(id: &str, speaker: &str) -> Utterance {
        let audio = PathBuf::from(format!("{id}.wav")).into();
        Utterance { id: id.into(), audio, text: "a".into(), speaker: speaker.into(), language: None }
    }

    fn plain(chosen: &[Utterance]) -> Vec<Case> {
        with_others(chosen.to_vec(), &chosen.iter().cloned().collect())
    }

    #[test]
    fn a_reference_is_another_recording_of_the_same_speaker() {
        let all = ["a1 a", "b1 b", "a2 a", "c1 c", "b2 b", "a3 a"].map(|row| clip(&row[..2], &row[3..]));
        let mut notes = vec![];
        let cases = with_references(&plain(&all), &mut notes);
        let references: Vec<_> = cases.iter().map(|case| case.reference.as_ref().unwrap().to_string()).collect();
        assert_eq!(references, ["a2.wav", "b2.wav", "a3.wav", "b1.wav", "a1.wav"]);
        assert!(notes[0].starts_with("1 clips left out"), "{notes:?}");
    }

    #[test]
    fn fewer_are_some_of_more() {
        let chosen = |count| {
            let mut cases = plain(&(0..50).map(|n| clip(&format!("clip {n}"), "a")).collect::<Vec<_>>());
            limit(&mut cases, count);
            cases.into_iter().map(|case| case.utterance.id).collect::<Vec<_>>()
        };
        let (few, more) = (chosen(5), chosen(20));
        assert_eq!((few.len(), more.len(), chosen(99).len()), (5, 20, 50));
        assert!(few.iter().all(|id| more.contains(id)));
    }

    #[test]
    fn every_case_has_a_file_name_of_its_own() {
        let ids = ["p1/a", "p1_a", "../up", "", "été-1.5"];
        let names: Vec<String> =
            with_names(plain(&ids.map(|id| clip(id, "a")))).into_iter().map(|case| case.name).collect();
        assert_eq!(names, ["p1_a", "p1_a_1", "_up", "_3", "été-1.5"]);
    }
}
