//! What shards hold, kept between runs: a remote or packed shard is read to the end to find out, and once is enough. Files
//! are named by shard, size and etag, so none is ever out of date; any of them may be deleted.

use super::find::Unit;
use super::rows::Contents;
use super::{Packing, Shard};
#[cfg(not(test))]
use crate::machine;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// Changes with what is written.
const VERSION: &[u8] = b"shard index 1";
/// What an index may unpack to.
const MAX_BYTES: u64 = 1 << 30;

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
    Some(home().join(format!("{}.json.gz", hasher.finalize().to_hex())))
}

fn home() -> PathBuf {
    // Tests leave the user's files alone.
    #[cfg(test)]
    return std::env::temp_dir().join(format!("myxtts-test-shards-{}", std::process::id()));
    #[cfg(not(test))]
    machine::cache_home().join("shards")
}

fn load(path: &PathBuf) -> Option<Contents> {
    let unpacked = GzDecoder::new(BufReader::new(File::open(path).ok()?)).take(MAX_BYTES);
    serde_json::from_reader(BufReader::new(unpacked)).ok()
}

fn save(path: &PathBuf, contents: &Contents) -> std::io::Result<()> {
    let folder = path.parent().ok_or(std::io::ErrorKind::NotFound)?;
    fs::create_dir_all(folder)?;
    // Two runs may write the same: each its own file, and the last rename wins.
    let part = path.with_extension(format!("{}-{:?}.part", std::process::id(), std::thread::current().id()));
    let mut out = GzEncoder::new(File::create(&part)?, Compression::fast());
    let written = serde_json::to_writer(&mut out, contents).map_err(std::io::Error::from).and_then(|()| out.finish());
    written.and_then(|_| fs::rename(&part, path)).inspect_err(|_| _ = fs::remove_file(&part))
}
