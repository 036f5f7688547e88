//! What a file looks like from outside, so that a warm start reads no recording and no shard in full.
//!
//! As git does for its index: a file whose size and times are unchanged is taken to be unchanged. The times include
//! the inode's own (ctime), which no program can set, so a file put back with its old modification time is noticed.
//! Rot on the medium leaves the times alone; the checksum that every clip is held against finds that.

use super::digest::{Digest, Hasher};
use crate::corpus::AudioSource;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file changed this recently may change again within one tick of its file system's clock, unnoticed.
const UNSETTLED_NS: i64 = 2_000_000_000;
const NS: i64 = 1_000_000_000;
/// 12 minutes of 16-bit sound at 44.1 kHz. What is longer is read in pieces.
const WHOLE_BYTES: u64 = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStat {
    pub bytes: i64,
    pub modified_ns: i64,
    pub changed_ns: i64,
}

impl FileStat {
    /// Stat of what cannot be looked at, or is no file.
    pub const ABSENT: FileStat = FileStat { bytes: -1, modified_ns: 0, changed_ns: 0 };
    /// Equal to no file's: ask again next time.
    pub const NEVER: FileStat = FileStat { bytes: -2, modified_ns: 0, changed_ns: 0 };

    pub fn of(path: &Path) -> Self {
        fs::metadata(path).ok().filter(Metadata::is_file).map_or(Self::ABSENT, |meta| Self::new(&meta))
    }

    pub fn new(meta: &Metadata) -> Self {
        FileStat {
            bytes: meta.size() as i64,
            modified_ns: meta.mtime() * NS + meta.mtime_nsec(),
            changed_ns: meta.ctime() * NS + meta.ctime_nsec(),
        }
    }

    /// Stat of where a clip lies. Parts of shards are looked at with their shard, when the corpus is read: what is known of
    /// it is hashed into the times, as moments of the first hours of 1970, which are always settled.
    pub fn of_source(source: &AudioSource, name: &Path) -> Self {
        let Some(member) = source.member() else { return Self::of(name) };
        let version = member.shard_version();
        let part = |at: usize| version[at..at + 8].iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        FileStat { bytes: 0, modified_ns: (part(0) >> 20) as i64, changed_ns: (part(8) >> 1) as i64 }
    }

    /// As a table keeps it.
    pub fn numbers(self) -> [i64; 3] {
        [self.bytes, self.modified_ns, self.changed_ns]
    }

    /// What may be relied on later.
    pub fn settled(self) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as i64);
        if self.modified_ns + UNSETTLED_NS < now { self } else { Self::NEVER }
    }
}

/// Digest of a file's bytes, with the stat it had before the first was read. The bytes are left in `whole`, unless
/// there are too many to hold: then it is empty.
pub(super) fn read(path: &Path, whole: &mut Vec<u8>) -> io::Result<(FileStat, Digest)> {
    whole.clear();
    // A named pipe would make `open` wait for ever, so look before opening.
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut file = File::open(path)?;
    if meta.len() <= WHOLE_BYTES {
        file.read_to_end(whole)?;
        return Ok((FileStat::new(&meta), Digest::of(whole)));
    }
    Ok((FileStat::new(&meta), digest(&file)?))
}

/// Read, not mapped: a map's pages would count as memory of this process.
pub(super) fn digest(mut file: &File) -> io::Result<Digest> {
    let (mut hasher, mut piece) = (Hasher::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&piece[..count]),
        };
    }
}
