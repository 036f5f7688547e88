//! Files of a corpus by their names: of a folder, of an archive, or of a bucket. What reads metadata asks here, and need
//! not know which it is.

use super::shards::{Packing, Shard, walk, why};
use super::{AudioSource, Error, Member};
use crate::error::Hint;
use crate::storage::Store;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, DirEntry, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Endings of files that may be metadata.
const TEXTS: [&str; 6] = ["csv", "tsv", "txt", "lst", "json", "jsonl"];
/// What an archive's metadata may take: a hundred hours have some megabytes.
const MAX_TEXT_BYTES: u64 = 512 << 20;
/// Files of an archive, or of a bucket in which each clip has one: their names are held in memory.
const MAX_FILES: usize = 500_000;
/// How many folders of one folder each an archive may be wrapped in.
const MAX_WRAPPINGS: usize = 3;

#[derive(Clone)]
pub(super) enum Tree {
    /// Folders of this machine.
    Disk,
    Listed(Arc<Listed>),
}

/// Files that were listed once.
#[derive(Default)]
pub(super) struct Listed {
    /// Of each folder, its files with their place, and its folders without.
    folders: BTreeMap<PathBuf, BTreeMap<String, Option<Member>>>,
    /// Metadata of an archive, which were read on the way.
    texts: BTreeMap<PathBuf, Arc<[u8]>>,
}

impl Tree {
    /// Files of a tar, plain or packed, and where its own folders begin.
    pub fn archive(shard: &Arc<Shard>) -> Result<(Self, PathBuf), Error> {
        let root = PathBuf::from(shard.name());
        let (mut listed, mut text_bytes, mut files) = (Listed::default(), 0, 0);
        let walked = walk(shard, &mut |tar, member, _| {
            // What leads out of the archive is no part of it.
            let Ok(name) = super::recordings::inside(&member.name) else { return Ok(()) };
            files += 1;
            let path = root.join(&name);
            if path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| TEXTS.contains(&ending)) {
                text_bytes += member.bytes;
                if text_bytes > MAX_TEXT_BYTES {
                    return Err(io::Error::other(format!(
                        "more than {} MiB of texts in an archive",
                        MAX_TEXT_BYTES >> 20
                    )));
                }
                listed.texts.insert(path.clone(), tar.read(&member)?.into());
            }
            if files > MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files in an archive")));
            }
            listed.add(&root, &path, Member { shard: shard.clone(), at: member.at, bytes: member.bytes });
            Ok(())
        });
        walked.map_err(|error| Error::Io { path: root.clone(), cause: io::Error::other(why(&error)) })?;
        let dir = listed.unwrapped(root);
        Ok((Tree::Listed(Arc::new(listed)), dir))
    }

    /// Objects of a bucket, each of which is a file.
    pub fn bucket(store: &Store) -> Result<(Self, PathBuf), Error> {
        let root = PathBuf::from(store.to_string());
        let mut listed = Listed::default();
        for (count, object) in store.list("")?.enumerate() {
            let object = object?;
            if count >= MAX_FILES {
                let hint = Hint::new("pack the clips into tar files, some thousand in each");
                return Err(Error::Missing { path: root, what: "too many objects of one clip each", hint });
            }
            let (path, bytes) = (root.join(&object.key), object.bytes);
            listed.add(&root, &path, Member { shard: Shard::new(store, object, Packing::Plain), at: 0, bytes });
        }
        if listed.folders.is_empty() {
            let hint = Hint::new("is the name right? A prefix ends where a folder of the bucket does");
            return Err(Error::Missing { path: root, what: "nothing lies there", hint });
        }
        Ok((Tree::Listed(Arc::new(listed)), root))
    }

    /// Names of files and folders in a folder.
    pub fn names(&self, folder: &Path) -> io::Result<BTreeSet<String>> {
        match self {
            Tree::Disk => {
                let entries = fs::read_dir(folder)?.filter_map(Result::ok);
                Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
            }
            Tree::Listed(listed) => Ok(listed.folder(folder)?.keys().cloned().collect()),
        }
    }

    /// Names of the files in a folder: another folder may be called `x.wav`. Names that are not UTF-8 cannot be told by
    /// metadata that are.
    pub fn files(&self, folder: &Path) -> io::Result<HashSet<Box<str>>> {
        match self {
            Tree::Disk => {
                let entries = fs::read_dir(folder)?.filter_map(Result::ok).filter(is_file);
                Ok(entries
                    .filter_map(|entry| entry.file_name().into_string().ok())
                    .map(String::into_boxed_str)
                    .collect())
            }
            Tree::Listed(listed) => {
                let files = listed.folder(folder)?.iter().filter(|(_, file)| file.is_some());
                Ok(files.map(|(name, _)| name.as_str().into()).collect())
            }
        }
    }

    pub fn is_dir(&self, path: &Path) -> bool {
        match self {
            Tree::Disk => path.is_dir(),
            Tree::Listed(listed) => listed.folders.contains_key(path),
        }
    }

    /// Opens a file of metadata.
    pub fn open(&self, file: &Path) -> Result<Box<dyn Read>, Error> {
        let not_a_file = || Error::missing(file, "not a file", "metadata are read from plain files");
        match self {
            Tree::Disk => {
                // A pipe or a device could be endless.
                if !fs::metadata(file).map_err(Error::at(file))?.is_file() {
                    return Err(not_a_file());
                }
                Ok(Box::new(File::open(file).map_err(Error::at(file))?))
            }
            Tree::Listed(listed) => {
                if let Some(text) = listed.texts.get(file) {
                    return Ok(Box::new(Cursor::new(text.clone())));
                }
                let member = listed.file(file).ok_or_else(not_a_file)?;
                if member.bytes > MAX_TEXT_BYTES {
                    return Err(Error::missing(file, "too long for metadata", "metadata are texts"));
                }
                let text = AudioSource::Member(member).read().map_err(Error::at(file))?;
                Ok(Box::new(Cursor::new(text)))
            }
        }
    }

    /// Where the sound of a file lies.
    pub fn source(&self, file: PathBuf) -> AudioSource<'static> {
        match self {
            Tree::Disk => file.into(),
            Tree::Listed(listed) => listed.file(&file).map_or_else(|| file.clone().into(), AudioSource::Member),
        }
    }
}

