//! The clips of a corpus, in its order, as slices into mapped files.

use super::build::BuildJob;
use super::durations::ClipSegment;
use super::features::ClipAudio;
use super::file_stat::FileStat;
use super::identity::Identity;
use super::settings::AudioForm;
use super::shard::{Shard, ShardLocation};
use super::table::CorpusTable;
use super::{Error, Failure};
use crate::corpus::{Utterance, is_member, shown};
use rayon::prelude::*;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file of this name tells the next run to look at every recording.
pub(super) const OUTDATED: &str = "outdated";

/// Cloned cheaply: all clones see the same maps.
#[derive(Clone)]
pub struct Cache {
    files: Arc<Files>,
    /// Rows of the table, in its order: all that have features, or a part of them.
    rows: Vec<u32>,
    /// Characters of the text of every row of the table, as the corpus has it. Counted, not kept: it takes less time.
    characters: Arc<[u32]>,
    form: AudioForm,
    /// What relative paths of recordings start from.
    base: PathBuf,
}

/// One clip; its slices point into the mapped files.
#[derive(Clone, Copy, Debug)]
pub struct Clip<'a> {
    pub id: &'a str,
    pub tokens: &'a [i32],
    pub sound: ClipAudio<'a>,
    pub speaker: &'a str,
    pub language: &'a str,
}

struct Files {
    table: CorpusTable,
    shards: Vec<Shard>,
    /// Rows whose checksums were compared.
    checked: Vec<AtomicBool>,
    /// Every recording was looked at.
    all_current: AtomicBool,
}

impl Cache {
    /// None when there is no whole table, or its shards changed since it was written.
    pub(super) fn open(job: &BuildJob, corpus: &Identity) -> Option<Self> {
        let table = CorpusTable::find(&job.dir, corpus)?;
        let shard = |(name, stat): &(String, [i64; 3])| {
            let shard = Shard::open(&job.dir.join(name), job.form).ok()?;
            let FileStat { bytes, modified_ns, changed_ns } = shard.stat;
            (*stat == [bytes, modified_ns, changed_ns]).then_some(shard)
        };
        let shards = table.about.shards.iter().map(shard).collect::<Option<Vec<_>>>()?;
        let rows = (0..table.len()).filter(|&row| table.failure(row).is_none()).map(|row| row as u32).collect();
        let checked = (0..table.len()).map(|_| AtomicBool::new(false)).collect();
        table.touch();
        let files = Arc::new(Files { table, shards, checked, all_current: AtomicBool::new(false) });
        // The table that has the identity of these utterances has a row for each, in their order.
        let characters = job.utterances.iter().map(|utterance| utterance.text.chars().count() as u32).collect();
        Some(Cache { files, rows, characters, form: job.form, base: job.base.clone() })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The clips of these utterances, some of those that the cache was opened with: the training part, for example.
    pub fn part(&self, utterances: &[Utterance]) -> Self {
        let named = utterances.iter().map(|u| (u.id.as_str(), u.audio.name(&self.base).into_owned().into_os_string()));
        let wanted: HashSet<(&str, OsString)> = named.collect();
        let table = &self.files.table;
        let name = |row: usize| (table.id(row), table.audio(row).as_os_str().to_owned());
        let rows = self.rows.iter().copied().filter(|&row| wanted.contains(&name(row as usize))).collect();
        Cache { rows, ..self.clone() }
    }

    /// At its first use, a clip is held against its checksum, and its recording against its stat unless that was done
    /// before. What is damaged is deleted and what is outdated is noted, so that the next run makes it again. Both are
    /// errors in this one: every plan of the run counts on the clip.
    pub fn clip(&self, index: usize) -> Result<Clip<'_>, Error> {
        let (files, row) = (&*self.files, self.rows[index] as usize);
        let table = &files.table;
        let is_new = !files.checked[row].load(Ordering::Relaxed);
        let sound = files.sound(row, self.form, is_new).ok_or_else(|| files.remove_damaged(row))?;
        if is_new {
            files.check_recording(row)?;
            files.checked[row].store(true, Ordering::Relaxed);
        }
        let (id, speaker, language) = (table.id(row), table.speaker(row), table.language(row));
        Ok(Clip { id, tokens: table.tokens(row), sound, speaker, language })
    }

