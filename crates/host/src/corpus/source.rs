//! Where the sound of a clip lies: in a file of its own, or in a shard of many.

use super::shards::Shard;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Stands between the shard and the place in the name of a member: no path has it, and no URL.
const SEPARATOR: u8 = 0;

/// Where the sound of a clip lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AudioSource<'a> {
    File(Cow<'a, Path>),
    Member(Member),
}

/// A part of a shard: bytes of a tar, a row of a table, or an object as it is.
#[derive(Clone)]
pub struct Member {
    pub(super) shard: Arc<Shard>,
    /// First byte in the unpacked shard; in a table, the row.
    pub(super) at: u64,
    /// How many bytes; 0 in a table, which knows.
    pub(super) bytes: u64,
}

impl AudioSource<'_> {
    /// The file, where it has one of its own.
    pub fn file(&self) -> Option<&Path> {
        match self {
            AudioSource::File(path) => Some(path),
            AudioSource::Member(_) => None,
        }
    }

    pub fn member(&self) -> Option<&Member> {
        match self {
            AudioSource::File(_) => None,
            AudioSource::Member(member) => Some(member),
        }
    }

    /// A name that no other clip has, wherever the program was started: the absolute path, or shard and place.
    /// [`shown`] makes it readable.
    pub fn name(&self, base: &Path) -> Cow<'_, Path> {
        match self {
            AudioSource::File(path) if path.is_absolute() => Cow::Borrowed(path),
            AudioSource::File(path) => Cow::Owned(base.join(path)),
            AudioSource::Member(Member { shard, at, bytes }) => {
                let mut name = shard.name().as_bytes().to_vec();
                name.push(SEPARATOR);
                name.extend(format!("{at}+{bytes}").bytes());
                Cow::Owned(PathBuf::from(std::ffi::OsString::from_vec(name)))
            }
        }
    }

    /// The folder or shard that it lies in.
    pub fn parent(&self) -> &Path {
        match self {
            AudioSource::File(path) => path.parent().unwrap_or(Path::new("")),
            AudioSource::Member(member) => Path::new(member.shard.name()),
        }
    }

    /// The same, as it lies there.
    pub fn borrowed(&self) -> AudioSource<'_> {
        match self {
            AudioSource::File(path) => AudioSource::File(Cow::Borrowed(path)),
            AudioSource::Member(member) => AudioSource::Member(member.clone()),
        }
    }

    /// The same, on its own.
    pub fn into_owned(self) -> AudioSource<'static> {
        match self {
            AudioSource::File(path) => AudioSource::File(path.into_owned().into()),
            AudioSource::Member(member) => AudioSource::Member(member),
        }
    }

    /// Reads the whole of it by itself; [`AudioFeed`](super::AudioFeed) reads many in their order.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            AudioSource::File(path) => std::fs::read(path),
            AudioSource::Member(member) => member.shard.open(false)?.member(member),
        }
    }
}

impl Member {
    /// Tells this version of this part of this shard from any other: by shard, size, etag and place. None of a shard of
    /// this machine, whose bytes are at hand.
    pub fn remote_key(&self) -> Option<[u8; 32]> {
        (!self.shard.is_local()).then(|| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&self.shard.version());
            hasher.update(&self.at.to_le_bytes()).update(&self.bytes.to_le_bytes());
            *hasher.finalize().as_bytes()
        })
    }

    /// Hash of the shard's name, size and etag: changes when the shard does.
    pub fn shard_version(&self) -> [u8; 32] {
        self.shard.version()
    }

    pub fn at(&self) -> u64 {
        self.at
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.bytes, self.shard.name()) == (other.at, other.bytes, other.shard.name())
    }
}

impl Eq for Member {}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}+{}", self.shard.name(), self.at, self.bytes)
    }
}

impl fmt::Display for AudioSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown(&self.name(Path::new(""))).display())
    }
}

/// The name of a source for people: a path, or a shard and the place in it (`x.tar#1536`).
pub fn shown(name: &Path) -> Cow<'_, Path> {
    match split(name) {
        None => Cow::Borrowed(name),
        Some((shard, place)) => {
            let place = place.split(|byte| *byte == b'+').next().unwrap_or_default();
            let name = [shard, b"#", place].concat();
            Cow::Owned(PathBuf::from(std::ffi::OsString::from_vec(name)))
        }
    }
}

/// Whether a name is that of a part of a shard. Such a part is what it was as long as its shard is, which a run looks at
/// when it opens the corpus.
pub fn is_member(name: &Path) -> bool {
    split(name).is_some()
}

fn split(name: &Path) -> Option<(&[u8], &[u8])> {
    let bytes = name.as_os_str().as_bytes();
    let at = bytes.iter().position(|byte| *byte == SEPARATOR)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

impl From<PathBuf> for AudioSource<'_> {
    fn from(path: PathBuf) -> Self {
        AudioSource::File(path.into())
    }
}

impl From<&str> for AudioSource<'_> {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}
