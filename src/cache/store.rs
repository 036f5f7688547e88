//! All folders of a cache: what they hold, who used it last, and what can go.

use super::folder::{self, LOCK};
use super::roster::{self, Roster};
use super::settings::{FORMAT, Settings};
use super::{Error, shard, writer};
use serde::Serialize;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const SETTINGS: &str = "settings.json";
/// The table of sizes and times of the first format.
const OLD_TABLE: &str = "digests.arrow";

/// One folder.
#[derive(Debug, Serialize)]
pub struct Stored {
    pub path: PathBuf,
    /// None for a folder of another format.
    pub settings: Option<Settings>,
    pub bytes: u64,
    /// Corpora that use it, the last used first.
    pub corpora: Vec<Use>,
}

#[derive(Debug, Serialize)]
pub struct Use {
    /// The folder that holds its recordings.
    pub corpus: PathBuf,
    pub clips: usize,
    /// Seconds since 1970.
    pub last_used_s: u64,
    #[serde(skip)]
    table: PathBuf,
    #[serde(skip)]
    shards: Vec<PathBuf>,
}

impl Use {
    pub fn age(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(self.last_used_s)).unwrap_or_default()
    }
}

/// What may stay. Whatever is set, folders of other formats and files that no corpus uses go.
#[derive(Debug, Default)]
pub struct Limits {
    /// Corpora that were used more recently.
    pub unused_for: Option<Duration>,
    /// Corpora in this folder.
    pub corpus: Option<PathBuf>,
    /// The most recently used, up to this size.
    pub bytes: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
pub struct Pruned {
    pub files: usize,
    pub bytes: u64,
    /// Folders in which another process builds; left as they are.
    pub busy: Vec<PathBuf>,
}

/// The folders of a cache; none where there is no cache yet.
pub fn list(dir: &Path) -> Result<Vec<Stored>, Error> {
    folders(dir)?.iter().map(|folder| stored(folder)).collect()
}

/// Removes what is not kept, or only counts it. Runs that are under way keep what they have mapped.
pub fn prune(dir: &Path, limits: &Limits, dry_run: bool) -> Result<Pruned, Error> {
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
    for folder in &held {
        for file in files(&folder.path)?.into_iter().filter(|file| !kept.contains(file)) {
            pruned.files += 1;
            pruned.bytes += size(&file);
            if !dry_run {
                fs::remove_file(&file).map_err(|error| Error::io(&file, error))?;
            }
        }
        if !dry_run {
            let _ = fs::remove_dir(&folder.path); // fails, as it should, unless the folder is empty
        }
    }
    Ok(pruned)
}

/// Every file that stays.
fn kept(folders: &[Stored], limits: &Limits) -> HashSet<PathBuf> {
    let mut uses: Vec<&Use> = folders.iter().flat_map(|folder| &folder.corpora).collect();
    uses.retain(|corpus| {
        limits.unused_for.is_none_or(|most| corpus.age() <= most)
            && limits.corpus.as_ref().is_none_or(|folder| real(&corpus.corpus).starts_with(real(folder)))
    });
    uses.sort_by_key(|corpus| corpus.last_used_s);
    let files = |uses: &[&Use]| -> HashSet<PathBuf> {
        uses.iter().flat_map(|corpus| corpus.shards.iter().chain([&corpus.table])).cloned().collect()
    };
    let fits =
        |uses: &[&Use]| limits.bytes.is_none_or(|most| files(uses).iter().map(|file| size(file)).sum::<u64>() <= most);
    let first = (0..uses.len()).find(|&first| fits(&uses[first..])).unwrap_or(uses.len());
    let mut kept = files(&uses[first..]);
    let folders: HashSet<PathBuf> = kept.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    kept.extend(folders.iter().flat_map(|folder| [folder.join(SETTINGS), folder.join(LOCK)]));
    kept
}

fn stored(path: &Path) -> Result<Stored, Error> {
    let settings = fs::read_to_string(path.join(SETTINGS)).ok().and_then(|text| serde_json::from_str(&text).ok());
    let settings = settings.filter(|settings: &Settings| settings.format == FORMAT);
    let tables = if settings.is_some() { folder::tables(path)? } else { vec![] };
    let bytes = files(path)?.iter().map(|file| size(file)).sum();
    Ok(Stored {
        path: path.to_owned(),
        settings,
        bytes,
        corpora: tables.into_iter().rev().filter_map(of_table).collect(),
    })
}

fn of_table(table: PathBuf) -> Option<Use> {
    let last_used_s = folder::used(&table).duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let roster = Roster::open(&table)?;
    let clips = (0..roster.len()).filter(|&row| roster.failure(row).is_none()).count();
    let shards = roster.about.shards.iter().map(|(name, _)| table.with_file_name(name)).collect();
    Some(Use { corpus: roster.about.corpus, clips, last_used_s, table, shards })
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
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let whole = path.with_extension("arrow");
        let is_table = roster::is_named_like_one(&whole) || shard::claimed(&whole).is_some();
        (is_table && (name.ends_with(".arrow") || name.ends_with(".tmp")))
            || [SETTINGS, LOCK, OLD_TABLE, "settings.tmp", "digests.tmp", writer::TEMPORARY].contains(&&*name)
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

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;
    use std::fs::File;

    fn root(case: &Case) -> PathBuf {
        super::super::kept_dir(&case.config.data)
    }

    fn use_long_ago(case: &Case, days: u64) {
        let long_ago = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        for table in case.tables() {
            File::open(table).unwrap().set_modified(long_ago).unwrap();
        }
    }

    #[test]
    fn what_is_there_is_listed() {
        let case = Case::new(3);
        assert_eq!(list(&root(&case)).unwrap().len(), 0, "no cache yet");
        case.run().unwrap();
        use_long_ago(&case, 3);
        let [folder] = &list(&root(&case)).unwrap()[..] else { panic!("one folder") };
        assert_eq!(folder.settings.as_ref(), Some(&Settings::new(&case.config)));
        assert!(folder.bytes > 2 * 3 * 1600);
        let [corpus] = &folder.corpora[..] else { panic!("one corpus") };
        assert_eq!((&*corpus.corpus, corpus.clips, corpus.age().as_secs() / 3600), (case.root.path(), 3, 72));
    }

    #[test]
    fn a_used_cache_is_not_pruned() {
        let case = Case::new(3);
        case.run().unwrap();
        let pruned = prune(&root(&case), &Limits::default(), false).unwrap();
        assert_eq!((pruned.files, pruned.busy.len()), (0, 0));
        assert_eq!(case.counts(), (0, 0, 3, 0));
    }

    #[test]
    fn what_no_corpus_uses_goes() {
        let case = Case::new(3);
        case.run().unwrap();
        let (before, old) = (case.shards(), root(&case).join("0123456789abcdef"));
        fs::create_dir(&old).unwrap();
        fs::write(old.join(OLD_TABLE), b"old").unwrap();
        fs::write(old.join("notes.txt"), b"not ours").unwrap();
        fs::write(case.dir().join(shard::name(&blake3::hash(b""))), b"").unwrap();
        fs::write(case.dir().join(writer::TEMPORARY), b"half").unwrap();
        let dry = prune(&root(&case), &Limits::default(), true).unwrap();
        assert_eq!((dry.files, dry.bytes), (3, 3 + 4));
        assert_eq!(prune(&root(&case), &Limits::default(), false).unwrap().files, 3 + 1, "and the lock it took");
        assert_eq!(
            (case.shards(), old.join("notes.txt").exists(), old.join(OLD_TABLE).exists()),
            (before, true, false)
        );
    }

    #[test]
    fn limits_of_age_size_and_corpus() {
        let [case, other] = [Case::new(2), Case::new(2)];
        for limits in [
            Limits { unused_for: Some(Duration::from_secs(24 * 3600)), ..Limits::default() },
            Limits { bytes: Some(1000), ..Limits::default() },
            Limits { corpus: Some(other.root.path().to_owned()), ..Limits::default() },
        ] {
            case.run().unwrap();
            use_long_ago(&case, 2);
            prune(&root(&case), &limits, false).unwrap();
            assert!(!case.dir().exists(), "{limits:?}");
        }
        case.run().unwrap();
        let roomy = Limits {
            unused_for: Some(Duration::from_secs(24 * 3600)),
            bytes: Some(1 << 20),
            corpus: Some(case.root.path().to_owned()),
        };
        assert_eq!(prune(&root(&case), &roomy, false).unwrap().files, 0);
    }

    #[test]
    fn a_folder_in_use_is_left_alone() {
        let case = Case::new(2);
        case.run().unwrap();
        use_long_ago(&case, 2);
        let held = File::create(case.dir().join(LOCK)).unwrap();
        held.lock().unwrap();
        let limits = Limits { bytes: Some(0), ..Limits::default() };
        let pruned = prune(&root(&case), &limits, false).unwrap();
        assert_eq!((pruned.files, pruned.busy), (0, vec![case.dir()]));
    }
}
