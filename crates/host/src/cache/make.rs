//! One clip: its recording read, its sound made unless it is there, its text turned into tokens unless they are there.

use super::BuildSeconds;
use super::build::BuildJob;
use super::digest::Digest;
use super::features::{Extracted, ExtractorBuffers, FeatureExtractor};
use super::file_stat::{self, FileStat};
use super::folder::{self, Folder, KnownClips};
use super::identity::language_of;
use super::packed::Packed;
use super::table::{ReadyClip, TableEntry, TokenizedText};
use crate::simulate::Moment;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One long recording must not take memory for the rest of the build.
const KEPT_BYTES: usize = 8 << 20;

/// What workers make clips from.
pub(super) struct ClipBuilder<'a> {
    pub job: &'a BuildJob<'a>,
    pub maker: FeatureExtractor<'a>,
    pub memory: &'a KnownClips<'a>,
    /// Names of the tokens of each text.
    pub texts: &'a [Digest],
    pub folder: &'a Folder,
    /// Buffers that no worker uses right now.
    pub buffers: Mutex<Vec<WorkerBuffers>>,
    /// Nanoseconds of all workers: reading, making sound, making tokens.
    pub spent: [AtomicU64; 3],
}

/// What a worker needs for a clip, kept for the next: memory that is new to a process costs more than what is done
/// with it.
#[derive(Default)]
pub(super) struct WorkerBuffers {
    /// The recording as it lies on disk.
    file: Vec<u8>,
    tools: ExtractorBuffers,
}

/// What came of one utterance: its entry and, unless the cache has it already, its sound.
pub(super) struct BuiltClip {
    pub entry: TableEntry,
    pub sound: Option<Extracted>,
    /// The tokens are new.
    pub encoded: bool,
}

impl BuiltClip {
    /// Bytes of the sound.
    pub(super) fn bytes(&self) -> usize {
        self.sound.as_ref().map_or(0, |kept| kept.sound.as_audio().bytes().len())
    }
}

impl ClipBuilder<'_> {
    pub(super) fn make(&self, index: usize) -> BuiltClip {
        let path = folder::absolute(&self.job.base, &self.job.utterances[index]);
        let failed =
            |stat, reason| BuiltClip { entry: TableEntry { stat, outcome: Err(reason) }, sound: None, encoded: false };
        let mut buffer = self.buffers.lock().ok().and_then(|mut buffers| buffers.pop()).unwrap_or_default();
        let sound = self.sound(&path, &mut buffer);
        if buffer.file.capacity() <= KEPT_BYTES
            && let Ok(mut buffers) = self.buffers.lock()
        {
            buffers.push(buffer);
        }
        match (sound, self.text(index)) {
            (Err(reason), _) => failed(FileStat::of(&path).settled(), reason),
            // A text may fail for reasons that no file tells of, so it is tried again next time.
            (_, Err(reason)) => failed(FileStat::NEVER, reason),
            (Ok((stat, source, sound)), Ok((text, encoded))) => BuiltClip {
                entry: TableEntry { stat: stat.settled(), outcome: Ok(ReadyClip { source, text }) },
                sound,
                encoded,
            },
        }
    }

    /// Stat and digest of the recording, and its sound unless the cache has it.
    fn sound(&self, path: &Path, buffer: &mut WorkerBuffers) -> Result<(FileStat, Digest, Option<Extracted>), String> {
        if let Some((stat, source)) = self.memory.recording(path)
            && self.folder.places.contains_key(&source)
        {
            return Ok((stat, source, None));
        }
        let start = Instant::now();
        self.job.hook.at(Moment::ReadRecording);
        let (stat, source) = file_stat::read(path, &mut buffer.file).map_err(|error| error.to_string())?;
        self.spend(0, start);
        if self.folder.places.contains_key(&source) {
            return Ok((stat, source, None));
        }
        let start = Instant::now();
        self.job.hook.at(Moment::DecodeRecording);
        let kept = self.maker.make(path, &buffer.file, &mut buffer.tools)?;
        self.spend(1, start);
        if FileStat::of(path) != stat {
            return Err("changed while it was read".into());
        }
        Ok((stat, source, Some(kept)))
    }

    /// The text, and whether its tokens are new.
    fn text(&self, index: usize) -> Result<(TokenizedText, bool), String> {
        if let Some(text) = self.memory.text(&self.texts[index]) {
            return Ok((text, false));
        }
        let start = Instant::now();
        self.job.hook.at(Moment::EncodeText);
        let (utterance, tokenizer) = (&self.job.utterances[index], self.job.tokenizer);
        let language = tokenizer.language(&utterance.text, language_of(utterance, self.job.language));
        let tokens = tokenizer.encode(&utterance.text, language).map_err(|error| format!("its text: {error}"))?;
        self.spend(2, start);
        Ok((TokenizedText { language: language.to_owned(), tokens: Packed::of(&tokens) }, true))
    }

    fn spend(&self, on: usize, since: Instant) {
        self.spent[on].fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn spent(&self) -> BuildSeconds {
        let [read, sound, text] = [0, 1, 2].map(|on: usize| self.spent[on].load(Ordering::Relaxed) as f64 / 1e9);
        BuildSeconds { read, sound, text, wall: 0.0 }
    }
}
