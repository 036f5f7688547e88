//! A corpus made by the program itself, to try everything without a download: short sentences over few words, spoken by
//! `espeak-ng` where it is installed, by a small formant synthesiser where it is not, or by whoever is given.

mod espeak;
mod folder;
mod formant;
mod sentences;

pub use folder::move_aside;

use crate::audio::{self, Waveform};
use crate::bundled;
use crate::error::Hint;
use folder::{Partial, absolute, at, is_occupied};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Name of a file whose presence says "this folder is a sample corpus, whole, made with these options".
const MARKER: &str = "sample-corpus.json";
/// Version of the clips: raise it when the same options would give others.
const VERSION: u32 = 2;
/// Loudness of the clips: as loud as they are trained.
const LOUDNESS_LUFS: f64 = -20.0;
const MAX_CLIPS: usize = 20_000;
const RATES_HZ: std::ops::RangeInclusive<u32> = 8_000..=48_000;

/// Who speaks a sample corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleVoice {
    /// `espeak-ng` where it is installed, the formant synthesiser otherwise.
    Auto,
    /// The bundled voice, which needs tensors: it comes from above, by [`write_spoken`].
    Bundled,
    Espeak,
    Formant,
}

impl fmt::Display for SampleVoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SampleVoice::Auto => "auto",
            SampleVoice::Bundled => "bundled",
            SampleVoice::Espeak => "espeak-ng",
            SampleVoice::Formant => "built-in formant",
        })
    }
}

/// What decides a sample corpus.
#[derive(Clone, Debug)]
pub struct SampleCorpusOptions {
    pub clips: usize,
    pub seed: u64,
    pub rate_hz: u32,
    pub voice: SampleVoice,
}