impl Listed {
    fn add(&mut self, root: &Path, file: &Path, member: Member) {
        let (mut name, mut folder, mut entry) = (file.file_name(), file.parent(), Some(member));
        while let (Some(this), Some(parent)) = (name.and_then(|name| name.to_str()), folder) {
            let is_new = !self.folders.contains_key(parent);
            self.folders.entry(parent.into()).or_default().entry(this.into()).or_insert(entry.take());
            if parent == root || !is_new {
                break;
            }
            (name, folder) = (parent.file_name(), parent.parent());
        }
    }

    fn folder(&self, folder: &Path) -> io::Result<&BTreeMap<String, Option<Member>>> {
        // `x/` and `x` are one folder.
        let plain: PathBuf = folder.components().collect();
        self.folders.get(&plain).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, file: &Path) -> Option<Member> {
        self.folders.get(file.parent()?)?.get(file.file_name()?.to_str()?)?.clone()
    }

    /// Where something lies, below folders that hold one folder and nothing else.
    fn unwrapped(&self, mut dir: PathBuf) -> PathBuf {
        for _ in 0..MAX_WRAPPINGS {
            match self.folders.get(&dir).map(|names| names.iter().collect::<Vec<_>>()).as_deref() {
                Some([(name, None)]) => dir.push(name),
                _ => break,
            }
        }
        dir
    }
}

/// Whether an entry is a file. Links are followed, which costs a system call for each; a loop of them is no file.
fn is_file(entry: &DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => fs::metadata(entry.path()).is_ok_and(|target| target.is_file()),
        kind => kind.is_ok_and(|kind| kind.is_file()),
    }
}
