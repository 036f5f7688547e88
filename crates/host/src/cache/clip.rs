//! The clips of a corpus, in its order, as slices of mapped files.

use super::bucket;
use super::build::BuildJob;
use super::durations::ClipSegment;
use super::features::ClipSound;
use super::file_stat::FileStat;
use super::identity::Identity;
use super::local_store::LocalStore;
use super::settings::AudioForm;
use super::shard::{self, Shard, ShardLocation};
use super::table::{CorpusTable, LengthColumns, PIECE_ROWS};
use super::{Error, Failure};
use crate::config::Data;
use crate::corpus::{Borders, Share, is_member, shown};
use arrow_buffer::Buffer;
use rayon::prelude::*;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A file of this name tells the next run to look at every recording.
pub(super) const OUTDATED: &str = "outdated";
/// Runs of neighbours that a look at some recordings is spread over: each costs a piece of the table.
const LOOKS: usize = 16;

/// Cloned cheaply: all clones see the same maps.
#[derive(Clone)]
pub struct Cache {
    files: Arc<Files>,
    /// Rows of the table, in its order: all that have features, or a part of them.
    rows: Arc<Vec<u32>>,
    form: AudioForm,
}

/// One clip; its texts point into the mapped table.
#[derive(Clone, Debug)]
pub struct Clip<'a> {
    pub id: &'a str,
    pub tokens: &'a [i32],
    pub sound: ClipSound,
    pub speaker: &'a str,
    pub language: &'a str,
}

/// How long a clip is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipLength {
    pub frames: usize,
    pub tokens: usize,
    /// Of the text, as the corpus has it.
    pub characters: usize,
    /// Number of the shard that holds its sound.
    pub shard: u32,
}

struct Files {
    table: CorpusTable,
    shards: ShardFiles,
    /// A bit for each row whose checksums were compared.
    checked: Vec<AtomicU64>,
    /// Every recording was looked at.
    all_current: AtomicBool,
}

/// Where the shards of a table are.
enum ShardFiles {
    /// In the table's folder. Mapped when the cache is opened or, where there are very many, when they are first used.
    /// Nothing where that fails.
    Here(Vec<OnceLock<Option<Shard>>>),
    /// In a bucket.
    Away(LocalStore),
}

