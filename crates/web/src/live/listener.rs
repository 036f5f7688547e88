//! A thread that has a recogniser listen to what the shown runs have spoken, and writes down what was heard beside it. It
//! is behind where it is slow, never in the way: it runs, and its program with it, when nobody else wants the processor.

use super::runs::{RunTable, ShownRun};
use anyhow::{Context, Result};
use host::audio;
use host::error::Explained;
use host::recogniser::{Recogniser, words};
use host::run_log::{Heard, HeardFile, SampleClip, SampleFolder, Sound, unheard};
use host::telemetry::console::complain;
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// New speech is looked for this often at most, and for this part of the time.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_SHARE: u32 = 20;
/// How often it is looked whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// Sounds that a recogniser is given at once: then it is seen whether there are newer ones.
const MOST_AT_ONCE: usize = 16;
/// A recogniser that fails as often in a row is not asked again.
const MOST_FAILURES: usize = 3;
/// What was heard is cut behind so many characters; no sample is as long.
const MOST_CHARACTERS: usize = 2000;
/// Of a process: the lowest there is.
const PRIORITY: i32 = 19;

/// How the listener stands, for the page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ListenerState {
    /// Sounds that wait.
    pub behind: usize,
    /// Why the last one could not be heard.
    pub error: Option<String>,
}

/// What the listener and the server share.
#[derive(Default)]
pub struct Listener {
    state: Mutex<ListenerState>,
}

impl Listener {
    pub fn state(&self) -> ListenerState {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ListenerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens until it is told to stop, or the recogniser has failed too often.
    pub(super) fn run(&self, recogniser: Recogniser, runs: &RunTable, stop: &dyn Fn() -> bool) {
        // A thread has its own priority on Linux, and hands it on to the programs that it starts.
        let _ = rustix::process::nice(PRIORITY);
        let work = Work { recogniser: recogniser.without_gpus(), listener: self, stop };
        let (mut failed, mut failures) = (HashSet::new(), 0);
        while failures < MOST_FAILURES {
            let start = Instant::now();
            let next = self.next(runs, &failed);
            let pause = LOOK.max(start.elapsed() * LOOK_SHARE);
            let Some((run, sounds)) = next else {
                if wait(pause, stop) {
                    return;
                }
                continue;
            };
            match work.hear(&run, &sounds) {
                _ if stop() => return,
                Ok(()) => failures = 0,
                Err(failure) => {
                    failures = if failure.heard_some { 1 } else { failures + 1 };
                    failed.insert((run.id.clone(), failure.sound));
                    self.fail(&failure.error, failures);
                }
            }
        }
    }

    /// Some sounds of one run that wait, the newest first; those that made the recogniser fail are passed over.
    fn next(&self, runs: &RunTable, failed: &HashSet<(String, Sound)>) -> Option<(Arc<ShownRun>, Vec<Sound>)> {
        let (mut behind, mut found) = (0, None);
        for run in runs.all() {
            let mut sounds = unheard(&run.folder.log_dir);
            sounds.retain(|sound| !failed.contains(&(run.id.clone(), *sound)));
            behind += sounds.len();
            sounds.truncate(MOST_AT_ONCE);
            found = found.or((!sounds.is_empty()).then_some((run, sounds)));
        }
        self.lock().behind = behind;
        found
    }

    /// Says it on the page, and once in the log: again only after something was heard.
    fn fail(&self, error: &anyhow::Error, failures: usize) {
        let told = Explained::of(error.as_ref()).to_string();
        let is_over = failures == MOST_FAILURES;
        let over = if is_over { "\nthe recogniser is not asked again: it failed three times in a row" } else { "" };
        let is_new = self.lock().error.replace(format!("{told}{over}")).is_none();
        if is_new {
            complain(format!("warning: the speech of a validation could not be listened to: {told}"));
        }
        if is_over {
            complain(over.trim_start());
        }
    }
}

/// Whether it was told to stop in this time.
fn wait(time: Duration, stop: &dyn Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < time && !stop() {
        thread::sleep(STOP_LOOK);
    }
    stop()
}

struct Work<'a> {
    recogniser: Recogniser,
    listener: &'a Listener,
    stop: &'a dyn Fn() -> bool,
}

