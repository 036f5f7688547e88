//! What a recogniser heard in the samples of a run, a line for each sound, as whoever shows the run has listened to them.

use super::samples::{FOLDER, SampleClip};
use super::series::Series;
use super::{RangeQuery, SampleFolder};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const FILE: &str = "heard.jsonl";

/// What was heard in one sound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    pub clip: usize,
    /// Step after which it was spoken; of the recording, none.
    pub step: Option<u64>,
    pub text: String,
    /// Words that were put in, left out or replaced, and words that were to be said.
    pub edits: usize,
    pub of: usize,
}

/// The file of what was heard in a run's samples.
pub struct HeardFile(PathBuf);

impl HeardFile {
    pub fn of(log_dir: &Path) -> Self {
        HeardFile::of_samples(&log_dir.join(FOLDER))
    }

    pub(super) fn of_samples(folder: &Path) -> Self {
        HeardFile(folder.join(FILE))
    }

    /// Of each sound what was heard last, the recordings first, then by steps. Lines that were cut are passed over.
    pub fn read(&self) -> Vec<Heard> {
        let bytes = fs::read(&self.0).unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let sounds: BTreeMap<_, Heard> = lines.map(|line: Heard| ((line.step, line.clip), line)).collect();
        sounds.into_values().collect()
    }

    /// Adds a line. Behind one that was cut, it begins anew.
    pub fn append(&self, heard: &Heard) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&self.0)?;
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let mut line = if last == [b'\n'] { Vec::new() } else { vec![b'\n'] };
        serde_json::to_writer(&mut line, heard)?;
        line.push(b'\n');
        file.write_all(&line)
    }

    /// How long the file is: it has changed where that has.
    pub fn bytes(&self) -> u64 {
        fs::metadata(&self.0).map_or(0, |meta| meta.len())
    }

    /// Drops what was heard behind a step, which is about to come again.
    pub(super) fn keep_until(&self, step: u64) -> io::Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        let mut kept = Vec::new();
        for line in self.read().iter().filter(|line| line.step.is_none_or(|own| own <= step)) {
            serde_json::to_writer(&mut kept, line)?;
            kept.push(b'\n');
        }
        let unfinished = self.0.with_extension("tmp");
        fs::write(&unfinished, kept)?;
        fs::rename(unfinished, &self.0)
    }
}

/// Word error in percent over the steps: of all clips of a validation together, so that each word counts the same. A
/// validation of which not everything was heard yet has none.
pub fn word_error_percent(heard: &[Heard], clips: &[SampleClip], range: Option<RangeQuery>) -> Series {
    let whole = clips.iter().filter(|clip| !clip.text.is_empty()).count();
    let mut steps: BTreeMap<u64, (usize, usize, usize)> = BTreeMap::new();
    for (step, line) in heard.iter().filter_map(|line| Some((line.step?, line))) {
        let (clips, edits, of) = steps.entry(step).or_default();
        (*clips, *edits, *of) = (*clips + 1, *edits + line.edits, *of + line.of);
    }
    let mut series = Series::default();
    let wanted = |step: u64| range.is_none_or(|range| (range.from..=range.to).contains(&step));
    for (step, (clips, edits, of)) in steps.into_iter().filter(|(step, _)| wanted(*step)) {
        if clips >= whole {
            series.push(step, 100.0 * edits as f64 / of.max(1) as f64);
        }
    }
    series
}

/// A sound of a run's samples: a clip, and the step after which it was spoken, or none for its recording.
pub type Sound = (usize, Option<u64>);

