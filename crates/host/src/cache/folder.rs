//! The folder of one set of settings, as its builder sees it: which shards can be relied on, what is where, and what
//! earlier runs know of recordings and texts.

use super::bucket::{self, Bucket};
use super::digest::Digest;
use super::file_stat::{self, FileStat};
use super::identity::Identity;
use super::packed::Packed;
use super::places::Places;
use super::settings::AudioForm;
use super::shard::{self, Shard, ShardLocation};
use super::table::{self, CorpusTable, ReadyClip, TableEntry, TableKind, TokenizedText};
use super::writer;
use super::{Error, Progress};
use crate::corpus::AudioSource;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rayon::prelude::*;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

pub(super) const LOCK: &str = "lock";
const LOCK_POLL: Duration = Duration::from_millis(100);

pub(super) struct Folder {
    pub shards: Vec<Shard>,
    pub places: Places,
    pub damaged: usize,
    tables: Vec<CorpusTable>,
    form: AudioForm,
}

/// What earlier runs know, by path and by text. Memory: some 40 bytes a row; the rest lies in the tables.
pub(super) struct KnownClips<'a> {
    tables: &'a [CorpusTable],
    recordings: HashTable<TableRow>,
    texts: HashTable<TableRow>,
}

/// Number of a table, and of a row in it.
type TableRow = (u32, u32);

impl Folder {
    /// Looks through the folder. A shard that looks as it did when it was last read is relied on, and tables say what
    /// is in it; others are read in full, and deleted unless their bytes are what their name says. Under the lock only.
    ///
    /// Of a part of a corpus (`is_part`), other machines write here too: shards that no table tells of are theirs.
    pub(super) fn scan(
        dir: &Path,
        form: AudioForm,
        is_part: bool,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, Error> {
        if !is_part {
            remove_unfinished(dir)?;
        }
        let tables: Vec<CorpusTable> = tables(dir)?.iter().filter_map(|path| open_or_remove(path)).collect();
        let known: HashMap<&str, [i64; 3]> =
            tables.iter().flat_map(|table| table.about.shards.iter().map(|(name, stat)| (&**name, *stat))).collect();
        let is_known = |path: &PathBuf| {
            let FileStat { bytes, modified_ns, changed_ns } = FileStat::of(path);
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            known.get(name) == Some(&[bytes, modified_ns, changed_ns])
        };
        let (known, mut doubtful): (Vec<_>, Vec<_>) = shards(dir)?.into_iter().partition(is_known);
        doubtful.retain(|_| !is_part);
        let whole = verify(&doubtful, progress)?;
        let (shards, places) = (Vec::new(), Places::default());
        let mut folder = Folder { shards, places, damaged: doubtful.len() - whole.len(), tables, form };
        let open = |path: &PathBuf| Shard::open(path, form).map_err(|error| Error::io(path, error));
        folder.take_known(known.iter().map(open).collect::<Result<_, Error>>()?);
        whole.iter().try_for_each(|path| folder.add(path))?;
        Ok(folder)
    }

    /// The part of a bucket in front of which the folder is: shards that tables tell of and that are there, whole as far
    /// as their size tells. None is fetched.
    pub(super) fn of_bucket(bucket: &Bucket, form: AudioForm) -> Result<Self, Error> {
        bucket.pull(bucket::TABLES, |path| table::claimed(path).is_some())?;
        let tables: Vec<CorpusTable> = tables(&bucket.dir)?.iter().filter_map(|path| open_or_remove(path)).collect();
        let there = bucket.shards()?;
        let mut known: Vec<&(String, [i64; 3])> = tables.iter().flat_map(|table| &table.about.shards).collect();
        known.retain(|(name, [bytes, ..])| there.get(name) == Some(&(*bytes as u64)));
        known.sort();
        known.dedup_by_key(|(name, _)| name.clone());
        let shard = |(name, [bytes, ..]): &(String, [i64; 3])| Shard::named(bucket.dir.join(name), *bytes as u64, form);
        let shards = known.into_iter().map(shard).collect();
        let mut folder = Folder { shards: vec![], places: Places::default(), damaged: 0, tables, form };
        folder.take_known(shards);
        Ok(folder)
    }

    /// Takes in shards of which tables tell what is where.
    fn take_known(&mut self, shards: Vec<Shard>) {
        let mut numbers = HashMap::new();
        for shard in shards {
            numbers.insert(shard.path.file_name().unwrap_or_default().to_os_string(), self.shards.len() as u32);
            self.shards.push(shard);
        }
        self.places.reserve(self.tables.iter().map(CorpusTable::len).max().unwrap_or(0));
        for table in &self.tables {
            let shard = |number: usize| numbers.get(OsStr::new(&table.about.shards.get(number)?.0)).copied();
            for row in (0..table.len()).filter(|&row| table.failure(row).is_none()) {
                let place = table.place(row);
                if let Some(shard) = shard(place.shard as usize) {
                    self.places.insert(table.source(row), ShardLocation { shard, ..place });
                }
            }
        }
    }

    /// Takes in a shard whose bytes are what its name says. One of another make has nothing for us: its clips are
    /// built again.
    fn add(&mut self, path: &Path) -> Result<(), Error> {
        let open = || Shard::open(path, self.form).map_err(|error| Error::io(path, error));
        let number = self.shards.len() as u32;
        let recordings = open()?.recordings(number, self.form).unwrap_or_default();
        recordings.into_iter().for_each(|(source, place)| self.places.insert(source, place));
        // Mapped anew: the pages that were just read no longer count as memory of this process.
        self.shards.push(open()?);
        Ok(())
    }

    /// Takes in shards that were just written, here or into a bucket: their paths and bytes, and what lies in them.
    pub(super) fn add_sealed(
        &mut self,
        shards: Vec<(PathBuf, u64)>,
        places: Places,
        in_bucket: bool,
    ) -> Result<(), Error> {
        for (path, bytes) in shards {
            self.shards.push(match in_bucket {
                true => Shard::named(path, bytes, self.form),
                false => Shard::open(&path, self.form).map_err(|error| Error::io(&path, error))?,
            });
        }
        self.places.extend(places);
        Ok(())
    }

    pub(super) fn memory(&self, fingerprint: &str) -> KnownClips<'_> {
        // Most are known by one table.
        let most = self.tables.iter().map(CorpusTable::len).max().unwrap_or(0);
        let [recordings, texts] = [(); 2].map(|()| HashTable::with_capacity(most));
        let mut memory = KnownClips { tables: &self.tables, recordings, texts };
        for (number, table) in self.tables.iter().enumerate() {
            let is_ours = table.about.tokenizer == fingerprint;
            for row in (0..table.len()).filter(|&row| table.failure(row).is_none()) {
                memory.note((number as u32, row as u32), is_ours);
            }
        }
        memory
    }
}

