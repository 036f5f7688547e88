//! One clip: its recording read, its sound made unless it is there, its text turned into tokens unless they are there.

use super::Work;
use super::build::Job;
use super::digest::Digest;
use super::folder::{self, Folder, Memory};
use super::identity::language_of;
use super::packed::Packed;
use super::roster::{Entry, Ready, Text};
use super::sound::{Kept, Maker, Tools};
use super::stamp::{self, Stamp};
use crate::simulate;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One long recording must not take memory for the rest of the build.
const KEPT_BYTES: usize = 8 << 20;

/// What workers make clips from.
pub(super) struct Source<'a> {
    pub job: &'a Job<'a>,
    pub maker: Maker<'a>,
    pub memory: &'a Memory<'a>,
    /// Names of the tokens of each text.
    pub texts: &'a [Digest],
    pub folder: &'a Folder,
    /// Memory that no worker uses right now.
    pub desks: Mutex<Vec<Desk>>,
    /// Nanoseconds of all workers: reading, making sound, making tokens.
    pub spent: [AtomicU64; 3],
}

/// What a worker needs for a clip, kept for the next: memory that is new to a process costs more than what is done
/// with it.
#[derive(Default)]
pub(super) struct Desk {
    /// The recording as it lies on disk.
    file: Vec<u8>,
    tools: Tools,
}

/// What came of one utterance: its entry and, unless the cache has it already, its sound.
pub(super) struct Made {
    pub entry: Entry,
    pub sound: Option<Kept>,
    /// The tokens are new.
    pub encoded: bool,
}

impl Made {
    /// Of the sound.
    pub(super) fn bytes(&self) -> usize {
        self.sound.as_ref().map_or(0, |kept| kept.sound.as_sound().bytes().len())
    }
}

impl Source<'_> {
    pub(super) fn make(&self, index: usize) -> Made {
        let path = folder::absolute(&self.job.base, &self.job.utterances[index]);
        let failed = |stamp, reason| Made { entry: Entry { stamp, outcome: Err(reason) }, sound: None, encoded: false };
        let mut desk = self.desks.lock().ok().and_then(|mut desks| desks.pop()).unwrap_or_default();
        let sound = self.sound(&path, &mut desk);
        if desk.file.capacity() <= KEPT_BYTES
            && let Ok(mut desks) = self.desks.lock()
        {
            desks.push(desk);
        }
        match (sound, self.text(index)) {
            (Err(reason), _) => failed(Stamp::of(&path).settled(), reason),
            // Text may fail for reasons that no file tells of, so it is tried again next time.
            (_, Err(reason)) => failed(Stamp::NEVER, reason),
            (Ok((stamp, source, sound)), Ok((text, encoded))) => {
                Made { entry: Entry { stamp: stamp.settled(), outcome: Ok(Ready { source, text }) }, sound, encoded }
            }
        }
    }

    /// Stamp and digest of the recording, and its sound unless the cache has it.
    fn sound(&self, path: &Path, desk: &mut Desk) -> Result<(Stamp, Digest, Option<Kept>), String> {
        if let Some((stamp, source)) = self.memory.recording(path)
            && self.folder.places.contains_key(&source)
        {
            return Ok((stamp, source, None));
        }
        let (delays, start) = (self.job.delays, Instant::now());
        simulate::wait(delays.disk);
        let (stamp, source) = stamp::read(path, &mut desk.file).map_err(|error| error.to_string())?;
        self.spend(0, start);
        if self.folder.places.contains_key(&source) {
            return Ok((stamp, source, None));
        }
        let start = Instant::now();
        simulate::work(delays.decode);
        let kept = self.maker.make(path, &desk.file, &mut desk.tools)?;
        self.spend(1, start);
        if Stamp::of(path) != stamp {
            return Err("changed while it was read".into());
        }
        Ok((stamp, source, Some(kept)))
    }

    /// The text, and whether its tokens are new.
    fn text(&self, index: usize) -> Result<(Text, bool), String> {
        if let Some(text) = self.memory.text(&self.texts[index]) {
            return Ok((text, false));
        }
        let start = Instant::now();
        simulate::work(self.job.delays.text);
        let (utterance, tokenizer) = (&self.job.utterances[index], self.job.tokenizer);
        let language = tokenizer.language(&utterance.text, language_of(utterance, self.job.language));
        let tokens = tokenizer.encode(&utterance.text, language).map_err(|error| format!("its text: {error}"))?;
        self.spend(2, start);
        Ok((Text { language: language.to_owned(), tokens: Packed::of(&tokens) }, true))
    }

    fn spend(&self, on: usize, since: Instant) {
        self.spent[on].fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn spent(&self) -> Work {
        let [read, sound, text] = [0, 1, 2].map(|on: usize| self.spent[on].load(Ordering::Relaxed) as f64 / 1e9);
        Work { read, sound, text, wall: 0.0 }
    }
}