    /// Name and recording of a clip.
    pub fn source(&self, index: usize) -> (&str, &Path) {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        (table.id(row), table.audio(row))
    }

    /// Names a part of a clip by what it is made of.
    pub fn segment(&self, index: usize, frames: Range<u32>, tokens: Range<u32>) -> ClipSegment {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        ClipSegment::new(table.source(row), table.text(row), frames, tokens)
    }

    /// Length of a clip, without touching its sound.
    pub fn samples(&self, index: usize) -> usize {
        self.files.table.place(self.rows[index] as usize).samples as usize
    }

    /// Mel frames of a clip: one at each hop from the first sample to the last (`librosa` with `center=True`).
    pub fn frames(&self, index: usize) -> usize {
        self.form.frames(self.samples(index))
    }

    /// Mel bands, where the cache holds mel frames.
    pub fn n_mels(&self) -> Option<usize> {
        self.form.n_mels
    }

    pub fn hop_samples(&self) -> usize {
        self.form.hop_samples
    }

    /// Values that a frame takes in a batch: samples of a hop, or bands.
    pub fn values_per_frame(&self) -> usize {
        self.form.n_mels.unwrap_or(self.form.hop_samples)
    }

    /// Characters of a clip's text, as the corpus has it.
    pub fn characters(&self, index: usize) -> usize {
        self.characters[self.rows[index] as usize] as usize
    }

    /// Tokens of a clip's text, without touching them.
    pub fn tokens(&self, index: usize) -> usize {
        self.files.table.token_count(self.rows[index] as usize)
    }

    /// Whether recordings look as they did when their features were made: all, or so many that lie evenly spread.
    pub(super) fn is_current(&self, looked_at: usize) -> bool {
        let (table, rows) = (&self.files.table, self.files.table.len());
        if (0..rows).any(|row| table.stat(row) == FileStat::NEVER) {
            return false;
        }
        if looked_at == 0 {
            return true;
        }
        let step = rows.div_ceil(looked_at).max(1);
        let current = (0..rows.div_ceil(step)).into_par_iter().all(|index| self.files.is_current(index * step));
        self.files.all_current.store(current && step == 1, Ordering::Relaxed);
        current
    }

    /// Every recording has just been looked at.
    pub(super) fn trust(&self) {
        self.files.all_current.store(true, Ordering::Relaxed);
    }

    pub(super) fn failures(&self) -> Vec<Failure> {
        let table = &self.files.table;
        let failure = |row| {
            let reason = table.failure(row)?.to_owned();
            Some(Failure { id: table.id(row).to_owned(), path: shown(table.audio(row)).into_owned(), reason })
        };
        (0..table.len()).filter_map(failure).collect()
    }
}

impl Files {
    /// Compares checksums where the clip is new to this run.
    fn sound(&self, row: usize, form: AudioForm, is_new: bool) -> Option<ClipAudio<'_>> {
        let ShardLocation { shard, offset, samples, checksum } = self.table.place(row);
        let sound = self.shards.get(shard as usize)?.sound(offset, form.values(samples as usize))?;
        (!is_new || sound.checksum() == checksum).then_some(sound)
    }

    fn is_current(&self, row: usize) -> bool {
        // A part of a shard is what the corpus said when it was read: its shard's version is part of the table's identity.
        is_member(self.table.audio(row)) || FileStat::of(self.table.audio(row)) == self.table.stat(row)
    }

    fn check_recording(&self, row: usize) -> Result<(), Error> {
        if self.all_current.load(Ordering::Relaxed) || self.is_current(row) {
            return Ok(());
        }
        let _ = fs::write(self.table.path.with_file_name(OUTDATED), []);
        Err(Error::outdated(self.table.audio(row), self.table.id(row)))
    }

    fn remove_damaged(&self, row: usize) -> Error {
        let shard = self.shards.get(self.table.place(row).shard as usize);
        let path = shard.map_or(&self.table.path, |shard| &shard.path).clone();
        let _ = fs::remove_file(&path);
        Error::damaged(path, self.table.id(row))
    }
}
