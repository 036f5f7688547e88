//! Where a sample corpus goes: made beside its place, renamed into it, never over files of others.

use super::{Error, MARKER};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Renames a folder that holds anything but a sample corpus: its new name.
pub fn move_aside(dir: &Path) -> Result<Option<PathBuf>, Error> {
    let dir = absolute(dir)?;
    if !is_occupied(&dir)? {
        return Ok(None);
    }
    let mut number = 1;
    let mut aside = dir.with_file_name(format!("{}.old-{number}", name(&dir)));
    while aside.exists() {
        number += 1;
        aside.set_file_name(format!("{}.old-{number}", name(&dir)));
    }
    fs::rename(&dir, &aside).map_err(at(&dir))?;
    Ok(Some(aside))
}

/// A folder beside the wanted one, on the same disk, so that a rename finishes it. Removed when dropped.
pub struct Partial(PathBuf);

impl Partial {
    pub fn beside(dir: &Path) -> Result<Self, Error> {
        let path = dir.with_file_name(format!(".{}.{}.partial", name(dir), std::process::id()));
        fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn replace(self, dir: &Path) -> Result<(), Error> {
        let old = self.0.with_extension("old");
        if dir.exists() {
            fs::rename(dir, &old).map_err(at(dir))?;
        }
        fs::rename(&self.0, dir).map_err(at(dir))?;
        if old.exists() {
            fs::remove_dir_all(&old).map_err(at(&old))?;
        }
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove, and after a failure nothing more to do.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a folder holds something that is not a sample corpus.
pub fn is_occupied(dir: &Path) -> Result<bool, Error> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_some() && !dir.join(MARKER).is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(Error::Io { path: dir.into(), cause }),
    }
}

/// A path with a parent and a name even for `.`; through links, so that what is replaced is the folder and not the
/// link.
pub fn absolute(dir: &Path) -> Result<PathBuf, Error> {
    let whole = if dir.exists() { dir.canonicalize() } else { std::path::absolute(dir) }.map_err(at(dir))?;
    if whole.file_name().is_none() {
        return Err(Error::occupied(whole));
    }
    Ok(whole)
}

fn name(dir: &Path) -> String {
    dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Turns a failure of the system into an error that names the path it happened at.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |cause| Error::Io { path, cause }
}
