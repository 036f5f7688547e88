//! The second program, `myxtts-torch`: it loads LibTorch, which takes a third of a second and 120 MB, so only commands
//! that compute with tensors start it.

use host::error::hinted;
use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "myxtts-torch";

/// Puts the second program into the place of this process, with the same arguments. Comes back only where that fails.
pub fn hand_over() -> anyhow::Error {
    let (own, mut args) = (env::current_exe().ok(), env::args_os());
    let name = args.next().unwrap_or_else(|| "myxtts".into());
    let program = beside([own.as_deref(), Some(name.as_ref())]).unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).arg0(&name).args(args).exec();
    match error.kind() {
        ErrorKind::NotFound => hinted(
            format!("`{PROGRAM}` was not found, neither beside `myxtts` nor on the PATH"),
            format!("this command computes with tensors: install both files, `myxtts` and `{PROGRAM}`, in one folder"),
        ),
        _ => anyhow::Error::new(error).context(format!("{}: cannot be started", program.display())),
    }
}

/// The second program in the folder of the first, under any of its names: links resolved, then as it was called.
fn beside<const N: usize>(names: [Option<&Path>; N]) -> Option<PathBuf> {
    let folders = names.into_iter().flatten().filter_map(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    folders.map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_second_program_lies_beside_the_first_or_beside_its_link() {
        let dir = tempfile::tempdir().unwrap();
        let [store, bin] = ["store", "bin"].map(|name| dir.path().join(name));
        [&store, &bin].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let (own, link) = (store.join("myxtts"), bin.join("myxtts"));
        let found = || beside([Some(&own), Some(&link)]);
        assert_eq!(found(), None);
        fs::write(bin.join(PROGRAM), "").unwrap();
        assert_eq!(found(), Some(bin.join(PROGRAM)));
        fs::write(store.join(PROGRAM), "").unwrap();
        assert_eq!(found(), Some(store.join(PROGRAM)));
        assert_eq!(beside([None, Some("myxtts".as_ref())]), None, "called by its bare name: the PATH knows");
    }
}
