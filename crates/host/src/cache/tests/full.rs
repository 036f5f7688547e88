//! A disk that fills up while a shard is written.

use super::*;
use std::process::Command;

#[test]
fn a_full_disk_is_named_and_leaves_nothing_half_written() {
    let mut case = Case::new(3);
    let small = case.root.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = |options: &str| {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&small).output();
        mount.is_ok_and(|output| output.status.success())
    };
    if !mount("size=64k") {
        return crate::skipped("a small file system cannot be mounted here");
    }
    case.config.data.cache_dir = Some(small.clone());
    tone(case.utterances[1].audio.file().unwrap(), 300.0, 100_000);
    let run = std::panic::catch_unwind(|| {
        let error = case.run().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("/shard.") && error.contains("No space left"), "{error}");
        let left: Vec<_> = folder::files(&case.dir()).unwrap();
        assert!(left.iter().all(|path| path.extension().is_none_or(|end| end != "tmp")), "{left:?}");
        assert!(mount("remount,size=4m"));
        assert_eq!(case.counts(), (3, 0, 0, 0));
        assert_eq!(case.counts(), (0, 0, 3, 0));
    });
    assert!(Command::new("umount").arg("-l").arg(&small).status().unwrap().success());
    run.unwrap();
}