impl KnownClips<'_> {
    /// Digest of a recording that looks as it did when it was read.
    pub(super) fn recording(&self, source: &AudioSource, name: &Path) -> Option<(FileStat, Digest)> {
        let bytes = name.as_os_str().as_bytes();
        let found = self.recordings.find(hash(bytes), |at| self::name(self.tables, *at) == bytes)?;
        let (table, row) = at(self.tables, *found);
        let stat = table.stat(row);
        (FileStat::of_source(source, name) == stat).then(|| (stat, table.source(row)))
    }

    pub(super) fn text(&self, key: &Digest) -> Option<TokenizedText> {
        let found = self.texts.find(key.short(), |at| self::key(self.tables, *at) == *key)?;
        let (table, row) = at(self.tables, *found);
        Some(TokenizedText { language: table.language(row).to_owned(), tokens: Packed::of(table.tokens(row)) })
    }

    /// Takes in a row; what was known of its recording and of its text before is forgotten.
    fn note(&mut self, new: TableRow, with_text: bool) {
        let name = |at: &TableRow| name(self.tables, *at);
        let own = name(&new);
        put(self.recordings.entry(hash(own), |at| name(at) == own, |at| hash(name(at))), new);
        if with_text {
            let key = |at: &TableRow| key(self.tables, *at);
            let own = key(&new);
            put(self.texts.entry(own.short(), |at| key(at) == own, |at| key(at).short()), new);
        }
    }

    /// An utterance of which everything is there.
    pub(super) fn entry(
        &self,
        (audio, name): (&AudioSource, &Path),
        text: &Digest,
        places: &Places,
    ) -> Option<TableEntry> {
        let (stat, source) = self.recording(audio, name).filter(|(_, source)| places.contains(source))?;
        Some(TableEntry { stat, outcome: Ok(ReadyClip { source, text: self.text(text)? }) })
    }
}

fn at(tables: &[CorpusTable], (table, row): TableRow) -> (&CorpusTable, usize) {
    (&tables[table as usize], row as usize)
}

/// Name of a recording. As plain bytes: comparing paths part by part would take most of the time.
fn name(tables: &[CorpusTable], row: TableRow) -> &[u8] {
    let (table, row) = at(tables, row);
    table.audio(row).as_os_str().as_bytes()
}

/// Names the tokens of a text.
fn key(tables: &[CorpusTable], row: TableRow) -> Digest {
    let (table, row) = at(tables, row);
    table.text(row)
}

fn hash(name: &[u8]) -> u64 {
    Digest::of(name).short()
}

fn put(entry: Entry<TableRow>, row: TableRow) {
    match entry {
        Entry::Occupied(mut earlier) => *earlier.get_mut() = row,
        Entry::Vacant(room) => _ = room.insert(row),
    }
}

/// Shards that a killed build left half written, once nobody else builds here.
fn remove_unfinished(dir: &Path) -> Result<(), Error> {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_unfinished = |path: &PathBuf| name(path).starts_with(writer::TEMPORARY) && name(path).ends_with(".tmp");
    files(dir)?.iter().filter(|path| is_unfinished(path)).for_each(|path| drop(fs::remove_file(path)));
    Ok(())
}

fn open_or_remove(path: &Path) -> Option<CorpusTable> {
    let table = CorpusTable::open(path).filter(CorpusTable::is_whole);
    if table.is_none() {
        let _ = fs::remove_file(path);
    }
    table
}

