//! What a voice said at every validation: the same sentences and held-out clips each time, so that one hears it learn.

use super::heard::HeardFile;
use crate::audio::{AudioFormat, Encoder};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) const FOLDER: &str = "samples";
const CLIPS: &str = "clips.json";
const RECORDING: &str = "recording.flac";
/// Validations that are kept. Later ones lie closer together as ears go: a voice learns fastest at first.
const MOST_STEPS: usize = 64;

/// Something that is spoken at every validation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampleClip {
    /// Id in the corpus; of a sentence, none.
    pub id: Option<String>,
    /// What is to be said; empty where the run knows its symbols alone.
    pub text: String,
    pub language: String,
    /// Symbols that it is spoken by.
    pub symbols: Vec<String>,
}

impl SampleClip {
    /// Whether the same is spoken; the corpus may have another spelling of it by now.
    fn is_spoken_like(&self, other: &SampleClip) -> bool {
        (&self.id, &self.language, &self.symbols) == (&other.id, &other.language, &other.symbols)
    }
}

/// How text and sound belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alignment {
    /// Frames of each token: as the voice planned them and, of a recording, as it aligned them.
    pub spoken_frames: Vec<u32>,
    pub recorded_frames: Vec<u32>,
    pub frame_seconds: f64,
}

/// The folder of a run's samples. Names on disk are made of numbers alone.
#[derive(Clone)]
pub struct SampleFolder(PathBuf);

impl SampleFolder {
    pub fn of(log_dir: &Path) -> Self {
        SampleFolder(log_dir.join(FOLDER))
    }