impl Work<'_> {
    /// Has some sounds heard, and writes each down as soon as it was.
    fn hear(&self, run: &ShownRun, sounds: &[Sound]) -> Result<(), Failure> {
        let log_dir = &run.folder.log_dir;
        let (samples, file) = (SampleFolder::of(log_dir), HeardFile::of(log_dir));
        let clips = samples.clips();
        let failed = |sound, heard_some, error| Failure { sound, heard_some, error };
        let folder = tempfile::Builder::new().prefix("myxtts-listens-").tempdir();
        let folder = folder.map_err(|error| failed(sounds[0], false, error.into()))?;
        let mut copies = Vec::new();
        for sound in sounds {
            let copy = SoundCopy::new(&samples, *sound, folder.path());
            copies.extend(copy.map_err(|error| failed(*sound, true, error))?);
        }
        let paths: Vec<PathBuf> = copies.iter().map(|copy| copy.wav.clone()).collect();
        let (mut is_heard, mut written) = (vec![false; copies.len()], Ok(()));
        let mut take = |at: usize, text: String| {
            is_heard[at] = true;
            let copy = &copies[at];
            let clip: Option<&SampleClip> = clips.get(copy.sound.0);
            // What was spoken anew in the meantime is another sound.
            if let (Some(clip), true, true) = (clip, copy.is_current(), written.is_ok()) {
                written = file.append(&line(clip, copy.sound, text));
                let mut state = self.listener.lock();
                (state.behind, state.error) = (state.behind.saturating_sub(1), None);
            }
        };
        let ended = self.recogniser.listen(&paths, &mut take, self.stop);
        let place = || format!("{}: what was heard cannot be written there", log_dir.display());
        written.with_context(place).map_err(|error| failed(sounds[0], false, error))?;
        let first = is_heard.iter().position(|is_heard| !is_heard).map_or(sounds[0], |at| copies[at].sound);
        ended.map(|_| ()).map_err(|error| failed(first, is_heard.contains(&true), error))
    }
}

/// Why not all of some sounds could be heard.
struct Failure {
    /// The one to pass over from now on.
    sound: Sound,
    heard_some: bool,
    error: anyhow::Error,
}

fn line(clip: &SampleClip, (number, step): Sound, mut text: String) -> Heard {
    text.truncate(text.char_indices().nth(MOST_CHARACTERS).map_or(text.len(), |(at, _)| at));
    let (words, _) = words::compare(&clip.text, &text, &clip.language);
    Heard { clip: number, step, text, edits: words.edits, of: words.of }
}

/// A sound as every recogniser takes it.
struct SoundCopy {
    sound: Sound,
    source: PathBuf,
    /// As the source was when it was copied.
    looked: (u64, SystemTime),
    wav: PathBuf,
}

impl SoundCopy {
    /// None where the sound is gone: a run keeps a bounded number of them.
    fn new(samples: &SampleFolder, sound: Sound, folder: &Path) -> Result<Option<Self>> {
        let (clip, step) = sound;
        let source = step.map_or_else(|| samples.recording(clip), |step| samples.spoken(clip, step));
        let name = step.map_or_else(|| format!("{clip}-recording.wav"), |step| format!("{clip}-{step}.wav"));
        let (Some(looked), wav) = (look(&source), folder.join(name)) else { return Ok(None) };
        let wave = match audio::decode(&source) {
            Err(_) if !source.exists() => return Ok(None),
            wave => wave?,
        };
        audio::write_wav(&wav, &wave.samples, wave.rate_hz)?;
        Ok(Some(SoundCopy { sound, source, looked, wav }))
    }

    fn is_current(&self) -> bool {
        look(&self.source) == Some(self.looked)
    }
}

fn look(path: &Path) -> Option<(u64, SystemTime)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.len(), meta.modified().ok()?))
}
