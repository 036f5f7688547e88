//! All folders of a cache: what they hold, who used it last, and what can go.

use super::clip::OUTDATED;
use super::folder::{self, LOCK};
use super::settings::{FORMAT, FeatureSettings};
use super::table::{self, CorpusTable};
use super::{Error, durations, known_corpus, remembered, shard, tokenizer_cache, writer};
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SETTINGS: &str = "settings.json";
/// The table of sizes and times of the first format.
const OLD_TABLE: &str = "digests.arrow";

/// One folder.
#[derive(Debug, Serialize)]
pub struct CacheFolder {
    pub path: PathBuf,
    /// None for a folder of another format.
    pub settings: Option<FeatureSettings>,
    pub bytes: u64,
    /// Corpora that use it, the last used first.
    pub corpora: Vec<CorpusUse>,
}

#[derive(Debug, Serialize)]
pub struct CorpusUse {
    /// The folder that holds its recordings.
    pub corpus: PathBuf,
    pub clips: usize,
    /// Seconds since 1970.
    pub last_used_s: u64,
    #[serde(skip)]
    table: PathBuf,
    /// Its shards, and durations of its tokens.
    #[serde(skip)]
    others: Vec<PathBuf>,
}

impl CorpusUse {
    fn last_used(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.last_used_s)
    }

    pub fn age(&self) -> Duration {
        self.last_used().elapsed().unwrap_or_default()
    }
}

/// What may stay. Whatever is set, folders of other formats and files that no corpus uses go.
#[derive(Debug, Default)]
pub struct Retention {
    /// Corpora that were used more recently.
    pub unused_for: Option<Duration>,
    /// Corpora in this folder.
    pub corpus: Option<PathBuf>,
    /// The most recently used, up to this size.
    pub bytes: Option<u64>,
}

impl Retention {
    fn is_unused(&self, last_used: SystemTime) -> bool {
        self.unused_for.is_some_and(|most| last_used.elapsed().unwrap_or_default() > most)
    }
}

#[derive(Debug, Default, Serialize)]
pub struct Pruned {
    pub files: usize,
    pub bytes: u64,
    /// Folders in which another process builds; left as they are.
    pub busy: Vec<PathBuf>,
}

/// Writes down what the folder's name is a hash of.
pub(super) fn describe(dir: &Path, settings: &FeatureSettings) -> Result<(), Error> {
    let path = dir.join(SETTINGS);
    let temporary = folder::temporary(&path);
    fs::write(&temporary, settings.json()).and_then(|()| fs::rename(&temporary, &path)).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::io(&path, error)
    })
}

/// The folders of a cache; none where there is no cache yet.
pub fn list(dir: &Path) -> Result<Vec<CacheFolder>, Error> {
    folders(dir)?.iter().map(|folder| stored(folder)).collect()
}

/// Removes what is not kept, or only counts it. Runs that are under way keep what they have mapped.
pub fn prune(dir: &Path, limits: &Retention, dry_run: bool) -> Result<Pruned, Error> {
    let (mut pruned, mut locks, mut held) = (Pruned::default(), vec![], vec![]);
    for folder in folders(dir)? {
        match if dry_run { None } else { Some(folder::try_lock(&folder)?) } {
            Some(None) => pruned.busy.push(folder),
            lock => {
                locks.extend(lock);
                held.push(stored(&folder)?);
            }
        }
    }
    let kept = kept(&held, limits);
    let remembered = [tokenizer_cache::FOLDER, known_corpus::FOLDER].map(|folder| remembered::files(&dir.join(folder)));
    let mut gone: Vec<PathBuf> = remembered.concat();
    gone.retain(|file| limits.is_unused(folder::used(file)));
    for folder in &held {
        gone.extend(files(&folder.path)?.into_iter().filter(|file| !kept.contains(file)));
    }
    for file in &gone {
        pruned.files += 1;
        pruned.bytes += size(file);
        if !dry_run {
            fs::remove_file(file).map_err(|error| Error::io(file, error))?;
        }
    }
    if !dry_run {
        // Fails, as it should, unless a folder is empty.
        held.iter().for_each(|folder| drop(fs::remove_dir(&folder.path)));
    }
    Ok(pruned)
}

