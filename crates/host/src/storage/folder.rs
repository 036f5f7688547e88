//! A folder of this machine as a store. Keys stay inside it; what is written appears under its name when it is whole.

use super::{Error, Fault, Object};
use bytes::Bytes;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    pub fn new(root: &Path) -> Self {
        Folder { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file of a key.
    pub fn path(&self, key: &str) -> Result<PathBuf, Error> {
        let inside = Path::new(key).components().all(|part| matches!(part, Component::Normal(_)));
        let path = self.root.join(key);
        if inside { Ok(path) } else { Err(Error::new(key, Fault::Unsupported, "leads out of the folder")) }
    }

    pub fn list(&self, prefix: &str) -> Result<impl Iterator<Item = Result<Object, Error>> + Send + use<>, Error> {
        let (start, root) = (self.path(prefix)?, self.root.clone());
        let is_file = fs::metadata(&start).is_ok_and(|meta| meta.is_file());
        let found = if is_file { vec![start.clone()] } else { vec![] };
        Ok(Walk { root, folders: if is_file { vec![] } else { vec![start] }, files: found.into_iter() })
    }

    pub fn head(&self, key: &str) -> Result<Object, Error> {
        let path = self.path(key)?;
        let meta = fs::metadata(&path).map_err(|cause| Error::io(path.display(), cause))?;
        if !meta.is_file() {
            return Err(Error::new(&path.display().to_string(), Fault::Absent, "not a file"));
        }
        Ok(Object { key: key.into(), bytes: meta.len(), etag: Some(etag(&meta)) })
    }

    pub fn get(&self, key: &str) -> Result<Bytes, Error> {
        let path = self.path(key)?;
        self.head(key)?; // a pipe would be read for ever
        fs::read(&path).map(Bytes::from).map_err(|cause| Error::io(path.display(), cause))
    }

    /// Opens an object that is still the one that was looked at.
    pub fn open(&self, object: &Object) -> Result<File, Error> {
        let path = self.path(&object.key)?;
        let now = self.head(&object.key)?;
        if object.etag.is_some() && now != *object {
            return Err(Error::new(&path.display().to_string(), Fault::Changed, "changed since it was looked at"));
        }
        File::open(&path).map_err(|cause| Error::io(path.display(), cause))
    }

    pub fn get_range(&self, object: &Object, range: Range<u64>) -> Result<Bytes, Error> {
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
        let read = self.open(object)?.read_exact_at(&mut bytes, range.start);
        read.map_err(|cause| Error::io(self.root.join(&object.key).display(), cause))?;
        Ok(bytes.into())
    }

    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write(key, |file| file.write_all(bytes), |part, path| fs::rename(part, path))
    }

    pub fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, Error> {
        let mut was_absent = true;
        // A link fails where the name is taken; a rename would replace what another process wrote.
        let place = |part: &Path, path: &Path| match fs::hard_link(part, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                was_absent = false;
                fs::remove_file(part)
            }
            linked => linked.and(fs::remove_file(part)),
        };
        self.write(key, |file| file.write_all(bytes), place)?;
        Ok(was_absent)
    }

    pub fn put_file(&self, key: &str, from: &Path) -> Result<(), Error> {
        let mut from = File::open(from).map_err(|cause| Error::io(from.display(), cause))?;
        self.write(key, |file| io::copy(&mut from, file).map(drop), |part, path| fs::rename(part, path))
    }

    pub fn delete(&self, key: &str) -> Result<(), Error> {
        let path = self.path(key)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path.display(), error)),
            _ => Ok(()),
        }
    }

    fn write(
        &self,
        key: &str,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
        place: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = self.path(key)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = path.with_file_name(format!(".{name}.{}-{number}.part", std::process::id()));
        let written = fs::create_dir_all(path.parent().unwrap_or(&self.root)).and_then(|()| {
            let mut file = File::create(&part)?;
            fill(&mut file).and_then(|()| file.sync_all()).and_then(|()| place(&part, &path))
        });
        written.map_err(|cause| {
            let _ = fs::remove_file(&part);
            Error::io(path.display(), cause)
        })
    }
}

/// As servers make one of a file: it changes with size, modification time and inode time.
fn etag(meta: &Metadata) -> String {
    let nanoseconds = |seconds: i64, rest: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest);
    let (modified, changed) =
        (nanoseconds(meta.mtime(), meta.mtime_nsec()), nanoseconds(meta.ctime(), meta.ctime_nsec()));
    format!("{:x}-{modified:x}-{changed:x}", meta.len())
}

/// Files below a folder, one directory at a time and each in the order of its names.
struct Walk {
    root: PathBuf,
    folders: Vec<PathBuf>,
    files: std::vec::IntoIter<PathBuf>,
}

impl Walk {
    fn enter(&mut self, folder: &Path) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let (mut files, mut folders) = (vec![], vec![]);
        for entry in entries.flatten() {
            // Links to folders are not followed: they may lead in circles.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) => files.push(entry.path()),
                Err(_) => {}
            }
        }
        files.sort();
        folders.sort();
        self.files = files.into_iter();
        self.folders.extend(folders.into_iter().rev());
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<Object, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for path in self.files.by_ref() {
                // Names that are not UTF-8 cannot be told to anybody.
                let Some(key) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) else { continue };
                if let Some(meta) = fs::metadata(&path).ok().filter(Metadata::is_file) {
                    return Some(Ok(Object { key: key.into(), bytes: meta.len(), etag: Some(etag(&meta)) }));
                }
            }
            let folder = self.folders.pop()?;
            if let Err(cause) = self.enter(&folder) {
                return Some(Err(Error::io(folder.display(), cause)));
            }
        }
    }
}
