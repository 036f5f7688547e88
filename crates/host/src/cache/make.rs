//! One clip: its recording read, its sound made unless it is there, its text turned into tokens unless they are there.

use super::BuildSeconds;
use super::build::BuildJob;
use super::digest::Digest;
use super::features::{Extracted, ExtractorBuffers, FeatureExtractor};
use super::file_stat::{self, FileStat};
use super::folder::{Folder, KnownClips};
use super::identity::{language_of, text_key};
use super::packed::Packed;
use super::table::{ReadyClip, TableEntry, TokenizedText};
use crate::corpus::{AudioFeed, AudioSource, Unread};
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
    /// The tokenizer's.
    pub fingerprint: &'a str,
    pub folder: &'a Folder,
    /// Buffers that no worker uses right now.
    pub buffers: Mutex<Vec<WorkerBuffers>>,
    /// Reads what lies in shards, in the order of the clips that are made.
    pub feed: Option<AudioFeed>,
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
    /// Starts to read those of these clips that lie in shards and have to be read.
    pub(super) fn feed(&mut self, missing: &[u32]) {
        let sources = missing.iter().map(|&index| (index as usize, self.job.utterances.get(index as usize).audio));
        let unread = sources.filter(|(_, audio)| audio.member().is_some() && self.known(audio).is_none());
        self.feed = Some(AudioFeed::new(unread));
    }

    /// Stat and digest of a recording whose sound is there, without reading it.
    fn known(&self, audio: &AudioSource) -> Option<(FileStat, Digest)> {
        let name = audio.name(&self.job.base);
        // What lies far away is named by where it lies, so that it need not be fetched to be known.
        let by_place = || {
            let key = audio.member()?.remote_key()?;
            Some((FileStat::of_source(audio, &name), Digest::of(&key)))
        };
        let found = self.memory.recording(audio, &name).or_else(by_place);
        found.filter(|(_, source)| self.folder.places.contains(source))
    }

    pub(super) fn make(&self, index: usize) -> BuiltClip {
        let audio = &self.job.utterances.get(index).audio;
        let failed =
            |stat, reason| BuiltClip { entry: TableEntry { stat, outcome: Err(reason) }, sound: None, encoded: false };
        let mut buffer = self.buffers.lock().ok().and_then(|mut buffers| buffers.pop()).unwrap_or_default();
        let sound = self.sound(index, &mut buffer);
        if buffer.file.capacity() <= KEPT_BYTES
            && let Ok(mut buffers) = self.buffers.lock()
        {
            buffers.push(buffer);
        }
        match (sound, self.text(index)) {
            // What a network refused is asked for again next time.
            (Err(Unread { reason, may_pass: true }), _) => failed(FileStat::NEVER, reason),
            (Err(Unread { reason, .. }), _) => {
                failed(FileStat::of_source(audio, &audio.name(&self.job.base)).settled(), reason)
            }
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
    fn sound(&self, index: usize, buffer: &mut WorkerBuffers) -> Result<(FileStat, Digest, Option<Extracted>), Unread> {
        let audio = &self.job.utterances.get(index).audio;
        if let Some((stat, source)) = self.known(audio) {
            return Ok((stat, source, None));
        }
        let lasting = |reason: String| Unread { reason, may_pass: false };
        let start = Instant::now();
        self.job.hook.at(Moment::ReadRecording);
        let (stat, source) = match (audio.file(), &self.feed) {
            (None, Some(feed)) => {
                buffer.file = feed.take(index)?;
                let key = audio.member().and_then(|member| member.remote_key());
                let digest = key.map_or_else(|| Digest::of(&buffer.file), |key| Digest::of(&key));
                (FileStat::of_source(audio, Path::new("")), digest)
            }
            _ => file_stat::read(&audio.name(&self.job.base), &mut buffer.file)
                .map_err(|error| lasting(error.to_string()))?,
        };
        self.spend(0, start);
        if self.folder.places.contains(&source) {
            return Ok((stat, source, None));
        }
        let start = Instant::now();
        self.job.hook.at(Moment::DecodeRecording);
        let path = audio.file().map(|path| self.job.base.join(path));
        let kept = self.maker.make(path.as_deref(), &mut buffer.file, &mut buffer.tools).map_err(lasting)?;
        self.spend(1, start);
        if path.is_some_and(|path| FileStat::of(&path) != stat) {
            return Err(lasting("changed while it was read".into()));
        }
        Ok((stat, source, Some(kept)))
    }

    /// The text, and whether its tokens are new.
    fn text(&self, index: usize) -> Result<(TokenizedText, bool), String> {
        let utterance = self.job.utterances.get(index);
        let (text, language) = (utterance.text, language_of(&utterance, self.job.language));
        if let Some(text) = self.memory.text(&text_key(self.fingerprint, text, language)) {
            return Ok((text, false));
        }
        let start = Instant::now();
        self.job.hook.at(Moment::EncodeText);
        let tokenizer = self.job.tokenizer;
        let language = tokenizer.language(text, language);
        let tokens = tokenizer.encode(text, language).map_err(|error| format!("its text: {error}"))?;
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