impl Cache {
    /// None when there is no whole table, or its shards changed since it was written.
    pub(super) fn open(job: &BuildJob, corpus: &Identity) -> Option<Self> {
        let find = || CorpusTable::find(&job.dir, corpus);
        let (table, shards) = match &job.bucket {
            Some(bucket) => {
                let pull = || bucket.pull(bucket::TABLES, |path| corpus.is_claimed_by(path)).ok();
                let table = find().or_else(|| pull().and_then(|()| find()))?;
                let shards = table.about.shards.iter().map(|(name, stat)| (name.clone(), stat[0] as u64)).collect();
                (table, ShardFiles::Away(LocalStore::new(bucket.clone(), job.form, shards)))
            }
            None => {
                let table = find()?;
                let shards = shards_here(job, &table)?;
                (table, ShardFiles::Here(shards))
            }
        };
        let rows = match table.about.clips == table.len() {
            true => (0..table.len() as u32).collect(),
            false => {
                let [all, _] = rows(&table, |_, _| Some(Share::Train))?;
                all
            }
        };
        let checked = (0..table.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        table.touch();
        let files = Arc::new(Files { table, shards, checked, all_current: AtomicBool::new(false) });
        Some(Cache { files, rows: Arc::new(rows), form: job.form })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What a run trains on, and what it holds out, of a whole corpus: the corpus's own parts, the second of which
    /// begins at an utterance, or shares by a hash of each id.
    pub fn parts(&self, validation_from: Option<usize>, data: &Data) -> Result<(Self, Self), Error> {
        let table = &self.files.table;
        let parts = |of: &(dyn Fn(usize, f64) -> Option<Share> + Sync)| {
            let parts = rows(table, of).ok_or_else(|| self.unreadable())?;
            let [train, validation] = parts.map(|rows| Cache { rows: Arc::new(rows), ..self.clone() });
            Ok::<_, Error>((train, validation))
        };
        if let Some(from) = validation_from {
            return parts(&|row, _| Some(if row < from { Share::Train } else { Share::Validation }));
        }
        let range = table.about.fractions.map(f64::from_bits);
        let borders = Borders::new(table.len(), range, data, |border| self.lowest_from(border))?;
        parts(&|_, fraction| borders.share(fraction))
    }

    /// The clips in front of a row: of a corpus that brings its own validation part, those to train on.
    pub fn before(&self, row: Option<usize>) -> Self {
        let end = row.map_or(self.len(), |row| self.rows.partition_point(|&at| (at as usize) < row));
        if end == self.len() {
            self.clone()
        } else {
            Cache { rows: Arc::new(self.rows[..end].to_vec()), ..self.clone() }
        }
    }

    /// Utterances whose fraction is no lower, and the lowest of those.
    fn lowest_from(&self, border: f64) -> Result<(usize, f64), Error> {
        let of = |columns: LengthColumns| {
            let above = columns.fractions.iter().filter(|fraction| **fraction >= border);
            above.fold((0, 1.0f64), |(count, low), at| (count + 1, low.min(*at)))
        };
        let mut found = (0, 1.0f64);
        let add = |(more, lower): (usize, f64)| found = (found.0 + more, found.1.min(lower));
        self.files.table.lengths(of, add).ok_or_else(|| self.unreadable())?;
        Ok(found)
    }

    /// Works through the lengths of all clips, a good many at a time; what is found is taken in order. Nothing is kept.
    pub fn lengths<T: Send>(
        &self,
        of: impl Fn(&mut dyn Iterator<Item = (usize, ClipLength)>) -> T + Sync,
        take: impl FnMut(T),
    ) -> Result<(), Error> {
        let piece = |columns: LengthColumns| {
            let end = columns.first + columns.samples.len();
            let [first, last] = [columns.first, end].map(|row| self.rows.partition_point(|&at| (at as usize) < row));
            of(&mut (first..last).map(|index| {
                let at = self.rows[index] as usize - columns.first;
                let frames = self.form.frames(columns.samples[at] as usize);
                let (tokens, characters) = (columns.tokens[at] as usize, columns.characters[at] as usize);
                (index, ClipLength { frames, tokens, characters, shard: columns.shards[at] })
            }))
        };
        self.files.table.lengths(piece, take).ok_or_else(|| self.unreadable())
    }

    fn unreadable(&self) -> Error {
        Error::Unreadable { path: self.files.table.path.clone() }
    }

    /// At its first use, a clip is held against its checksum, and its recording against its stat unless that was done
    /// before. What is damaged is deleted and what is outdated is noted, so that the next run makes it again. Both are
    /// errors in this one: every plan of the run counts on the clip.
    pub fn clip(&self, index: usize) -> Result<Clip<'_>, Error> {
        let (files, row) = (&*self.files, self.rows[index] as usize);
        let table = &files.table;
        if !table.has(row) {
            return Err(files.remove_table(row));
        }
        let is_new = !files.is_checked(row);
        let sound = files.sound(row, self.form, is_new)?;
        if is_new {
            files.check_recording(row)?;
            files.set_checked(row);
        }
        let (id, speaker, language) = (table.id(row), table.speaker(row), table.language(row));
        Ok(Clip { id, tokens: table.tokens(row), sound, speaker, language })
    }

    /// Speaker and language of a clip.
    pub fn labels(&self, index: usize) -> (&str, &str) {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        (table.speaker(row), table.language(row))
    }

    /// Name and recording of a clip.
    pub fn source(&self, index: usize) -> (&str, &Path) {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        if table.has(row) { (table.id(row), table.audio(row)) } else { ("", &table.path) }
    }

    /// Names a part of a clip by what it is made of.
    pub fn segment(&self, index: usize, frames: Range<u32>, tokens: Range<u32>) -> ClipSegment {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        ClipSegment::new(table.source(row), table.text(row), frames, tokens)
    }

    /// A hash of the recordings and texts of the whole corpus, and of which of them these are.
    pub fn content(&self) -> (&str, &[u32]) {
        (&self.files.table.about.content, &self.rows)
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

    /// Length of a clip. Touches its row; `lengths` is for all of them.
    pub fn length(&self, index: usize) -> ClipLength {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        let ShardLocation { samples, shard, .. } = table.place(row);
        let (tokens, characters) = (table.token_count(row), table.characters(row));
        ClipLength { frames: self.form.frames(samples as usize), tokens, characters, shard }
    }

    /// Whether recordings look as they did when their features were made: all, or so many that lie spread in runs.
    pub(super) fn is_current(&self, looked_at: usize) -> bool {
        let (files, rows) = (&self.files, self.files.table.len());
        if files.table.about.unsettled {
            return false;
        }
        if looked_at == 0 {
            return true;
        }
        let is_all = rows <= looked_at;
        let (runs, run) = if is_all { (rows.div_ceil(PIECE_ROWS), PIECE_ROWS) } else { (LOOKS, looked_at / LOOKS) };
        let rows_of = |number: usize| {
            let start = if is_all { number * run } else { rows / runs * number / PIECE_ROWS * PIECE_ROWS };
            start..(start + run).min(rows)
        };
        let is_current = |row: usize| files.table.has(row) && files.is_current(row);
        let current = (0..runs).into_par_iter().flat_map(|number| rows_of(number).into_par_iter()).all(is_current);
        files.all_current.store(current && is_all, Ordering::Relaxed);
        current
    }

    /// Every recording has just been looked at.
    pub(super) fn trust(&self) {
        self.files.all_current.store(true, Ordering::Relaxed);
    }

    pub(super) fn failures(&self) -> Vec<Failure> {
        let table = &self.files.table;
        if table.about.clips == table.len() {
            return vec![];
        }
        let failure = |row| {
            let reason = table.failure(row)?.to_owned();
            Some(Failure { id: table.id(row).to_owned(), path: shown(table.audio(row)).into_owned(), reason })
        };
        (0..table.len()).filter(|&row| table.has(row)).filter_map(failure).collect()
    }

    /// Digest of a shard, by its number in the table.
    #[cfg(test)]
    pub(super) fn shard_name(&self, number: u32) -> super::digest::Digest {
        shard::claimed(Path::new(&self.files.table.about.shards[number as usize].0)).unwrap()
    }

    /// Whether sound is fetched from a bucket, a shard at a time.
    pub fn is_away(&self) -> bool {
        matches!(self.files.shards, ShardFiles::Away(_))
    }

    /// Says which shards are needed now and soon, in this order; they are fetched ahead. Of the others, clips are fetched
    /// one at a time.
    pub fn want(&self, shards: Vec<u32>) -> Result<(), Error> {
        let ShardFiles::Away(store) = &self.files.shards else { return Ok(()) };
        store.want(shards).map_err(Error::Workers)
    }

    /// No shard is needed any more; who waits for one is told so.
    pub fn stop_fetching(&self) {
        if let ShardFiles::Away(store) = &self.files.shards {
            store.stop();
        }
    }

    /// Fails where so many shards, the largest there are, do not fit on this machine together.
    pub fn check_room(&self, shards: usize) -> Result<(), Error> {
        let ShardFiles::Away(store) = &self.files.shards else { return Ok(()) };
        let all = 0..self.files.table.about.shards.len() as u32;
        let mut bytes: Vec<u64> = all.map(|shard| store.bytes(shard)).collect();
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let (needed, most) = (bytes.iter().take(shards).sum(), store.bucket().most_bytes);
        if needed <= most { Ok(()) } else { Err(Error::small_store(&store.bucket().root, most, needed)) }
    }

    /// The shard that holds a clip.
    pub fn shard(&self, index: usize) -> Option<u32> {
        let (table, row) = (&self.files.table, self.rows[index] as usize);
        table.has(row).then(|| table.place(row).shard)
    }

    /// Samples, values of sound and tokens of the whole corpus.
    pub(super) fn totals(&self) -> (usize, usize, usize) {
        let about = &self.files.table.about;
        (about.samples, about.values, about.tokens)
    }
}

/// The shards of a table, all mapped or some looked at. None when one has changed since the table was written.
fn shards_here(job: &BuildJob, table: &CorpusTable) -> Option<Vec<OnceLock<Option<Shard>>>> {
    let names = &table.about.shards;
    let shards: Vec<OnceLock<Option<Shard>>> = names.iter().map(|_| OnceLock::new()).collect();
    let step = names.len().div_ceil(job.mapped_at_once.max(1)).max(1);
    for ((name, stat), cell) in names.iter().zip(&shards).step_by(step) {
        let path = job.dir.join(name);
        if step > 1 {
            (*stat == FileStat::of(&path).numbers()).then_some(())?;
            continue;
        }
        let shard = Shard::open(&path, job.form).ok().filter(|shard| shard.stat.numbers() == *stat)?;
        let _ = cell.set(Some(shard));
    }
    Some(shards)
}

/// Rows that have features and that are for training, and those for validation, by number and fraction.
fn rows(table: &CorpusTable, share: impl Fn(usize, f64) -> Option<Share> + Sync) -> Option<[Vec<u32>; 2]> {
    let of = |columns: LengthColumns| {
        let [mut train, mut validation] = [(); 2].map(|()| Vec::with_capacity(columns.samples.len()));
        for at in (0..columns.samples.len()).filter(|&at| columns.samples[at] > 0) {
            let row = columns.first + at;
            match share(row, columns.fractions[at]) {
                Some(Share::Train) => train.push(row as u32),
                Some(Share::Validation) => validation.push(row as u32),
                None => {}
            }
        }
        [train, validation]
    };
    let mut rows = [(); 2].map(|()| Vec::new());
    rows[0].reserve_exact(table.about.clips);
    table.lengths(of, |found| rows.iter_mut().zip(found).for_each(|(rows, found)| rows.extend(found)))?;
    rows.iter_mut().for_each(Vec::shrink_to_fit);
    Some(rows)
}

impl Files {
    /// Compares checksums where the clip is new to this run.
    fn sound(&self, row: usize, form: AudioForm, is_new: bool) -> Result<ClipSound, Error> {
        let place = self.table.place(row);
        let count = form.values(place.samples as usize);
        let sound = match &self.shards {
            ShardFiles::Here(shards) => {
                let path = || self.table.path.with_file_name(&self.table.about.shards[place.shard as usize].0);
                let open = |cell: &'_ OnceLock<Option<Shard>>| {
                    cell.get_or_init(|| Shard::open(&path(), form).ok()).as_ref()?.sound(place.offset, count)
                };
                shards.get(place.shard as usize).and_then(open)
            }
            ShardFiles::Away(store) => self.sound_away(store, &place, count, form)?,
        };
        let is_whole = |sound: &ClipSound| !is_new || sound.as_audio().checksum() == place.checksum;
        sound.filter(is_whole).ok_or_else(|| self.remove_damaged(row))
    }

    /// Out of a shard that was fetched ahead or is here by chance; otherwise by itself.
    fn sound_away(
        &self,
        store: &LocalStore,
        place: &ShardLocation,
        count: usize,
        form: AudioForm,
    ) -> Result<Option<ClipSound>, Error> {
        let Some((name, _)) = self.table.about.shards.get(place.shard as usize) else { return Ok(None) };
        let bucket = store.bucket();
        if let Some(held) = store.get(place.shard) {
            let unreadable = |reason| Error::Shard(bucket.store.name(&bucket::shard_object(name, 0).key), reason);
            return Ok(held.map_err(unreadable)?.shard.sound(place.offset, count));
        }
        if let Ok(shard) = Shard::open(&bucket.dir.join(name), form) {
            return Ok(shard.sound(place.offset, count));
        }
        let length = count * size_of::<i16>();
        let bytes = bucket.sound(name, store.bytes(place.shard), place, length as u64)?;
        let mut words = vec![0u64; length.div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut(&mut words)[..length].copy_from_slice(&bytes);
        Ok(Some(shard::sound(&Buffer::from_vec(words), 0, count, form)))
    }

    fn is_checked(&self, row: usize) -> bool {
        self.checked[row / 64].load(Ordering::Relaxed) & (1 << (row % 64)) != 0
    }

    fn set_checked(&self, row: usize) {
        self.checked[row / 64].fetch_or(1 << (row % 64), Ordering::Relaxed);
    }

    fn is_current(&self, row: usize) -> bool {
        // A part of a shard is what the corpus said when it was read: its shard's version is part of the table's identity.
        if is_member(self.table.audio(row)) {
            return true;
        }
        let (there, known) = (FileStat::of(self.table.audio(row)), self.table.stat(row));
        match self.shards {
            ShardFiles::Here(_) => there == known,
            // Machines that share a bucket have copies of the recordings, and each its own time of the inode.
            ShardFiles::Away(_) => (there.bytes, there.modified_ns) == (known.bytes, known.modified_ns),
        }
    }

    fn check_recording(&self, row: usize) -> Result<(), Error> {
        if self.all_current.load(Ordering::Relaxed) || self.is_current(row) {
            return Ok(());
        }
        let _ = fs::write(self.table.path.with_file_name(OUTDATED), []);
        Err(Error::outdated(self.table.audio(row), self.table.id(row)))
    }

    fn remove_damaged(&self, row: usize) -> Error {
        let Some((name, _)) = self.table.about.shards.get(self.table.place(row).shard as usize) else {
            return self.remove_table(row);
        };
        let path = self.table.path.with_file_name(name);
        let _ = fs::remove_file(&path);
        Error::damaged(path, self.table.id(row))
    }

    fn remove_table(&self, row: usize) -> Error {
        let _ = fs::remove_file(&self.table.path);
        Error::damaged(self.table.path.clone(), &format!("number {row}"))
    }
}
