//! What was worked out once and would be the same again, in small files of JSON beside the features. The first line of
//! each is the digest of the rest, so a damaged one is none.

use super::Error;
use super::digest::Digest;
use super::folder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = fs::read_to_string(path).ok()?;
    let (digest, json) = text.split_once('\n')?;
    (Digest::of(json.as_bytes()).hex() == digest).then_some(())?;
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    serde_json::from_str(json).ok()
}

pub(super) fn write(path: &Path, what: &impl Serialize) -> Result<(), Error> {
    let json = serde_json::to_string(what).unwrap_or_default();
    let temporary = folder::temporary(path);
    let done = fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| fs::write(&temporary, format!("{}\n{json}", Digest::of(json.as_bytes()).hex())))
        .and_then(|()| fs::rename(&temporary, path));
    done.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::io(path, error)
    })
}

/// All that is remembered in a folder.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json" || e == "tmp"))
        .collect()
}
