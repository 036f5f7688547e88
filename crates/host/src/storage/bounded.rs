//! Files of this machine that can be had again, kept within a size: the least recently used go. Runs share them; who reads one
//! holds it by a shared lock, and what is held is never deleted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Held while room is made.
const ROOM: &str = "room.lock";

/// A file as it was found: where, when it was last used, and its size.
pub struct KeptFile {
    pub path: PathBuf,
    pub used: SystemTime,
    pub bytes: u64,
}

impl KeptFile {
    pub fn of(path: PathBuf) -> Option<Self> {
        let meta = fs::metadata(&path).ok()?;
        Some(KeptFile { used: meta.modified().ok()?, bytes: meta.len(), path })
    }
}

/// A file that is there, from now on the most recently used. It stays while what is returned does.
pub fn hold(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock_shared().ok()?;
    // Whoever made room may have deleted it before the lock was taken.
    is_named(&file, path).then_some(())?;
    let _ = file.set_modified(SystemTime::now());
    Some(file)
}

/// Whether a file still has its name, and is not one that was deleted meanwhile.
pub fn is_named(file: &File, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| file.metadata().is_ok_and(|own| own.ino() == meta.ino()))
}

/// While it lives nobody makes room. A file is given its name under it too: one that moves while files are counted would be
/// counted twice or not at all.
pub fn lock_room(root: &Path) -> io::Result<File> {
    let lock = File::create(root.join(ROOM))?;
    lock.lock()?;
    Ok(lock)
}

/// Deletes the least recently used of the files below `root` that nobody holds until so many bytes more fit below `most`, and
/// takes the room for `file`. Where that is not enough: how many bytes are missing.
pub fn make_room(
    root: &Path,
    list: impl FnOnce(&Path) -> Vec<KeptFile>,
    most: u64,
    bytes: u64,
    file: Option<&File>,
) -> io::Result<Option<u64>> {
    // Bytes of a deleted file are freed when it is closed, which takes a while: without the lock.
    let mut deleted = Vec::new();
    let _lock = lock_room(root)?;
    file.map_or(Ok(()), |file| file.set_len(0))?;
    let mut files = list(root);
    files.sort_by_key(|file| file.used);
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    for file in files {
        if total + bytes <= most {
            break;
        }
        if let Some(unused) = remove_unused(&file.path) {
            deleted.push(unused);
            total -= file.bytes;
        }
    }
    let missing = (total + bytes).checked_sub(most).filter(|missing| *missing > 0);
    if let (None, Some(file)) = (missing, file) {
        file.set_len(bytes)?;
    }
    Ok(missing)
}

/// Deletes a file unless somebody holds it.
fn remove_unused(path: &Path) -> Option<File> {
    File::open(path).ok().filter(|file| file.try_lock().is_ok() && fs::remove_file(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_least_recently_used_go_and_what_is_held_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: u64| dir.path().join(format!("{number}"));
        for number in 0..5 {
            fs::write(path(number), [0; 100]).unwrap();
            let used = SystemTime::now() - Duration::from_secs(100 - number);
            File::options().write(true).open(path(number)).unwrap().set_modified(used).unwrap();
        }
        let list = |_: &Path| (0..5).filter_map(|number| KeptFile::of(path(number))).collect();
        let there = || (0..5).filter(|&number| path(number).exists()).collect::<Vec<_>>();
        let held = hold(&path(1)).unwrap();
        drop(hold(&path(2)).unwrap());
        // The oldest is 0; 1 is held, 2 was just used: 0 and 3 make room.
        assert_eq!(make_room(dir.path(), list, 400, 100, None).unwrap(), None);
        assert_eq!(there(), [1, 2, 4]);
        assert_eq!(make_room(dir.path(), list, 100, 50, None).unwrap(), Some(50), "one is held");
        assert_eq!(there(), [1]);
        drop(held);
        assert_eq!(make_room(dir.path(), list, 100, 50, None).unwrap(), None);
        assert!(hold(&path(1)).is_none());
    }
}