/// Sounds with a text that nobody has listened to yet: recordings, then the newest validations first.
pub fn unheard(log_dir: &Path) -> Vec<Sound> {
    let samples = SampleFolder::of(log_dir);
    let clips = samples.clips();
    let known: BTreeSet<Sound> = HeardFile::of(log_dir).read().iter().map(|line| (line.clip, line.step)).collect();
    let texts = || (0..clips.len()).filter(|clip| !clips[*clip].text.is_empty());
    let recorded = texts().filter(|clip| samples.has_recording(*clip)).map(|clip| (clip, None));
    let spoken = samples.steps().into_iter().rev().flat_map(|step| texts().map(move |clip| (clip, Some(step))));
    recorded.chain(spoken).filter(|sound| !known.contains(sound)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Alignment;
    use super::*;

    fn heard(clip: usize, step: Option<u64>, edits: usize, of: usize) -> Heard {
        Heard { clip, step, text: "a text".into(), edits, of }
    }

    fn clips() -> Vec<SampleClip> {
        let clip = |text: &str| SampleClip { text: text.into(), ..SampleClip::default() };
        vec![clip("one"), clip(""), clip("three words more")]
    }

    #[test]
    fn a_line_that_was_cut_is_passed_over_and_the_next_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = HeardFile::of(dir.path());
        assert!(file.append(&heard(0, None, 0, 1)).is_err(), "a run without samples has no such file");
        assert!(file.read().is_empty() && file.bytes() == 0);
        SampleFolder::of(dir.path()).begin(clips(), None).unwrap();
        file.append(&heard(0, Some(20), 1, 1)).unwrap();
        let torn = b"{\"clip\":2,\"step\":20,\"te";
        OpenOptions::new().append(true).open(&file.0).unwrap().write_all(torn).unwrap();
        assert_eq!(file.read(), [heard(0, Some(20), 1, 1)]);
        file.append(&heard(2, Some(20), 2, 3)).unwrap();
        file.append(&heard(0, None, 0, 1)).unwrap();
        file.append(&heard(0, Some(20), 0, 1)).unwrap();
        assert_eq!(file.read(), [heard(0, None, 0, 1), heard(0, Some(20), 0, 1), heard(2, Some(20), 2, 3)]);
    }

    #[test]
    fn what_was_heard_is_not_heard_again_unless_it_is_spoken_again() {
        let dir = tempfile::tempdir().unwrap();
        let (samples, file) = (SampleFolder::of(dir.path()), HeardFile::of(dir.path()));
        assert!(unheard(dir.path()).is_empty());
        samples.begin(clips(), None).unwrap();
        let speak =
            |step| (0..3).for_each(|clip| samples.write(clip, step, &[0.5; 8], 22_050, &Alignment::default()).unwrap());
        speak(10);
        speak(20);
        samples.write_recording(0, &[0.5; 8], 22_050).unwrap();
        let all = [(0, None), (0, Some(20)), (2, Some(20)), (0, Some(10)), (2, Some(10))];
        assert_eq!(unheard(dir.path()), all, "those with a text, the newest first");
        all.iter().for_each(|(clip, step)| file.append(&heard(*clip, *step, 0, 1)).unwrap());
        assert!(unheard(dir.path()).is_empty());
        samples.begin(clips(), Some(10)).unwrap();
        assert_eq!(file.read().iter().map(|line| line.step).max(), Some(Some(10)));
        speak(20);
        assert_eq!(unheard(dir.path()), [(0, Some(20)), (2, Some(20))]);
        samples.begin(clips(), None).unwrap();
        assert!(file.read().is_empty(), "another run");
    }

    #[test]
    fn every_word_of_a_validation_counts_the_same_and_all_must_be_there() {
        let lines =
            [(0, None, 9, 9), (0, Some(10), 1, 1), (2, Some(10), 0, 3), (0, Some(20), 0, 1), (2, Some(20), 4, 3)];
        let mut lines: Vec<Heard> = lines.map(|(clip, step, edits, of)| heard(clip, step, edits, of)).to_vec();
        lines.push(heard(0, Some(30), 1, 1));
        let curve = |range| serde_json::to_value(word_error_percent(&lines, &clips(), range)).unwrap();
        assert_eq!(curve(None), serde_json::json!({ "step": [10, 20], "mean": [25.0, 100.0] }));
        assert_eq!(curve(Some(RangeQuery { from: 11, to: 40 }))["step"], serde_json::json!([20]));
    }
}
