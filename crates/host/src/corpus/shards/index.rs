//! What shards hold, kept between runs: a remote or packed shard is read to the end to find out, and once is enough. Files
//! are named by shard, size and etag, so none is ever out of date; any of them may be deleted, and the least recently used are
//! where all of them take more than [`MOST_BYTES`].

use super::find::Unit;
use super::rows::Contents;
use super::{Packing, Shard};
#[cfg(not(test))]
use crate::machine;
use crate::storage::bounded::{self, KeptFile};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Changes with what is written.
const VERSION: &[u8] = b"shard index 1";
/// What an index may unpack to.
const MAX_BYTES: u64 = 1 << 30;
/// What all of them may take: some tens of millions of clips.
const MOST_BYTES: u64 = 4 << 30;
const ENDING: &str = ".json.gz";

/// What a unit holds: as it is known, or read, and known from then on.
pub(super) fn contents(unit: &Unit, read: impl FnOnce() -> Contents) -> Contents {
    let Some(path) = path(unit) else { return read() };
    if let Some(contents) = load(&path) {
        return contents;
    }
    let contents = read();
    // What could not be read to its end is tried again next time.
    if contents.end.is_none() {
        let _ = save(&path, &contents);
    }
    contents
}

/// Where a unit is kept; none where a look costs little.
fn path(unit: &Unit) -> Option<PathBuf> {
    let shards: Vec<&Arc<Shard>> = match unit {
        Unit::Tar(shard) | Unit::Table(shard) => vec![shard],
        Unit::Shar { cuts, sound } => vec![cuts, sound],
    };
    let is_costly = |shard: &&Arc<Shard>| !shard.is_local() || shard.packing == Packing::Gzip;
    // Without an etag nobody can tell whether a shard is the same.
    if !shards.iter().any(is_costly) || shards.iter().any(|shard| shard.object.etag.is_none()) {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(VERSION);
    shards.iter().for_each(|shard| _ = hasher.update(&shard.version()));
    Some(home().join(format!("{}{ENDING}", hasher.finalize().to_hex())))
}

fn home() -> PathBuf {
    // Tests leave the user's files alone.
    #[cfg(test)]
    return std::env::temp_dir().join(format!("myxtts-test-shards-{}", std::process::id()));
    #[cfg(not(test))]
    machine::cache_home().join("shards")
}

/// Keeps to the bound, after a corpus was read.
pub(super) fn trim() {
    trim_to(&home(), MOST_BYTES);
}

fn trim_to(home: &Path, most: u64) {
    let is_ours = |path: &PathBuf| path.to_string_lossy().ends_with(ENDING);
    let list = |home: &Path| {
        let entries = fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(is_ours).filter_map(KeptFile::of).collect()
    };
    // Without the folder there is nothing to keep within bounds.
    let _ = bounded::make_room(home, list, most, 0, None);
}

fn load(path: &Path) -> Option<Contents> {
    let unpacked = GzDecoder::new(BufReader::new(bounded::hold(path)?)).take(MAX_BYTES);
    serde_json::from_reader(BufReader::new(unpacked)).ok()
}

fn save(path: &Path, contents: &Contents) -> std::io::Result<()> {
    let folder = path.parent().ok_or(std::io::ErrorKind::NotFound)?;
    fs::create_dir_all(folder)?;
    // Two runs may write the same: each its own file, and the last rename wins.
    let part = path.with_extension(format!("{}-{:?}.part", std::process::id(), std::thread::current().id()));
    let mut out = GzEncoder::new(File::create(&part)?, Compression::fast());
    let written = serde_json::to_writer(&mut out, contents).map_err(std::io::Error::from).and_then(|()| out.finish());
    written.and_then(|_| fs::rename(&part, path)).inspect_err(|_| _ = fs::remove_file(&part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_was_not_read_for_longest_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(format!("{name}{ENDING}"));
        for (age_s, name) in [(30, "old"), (20, "used"), (10, "new")] {
            save(&path(name), &Contents { rows: vec![], end: None }).unwrap();
            let file = File::options().write(true).open(path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
        }
        fs::write(dir.path().join("other"), [0; 1000]).unwrap();
        assert!(load(&path("used")).is_some());
        let bytes = fs::metadata(path("old")).unwrap().len();
        trim_to(dir.path(), 2 * bytes);
        assert!(!path("old").exists() && path("used").exists() && path("new").exists());
        trim_to(dir.path(), bytes);
        assert!(path("used").exists() && !path("new").exists() && dir.path().join("other").exists());
    }
}
