//! A corpus made by the program itself, to try everything without a download: short sentences over few words, spoken
//! by `espeak-ng` where it is installed and by a small formant synthesiser where it is not.

mod espeak;
mod folder;
mod formant;
mod sentences;

pub use folder::set_aside;

use crate::audio::{self, Waveform};
use folder::{Partial, absolute, at, is_occupied};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Its presence says "this folder is a sample corpus, whole, made with these options".
const MARKER: &str = "sample-corpus.json";
/// Raise it when the same options would give other clips.
const VERSION: u32 = 2;
/// As loud as clips are trained.
const LOUDNESS_LUFS: f64 = -20.0;
const MAX_CLIPS: usize = 20_000;
const RATES_HZ: std::ops::RangeInclusive<u32> = 8_000..=48_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Voice {
    /// `espeak-ng` where it is installed, the formant synthesiser otherwise.
    Auto,
    Espeak,
    Formant,
}

impl fmt::Display for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Voice::Auto => "auto",
            Voice::Espeak => "espeak-ng",
            Voice::Formant => "built-in formant",
        })
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub clips: usize,
    pub seed: u64,
    pub rate_hz: u32,
    pub voice: Voice,
}

impl Default for Options {
    fn default() -> Self {
        Self { clips: 200, seed: 1, rate_hz: 22_050, voice: Voice::Auto }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}")]
    Options { what: String },
    #[error("{}: has other files in it\nhint: name a new folder, or pass --force to move it aside", dir.display())]
    Occupied { dir: PathBuf },
    #[error("espeak-ng: {what}\nhint: install espeak-ng, or use the formant voice")]
    Espeak { what: String },
    #[error("{}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error("interrupted; nothing was written")]
    Interrupted,
    #[error(transparent)]
    Audio(#[from] audio::Error),
}

/// Told the number of clips done; a break ends the work and leaves nothing behind.
pub type Report<'a> = &'a dyn Fn(usize) -> ControlFlow<()>;

/// Makes the corpus, or leaves it as it is when it was made with the same options. Returns the voice that speaks.
///
/// The folder appears whole or not at all; another sample corpus in
/// its place is replaced, any other content is an error.
pub fn write(dir: &Path, options: &Options, progress: Report) -> Result<Voice, Error> {
    let marker = Marker::new(options)?;
    let dir = absolute(dir)?;
    if marker.is_at(&dir) {
        return Ok(marker.voice);
    }
    if is_occupied(&dir)? {
        return Err(Error::Occupied { dir });
    }
    let partial = Partial::beside(&dir)?;
    marker.render(partial.path(), progress)?;
    partial.replace(&dir)?;
    Ok(marker.voice)
}

/// Whether `write` would have nothing to do.
pub fn is_written(dir: &Path, options: &Options) -> Result<bool, Error> {
    Ok(Marker::new(options)?.is_at(&absolute(dir)?))
}

/// Everything that decides what the clips sound like.
#[derive(Serialize)]
struct Marker {
    version: u32,
    clips: usize,
    seed: u64,
    rate_hz: u32,
    voice: Voice,
}

impl Marker {
    fn new(options: &Options) -> Result<Self, Error> {
        let &Options { clips, seed, rate_hz, voice } = options;
        if !(1..=MAX_CLIPS).contains(&clips) {
            return Err(Error::Options { what: format!("clips: {clips}, expected 1 to {MAX_CLIPS}") });
        }
        if !RATES_HZ.contains(&rate_hz) {
            let (low, high) = RATES_HZ.into_inner();
            return Err(Error::Options { what: format!("sample rate: {rate_hz} Hz, expected {low} to {high}") });
        }
        let voice = match voice {
            Voice::Formant => Voice::Formant,
            Voice::Espeak => espeak::check().map(|()| Voice::Espeak)?,
            Voice::Auto => espeak::check().map_or(Voice::Formant, |()| Voice::Espeak),
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

    fn render(&self, dir: &Path, progress: Report) -> Result<(), Error> {
        let wavs = dir.join("wavs");
        fs::create_dir(&wavs).map_err(at(&wavs))?;
        let mut metadata = String::new();
        for (index, sentence) in sentences::generate(self.clips, self.seed).iter().enumerate() {
            let id = format!("sample-{:05}", index + 1);
            let wave = self.speak(sentence)?;
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

    fn speak(&self, sentence: &str) -> Result<Waveform, Error> {
        let wave = match self.voice {
            Voice::Formant => formant::speak(sentence, self.rate_hz),
            _ => audio::resample(espeak::speak(sentence)?, self.rate_hz)?,
        };
        Ok(audio::normalize(wave, LOUDNESS_LUFS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn few(voice: Voice) -> Options {
        Options { clips: 3, rate_hz: 16_000, voice, ..Options::default() }
    }

    fn voices() -> Vec<Voice> {
        // Machines without espeak-ng test the voice that they have.
        if espeak::check().is_ok() { vec![Voice::Formant, Voice::Espeak] } else { vec![Voice::Formant] }
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
            for utterance in corpus.utterances {
                let wave = audio::decode(&utterance.audio).unwrap();
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
                write(&dir.path().join(name), &Options { seed, ..few(voice) }, &|_| ControlFlow::Continue(())).unwrap();
                fs::read(dir.path().join(name).join("wavs/sample-00002.wav")).unwrap()
            };
            assert!(clip("a", 5) == clip("b", 5), "{voice}");
            assert!(clip("c", 6) != clip("d", 5), "{voice}");
        }
    }

    #[test]
    fn done_work_is_kept_and_changed_options_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let options = few(Voice::Formant);
        write(dir.path(), &options, &|_| ControlFlow::Continue(())).unwrap();
        assert!(is_written(dir.path(), &options).unwrap());
        write(dir.path(), &options, &|_| panic!("made again")).unwrap();
        let more = Options { clips: 4, ..options };
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
        let refused = write(&mine, &few(Voice::Formant), &|_| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(Error::Occupied { .. })));
        let aside = set_aside(&mine).unwrap().unwrap();
        assert_eq!(fs::read_to_string(aside.join("thesis.txt")).unwrap(), "words");
        write(&mine, &few(Voice::Formant), &|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(set_aside(&mine).unwrap(), None);
    }

    #[test]
    fn impossible_options_name_the_range() {
        let error = |options: Options| {
            write(Path::new("/absent"), &options, &|_| ControlFlow::Continue(())).unwrap_err().to_string()
        };
        assert!(error(Options { clips: 0, ..few(Voice::Formant) }).contains("1 to 20000"));
        assert!(error(Options { rate_hz: 1, ..few(Voice::Formant) }).contains("8000 to 48000"));
        assert!(matches!(
            write(Path::new("/"), &few(Voice::Formant), &|_| ControlFlow::Continue(())),
            Err(Error::Occupied { .. })
        ));
    }
}
