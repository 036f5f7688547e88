//! The second program, `myxtts-torch`: it loads LibTorch, which takes a third of a second and 120 MB, so only commands
//! that compute with tensors start it.

use crate::Command as Task;
use crate::flags::ThreadFlags;
use host::error::hinted;
use host::machine;
use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAM: &str = "myxtts-torch";
/// How long a waiting thread turns before it sleeps, where every thread has a core: longer than most waits. Waking a sleeper
/// costs as much as a small operation; without turning at all, a short sentence takes half as long again.
const SPIN: Duration = Duration::from_micros(350);

/// Puts the second program into the place of this process, with the same arguments. Comes back only where that fails.
pub fn hand_over(threads: ThreadFlags) -> anyhow::Error {
    let (own, mut args) = (env::current_exe().ok(), env::args_os());
    let name = args.next().unwrap_or_else(|| "myxtts".into());
    let program = beside([own.as_deref(), Some(name.as_ref())]).unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).arg0(&name).args(args).envs(openmp_here(threads)).exec();
    match error.kind() {
        ErrorKind::NotFound => hinted(
            format!("`{PROGRAM}` was not found, neither beside `myxtts` nor on the PATH"),
            format!("this command computes with tensors: install both files, `myxtts` and `{PROGRAM}`, in one folder"),
        ),
        _ => anyhow::Error::new(error).context(format!("{}: cannot be started", program.display())),
    }
}

/// Starts this process again where OpenMP was loaded with other settings than the command needs: the second program, called
/// by its own name. Comes back where nothing is to be changed.
pub fn set_openmp(task: &Task) -> anyhow::Result<()> {
    let settings = task.threads().map_or(Vec::new(), openmp_here);
    if settings.is_empty() {
        return Ok(());
    }
    let said: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut args = env::args_os();
    let name = args.next().unwrap_or_else(|| PROGRAM.into());
    let error = match env::current_exe() {
        Ok(own) => Command::new(own).arg0(name).args(args).envs(settings).exec(),
        Err(error) => error,
    };
    Err(hinted(
        format!("{PROGRAM} cannot start itself again with OpenMP set up: {error}"),
        format!("start it with {}", said.join(" ")),
    ))
}

fn openmp_here(threads: ThreadFlags) -> Vec<(&'static str, String)> {
    openmp(threads, |name| env::var_os(name), machine::is_contended)
}

/// Settings that OpenMP reads once, when LibTorch brings it in, before `main`; those that the caller has `given` stay.
///
/// Without them, threads that wait for each other spin for ten milliseconds, and beside other programs they wait often: a
/// sentence of 0.2 s then took 25 s. And LibTorch counts the machine's cores, where a container's quota may give fewer.
fn openmp(
    threads: ThreadFlags,
    given: impl Fn(&str) -> Option<OsString>,
    is_contended: impl Fn(usize) -> bool,
) -> Vec<(&'static str, String)> {
    let chosen = threads.threads.map(|threads| threads.to_string());
    let number = match (given("OMP_NUM_THREADS"), chosen) {
        (Some(given), Some(chosen)) => (given != *chosen).then_some(chosen),
        (Some(_), None) => None,
        (None, chosen) => Some(chosen.unwrap_or_else(|| machine::compute_threads().to_string())),
    };
    let mut settings: Vec<_> = number.into_iter().map(|number| ("OMP_NUM_THREADS", number)).collect();
    if given("OMP_WAIT_POLICY").or(given("GOMP_SPINCOUNT")).is_none() {
        settings.push(("OMP_WAIT_POLICY", "PASSIVE".into()));
        if !is_contended(threads.threads.map_or_else(machine::compute_threads, usize::from)) {
            settings.push(("GOMP_SPINCOUNT", turns(SPIN).to_string()));
        }
    }
    settings
}

/// Turns of a waiting thread in so much time: processors differ threefold.
fn turns(time: Duration) -> u32 {
    const SOME: u32 = 500;
    let measured = (0..3).map(|_| {
        let start = Instant::now();
        (0..SOME).for_each(|_| std::hint::spin_loop());
        start.elapsed()
    });
    let shortest = measured.min().expect("three of them").max(Duration::from_nanos(1));
    (time.as_secs_f64() / shortest.as_secs_f64() * f64::from(SOME)).clamp(1_000.0, 100_000.0) as u32
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

    fn settings(threads: Option<u16>, given: &[(&str, &str)], is_contended: bool) -> Vec<(&'static str, String)> {
        let value = |name: &str| given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.into());
        openmp(ThreadFlags { threads }, value, |_| is_contended)
    }

    #[test]
    fn waiting_threads_sleep_and_as_many_compute_as_there_are_cores() {
        let (cores, passive) = (machine::compute_threads().to_string(), ("OMP_WAIT_POLICY", "PASSIVE".to_owned()));
        assert_eq!(settings(None, &[], true), [("OMP_NUM_THREADS", cores), passive.clone()]);
        let alone = settings(Some(3), &[], false);
        assert_eq!(alone[..2], [("OMP_NUM_THREADS", "3".into()), passive]);
        assert_eq!((alone.len(), alone[2].0), (3, "GOMP_SPINCOUNT"));
        assert!((1_000..=100_000).contains(&alone[2].1.parse().unwrap()), "{}", alone[2].1);
    }

    #[test]
    fn what_the_caller_has_set_stays_but_a_flag_wins() {
        let own = [("GOMP_SPINCOUNT", "100"), ("OMP_NUM_THREADS", "7")];
        assert!(settings(None, &own, true).is_empty());
        assert_eq!(settings(Some(2), &own, true), [("OMP_NUM_THREADS", "2".into())]);
        let policy = [("OMP_WAIT_POLICY", "ACTIVE"), ("OMP_NUM_THREADS", "1")];
        assert!(settings(Some(1), &policy, false).is_empty());
    }

    /// A process that was started again is not started once more.
    #[test]
    fn settings_that_were_taken_change_nothing() {
        for (threads, is_contended) in [(None, false), (None, true), (Some(5), false)] {
            let first = settings(threads, &[], is_contended);
            let taken: Vec<(&str, &str)> = first.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert!(settings(threads, &taken, !is_contended).is_empty());
        }
    }

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
