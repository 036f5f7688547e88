//! Where bytes lie: a folder, or object storage behind a URL (`s3://`, `gs://`, `az://`, `https://`), through one blocking
//! interface.
//!
//! Keys are relative to what was opened, with `/` between their parts. Whatever goes wrong on the way is tried again with
//! back-off, up to a number of attempts and a time; errors name the object, never a credential. Memory: what is asked for,
//! and a page of a listing.

pub mod bounded;
mod error;
#[cfg(all(test, feature = "remote"))]
pub(crate) mod faulty_server;
mod folder;
mod location;
mod pattern;
mod reader;
#[cfg(feature = "remote")]
mod remote;
#[cfg(test)]
mod tests;

pub use error::{Error, Fault};
pub use location::{is_url, last_name};
pub use pattern::{Pattern, expand_braces, is_pattern};
pub use reader::ObjectReader;

use bytes::Bytes;
use folder::Folder;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Something that lies in a store, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub bytes: u64,
    /// Changes when the object does: its ETag, or the times of a file.
    pub etag: Option<String>,
}

/// How patient a store is, and what it knows that the environment does not say.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for one answer, from the request to the last byte.
    pub timeout: Duration,
    /// Requests for one thing before it is given up, ...
    pub attempts: u32,
    /// ... and the time after which no further one is made.
    pub patience: Duration,
    /// Pause after the first failed attempt; it doubles with each.
    pub pause: Duration,
    /// Settings that win over those of the environment, by the names of the environment, such as `AWS_ENDPOINT_URL`.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        let (timeout, patience) = (Duration::from_secs(60), Duration::from_secs(300));
        Options { timeout, attempts: 8, patience, pause: Duration::from_millis(200), settings: vec![] }
    }
}

/// A folder or a part of a bucket. Cloned cheaply, and used from many threads.
#[derive(Clone)]
pub struct Store(Arc<Backend>);

enum Backend {
    Folder(Folder),
    #[cfg(feature = "remote")]
    Remote(remote::Remote),
}

impl Store {
    /// Opens a folder, which need not be there yet, or a URL. Nothing is asked of the network.
    pub fn open(location: &str) -> Result<Self, Error> {
        Self::open_with(location, &Options::default())
    }

    pub fn open_with(location: &str, options: &Options) -> Result<Self, Error> {
        if let Some(path) = location::local(location)? {
            return Ok(Self::folder(&path));
        }
        #[cfg(feature = "remote")]
        return Ok(Store(Arc::new(Backend::Remote(remote::Remote::open(location, options)?))));
        #[cfg(not(feature = "remote"))]
        {
            let _ = options;
            Err(Error::new(location, Fault::Unsupported, "this program was built without object storage")
                .hint("build it with the cargo feature `remote`"))
        }
    }

    pub fn folder(path: &Path) -> Self {
        Store(Arc::new(Backend::Folder(Folder::new(path))))
    }

    /// The folder, where it is one of this machine.
    pub fn as_folder(&self) -> Option<&Path> {
        match &*self.0 {
            Backend::Folder(folder) => Some(folder.root()),
            #[cfg(feature = "remote")]
            Backend::Remote(_) => None,
        }
    }

    /// The file of a key, where the store is a folder.
    pub fn file(&self, key: &str) -> Option<PathBuf> {
        match &*self.0 {
            Backend::Folder(folder) => folder.path(key).ok(),
            #[cfg(feature = "remote")]
            Backend::Remote(_) => None,
        }
    }

    /// The whole name of an object, as a user would type it.
    pub fn name(&self, key: &str) -> String {
        match &*self.0 {
            Backend::Folder(folder) => folder.root().join(key).display().to_string(),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.name(key),
        }
    }

    /// All objects below a prefix of whole parts (`""` for all), however deep. Of a bucket in the order of their keys, a page
    /// at a time; of a folder, one directory at a time.
    pub fn list(&self, prefix: &str) -> Result<Box<dyn Iterator<Item = Result<Object, Error>> + Send>, Error> {
        match &*self.0 {
            Backend::Folder(folder) => Ok(Box::new(folder.list(prefix)?)),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => Ok(Box::new(remote.list(prefix)?)),
        }
    }

    /// Looks at an object. An absent one is an error of [`Fault::Absent`].
    pub fn head(&self, key: &str) -> Result<Object, Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.head(key),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.head(key),
        }
    }

    /// A whole object, which the caller knows to fit in memory.
    pub fn get(&self, key: &str) -> Result<Bytes, Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.get(key),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.get(key),
        }
    }

    /// Some bytes of an object: exactly those, or an error. With the object's etag, one that was replaced since it was looked
    /// at is an error too.
    pub fn get_range(&self, object: &Object, range: Range<u64>) -> Result<Bytes, Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.get_range(object, range),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.get_range(object, range),
        }
    }

    /// Reads an object from its start, ahead of who reads.
    pub fn reader(&self, object: &Object) -> Result<ObjectReader, Error> {
        match &*self.0 {
            Backend::Folder(folder) => ObjectReader::of_file(folder, object),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => Ok(ObjectReader::of_remote(remote, object)),
        }
    }

    /// Writes a whole object: whoever reads sees the old one or the new one.
    pub fn put(&self, key: &str, bytes: Bytes) -> Result<(), Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.put(key, &bytes),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.put(key, bytes),
        }
    }

    /// Writes an object unless there is one; says whether it did.
    pub fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<bool, Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.put_if_absent(key, &bytes),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.put_if_absent(key, bytes),
        }
    }

    /// Copies a file into the store in parts, so that its size does not matter.
    pub fn put_file(&self, key: &str, file: &Path) -> Result<(), Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.put_file(key, file),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.put_file(key, file),
        }
    }

    /// Deletes an object; one that is not there is deleted already.
    pub fn delete(&self, key: &str) -> Result<(), Error> {
        match &*self.0 {
            Backend::Folder(folder) => folder.delete(key),
            #[cfg(feature = "remote")]
            Backend::Remote(remote) => remote.delete(key),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name(""))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({self})")
    }
}
