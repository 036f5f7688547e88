//! Two programs, one command: what computes nothing with tensors loads no LibTorch.

use super::stderr;
use std::process::{Command, Output};
use std::{fs, path::Path};

const FIRST: &str = env!("CARGO_BIN_EXE_myxtts");
const SECOND: &str = env!("CARGO_BIN_EXE_myxtts-torch");

/// Libraries that the dynamic loader would load for a program; the loader itself tells, and runs nothing.
fn libraries(program: &str) -> Vec<String> {
    let output = Command::new(program).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn only_the_second_program_needs_libtorch() {
    let is_torch = |name: &String| name.starts_with("libtorch") || name.starts_with("libc10");
    let first = libraries(FIRST);
    assert!(first.iter().any(|name| name.starts_with("libc.so")) && !first.iter().any(is_torch), "{first:?}");
    assert!(libraries(SECOND).iter().any(is_torch), "{:?}", libraries(SECOND));
}

#[test]
fn the_first_program_alone_answers_what_it_can_and_names_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("myxtts");
    fs::copy(FIRST, &alone).unwrap();
    let run = |args: &[&str]| Command::new(&alone).args(args).current_dir(&dir).env("PATH", "").output().unwrap();
    for (args, said) in [
        (&["--help"][..], "Start here:"),
        (&["--version"], "myxtts "),
        (&["train", "--help"], "--train-data"),
        (&["config"], "batch_size"),
        (&["devices"], "CPU"),
        (&["completions", "bash"], "train-vocoder"),
    ] {
        let output = run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains(said), "{args:?}");
    }
    let refused = |args: &[&str], said: &str| {
        let output = run(args);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    };
    refused(&["train", "--batch-size", "many"], "--batch-size");
    refused(&["train", "--train-data", "corpus"], "error: `myxtts-torch` was not found");
    refused(&["synth", "--checkpoint", "run", "--text", "hello"], "hint: this command computes with tensors");
}

/// The second program is found beside the first, through links, and keeps arguments, folder and exit code.
#[test]
fn a_link_to_the_first_program_finds_the_second() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("speak");
    std::os::unix::fs::symlink(FIRST, &link).unwrap();
    let run = |program: &Path| -> Output {
        let args = ["synth", "--checkpoint", "nowhere", "--text", "hello", "--device", "cpu"];
        Command::new(program).args(args).current_dir(&dir).output().unwrap()
    };
    let (linked, direct) = (run(&link), run(FIRST.as_ref()));
    assert_eq!((linked.status.code(), stderr(&linked)), (Some(2), stderr(&direct)));
    assert!(stderr(&linked).contains("nowhere"), "{}", stderr(&linked));
}

/// Truth: what OpenMP's own runtime says it was loaded with, the last time that it was.
#[test]
fn waiting_threads_sleep_whichever_program_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let loaded_with = |program: &str, own: &[(&str, &str)], flags: &[&str]| {
        let mut command = Command::new(program);
        for name in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"] {
            command.env_remove(name);
        }
        command.envs(own.iter().copied()).env("OMP_DISPLAY_ENV", "TRUE").current_dir(&dir);
        let output =
            command.args(["synth", "--checkpoint", "nowhere", "--text", "hello"]).args(flags).output().unwrap();
        let said = stderr(&output).replace(' ', "");
        assert!(said.contains("nowhere"), "{program} did not run the command: {said}");
        ["OMP_WAIT_POLICY='", "OMP_NUM_THREADS='"].map(|name| {
            let (_, value) = said.rsplit_once(name).unwrap_or_else(|| panic!("{name} in {said}"));
            value.split('\'').next().unwrap().to_owned()
        })
    };
    let cores = host::machine::compute_threads().to_string();
    for program in [FIRST, SECOND] {
        assert_eq!(loaded_with(program, &[], &[]), ["PASSIVE", &cores]);
        assert_eq!(loaded_with(program, &[], &["--threads", "3"]), ["PASSIVE", "3"]);
        let own = [("OMP_WAIT_POLICY", "ACTIVE"), ("OMP_NUM_THREADS", "5")];
        assert_eq!(loaded_with(program, &own, &[]), ["ACTIVE", "5"]);
        assert_eq!(loaded_with(program, &own, &["--threads", "2"]), ["ACTIVE", "2"]);
    }
}