/// Every file that stays.
fn kept(folders: &[CacheFolder], limits: &Retention) -> HashSet<PathBuf> {
    let mut uses: Vec<&CorpusUse> = folders.iter().flat_map(|folder| &folder.corpora).collect();
    uses.retain(|corpus| {
        !limits.is_unused(corpus.last_used())
            && limits.corpus.as_ref().is_none_or(|folder| real(&corpus.corpus).starts_with(real(folder)))
    });
    uses.sort_by_key(|corpus| corpus.last_used_s);
    let files = |uses: &[&CorpusUse]| -> HashSet<PathBuf> {
        uses.iter().flat_map(|corpus| corpus.others.iter().chain([&corpus.table])).cloned().collect()
    };
    let fits = |uses: &[&CorpusUse]| {
        limits.bytes.is_none_or(|most| files(uses).iter().map(|file| size(file)).sum::<u64>() <= most)
    };
    let first = (0..uses.len()).find(|&first| fits(&uses[first..])).unwrap_or(uses.len());
    let mut kept = files(&uses[first..]);
    let folders: HashSet<PathBuf> = kept.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    kept.extend(folders.iter().flat_map(|folder| [SETTINGS, LOCK, OUTDATED].map(|name| folder.join(name))));
    kept
}

fn stored(path: &Path) -> Result<CacheFolder, Error> {
    let settings = fs::read_to_string(path.join(SETTINGS)).ok().and_then(|text| serde_json::from_str(&text).ok());
    let settings = settings.filter(|settings: &FeatureSettings| settings.format == FORMAT);
    let tables = if settings.is_some() { folder::tables(path)? } else { vec![] };
    let bytes = files(path)?.iter().map(|file| size(file)).sum();
    Ok(CacheFolder {
        path: path.to_owned(),
        settings,
        bytes,
        corpora: tables.into_iter().rev().filter_map(of_table).collect(),
    })
}

fn of_table(path: PathBuf) -> Option<CorpusUse> {
    let last_used_s = folder::used(&path).duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let table = CorpusTable::open(&path)?;
    let shards = table.about.shards.iter().map(|(name, _)| path.with_file_name(name));
    let durations = durations::files(path.parent()?).ok()?.into_iter();
    let is_ours = |path: &PathBuf| durations::tokenizer(path).as_deref() == Some(&table.about.tokenizer);
    let others = shards.chain(durations.filter(is_ours)).collect();
    Some(CorpusUse { corpus: table.about.corpus.into(), clips: table.about.clips, last_used_s, table: path, others })
}

/// Folders that are named as ours are, by name.
fn folders(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) && path.is_dir()
    };
    let mut folders: Vec<PathBuf> = if dir.exists() { folder::files(dir)? } else { vec![] };
    folders.retain(is_ours);
    folders.sort();
    Ok(folders)
}

/// Our files in a folder; what somebody else put there is not looked at.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let lasting = [SETTINGS, LOCK, OUTDATED, OLD_TABLE];
    let is_passing = |name: &str| {
        let stems = ["settings", "corpus", "digests", durations::TEMPORARY, writer::TEMPORARY];
        name.ends_with(".tmp") && stems.contains(&name.split('.').next().unwrap_or_default())
    };
    let is_other = |name: &str| lasting.contains(&name) || is_passing(name) || folder::is_part_lock(name);
    let is_ours = |path: &PathBuf| {
        path.file_name().and_then(OsStr::to_str).is_some_and(is_other)
            || shard::claimed(path).is_some()
            || table::claimed(path).is_some()
            || durations::claimed(path).is_some()
    };
    let mut files = folder::files(dir)?;
    files.retain(is_ours);
    Ok(files)
}

/// Without links and dots, where it still exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |meta| meta.len())
}
