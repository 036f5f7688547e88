//! A cache in a bucket, with a folder of this machine in front of it.
//!
//! ```text
//! <url>/<settings>/shards/shard-<digest>.arrow      what a folder holds, by the same names; written once, never changed
//!                  tables/corpus-…, part-….arrow
//!                  durations/durations-….arrow
//!                  settings.json
//! ```
//!
//! Names are digests, so whatever is there under a name is the same for all who look, machines that build need no lock, and
//! what was fetched once need not be asked for again. Tables and durations are fetched whole; shards when their turn comes
//! (`local_store`), or a clip of them at a time.

use super::digest::Digest;
use super::settings::FeatureSettings;
use super::shard::{self, ShardLocation};
use super::{Error, default_dir, folder};
use crate::config::Data;
use crate::storage::{self, Object, Store};
use bytes::Bytes;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders of a bucket.
pub(super) const SHARDS: &str = "shards";
pub(super) const TABLES: &str = "tables";
pub(super) const DURATIONS: &str = "durations";
/// What is read of an object before it is written.
const PIECE_BYTES: usize = 1 << 20;

/// The part of a bucket that holds features of some settings.
pub(super) struct Bucket {
    pub store: Store,
    /// The folder of these settings on this machine.
    pub dir: PathBuf,
    /// All that is fetched on this machine, of whatever bucket.
    pub root: PathBuf,
    pub most_bytes: u64,
}

/// The URL of a cache that is no folder of this machine. `file://` is one too: a folder that is treated as a bucket.
pub(super) fn url(data: &Data) -> Option<&str> {
    data.cache_dir.as_deref().and_then(Path::to_str).filter(|dir| storage::is_url(dir))
}

/// Where all that is fetched goes.
fn root(data: &Data) -> PathBuf {
    data.local_cache.clone().unwrap_or_else(|| default_dir().with_file_name("fetched"))
}

/// The folder of this machine in front of a bucket.
pub(super) fn front(url: &str, data: &Data) -> PathBuf {
    root(data).join(format!("bucket-{}", &Digest::of(url.trim_end_matches('/').as_bytes()).hex()[..16]))
}

impl Bucket {
    /// None where the cache is a folder.
    pub(super) fn open(data: &Data, settings: &FeatureSettings) -> Result<Option<Arc<Self>>, Error> {
        let Some(url) = url(data).filter(|_| data.enable_caching) else {
            return match &data.local_cache {
                Some(path) if data.enable_caching => Err(Error::no_bucket(path)),
                _ => Ok(None),
            };
        };
        let dir = front(url, data).join(settings.folder());
        let store = Store::open(&format!("{}/{}", url.trim_end_matches('/'), settings.folder()))?;
        let bucket = Bucket { store, dir, root: root(data), most_bytes: data.local_cache_size.0 };
        fs::create_dir_all(&bucket.dir).map_err(|error| Error::io(&bucket.dir, error))?;
        Ok(Some(Arc::new(bucket)))
    }

    /// Where features are, for people.
    pub(super) fn name(&self) -> PathBuf {
        self.store.name("").trim_end_matches('/').into()
    }

    /// Fetches all files of a folder that are wanted and not here yet.
    pub(super) fn pull(&self, of: &str, wanted: impl Fn(&Path) -> bool) -> Result<(), Error> {
        for object in self.store.list(of)? {
            let object = object?;
            let path = self.dir.join(storage::last_name(&object.key));
            if wanted(&path) && !path.exists() {
                self.fetch(&object, &path)?;
            }
        }
        Ok(())
    }

    /// Copies a file that has its name into a folder of the bucket, unless it is there.
    pub(super) fn push(&self, into: &str, path: &Path) -> Result<(), Error> {
        let key = format!("{into}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        let bytes = fs::metadata(path).map_err(|error| Error::io(path, error))?.len();
        if self.store.head(&key).is_ok_and(|object| object.bytes == bytes) {
            return Ok(());
        }
        Ok(self.store.put_file(&key, path)?)
    }

    pub(super) fn describe(&self, settings: &FeatureSettings) -> Result<(), Error> {
        self.store.put_if_absent("settings.json", settings.json().into_bytes().into())?;
        Ok(())
    }

    /// Deletes tables that a newer one replaces. Whoever reads them has fetched them.
    pub(super) fn forget_tables(&self, is_old: impl Fn(&Path) -> bool) -> Result<(), Error> {
        let keys: Vec<String> =
            self.store.list(TABLES)?.map(|object| object.map(|object| object.key)).collect::<Result<_, _>>()?;
        for key in keys.iter().filter(|key| is_old(&self.dir.join(storage::last_name(key)))) {
            self.store.delete(key)?;
        }
        Ok(())
    }

    /// Names and sizes of all shards.
    pub(super) fn shards(&self) -> Result<HashMap<String, u64>, Error> {
        let shard = |object: Result<Object, storage::Error>| {
            let object = object?;
            Ok((storage::last_name(&object.key).to_owned(), object.bytes))
        };
        self.store.list(SHARDS)?.map(shard).collect()
    }

    /// The sound of one clip, without its shard.
    pub(super) fn sound(&self, name: &str, bytes: u64, place: &ShardLocation, length: u64) -> Result<Bytes, Error> {
        Ok(self.store.get_range(&shard_object(name, bytes), place.offset..place.offset + length)?)
    }

    /// Fetches an object to a file, which appears when it is complete.
    fn fetch(&self, object: &Object, path: &Path) -> Result<(), Error> {
        let temporary = folder::temporary(path);
        let fetched = File::create(&temporary)
            .and_then(|mut file| copy(&mut self.store.reader(object)?, object.bytes, |piece| file.write_all(piece)))
            .and_then(|()| fs::rename(&temporary, path));
        fetched.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            Error::io(&PathBuf::from(self.store.name(&object.key)), error)
        })
    }
}

/// A shard as the bucket has it.
pub(super) fn shard_object(name: &str, bytes: u64) -> Object {
    Object { key: format!("{SHARDS}/{name}"), bytes, etag: None }
}

/// Reads so many bytes, a piece at a time.
pub(super) fn copy(from: &mut impl Read, bytes: u64, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let (mut piece, mut left) = (vec![0; PIECE_BYTES], bytes);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match from.read(&mut piece[..most])? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "shorter than it was said to be")),
            count => {
                take(&piece[..count])?;
                left -= count as u64;
            }
        }
    }
    Ok(())
}

/// Whether a file is a shard, or one that is being fetched.
pub(super) fn is_fetched(path: &Path) -> bool {
    shard::claimed(path).is_some() || path.extension().is_some_and(|extension| extension == "part")
}