    /// Begins with these clips. What is there of other ones goes, and what an earlier try spoke behind `resume_from`.
    pub fn begin(&self, mut clips: Vec<SampleClip>, resume_from: Option<u64>) -> io::Result<()> {
        let known = self.clips();
        let is_same = known.len() == clips.len() && known.iter().zip(&clips).all(|(a, b)| a.is_spoken_like(b));
        if resume_from.is_some() && is_same {
            // With texts that were read since.
            clips = known;
        } else {
            let gone = fs::remove_dir_all(&self.0);
            gone.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
        fs::create_dir_all(&self.0)?;
        resume_from.map_or(Ok(()), |last| HeardFile::of_samples(&self.0).keep_until(last))?;
        for step in self.steps().into_iter().filter(|step| resume_from.is_some_and(|last| *step > last)) {
            self.remove(step, clips.len())?;
        }
        (0..clips.len()).try_for_each(|clip| fs::create_dir_all(self.0.join(clip.to_string())))?;
        self.write_clips(&clips)
    }

    /// Gives clips of the corpus their texts, by id.
    pub fn tell_texts(&self, texts: &HashMap<String, String>) -> io::Result<()> {
        let mut clips = self.clips();
        for clip in &mut clips {
            let text = clip.id.as_ref().and_then(|id| texts.get(id));
            clip.text = text.unwrap_or(&clip.text).clone();
        }
        self.write_clips(&clips)
    }

    /// At once: somebody may be reading.
    fn write_clips(&self, clips: &[SampleClip]) -> io::Result<()> {
        let unfinished = self.0.join(CLIPS).with_extension("tmp");
        fs::write(&unfinished, serde_json::to_vec(clips)?)?;
        fs::rename(unfinished, self.0.join(CLIPS))
    }

    pub fn write_recording(&self, clip: usize, samples: &[f32], rate_hz: u32) -> io::Result<()> {
        write_flac(&self.recording(clip), samples, rate_hz)
    }

    /// Sound last: who sees it finds the rest.
    pub fn write(
        &self,
        clip: usize,
        step: u64,
        samples: &[f32],
        rate_hz: u32,
        alignment: &Alignment,
    ) -> io::Result<()> {
        fs::write(self.path(clip, step, "json"), serde_json::to_vec(alignment)?)?;
        write_flac(&self.path(clip, step, "flac"), samples, rate_hz)
    }

    /// Removes validations until those that may stay are left: each time the one whose neighbours are nearest to each other,
    /// as ratios of steps.
    pub fn prune(&self, clips: usize) -> io::Result<()> {
        let mut steps = self.steps();
        while steps.len() > MOST_STEPS {
            let gap = |at: &usize| steps[at + 1] as f64 / steps[at - 1].max(1) as f64;
            let nearest = (1..steps.len() - 1).min_by(|a, b| gap(a).total_cmp(&gap(b))).expect("there are many");
            self.remove(steps.remove(nearest), clips)?;
        }
        Ok(())
    }

    fn remove(&self, step: u64, clips: usize) -> io::Result<()> {
        let files = (0..clips).flat_map(|clip| ["flac", "json"].map(|kind| self.path(clip, step, kind)));
        files.filter(|path| path.exists()).try_for_each(fs::remove_file)
    }

    pub fn clips(&self) -> Vec<SampleClip> {
        let bytes = fs::read(self.0.join(CLIPS)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Steps after which there was a validation that can be heard, in order: those of the last clip, which is spoken last.
    pub fn steps(&self) -> Vec<u64> {
        let last = self.clips().len().saturating_sub(1).to_string();
        let entries = fs::read_dir(self.0.join(last)).into_iter().flatten().flatten();
        let step_of = |name: &str| name.strip_prefix("step-")?.strip_suffix(".flac")?.parse().ok();
        let mut steps: Vec<u64> = entries.filter_map(|entry| step_of(entry.file_name().to_str()?)).collect();
        steps.sort_unstable();
        steps
    }

    pub fn has_recording(&self, clip: usize) -> bool {
        self.recording(clip).is_file()
    }

    pub fn recording(&self, clip: usize) -> PathBuf {
        self.0.join(clip.to_string()).join(RECORDING)
    }

    pub fn spoken(&self, clip: usize, step: u64) -> PathBuf {
        self.path(clip, step, "flac")
    }

    pub fn alignment(&self, clip: usize, step: u64) -> Alignment {
        let bytes = fs::read(self.path(clip, step, "json")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    fn path(&self, clip: usize, step: u64, kind: &str) -> PathBuf {
        self.0.join(clip.to_string()).join(format!("step-{step:08}.{kind}"))
    }
}

/// Lossless: what a codec does to sound is not to be heard here.
fn write_flac(path: &Path, samples: &[f32], rate_hz: u32) -> io::Result<()> {
    let mut encoder = Encoder::new(AudioFormat::Flac, rate_hz, rate_hz).map_err(io::Error::other)?;
    let mut bytes = encoder.header();
    bytes.extend(encoder.push(samples));
    bytes.extend(encoder.finish());
    let header = encoder.header();
    bytes[..header.len()].copy_from_slice(&header);
    let unfinished = path.with_extension("tmp");
    fs::write(&unfinished, bytes)?;
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clips(count: usize) -> Vec<SampleClip> {
        let symbols = |clip: usize| vec![format!("symbol {clip}")];
        (0..count).map(|clip| SampleClip { symbols: symbols(clip), ..SampleClip::default() }).collect()
    }

    #[test]
    fn what_is_spoken_is_found_and_an_earlier_try_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SampleFolder::of(dir.path());
        assert!(folder.clips().is_empty() && folder.steps().is_empty());
        folder.begin(clips(2), None).unwrap();
        let alignment = Alignment { spoken_frames: vec![3, 4], recorded_frames: vec![], frame_seconds: 0.01 };
        for step in [10, 20, 30] {
            (0..2).for_each(|clip| folder.write(clip, step, &[0.5; 400], 22_050, &alignment).unwrap());
        }
        folder.write_recording(0, &[0.25; 400], 22_050).unwrap();
        assert_eq!((folder.steps(), folder.has_recording(0), folder.has_recording(1)), (vec![10, 20, 30], true, false));
        assert_eq!(folder.alignment(1, 20), alignment);
        let heard = crate::audio::decode(&folder.spoken(1, 20)).unwrap();
        assert_eq!((heard.samples.len(), heard.rate_hz), (400, 22_050));
        folder.begin(clips(2), Some(20)).unwrap();
        assert_eq!(folder.steps(), [10, 20], "those behind it are about to come again");
        folder.begin(clips(3), Some(20)).unwrap();
        assert!(folder.steps().is_empty(), "other sentences");
    }

    #[test]
    fn texts_that_come_later_stay_when_the_run_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SampleFolder::of(dir.path());
        let known = |id: usize| SampleClip { id: Some(id.to_string()), ..clips(1).remove(0) };
        let all = || [vec![known(0), known(1)], clips(1)].concat();
        folder.begin(all(), None).unwrap();
        folder.tell_texts(&HashMap::from([("1".into(), "One.".into()), ("7".into(), "Another's.".into())])).unwrap();
        let texts = || folder.clips().iter().map(|clip| clip.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(), ["", "One.", ""]);
        folder.begin(all(), Some(0)).unwrap();
        assert_eq!(texts(), ["", "One.", ""]);
        folder.begin(all(), None).unwrap();
        assert_eq!(texts(), ["", "", ""]);
    }

    #[test]
    fn a_long_run_keeps_its_beginning_its_end_and_a_bounded_number() {
        let dir = tempfile::tempdir().unwrap();
        let folder = SampleFolder::of(dir.path());
        folder.begin(clips(1), None).unwrap();
        for step in (1..=200).map(|number| number * 100) {
            folder.write(0, step, &[0.0; 8], 22_050, &Alignment::default()).unwrap();
            folder.prune(1).unwrap();
        }
        let steps = folder.steps();
        assert_eq!((steps.len(), &steps[..4], steps.last()), (MOST_STEPS, &[100, 200, 300, 400][..], Some(&20_000)));
        assert!(steps.windows(2).all(|pair| pair[1] as f64 <= pair[0] as f64 * 2.0), "{steps:?}");
        assert_eq!(fs::read_dir(dir.path().join("samples/0")).unwrap().count(), 2 * MOST_STEPS);
    }
}
