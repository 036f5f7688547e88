//! Content digests of files, remembered so that a warm start reads no audio and no shard in full.
//!
//! As git does for its index: a file whose size and times are unchanged is taken to be unchanged. The times include
//! the inode's own (ctime), which no program can set, so a file put back with its old modification time is noticed.
//! Measured on 13,100 clips, 22 hours, 3.4 GB of features, two cores: asking for all times takes 0.03 s, hashing all
//! bytes 2 s from memory (3.8 GB/s a core with AVX-512) and as long as the disk takes when they are not there.

use super::{Error, atomic, map};
use arrow_array::builder::{BinaryBuilder, FixedSizeBinaryBuilder, Int64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::ArrowError;
use blake3::Hash;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const FILE: &str = "digests.arrow";
/// A file changed this recently may change again within one tick of its file system's clock, unnoticed.
const UNSETTLED_NS: i64 = 2_000_000_000;
const NS: i64 = 1_000_000_000;

/// What a file looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    bytes: i64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::Error::other("not a file"));
        }
        Ok(Self::new(&meta))
    }

    fn new(meta: &Metadata) -> Self {
        Stamp {
            bytes: meta.size() as i64,
            modified_ns: meta.mtime() * NS + meta.mtime_nsec(),
            changed_ns: meta.ctime() * NS + meta.ctime_nsec(),
        }
    }

    fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as i64);
        self.modified_ns + UNSETTLED_NS < now
    }
}

/// Digest of a file's bytes, with the stamp it had before the first was read.
pub(super) fn of_file(path: &Path) -> io::Result<(Stamp, Hash)> {
    let stamp = Stamp::of(path)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok((stamp, hasher.finalize()))
}

#[derive(Default)]
pub(super) struct Digests {
    /// By path, as a plain string: comparing paths part by part would take most of the time of a warm start.
    known: HashMap<OsString, (Stamp, Hash)>,
    changed: bool,
}

impl Digests {
    /// What the folder remembers. A missing or damaged table is an empty one: files are then read again.
    pub(super) fn load(dir: &Path) -> Self {
        let batches = map::read(&dir.join(FILE)).unwrap_or_default();
        let known = batches.iter().flat_map(|batch| entries(batch).unwrap_or_default()).collect();
        Digests { known, changed: false }
    }

    /// Trusts no file's size and times any more: each is read again when it is next asked for.
    pub(super) fn forget(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// The digest of a file that looks as it did when it was read.
    pub(super) fn get(&self, path: &Path) -> Option<Hash> {
        let (stamp, hash) = self.known.get(path.as_os_str())?;
        (Stamp::of(path).ok()? == *stamp).then_some(*hash)
    }

    pub(super) fn record(&mut self, path: &Path, stamp: Stamp, hash: Hash) {
        if stamp.settled() {
            self.vouch(path, stamp, hash);
        }
    }

    /// Records a file that nobody will write to again, however new it is.
    pub(super) fn vouch(&mut self, path: &Path, stamp: Stamp, hash: Hash) {
        let entry = (stamp, hash);
        self.changed |= self.known.insert(path.into(), entry) != Some(entry);
    }

    pub(super) fn save(&self, dir: &Path) -> Result<(), Error> {
        if !self.changed {
            return Ok(());
        }
        let path = dir.join(FILE);
        atomic(&path, |file| self.write(file)).map_err(|error| Error::arrow(&path, error))
    }

    fn write(&self, file: &mut File) -> Result<(), ArrowError> {
        let (mut paths, mut hashes) = (BinaryBuilder::new(), FixedSizeBinaryBuilder::new(32));
        let mut stamps = [Int64Builder::new(), Int64Builder::new(), Int64Builder::new()];
        for (path, (stamp, hash)) in &self.known {
            paths.append_value(path.as_bytes());
            hashes.append_value(hash.as_bytes())?;
            let values = [stamp.bytes, stamp.modified_ns, stamp.changed_ns];
            stamps.iter_mut().zip(values).for_each(|(column, value)| column.append_value(value));
        }
        let [bytes, modified, changed] = stamps.map(|mut column| Arc::new(column.finish()) as Arc<dyn Array>);
        let batch = RecordBatch::try_from_iter([
            ("path", Arc::new(paths.finish()) as Arc<dyn Array>),
            ("digest", Arc::new(hashes.finish())),
            ("bytes", bytes),
            ("modified_ns", modified),
            ("changed_ns", changed),
        ])?;
        let mut writer = FileWriter::try_new_buffered(file, &batch.schema())?;
        writer.write(&batch)?;
        writer.finish()
    }
}

fn entries(batch: &RecordBatch) -> Option<Vec<(OsString, (Stamp, Hash))>> {
    let paths = batch.column_by_name("path")?.as_binary_opt::<i32>()?;
    let hashes = batch.column_by_name("digest")?.as_fixed_size_binary_opt()?;
    let number = |name| Some(batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?.values());
    let (bytes, modified, changed) = (number("bytes")?, number("modified_ns")?, number("changed_ns")?);
    let entry = |row: usize| {
        let stamp = Stamp { bytes: bytes[row], modified_ns: modified[row], changed_ns: changed[row] };
        let hash = Hash::from_slice(hashes.value(row)).ok()?;
        Some((OsString::from_vec(paths.value(row).to_vec()), (stamp, hash)))
    };
    (0..batch.num_rows()).map(entry).collect()
}
