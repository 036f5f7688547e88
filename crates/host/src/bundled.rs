//! The bundled voice: weights that come with the program, so that it speaks and clones before anything was trained, and
//! trains from somewhere.

use crate::error::hinted;
use std::env;
use std::path::{Path, PathBuf};

/// Variable that names another folder of bundled voices.
pub const VARIABLE: &str = "MYXTTS_VOICES";
/// Behind a folder in which a program may lie.
const FOLDERS: [&str; 2] = ["voices", "share/myxtts/voices"];
/// The source tree.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const NAME: &str = "english";

/// The folder of a voice and all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundled {
    folder: PathBuf,
}

impl Bundled {
    /// Checkpoint of the voice.
    pub fn voice(&self) -> PathBuf {
        self.folder.join("voice")
    }

    /// Checkpoint of its vocoder.
    pub fn vocoder(&self) -> PathBuf {
        self.folder.join("vocoder")
    }

    /// Voice files, each named after its speaker.
    pub fn speakers(&self) -> PathBuf {
        self.folder.join("speakers")
    }

    /// The voice file of a speaker.
    pub fn speaker(&self, name: &str) -> PathBuf {
        self.speakers().join(format!("{name}.safetensors"))
    }
}

/// The bundled voice: where `MYXTTS_VOICES` says; else in `voices` or `share/myxtts/voices` beside the program or above it;
/// else in the tree that it was built from.
pub fn find() -> Option<Bundled> {
    if let Some(folder) = env::var_os(VARIABLE) {
        return at(Path::new(&folder));
    }
    let program = env::current_exe().ok();
    let above = program.iter().flat_map(|program| program.ancestors().skip(1));
    above.chain([Path::new(BUILT_FROM)]).find_map(|folder| FOLDERS.iter().find_map(|name| at(&folder.join(name))))
}

/// As [`find`], for whom there is no other way.
pub fn require() -> anyhow::Result<Bundled> {
    find().ok_or_else(|| {
        let hint = format!("--checkpoint DIR names a voice of yours; {VARIABLE} names the folder of the bundled ones");
        hinted("the bundled voice was not found beside this program", hint)
    })
}

fn at(voices: &Path) -> Option<Bundled> {
    // As people would write it, without the way there.
    let bundled = Bundled { folder: voices.join(NAME).canonicalize().ok()? };
    bundled.voice().is_dir().then_some(bundled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_without_the_voice_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(at(dir.path()), None);
        fs::create_dir_all(dir.path().join("english/voice")).unwrap();
        let found = at(dir.path()).unwrap();
        assert_eq!(found.vocoder(), dir.path().canonicalize().unwrap().join("english/vocoder"));
    }

    /// Whoever builds the program has it.
    #[test]
    fn the_tree_that_this_was_built_from_has_it() {
        let found = find().expect("voices/english");
        for part in [found.voice(), found.vocoder()] {
            assert!(part.join("model.safetensors").is_file(), "{}", part.display());
        }
        assert!(fs::read_dir(found.speakers()).unwrap().count() >= 3);
    }
}
