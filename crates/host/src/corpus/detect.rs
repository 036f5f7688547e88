//! Which layout a corpus has, found by looking at names first and at a few rows where names do not tell.

use super::error::at;
use super::{Error, Format, columns, common_voice, lines, manifest, two_file, vctk};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Rows to look at: enough that a few odd ones do not decide.
pub(super) const LOOK_ROWS: usize = 500;
/// From the layout that is told most surely by its names to the one told least.
const ORDER: [Format; 6] =
    [Format::Vctk, Format::CommonVoice, Format::TwoFile, Format::Ljspeech, Format::Piper, Format::Manifest];
const LAYOUTS: &str = "a corpus has a file metadata.csv with a line `id|text` for each recording wavs/<id>.wav, or is \
                       laid out as Piper, VCTK, Common Voice or a JSON manifest; `--format` names the layout";

pub(super) struct Found {
    pub format: Format,
    pub why: String,
    pub source: Source,
}

/// What is to be read.
pub(super) struct Source {
    pub dir: PathBuf,
    /// The metadata file, or the folder of them.
    pub file: PathBuf,
    pub validation: Option<PathBuf>,
}

/// A corpus folder and the names in it.
pub(super) struct Folder {
    pub dir: PathBuf,
    pub names: BTreeSet<String>,
}

impl Folder {
    pub fn list(dir: &Path) -> Result<Self, Error> {
        let entries = fs::read_dir(dir).map_err(at(dir))?.filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        // What `check --fix` wrote beside the metadata is read when it is named, and not found by looking.
        let names = names.filter(|name| !name.contains(".cleaned.")).collect();
        Ok(Self { dir: dir.into(), names })
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub fn source(&self, file: &str, validation: Option<&str>) -> Source {
        let at = |name: &str| self.dir.join(name);
        Source { dir: self.dir.clone(), file: at(file), validation: validation.map(at) }
    }

    /// `metadata.csv`, or another list with a telling name.
    pub fn list_source(&self) -> Option<Source> {
        let is_telling = |name: &&String| {
            let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
            (stem.starts_with("metadata") || stem.starts_with("train"))
                && is_list_extension(extension)
                && is_list(&self.dir.join(name))
        };
        let name = if self.has("metadata.csv") { "metadata.csv" } else { self.names.iter().find(is_telling)? };
        Some(self.source(name, None))
    }
}

pub(super) fn detect(path: &Path, named: Format) -> Result<Found, Error> {
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => in_folder(&Folder::list(path)?, named),
        Ok(_) => of_file(path, named),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = "`myxtts sample-corpus DIR` makes a small corpus to start with";
            Err(Error::Missing { path: path.into(), what: "no such corpus folder", hint })
        }
        Err(cause) => Err(Error::Io { path: path.into(), cause }),
    }
}

fn in_folder(folder: &Folder, named: Format) -> Result<Found, Error> {
    if named != Format::Auto {
        let other = || Error::OtherFormat { path: folder.dir.clone(), format: named, hint: parts(named) };
        let source = source(named, folder)?.ok_or_else(other)?;
        return Ok(Found { format: named, why: "it was asked for".into(), source });
    }
    for format in ORDER {
        if let Some(source) = source(format, folder)?
            && let Some(why) = fits(format, &source)?
        {
            return Ok(Found { format, why, source });
        }
    }
    Err(Error::Missing { path: folder.dir.clone(), what: "no metadata were found", hint: LAYOUTS })
}

/// A metadata file that is named itself; recordings are sought beside it.
fn of_file(path: &Path, named: Format) -> Result<Found, Error> {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    let missing = |what, hint| Error::Missing { path: path.into(), what, hint };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let source = Source { dir: dir.into(), file: path.into(), validation: None };
    let (format, why) = match (named, extension.as_str()) {
        (_, "gz") => return Err(missing("compressed metadata", "`gunzip` it first")),
        (Format::Vctk, _) => return Err(missing("not a folder", parts(Format::Vctk))),
        (Format::Auto, "tsv") => (Format::CommonVoice, "it is a file .tsv".into()),
        (Format::Auto, "json" | "jsonl") => (Format::Manifest, format!("it is a file .{extension}")),
        (Format::Auto, list) if is_list_extension(list) => of_list(&source)?,
        (Format::Auto, _) => return Err(missing("neither a corpus folder nor a metadata file", LAYOUTS)),
        (named, _) => (named, "it was asked for".into()),
    };
    Ok(Found { format, why, source })
}

fn of_list(source: &Source) -> Result<(Format, String), Error> {
    for format in [Format::TwoFile, Format::Piper] {
        if let Some(why) = fits(format, source)? {
            return Ok((format, why));
        }
    }
    let why = fits(Format::Ljspeech, source)?;
    Ok((Format::Ljspeech, why.unwrap_or_default()))
}

fn source(format: Format, folder: &Folder) -> Result<Option<Source>, Error> {
    Ok(match format {
        Format::Auto => None,
        Format::Ljspeech | Format::Piper => folder.list_source(),
        Format::TwoFile => two_file::source(folder),
        Format::Vctk => vctk::source(folder),
        Format::CommonVoice => common_voice::source(folder),
        Format::Manifest => manifest::source(folder)?,
    })
}

/// Why what was found by its name is of this format; none where a look at its rows says otherwise.
fn fits(format: Format, source: &Source) -> Result<Option<String>, Error> {
    let name = source.file.file_name().unwrap_or_default().to_string_lossy();
    let speakers = || Ok::<_, Error>(columns::names_speakers(&lines::head(&source.file, LOOK_ROWS)?));
    Ok(match format {
        Format::Auto => None,
        Format::Ljspeech => (!speakers()?).then(|| format!("{name} has rows `id|text` or `id|raw|normalised`")),
        Format::Piper => speakers()?.then(|| format!("{name} has a column of speakers")),
        Format::TwoFile => two_file::why(source),
        Format::Vctk => Some("txt/ and wav48/ hold a folder for each speaker".into()),
        Format::CommonVoice => common_voice::has_header(&source.file)?
            .then(|| format!("the header of {name} names recordings and sentences")),
        Format::Manifest => Some(format!("{name} has lines of JSON with a recording and a text")),
    })
}

/// What a corpus of this format consists of.
fn parts(format: Format) -> &'static str {
    match format {
        Format::Auto => LAYOUTS,
        Format::Ljspeech => "expected metadata.csv with lines `id|text` and recordings in wavs/",
        Format::TwoFile => "expected metadata_train.csv and metadata_eval.csv with lines `id|text`",
        Format::Piper => "expected metadata.csv with lines `path|speaker|text`",
        Format::Vctk => "expected folders txt/SPEAKER/ and wav48/SPEAKER/",
        Format::CommonVoice => "expected validated.tsv, or train.tsv, and clips/",
        Format::Manifest => "expected a file .jsonl or .json whose lines hold `audio_filepath` and `text`",
    }
}

fn is_list_extension(extension: &str) -> bool {
    ["csv", "txt", "lst"].contains(&extension)
}

/// Most of its rows have columns; or it has no rows, which its reader will say.
pub(super) fn is_list(file: &Path) -> bool {
    let head = lines::head(file, LOOK_ROWS).unwrap_or_default();
    2 * head.iter().filter(|line| line.contains('|')).count() >= head.len()
}
