//! Which layout a corpus has, found by looking at names first and at a few rows where names do not tell.

use super::tree::Tree;
use super::{CorpusFormat, Error, LAYOUTS, READERS, Reader, columns, lines};
use crate::error::Hint;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Rows to look at: enough that a few odd ones do not decide.
pub(super) const LOOK_ROWS: usize = 500;
/// Endings of lists whose cells are separated by `|`.
pub(super) const LIST_EXTENSIONS: &[&str] = &["csv", "txt", "lst"];
const ASKED_FOR: &str = "it was asked for";

/// A layout that fits, and what it was told by.
pub(super) struct Found {
    pub reader: &'static Reader,
    pub why: String,
    pub metadata: Metadata,
}

/// The metadata of a corpus, found by their names.
pub(super) struct Metadata {
    pub tree: Tree,
    /// The corpus folder.
    pub dir: PathBuf,
    /// The metadata file, or the folder of them.
    pub file: PathBuf,
    /// The metadata file of the validation part.
    pub validation: Option<PathBuf>,
}

impl Metadata {
    pub fn file_name(&self) -> std::borrow::Cow<'_, str> {
        self.file.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Whether its list has a column of speakers.
    pub fn names_speakers(&self) -> Result<bool, Error> {
        Ok(columns::names_speakers(&lines::head(&self.tree, &self.file, LOOK_ROWS)?))
    }
}

/// A corpus folder and the names in it.
pub(super) struct Folder {
    pub tree: Tree,
    pub dir: PathBuf,
    pub names: BTreeSet<String>,
}

impl Folder {
    pub fn list(tree: &Tree, dir: &Path) -> Result<Self, Error> {
        let mut names = tree.names(dir).map_err(Error::at(dir))?;
        // What `check --fix` wrote beside the metadata is read when it is named, and not found by looking.
        names.retain(|name| !name.contains(".cleaned."));
        Ok(Self { tree: tree.clone(), dir: dir.into(), names })
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub fn metadata(&self, file: &str, validation: Option<&str>) -> Metadata {
        let at = |name: &str| self.dir.join(name);
        Metadata { tree: self.tree.clone(), dir: self.dir.clone(), file: at(file), validation: validation.map(at) }
    }

    /// `metadata.csv`, or another list with a telling name.
    pub fn list_metadata(&self) -> Option<Metadata> {
        let is_telling = |name: &&String| {
            let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
            (stem.starts_with("metadata") || stem.starts_with("train"))
                && LIST_EXTENSIONS.contains(&extension)
                && is_list(&self.tree, &self.dir.join(name))
        };
        let name = if self.has("metadata.csv") { "metadata.csv" } else { self.names.iter().find(is_telling)? };
        Some(self.metadata(name, None))
    }
}

pub(super) fn detect(path: &Path, named: CorpusFormat) -> Result<Found, Error> {
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => in_folder(&Folder::list(&Tree::Disk, path)?, Reader::of(named)),
        Ok(_) => of_file(path, Reader::of(named)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = "`myxtts sample-corpus DIR` makes a small corpus to start with";
            Err(Error::missing(path, "no such corpus folder", hint))
        }
        Err(cause) => Err(Error::Io { path: path.into(), cause }),
    }
}

pub(super) fn in_folder(folder: &Folder, named: Option<&'static Reader>) -> Result<Found, Error> {
    if let Some(reader) = named {
        let (path, format, hint) = (folder.dir.clone(), reader.format, Hint::new(reader.parts));
        let metadata = (reader.find)(folder)?.ok_or(Error::OtherFormat { path, format, hint })?;
        return Ok(Found { reader, why: ASKED_FOR.into(), metadata });
    }
    for reader in READERS {
        if let Some(metadata) = (reader.find)(folder)?
            && let Some(why) = (reader.recognise)(&metadata)?
        {
            return Ok(Found { reader, why, metadata });
        }
    }
    Err(Error::missing(&folder.dir, "no metadata were found", LAYOUTS))
}

/// A metadata file that is named itself; recordings are sought beside it.
fn of_file(path: &Path, named: Option<&'static Reader>) -> Result<Found, Error> {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = Metadata { tree: Tree::Disk, dir: dir.into(), file: path.into(), validation: None };
    let (reader, why) = match named {
        _ if extension == "gz" => return Err(Error::missing(path, "compressed metadata", "`gunzip` it first")),
        Some(reader) if !reader.has_lists => return Err(Error::missing(path, "not a folder", reader.parts)),
        Some(reader) => (reader, ASKED_FOR.into()),
        None => by_extension(&metadata, &extension)?
            .ok_or_else(|| Error::missing(path, "neither a corpus folder nor a metadata file", LAYOUTS))?,
    };
    Ok(Found { reader, why, metadata })
}

/// The only layout whose files end so, or the first of several that knows the file's rows.
fn by_extension(metadata: &Metadata, extension: &str) -> Result<Option<(&'static Reader, String)>, Error> {
    let candidates: Vec<_> = READERS.into_iter().filter(|reader| reader.extensions.contains(&extension)).collect();
    if let [only] = candidates[..] {
        return Ok(Some((only, format!("it is a file .{extension}"))));
    }
    for reader in candidates {
        if let Some(why) = (reader.recognise)(metadata)? {
            return Ok(Some((reader, why)));
        }
    }
    Ok(None)
}

/// Whether most rows of a file have columns; or it has no rows, which its reader will say.
pub(super) fn is_list(tree: &Tree, file: &Path) -> bool {
    let head = lines::head(tree, file, LOOK_ROWS).unwrap_or_default();
    2 * head.iter().filter(|line| line.contains('|')).count() >= head.len()
}