/// Shards whose bytes are what their name says; the others are deleted.
fn verify<'a>(doubtful: &'a [PathBuf], progress: &(dyn Fn(Progress) + Sync)) -> Result<Vec<&'a PathBuf>, Error> {
    let (done, total) = (AtomicUsize::new(0), doubtful.len());
    let read = |path: &'a PathBuf| {
        let digest =
            File::open(path).and_then(|file| file_stat::digest(&file)).map_err(|error| Error::io(path, error))?;
        progress(Progress::Verifying { done: done.fetch_add(1, Ordering::Relaxed) + 1, total });
        if Some(digest) == shard::claimed(path) {
            return Ok(Some(path));
        }
        fs::remove_file(path).map_err(|error| Error::io(path, error))?;
        Ok(None)
    };
    let found = doubtful.par_iter().map(read).collect::<Result<Vec<_>, Error>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Shards by name, so that a recording held twice is always taken from the same one.
pub(super) fn shards(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut shards = files(dir)?;
    shards.retain(|path| shard::claimed(path).is_some());
    shards.sort();
    Ok(shards)
}

/// Tables of corpora, the least recently used first: what a later one says wins.
pub(super) fn tables(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut tables = files(dir)?;
    tables.retain(|path| table::claimed(path).is_some());
    tables.sort_by_cached_key(|path| (used(path), path.clone()));
    Ok(tables)
}

/// Removes the tables of parts whose corpus has one of its own.
pub(super) fn remove_parts(dir: &Path, bucket: Option<&Bucket>, corpus: &Identity) -> Result<(), Error> {
    let is_part = |path: &PathBuf| table::claimed(path).is_some_and(|(kind, ..)| kind == TableKind::Part);
    let parts = tables(dir).unwrap_or_default().into_iter().filter(is_part);
    let is_ours = |table: &CorpusTable| table.about.whole.as_deref() == Some(corpus.hex());
    let served: Vec<PathBuf> =
        parts.filter_map(|path| CorpusTable::open(&path)).filter(is_ours).map(|table| table.path).collect();
    if let Some(bucket) = bucket.filter(|_| !served.is_empty()) {
        bucket.forget_tables(|path| served.iter().any(|served| served == path))?;
    }
    served.iter().for_each(|path| drop(fs::remove_file(path)));
    Ok(())
}

/// When a table was last used.
pub(super) fn used(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(dir).map_err(|error| Error::io(dir, error))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// A name beside a file's own that no other process uses, on whatever machine.
pub(super) fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = format!("{host}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let unique = Digest::of(own.as_bytes()).hex();
    path.with_extension(format!("{}.tmp", &unique[..12]))
}

/// Waits until no other process builds in this folder. The lock ends with the returned file, or with the process.
pub(super) fn lock(dir: &Path, progress: &dyn Fn(Progress), stop: &AtomicBool) -> Result<File, Error> {
    wait_for(progress, stop, || try_lock(dir))
}

/// Waits until nobody builds here but others that work on other parts of a corpus, and nobody works on this part.
pub(super) fn lock_part(
    dir: &Path,
    part: &Identity,
    progress: &dyn Fn(Progress),
    stop: &AtomicBool,
) -> Result<[File; 2], Error> {
    let shared = wait_for(progress, stop, || try_lock_as(dir, LOCK, File::try_lock_shared))?;
    let name = format!("{}{}.lock", TableKind::Part.prefix(), part.hex());
    Ok([shared, wait_for(progress, stop, || try_lock_as(dir, &name, File::try_lock))?])
}

/// Whether a file is the lock of a part.
pub(super) fn is_part_lock(name: &str) -> bool {
    name.starts_with(TableKind::Part.prefix()) && name.ends_with(".lock")
}

fn wait_for(
    progress: &dyn Fn(Progress),
    stop: &AtomicBool,
    mut get: impl FnMut() -> Result<Option<File>, Error>,
) -> Result<File, Error> {
    loop {
        if let Some(file) = get()? {
            return Ok(file);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted { built: 0 });
        }
        progress(Progress::Waiting);
        std::thread::sleep(LOCK_POLL);
    }
}

/// None while another process holds it.
pub(super) fn try_lock(dir: &Path) -> Result<Option<File>, Error> {
    try_lock_as(dir, LOCK, File::try_lock)
}

fn try_lock_as(dir: &Path, name: &str, lock: fn(&File) -> Result<(), TryLockError>) -> Result<Option<File>, Error> {
    let path = dir.join(name);
    let at = |error| Error::io(&path, error);
    fs::create_dir_all(dir).map_err(at)?;
    let file = File::create(&path).map_err(at)?;
    match lock(&file) {
        Err(TryLockError::Error(error)) => Err(at(error)),
        Err(TryLockError::WouldBlock) => Ok(None),
        // Whoever cleared the folder away held a lock that has no name any more.
        Ok(()) => {
            let named =
                fs::metadata(&path).is_ok_and(|meta| file.metadata().is_ok_and(|ours| ours.ino() == meta.ino()));
            Ok(named.then_some(file))
        }
    }
}