impl Default for SampleCorpusOptions {
    fn default() -> Self {
        Self { clips: 200, seed: 1, rate_hz: 22_050, voice: SampleVoice::Auto }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}")]
    OutOfRange { what: String },
    #[error("{}: has other files in it", dir.display())]
    Occupied {
        dir: PathBuf,
        #[source]
        hint: Hint,
    },
    #[error("espeak-ng: {what}")]
    Espeak {
        what: String,
        #[source]
        hint: Hint,
    },
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("interrupted; nothing was written")]
    Interrupted,
    #[error("cannot be spoken: {0:#}")]
    Speaker(anyhow::Error),
    #[error(transparent)]
    Audio(#[from] audio::Error),
    #[error(transparent)]
    File(#[from] audio::FileError),
}

impl Error {
    fn occupied(dir: PathBuf) -> Self {
        Error::Occupied { dir, hint: Hint::new("name a new folder, or pass --force to move it aside") }
    }

    fn espeak(what: String) -> Self {
        Error::Espeak { what, hint: Hint::new("install espeak-ng, or use the formant voice") }
    }
}

/// Is called with the number of clips done; a break ends the work and leaves nothing behind.
pub type Progress<'a> = &'a dyn Fn(usize) -> ControlFlow<()>;

/// Speaks a sentence, at any rate and loudness.
pub type Speak<'a> = &'a dyn Fn(&str) -> Result<Waveform, Error>;

/// Makes the corpus, or leaves it as it is when it was made with the same options. Returns the voice that speaks.
///
/// The folder appears whole or not at all; another sample corpus in its place is replaced, any other content is an
/// error.
pub fn write(dir: &Path, options: &SampleCorpusOptions, progress: Progress) -> Result<SampleVoice, Error> {
    let marker = Marker::new(options)?;
    let by_itself = |sentence: &str| match marker.voice {
        SampleVoice::Formant => Ok(formant::speak(sentence, marker.rate_hz)),
        _ => espeak::speak(sentence),
    };
    marker.write(dir, &by_itself, progress)
}

/// As [`write`], spoken by another.
pub fn write_spoken(
    dir: &Path,
    options: &SampleCorpusOptions,
    speak: Speak,
    progress: Progress,
) -> Result<SampleVoice, Error> {
    Marker::new(options)?.write(dir, speak, progress)
}

/// Whether the bundled voice can speak: it is there, and so is espeak-ng, whose phonemes it reads. Looked for once.
pub fn bundled_speaks() -> bool {
    static SPEAKS: LazyLock<bool> = LazyLock::new(|| bundled::find().is_some() && espeak::check().is_ok());
    *SPEAKS
}

/// Whether `write` would have nothing to do.
pub fn is_written(dir: &Path, options: &SampleCorpusOptions) -> Result<bool, Error> {
    Ok(Marker::new(options)?.is_at(&absolute(dir)?))
}

/// Everything that decides what the clips sound like.
#[derive(Serialize)]
struct Marker {
    version: u32,
    clips: usize,
    seed: u64,
    rate_hz: u32,
    voice: SampleVoice,
}

impl Marker {
    fn new(options: &SampleCorpusOptions) -> Result<Self, Error> {
        let &SampleCorpusOptions { clips, seed, rate_hz, voice } = options;
        if !(1..=MAX_CLIPS).contains(&clips) {
            return Err(Error::OutOfRange { what: format!("clips: {clips}, expected 1 to {MAX_CLIPS}") });
        }
        if !RATES_HZ.contains(&rate_hz) {
            let (low, high) = RATES_HZ.into_inner();
            return Err(Error::OutOfRange { what: format!("sample rate: {rate_hz} Hz, expected {low} to {high}") });
        }
        let voice = match voice {
            SampleVoice::Formant | SampleVoice::Bundled => voice,
            SampleVoice::Espeak => espeak::check().map(|()| SampleVoice::Espeak)?,
            SampleVoice::Auto => espeak::check().map_or(SampleVoice::Formant, |()| SampleVoice::Espeak),
        };
        Ok(Self { version: VERSION, clips, seed, rate_hz, voice })
    }

    fn text(&self) -> String {
        serde_json::json!(self).to_string() + "\n"
    }

    fn is_at(&self, dir: &Path) -> bool {
        let count = || fs::read_dir(dir.join("wavs")).map_or(0, Iterator::count);
        fs::read_to_string(dir.join(MARKER)).is_ok_and(|text| text == self.text())
            && dir.join("metadata.csv").is_file()
            && count() == self.clips
    }

    fn write(&self, dir: &Path, speak: Speak, progress: Progress) -> Result<SampleVoice, Error> {
        let dir = absolute(dir)?;
        if self.is_at(&dir) {
            return Ok(self.voice);
        }
        if is_occupied(&dir)? {
            return Err(Error::occupied(dir));
        }
        let partial = Partial::beside(&dir)?;
        self.render(partial.path(), speak, progress)?;
        partial.replace(&dir)?;
        Ok(self.voice)
    }

    fn render(&self, dir: &Path, speak: Speak, progress: Progress) -> Result<(), Error> {
        let wavs = dir.join("wavs");
        fs::create_dir(&wavs).map_err(at(&wavs))?;
        let mut metadata = String::new();
        for (index, sentence) in sentences::generate(self.clips, self.seed).iter().enumerate() {
            let id = format!("sample-{:05}", index + 1);
            let wave = audio::normalize(audio::resample(speak(sentence)?, self.rate_hz)?, LOUDNESS_LUFS);
            audio::write_wav(&wavs.join(format!("{id}.wav")), &wave.samples, wave.rate_hz)?;
            metadata += &format!("{id}|{sentence}|{sentence}\n");
            if progress(index + 1).is_break() {
                return Err(Error::Interrupted);
            }
        }
        for (name, content) in [("metadata.csv", metadata), (MARKER, self.text())] {
            fs::write(dir.join(name), content).map_err(at(&dir.join(name)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn few(voice: SampleVoice) -> SampleCorpusOptions {
        SampleCorpusOptions { clips: 3, rate_hz: 16_000, voice, ..SampleCorpusOptions::default() }
    }

    fn voices() -> Vec<SampleVoice> {
        // Machines without espeak-ng test the voice that they have.
        if espeak::check().is_ok() {
            vec![SampleVoice::Formant, SampleVoice::Espeak]
        } else {
            vec![SampleVoice::Formant]
        }
    }

    #[test]
    fn every_voice_writes_a_corpus_that_can_be_read() {
        for voice in voices() {
            let dir = tempfile::tempdir().unwrap();
            let done = Cell::new(0);
            let at = dir.path().join("new/corpus");
            assert_eq!(
                write(&at, &few(voice), &|clips| {
                    done.set(clips);
                    ControlFlow::Continue(())
                })
                .unwrap(),
                voice
            );
            assert_eq!(done.get(), 3);
            let corpus = crate::corpus::read(&at, &Default::default()).unwrap();
            assert_eq!((corpus.utterances.len(), corpus.problems.len()), (3, 0));
            for utterance in corpus.utterances.iter() {
                let wave = audio::decode(utterance.audio.file().unwrap()).unwrap();
                let seconds = wave.samples.len() as f64 / 16_000.0;
                assert!(wave.rate_hz == 16_000 && (0.8..4.0).contains(&seconds), "{voice}: {seconds} s");
            }
            assert_eq!(fs::read_dir(at.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        }
    }

    #[test]
    fn same_seed_same_bytes() {
        for voice in voices() {
            let dir = tempfile::tempdir().unwrap();
            let clip = |name: &str, seed| {
                write(&dir.path().join(name), &SampleCorpusOptions { seed, ..few(voice) }, &|_| {
                    ControlFlow::Continue(())
                })
                .unwrap();
                fs::read(dir.path().join(name).join("wavs/sample-00002.wav")).unwrap()
            };
            assert!(clip("a", 5) == clip("b", 5), "{voice}");
            assert!(clip("c", 6) != clip("d", 5), "{voice}");
        }
    }

    #[test]
    fn done_work_is_kept_and_changed_options_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let options = few(SampleVoice::Formant);
        write(dir.path(), &options, &|_| ControlFlow::Continue(())).unwrap();
        assert!(is_written(dir.path(), &options).unwrap());
        write(dir.path(), &options, &|_| panic!("made again")).unwrap();
        let more = SampleCorpusOptions { clips: 4, ..options };
        assert!(!is_written(dir.path(), &more).unwrap());
        write(dir.path(), &more, &|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(crate::corpus::read(dir.path(), &Default::default()).unwrap().utterances.len(), 4);
        fs::remove_file(dir.path().join("wavs/sample-00001.wav")).unwrap();
        assert!(!is_written(dir.path(), &more).unwrap());
    }

    #[test]
    fn other_files_are_never_touched() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("thesis.txt"), "words").unwrap();
        let refused = write(&mine, &few(SampleVoice::Formant), &|_| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(Error::Occupied { .. })));
        let aside = move_aside(&mine).unwrap().unwrap();
        assert_eq!(fs::read_to_string(aside.join("thesis.txt")).unwrap(), "words");
        write(&mine, &few(SampleVoice::Formant), &|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(move_aside(&mine).unwrap(), None);
    }

    #[test]
    fn impossible_options_name_the_range() {
        let error = |options: SampleCorpusOptions| {
            write(Path::new("/absent"), &options, &|_| ControlFlow::Continue(())).unwrap_err().to_string()
        };
        assert!(error(SampleCorpusOptions { clips: 0, ..few(SampleVoice::Formant) }).contains("1 to 20000"));
        assert!(error(SampleCorpusOptions { rate_hz: 1, ..few(SampleVoice::Formant) }).contains("8000 to 48000"));
        assert!(matches!(
            write(Path::new("/"), &few(SampleVoice::Formant), &|_| ControlFlow::Continue(())),
            Err(Error::Occupied { .. })
        ));
    }
}
