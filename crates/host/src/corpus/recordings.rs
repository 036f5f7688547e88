//! Which recordings there are. Every folder is listed once, instead of asking for every name and extension: a corpus of
//! 100,000 rows costs a few system calls, which matters most where files are far away.

use super::AudioSource;
use super::tree::Tree;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Endings of recordings, in the order of preference where a clip is there more than once.
const EXTENSIONS: [&str; 5] = ["wav", "flac", "ogg", "opus", "mp3"];

type Names = HashSet<Box<str>>;

/// The files of a corpus, each folder listed when it is first asked for.
pub(super) struct Recordings {
    root: PathBuf,
    pub tree: Tree,
    listed: HashMap<PathBuf, io::Result<Names>>,
}

impl Recordings {
    pub fn of(tree: Tree, root: &Path) -> Self {
        Self { root: root.into(), tree, listed: HashMap::new() }
    }

    /// The recording of this name in the first of these folders that has it, and its name without the extension, which
    /// may be missing in the first place. `""` is the corpus folder itself.
    pub fn find(&mut self, folders: &[&str], name: &str) -> Result<(String, AudioSource<'static>), String> {
        let name = inside(name)?;
        for folder in folders {
            if let Some((id, path)) = self.look(Path::new(folder), &name)? {
                return Ok((id, self.tree.source(path)));
            }
        }
        let nearest = Path::new(folders.first().unwrap_or(&"")).join(&name);
        Err(match without_extension(&name) {
            Some(_) => format!("no recording {}", nearest.display()),
            None => format!("no recording {}.wav (nor .{})", nearest.display(), EXTENSIONS[1..].join(", .")),
        })
    }

    /// Whether there is such a file, wherever it is.
    pub fn has(&mut self, path: &Path) -> bool {
        let (Some(folder), Some(file)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return false;
        };
        self.names(folder).as_ref().is_ok_and(|names| names.contains(file))
    }

    fn look(&mut self, folder: &Path, name: &str) -> Result<Option<(String, PathBuf)>, String> {
        let (inner, file) = name.rsplit_once('/').unwrap_or(("", name));
        let folder = folder.join(inner);
        let whole = self.root.join(&folder);
        let names = match self.names(&whole) {
            Ok(names) => names,
            Err(error) if is_absent(error) => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        };
        if let Some(stem) = without_extension(name)
            && names.contains(file)
        {
            return Ok(Some((stem.into(), whole.join(file))));
        }
        let candidates = EXTENSIONS.iter().flat_map(|ending| [(*ending).into(), ending.to_uppercase()]);
        let found = candidates.map(|ending| format!("{file}.{ending}")).find(|file| names.contains(file.as_str()));
        Ok(found.map(|file| (name.into(), whole.join(file))))
    }

    fn names(&mut self, folder: &Path) -> &io::Result<Names> {
        if !self.listed.contains_key(folder) {
            self.listed.insert(folder.into(), self.tree.files(folder));
        }
        &self.listed[folder]
    }
}

/// The name less its extension, where that is one of a recording.
pub(super) fn without_extension(name: &str) -> Option<&str> {
    let (stem, extension) = name.rsplit_once('.')?;
    EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)).then_some(stem)
}

/// The name with plain separators, where it stays inside the folder that it is relative to.
pub(super) fn inside(name: &str) -> Result<String, String> {
    let plain = name.replace('\\', "/");
    let mut parts = vec![];
    for part in Path::new(&plain).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            Component::CurDir => {}
            _ => return Err(format!("`{name}` leads out of the corpus")),
        }
    }
    if parts.is_empty() { Err("the id is empty".into()) } else { Ok(parts.join("/")) }
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        dir
    }

    #[test]
    fn names_with_and_without_extension_in_the_first_folder_that_has_them() {
        let dir = folder(&["wavs/a.wav", "wavs/a.mp3", "a.wav", "b.FLAC", "wavs/x/c.d.ogg", "wavs/e.ogg.wav"]);
        let mut recordings = Recordings::of(Tree::Disk, dir.path());
        let mut found = |name| {
            let (id, path) = recordings.find(&["wavs", ""], name).unwrap();
            (id, path.file().unwrap().strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned())
        };
        for (name, id, path) in [
            ("a", "a", "wavs/a.wav"),
            ("a.mp3", "a", "wavs/a.mp3"),
            ("b", "b", "b.FLAC"),
            ("b.FLAC", "b", "b.FLAC"),
            ("./x/c.d", "x/c.d", "wavs/x/c.d.ogg"),
            ("x\\c.d.ogg", "x/c.d", "wavs/x/c.d.ogg"),
            ("wavs/a", "wavs/a", "wavs/a.wav"),
            ("e.ogg", "e.ogg", "wavs/e.ogg.wav"),
        ] {
            assert_eq!(found(name), (id.to_owned(), path.to_owned()), "{name}");
        }
    }

    #[test]
    fn what_is_not_there_and_what_lies_outside() {
        let dir = folder(&["wavs/a.wav", "up.wav"]);
        fs::create_dir(dir.path().join("wavs/folder.wav")).unwrap();
        let mut recordings = Recordings::of(Tree::Disk, &dir.path().join("wavs"));
        let mut problem = |name: &str| recordings.find(&[""], name).unwrap_err();
        assert_eq!(problem("b"), "no recording b.wav (nor .flac, .ogg, .opus, .mp3)");
        assert_eq!(problem("a.wav/c.wav"), "no recording a.wav/c.wav");
        assert_eq!(problem("folder"), "no recording folder.wav (nor .flac, .ogg, .opus, .mp3)");
        assert!(problem("a\0").starts_with("no recording"));
        assert!(problem(&"long/".repeat(5_000)).starts_with("no recording"));
        for outside in ["../up", "x/../../up", "/etc/passwd", "..\\up", "\\\\server\\a"] {
            assert!(problem(outside).contains("leads out of the corpus"), "{outside}");
        }
        assert_eq!(problem("."), "the id is empty");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_loops_are_no_files() {
        use std::os::unix::fs::symlink;
        let (dir, other) = (folder(&["wavs/a.wav"]), folder(&["b.wav"]));
        let at = |name: &str| dir.path().join("wavs").join(name);
        symlink(other.path().join("b.wav"), at("b.wav")).unwrap();
        symlink(at("loop.wav"), at("loop.wav")).unwrap();
        let mut recordings = Recordings::of(Tree::Disk, dir.path());
        assert_eq!(recordings.find(&["wavs"], "b").unwrap().1, at("b.wav").into());
        assert!(recordings.find(&["wavs"], "loop").is_err());
        assert!(recordings.has(&at("a.wav")) && !recordings.has(&at("c.wav")) && !recordings.has(Path::new("/")));
    }
}
