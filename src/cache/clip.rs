//! The clips of a corpus, in its order, as slices into mapped files.

use super::roster::Roster;
use super::shard::Shard;
use super::sound::{Sound, SoundBuf};
use super::stamp::Stamp;
use super::{Error, Failure};
use half::f16;
use rayon::prelude::*;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cloned cheaply: all clones see the same maps.
#[derive(Clone)]
pub struct Cache {
    files: Arc<Files>,
    /// Rows of the table, in its order: all that have features, or a part of them.
    rows: Vec<u32>,
    form: Form,
}

/// What the sound of this cache is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub hop_samples: usize,
    /// None keeps samples.
    pub n_mels: Option<usize>,
}

impl Form {
    fn frames(&self, samples: usize) -> usize {
        samples / self.hop_samples + 1
    }

    fn fits(&self, sound: &Sound, samples: usize) -> bool {
        match (sound, self.n_mels) {
            (Sound::Pcm(_), None) => sound.len() == samples,
            (Sound::Mel(_), Some(n_mels)) => sound.len() == self.frames(samples) * n_mels,
            _ => false,
        }
    }
}

/// One clip; its slices point into the mapped files.
#[derive(Clone, Copy, Debug)]
pub struct Clip<'a> {
    pub id: &'a str,
    pub tokens: &'a [i32],
    pub sound: Sound<'a>,
    pub speaker: &'a str,
    pub language: &'a str,
}

struct Files {
    roster: Roster,
    shards: Vec<Shard>,
    /// Rows whose checksums were compared.
    checked: Vec<AtomicBool>,
}

impl Cache {
    /// None when there is no such table, or its shards changed since it was written.
    pub(super) fn open(table: &Path, form: Form) -> Option<Self> {
        let roster = Roster::open(table)?;
        let dir = table.parent()?;
        let shard = |(name, stamp): &(String, [i64; 3])| {
            let shard = Shard::open(&dir.join(name)).ok()?;
            let Stamp { bytes, modified_ns, changed_ns } = shard.stamp;
            (*stamp == [bytes, modified_ns, changed_ns]).then_some(shard)
        };
        let shards = roster.about.shards.iter().map(shard).collect::<Option<Vec<_>>>()?;
        let rows = (0..roster.len()).filter(|&row| roster.failure(row).is_none()).map(|row| row as u32).collect();
        let checked = (0..roster.len()).map(|_| AtomicBool::new(false)).collect();
        roster.touch();
        Some(Cache { files: Arc::new(Files { roster, shards, checked }), rows, form })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The clips with these ids: the training part of a corpus, or its validation part.
    pub fn part(&self, ids: &HashSet<&str>) -> Self {
        let wanted = |&row: &u32| ids.contains(self.files.roster.id(row as usize));
        Cache { rows: self.rows.iter().copied().filter(wanted).collect(), ..self.clone() }
    }

    /// At its first use, a clip is held against its checksum. What is damaged is deleted, so that the next run makes
    /// it again, and is an error in this one: its features are gone, and every plan of the run counts on them.
    pub fn clip(&self, index: usize) -> Result<Clip<'_>, Error> {
        let (files, row) = (&*self.files, self.rows[index] as usize);
        let whole = files.checked[row].load(Ordering::Relaxed);
        let clip = files.clip(row, self.form, whole);
        files.checked[row].store(clip.is_some(), Ordering::Relaxed);
        clip.ok_or_else(|| files.remove_damaged(row))
    }

    /// Length of a clip, without touching its sound.
    pub fn samples(&self, index: usize) -> usize {
        self.files.roster.place(self.rows[index] as usize).samples as usize
    }

    /// Mel frames of a clip: one at each hop from the first sample to the last (`librosa` with `center=True`).
    pub fn frames(&self, index: usize) -> usize {
        self.form.frames(self.samples(index))
    }

    pub fn hop_samples(&self) -> usize {
        self.form.hop_samples
    }

    /// Values that a frame takes in a batch: samples of a hop, or bands.
    pub fn values_per_frame(&self) -> usize {
        self.form.n_mels.unwrap_or(self.form.hop_samples)
    }

    /// Room for so many frames.
    pub fn zeros(&self, frames: usize) -> SoundBuf {
        let values = frames * self.values_per_frame();
        if self.form.n_mels.is_some() { SoundBuf::Mel(vec![f16::ZERO; values]) } else { SoundBuf::Pcm(vec![0; values]) }
    }

    /// Length of a clip's text, without touching it.
    pub fn tokens(&self, index: usize) -> usize {
        self.files.roster.tokens(self.rows[index] as usize).len()
    }

    /// Whether every recording looks as it did when its features were made. Takes some 2 µs a clip.
    pub fn is_current(&self) -> bool {
        let roster = &self.files.roster;
        (0..roster.len()).into_par_iter().all(|row| Stamp::of(roster.audio(row)) == roster.stamp(row))
    }

    pub(super) fn failures(&self) -> Vec<Failure> {
        let roster = &self.files.roster;
        let failure = |row| {
            let reason = roster.failure(row)?.to_owned();
            Some(Failure { id: roster.id(row).to_owned(), path: roster.audio(row).to_owned(), reason })
        };
        (0..roster.len()).filter_map(failure).collect()
    }
}

impl Files {
    fn clip(&self, row: usize, form: Form, is_checked: bool) -> Option<Clip<'_>> {
        let (roster, place) = (&self.roster, self.roster.place(row));
        let found = self.shards.get(place.shard as usize)?.row(place.batch, place.row)?;
        let is_whole = || {
            roster.is_whole(row)
                && (found.source, found.samples) == (roster.source(row), place.samples)
                && found.sound.checksum() == found.checksum
        };
        let fits = form.fits(&found.sound, place.samples as usize);
        (fits && (is_checked || is_whole())).then(|| Clip {
            id: roster.id(row),
            tokens: roster.tokens(row),
            sound: found.sound,
            speaker: roster.speaker(row),
            language: roster.language(row),
        })
    }

    fn remove_damaged(&self, row: usize) -> Error {
        let shard = self.shards.get(self.roster.place(row).shard as usize).filter(|_| self.roster.is_whole(row));
        let path = shard.map_or(&self.roster.path, |shard| &shard.path).clone();
        let _ = fs::remove_file(&path);
        Error::Damaged { path, id: self.roster.id(row).to_owned() }
    }
}
