//! One clip: its recording read, its sound made unless it is there, its text turned into tokens unless they are there.

use super::build::Job;
use super::folder::{self, Folder, Memory};
use super::identity::language_of;
use super::roster::{Entry, Ready, Text};
use super::sound::{Maker, SoundBuf};
use super::stamp::{self, Stamp};
use blake3::Hash;
use std::path::Path;

/// What workers make clips from.
pub(super) struct Source<'a> {
    pub job: &'a Job<'a>,
    pub maker: Maker<'a>,
    pub memory: &'a Memory<'a>,
    /// Names of the tokens of each text.
    pub texts: &'a [Hash],
    pub folder: &'a Folder,
}

/// What came of one utterance: its entry and, unless the cache has it already, its sound.
pub(super) struct Made {
    pub entry: Entry,
    pub sound: Option<(SoundBuf, u32)>,
    /// The tokens are new.
    pub encoded: bool,
}

impl Made {
    /// Of the sound.
    pub(super) fn bytes(&self) -> usize {
        self.sound.as_ref().map_or(0, |(sound, _)| sound.as_sound().bytes().len())
    }
}

impl Source<'_> {
    pub(super) fn make(&self, index: usize) -> Made {
        let path = folder::absolute(&self.job.base, &self.job.utterances[index]);
        let failed = |stamp, reason| Made { entry: Entry { stamp, outcome: Err(reason) }, sound: None, encoded: false };
        match (self.sound(&path), self.text(index)) {
            (Err(reason), _) => failed(Stamp::of(&path).settled(), reason),
            // Text may fail for reasons that no file tells of, so it is tried again next time.
            (_, Err(reason)) => failed(Stamp::NEVER, reason),
            (Ok((stamp, source, sound)), Ok((text, encoded))) => {
                Made { entry: Entry { stamp: stamp.settled(), outcome: Ok(Ready { source, text }) }, sound, encoded }
            }
        }
    }

    /// Stamp and digest of the recording, and its sound unless the cache has it.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn sound(&self, path: &Path) -> Result<(Stamp, Hash, Option<(SoundBuf, u32)>), String> {
        let known = self.memory.recording(path).map_or_else(|| stamp::digest(path), Ok);
        let (stamp, source) = known.map_err(|error| error.to_string())?;
        if self.folder.places.contains_key(&source) {
            return Ok((stamp, source, None));
        }
        let sound = self.maker.make(path)?;
        if Stamp::of(path) != stamp {
            return Err("changed while it was read".into());
        }
        Ok((stamp, source, Some(sound)))
    }

    /// The text, and whether its tokens are new.
    fn text(&self, index: usize) -> Result<(Text, bool), String> {
        if let Some(text) = self.memory.text(&self.texts[index]) {
            return Ok((text, false));
        }
        let (utterance, tokenizer) = (&self.job.utterances[index], self.job.tokenizer);
        let language = tokenizer.language(&utterance.text, language_of(utterance, self.job.language));
        let tokens = tokenizer.encode(&utterance.text, language).map_err(|error| format!("its text: {error}"))?;
        Ok((Text { language: language.to_owned(), tokens }, true))
    }
}
