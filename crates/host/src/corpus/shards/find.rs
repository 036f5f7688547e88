//! Which shards a corpus consists of: by names in a folder or bucket, or by a pattern.

use super::{Packing, Shard};
use crate::config::CorpusFormat;
use crate::corpus::Error;
use crate::error::Hint;
use crate::storage::{self, Fault, Object, Pattern, Store, expand_braces, is_pattern, is_url};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shards of one corpus. More are no corpus but a whole bucket, and their names would fill memory.
const MAX_SHARDS: usize = 1_000_000;
/// Objects that are looked at for shards.
const MAX_LISTED: usize = 20_000_000;
const LOOKS_AT_ONCE: usize = 16;

/// The shards of a corpus, and what it was told by.
pub(in crate::corpus) struct Found {
    pub format: CorpusFormat,
    pub why: String,
    /// Folder that all of them lie in.
    pub dir: PathBuf,
    pub training: Vec<Unit>,
    pub validation: Vec<Unit>,
}

/// What is read together.
pub(in crate::corpus) enum Unit {
    Tar(Arc<Shard>),
    Table(Arc<Shard>),
    Shar { cuts: Arc<Shard>, sound: Arc<Shard> },
}

impl Unit {
    /// The shard that the sound lies in.
    pub fn sound(&self) -> &Arc<Shard> {
        match self {
            Unit::Tar(shard) | Unit::Table(shard) | Unit::Shar { sound: shard, .. } => shard,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Tar,
    Table,
    Cuts,
}

/// The shards at a place, where there are some: a folder, a URL, one shard, or a pattern. `deep` looks into folders of a
/// folder too; a URL is always looked at whole.
pub(in crate::corpus) fn find(path: &Path, format: CorpusFormat, deep: bool) -> Result<Option<Found>, Error> {
    let Some(location) = path.to_str() else { return Ok(None) };
    let is_local = !is_url(location);
    let (store, mut objects, is_named) = if is_pattern(location) && !(is_local && path.exists()) {
        let (store, objects) = by_pattern(location)?;
        (store, objects, true)
    } else if is_local && fs::metadata(path).is_ok_and(|meta| meta.is_dir()) {
        let store = Store::folder(path);
        let objects = if deep { listed(&store, "")? } else { top_level(&store, path)? };
        (store, objects, false)
    } else if kind(location).is_some() {
        let (store, key) = parent(location)?;
        (store.clone(), vec![store.head(key)?], true)
    } else if !is_local {
        let store = Store::open(location)?;
        let objects = listed(&store, "")?;
        (store, objects, false)
    } else {
        return Ok(None);
    };
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    if objects.is_empty() {
        return Ok(None);
    }
    by_kind(path, &store, objects, format, is_named)
}

fn by_kind(
    path: &Path,
    store: &Store,
    objects: Vec<Object>,
    format: CorpusFormat,
    is_named: bool,
) -> Result<Option<Found>, Error> {
    let mut kinds = BTreeMap::<Kind, Vec<Object>>::new();
    for object in objects {
        if let Some(kind) = kind(&object.key) {
            kinds.entry(kind).or_default().push(object);
        }
    }
    let is_shar = kinds.contains_key(&Kind::Cuts) && kinds.contains_key(&Kind::Tar);
    let kind = match (format, is_shar) {
        (CorpusFormat::Parquet, _) => Kind::Table,
        (CorpusFormat::Webdataset, _) => Kind::Tar,
        (CorpusFormat::Shar, _) | (CorpusFormat::Auto, true) => Kind::Cuts,
        (CorpusFormat::Auto, false) => match kinds.keys().filter(|kind| **kind != Kind::Cuts).collect::<Vec<_>>()[..] {
            [] => return Ok(None),
            [only] => *only,
            _ => {
                let names = vec!["*.tar".into(), "*.parquet".into()];
                return Err(Error::Several {
                    path: path.into(),
                    names,
                    hint: Hint::new("name one: 'DIR/*.tar', or --format"),
                });
            }
        },
        // An archive may hold any layout of files.
        _ if kinds.get(&Kind::Tar).is_some_and(|tars| tars.len() == 1) => Kind::Tar,
        _ => return Ok(None),
    };
    let parts = split_parts(kinds.remove(&kind).unwrap_or_default(), is_named);
    let tars = kinds.remove(&Kind::Tar).unwrap_or_default();
    let units = |objects: Vec<Object>| -> Vec<Unit> {
        let unit = |object: Object| match kind {
            Kind::Tar => Some(Unit::Tar(shard(store, object))),
            Kind::Table => Some(Unit::Table(Shard::new(store, object, Packing::Parquet))),
            Kind::Cuts => shar_unit(store, object, &tars),
        };
        objects.into_iter().filter_map(unit).collect()
    };
    let (training, validation) = (units(parts.0), units(parts.1));
    if training.is_empty() {
        return Ok(None);
    }
    let count = training.len() + validation.len();
    let shards = |what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (format, why) = match kind {
        Kind::Tar => (CorpusFormat::Webdataset, shards("tar")),
        Kind::Table => (CorpusFormat::Parquet, shards("parquet file")),
        Kind::Cuts => (CorpusFormat::Shar, shards("pair") + " of cuts.*.jsonl and recording.*.tar"),
    };
    Ok(Some(Found { format, why, dir: store.to_string().into(), training, validation }))
}

fn shard(store: &Store, object: Object) -> Arc<Shard> {
    let packing = if object.key.ends_with("gz") { Packing::Gzip } else { Packing::Plain };
    Shard::new(store, object, packing)
}

/// `cuts.000001.jsonl.gz` with its `recording.000001.tar`.
fn shar_unit(store: &Store, cuts: Object, tars: &[Object]) -> Option<Unit> {
    let name = |key: &str| {
        key.rsplit_once('/').map_or((String::new(), key.to_owned()), |(dir, name)| (dir.to_owned(), name.to_owned()))
    };
    let (folder, cuts_name) = name(&cuts.key);
    let number = cuts_name.strip_prefix("cuts.")?.split('.').next()?.to_owned();
    let is_sound = |object: &&Object| {
        let (dir, name) = name(&object.key);
        dir == folder && (name == format!("recording.{number}.tar") || name == format!("recording.{number}.tar.gz"))
    };
    let sound = tars.iter().find(is_sound)?.clone();
    Some(Unit::Shar { cuts: shard(store, cuts), sound: shard(store, sound) })
}

/// Training and validation part, where names tell: `train-00000-of-00004.parquet` beside `validation-….parquet`. What is
/// named by its user is all for training.
fn split_parts(objects: Vec<Object>, is_named: bool) -> (Vec<Object>, Vec<Object>) {
    let has = |object: &Object, parts: &[&str]| {
        object.key.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| parts.contains(&word))
    };
    let is_training = |object: &Object| has(object, &["train"]);
    if is_named || !objects.iter().any(is_training) {
        return (objects, vec![]);
    }
    let (training, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_training);
    let validation =
        others.into_iter().filter(|object| has(object, &["validation", "valid", "val", "dev", "eval"])).collect();
    (training, validation)
}

fn kind(key: &str) -> Option<Kind> {
    let name = storage::last_name(key).to_lowercase();
    if name.starts_with(['.', '_']) {
        return None;
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    match () {
        () if name.starts_with("cuts.") && ends(&[".jsonl", ".jsonl.gz"]) => Some(Kind::Cuts),
        () if ends(&[".tar", ".tar.gz", ".tgz"]) => Some(Kind::Tar),
        () if ends(&[".parquet"]) => Some(Kind::Table),
        () => None,
    }
}

/// The store of everything beside a location, and the location's name in it.
fn parent(location: &str) -> Result<(Store, &str), Error> {
    let (folder, name) = location.rsplit_once('/').unwrap_or((".", location));
    let folder = if folder.is_empty() { "/" } else { folder };
    Ok((Store::open(folder)?, name))
}

fn top_level(store: &Store, path: &Path) -> Result<Vec<Object>, Error> {
    let names = fs::read_dir(path).map_err(Error::at(path))?.flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| kind(name).is_some());
    // A folder may be called `x.tar`.
    Ok(names.filter_map(|name| store.head(&name).ok()).collect())
}

fn listed(store: &Store, prefix: &str) -> Result<Vec<Object>, Error> {
    filtered(store, prefix, |key| kind(key).is_some())
}

fn filtered(store: &Store, prefix: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<Object>, Error> {
    let mut found = vec![];
    for (count, object) in store.list(prefix)?.enumerate() {
        let object = object?;
        if wanted(&object.key) {
            found.push(object);
        }
        if found.len() > MAX_SHARDS || count > MAX_LISTED {
            let hint = Hint::new("name a folder of it, or a pattern such as 's3://bucket/data/train-*.tar'");
            return Err(Error::Missing { path: store.to_string().into(), what: "too many objects for a corpus", hint });
        }
    }
    Ok(found)
}

/// Names with braces are looked up, names with stars are sought in their folder.
fn by_pattern(location: &str) -> Result<(Store, Vec<Object>), Error> {
    let wrong = |what: String| Error::Missing { path: location.into(), what: "no such pattern", hint: what.into() };
    // What every name starts with, up to the last `/`.
    let plain = &location[..location.find(['*', '?', '[', '{']).unwrap_or(location.len())];
    let (root, _) = plain.rsplit_once('/').unwrap_or((".", plain));
    let root = if root.is_empty() { "/" } else { root };
    let rest = if root == "." { location } else { location[root.len()..].trim_start_matches('/') };
    let store = Store::open(root)?;
    let (patterns, names): (Vec<_>, Vec<_>) =
        expand_braces(rest).map_err(wrong)?.into_iter().partition(|name| name.contains(['*', '?', '[']));
    let mut objects = BTreeMap::new();
    for pattern in patterns {
        let pattern = Pattern::new(&pattern).map_err(wrong)?;
        let found = filtered(&store, pattern.folder(), |key| pattern.matches(key))?;
        objects.extend(found.into_iter().map(|object| (object.key.clone(), object)));
    }
    let mut failed = None;
    super::rows::in_order(
        &names,
        LOOKS_AT_ONCE,
        |name| store.head(name),
        |name, looked| match looked {
            Ok(object) => _ = objects.insert(name.clone(), object),
            Err(error) => _ = failed.get_or_insert(error),
        },
    );
    match failed {
        Some(error) => Err(error.into()),
        None if objects.is_empty() => {
            let hint = Hint::new("put quotes around a pattern, so that your shell leaves it alone");
            Err(Error::Missing { path: location.into(), what: "nothing has such a name", hint })
        }
        None => Ok((store, objects.into_values().collect())),
    }
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error.fault {
            Fault::Absent if !is_url(&error.name) => Error::missing(
                Path::new(&error.name),
                "no such corpus",
                "`myxtts sample-corpus DIR` makes a small corpus to start with",
            ),
            _ => Error::Storage(error),
        }
    }
}
