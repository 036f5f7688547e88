//! A program of the user's that listens: recordings in, what it heard out.
//!
//! Two forms. With `{wav}` among its words it is run for each recording, and what it prints is what it heard. Without, it
//! is run once, is given the path of each recording on a line of standard input, and prints a line `path|text` for each, in
//! any order: a model that is slow to load is loaded once. No shell comes between, so nothing in a path can be a command.

pub mod words;

use crate::error::{WithHint, hinted};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Stands for the path of a recording in a command.
const RECORDING: &str = "{wav}";
/// How often Ctrl-C is looked for while a program runs.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a program has for a recording, unless another is asked for.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Lines of what a program complained about that are shown when it fails.
const COMPLAINTS: usize = 5;
/// What a program may print for a recording: one that never ends is no recogniser.
const MOST_BYTES: usize = 1 << 20;
/// Lines on their way from a program; one that prints faster waits.
const ON_THE_WAY: usize = 64;

/// A program that listens, as words of its command.
pub struct Recogniser {
    words: Vec<String>,
    patience: Duration,
    hides_gpus: bool,
}

impl Recogniser {
    /// Split as a shell would, quotes and all; but nothing is expanded.
    pub fn new(command: &str) -> Result<Self> {
        let words = shlex::split(command).with_context(|| format!("`{command}`: a quote is not closed"))?;
        if words.is_empty() {
            let hint = format!("a program and its arguments, as 'program {RECORDING}'");
            return Err(hinted("the recogniser's command is empty", hint));
        }
        Ok(Recogniser { words, patience: PATIENCE, hides_gpus: false })
    }

    /// It is ended when it takes longer for a recording.
    pub fn with_patience(self, patience: Duration) -> Self {
        Recogniser { patience, ..self }
    }

    /// It sees no GPU: that of a training is not to be shared. A command that begins with `env CUDA_VISIBLE_DEVICES=0` has
    /// the last word.
    pub fn without_gpus(self) -> Self {
        Recogniser { hides_gpus: true, ..self }
    }

    /// What was heard in each recording; none when stopped. `done` is told how many are through.
    pub fn hear(
        &self,
        recordings: &[PathBuf],
        done: &dyn Fn(usize),
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<String>>> {
        let mut texts: HashMap<usize, String> = HashMap::new();
        let is_through = self.listen(
            recordings,
            &mut |at, text| {
                texts.insert(at, text);
                done(texts.len());
            },
            stop,
        )?;
        Ok(is_through.then(|| (0..recordings.len()).map(|at| texts.remove(&at).unwrap_or_default()).collect()))
    }

    /// Hands over number and text of each recording as soon as it was heard. False when stopped; an error where something
    /// was heard in some of them only.
    pub fn listen(
        &self,
        recordings: &[PathBuf],
        heard: &mut dyn FnMut(usize, String),
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let paths: Vec<&str> = recordings.iter().map(|path| text_of(path)).collect::<Result<_>>()?;
        if self.words.iter().any(|word| word.contains(RECORDING)) {
            self.listen_to_each(&paths, heard, stop)
        } else {
            self.listen_to_all(&paths, heard, stop)
        }
    }

    fn listen_to_each(
        &self,
        paths: &[&str],
        heard: &mut dyn FnMut(usize, String),
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        for (at, path) in paths.iter().enumerate() {
            let words: Vec<String> = self.words.iter().map(|word| word.replace(RECORDING, path)).collect();
            let mut lines = Vec::new();
            let mut take = |line: String| {
                lines.push(line);
                false
            };
            if !self.run(&words, &[], &mut take, stop).with_context(|| (*path).to_owned())? {
                return Ok(false);
            }
            heard(at, lines.join(" ").trim().to_owned());
        }
        Ok(true)
    }

    fn listen_to_all(
        &self,
        paths: &[&str],
        heard: &mut dyn FnMut(usize, String),
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let known: HashMap<&str, usize> = paths.iter().enumerate().map(|(at, path)| (*path, at)).collect();
        let mut is_heard = vec![false; paths.len()];
        let mut take = |line: String| {
            // A path may have a bar in it; lines that begin with no path are the program's own talk.
            let found = line.match_indices('|').find_map(|(bar, _)| Some((*known.get(&line[..bar])?, bar)));
            if let Some((at, bar)) = found {
                is_heard[at] = true;
                heard(at, line[bar + 1..].trim().to_owned());
            }
            found.is_some()
        };
        if !self.run(&self.words, paths, &mut take, stop)? {
            return Ok(false);
        }
        let mut silent = paths.iter().zip(&is_heard).filter(|(_, is_heard)| !**is_heard).map(|(path, _)| path);
        if let Some(first) = silent.next() {
            let (program, count, all) = (&self.words[0], silent.count() + 1, paths.len());
            let fact =
                format!("`{program}` printed no line for {count} of {all} recordings, the first of them {first}");
            let hint = format!(
                "for each path on standard input print `path|what it made of it`; or name the recording with {RECORDING}, and the \
                 program is run for each"
            );
            return Err(hinted(fact, hint));
        }
        Ok(true)
    }

    /// Runs a program to its end with `input` on its standard input, and hands over each line as it prints it; `line` says
    /// whether a recording is through with it. False when stopped: it is then ended, too. A failure shows the end of what it
    /// complained about.
    fn run(
        &self,
        words: &[String],
        input: &[&str],
        line: &mut dyn FnMut(String) -> bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let program = &words[0];
        let mut command = Command::new(program);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.hides_gpus {
            command.env("CUDA_VISIBLE_DEVICES", "");
        }
        let hint = "a command is a program and its arguments; with pipes or `&&` in it, write sh -c '…'";
        // A group of its own: what it has started is ended with it.
        let child = command.process_group(0).spawn();
        let child = child.hint(hint).with_context(|| format!("`{program}` cannot be started"))?;
        let running = Running::new(child, input.iter().map(|path| format!("{path}\n")).collect());
        let (mut since, mut printed_bytes) = (Instant::now(), 0);
        loop {
            if stop() {
                return Ok(false);
            }
            if since.elapsed() > self.patience {
                let fact = format!("`{program}` took longer than {} s for a recording", self.patience.as_secs());
                return Err(hinted(fact, "--asr-timeout gives it more time"));
            }
            match running.lines.recv_timeout(LOOK) {
                Ok(printed) => {
                    printed_bytes += printed.len() + 1;
                    if line(printed) {
                        (since, printed_bytes) = (Instant::now(), 0);
                    }
                    if printed_bytes > MOST_BYTES {
                        bail!("`{program}` printed more than {MOST_BYTES} bytes for a recording");
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if running.is_over()? => break,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK / 10),
            }
        }
        match running.finish()? {
            (status, _) if status.success() => Ok(true),
            (_, complaints) if complaints.is_empty() => bail!("`{program}` failed and said nothing"),
            (status, complaints) => bail!("`{program}` failed ({status}): {complaints}"),
        }
    }
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8, so no program can be told of it", path.display()))
}

/// A program and the threads at its three ends. It is ended when this is dropped, with all that it has started.
struct Running {
    child: Child,
    lines: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
}

impl Running {
    fn new(mut child: Child, input: String) -> Self {
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // A program that does not read its input to the end is not wrong for that.
        thread::spawn(move || stdin.as_mut().map(|stdin| stdin.write_all(input.as_bytes())));
        let (sender, lines) = sync_channel(ON_THE_WAY);
        thread::spawn(move || each_line(stdout, |line| sender.send(line).is_ok()));
        let complaints = thread::spawn(move || {
            let mut last = VecDeque::new();
            each_line(stderr, |line| {
                last.push_back(line);
                last.drain(..last.len().saturating_sub(COMPLAINTS));
                true
            });
            Vec::from(last).join("\n  ")
        });
        Running { child, lines, complaints: Some(complaints) }
    }

    /// Whether the program has ended. It is not reaped, so that its number stays that of its group.
    fn is_over(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.group()), options)?.is_some())
    }

    /// How it ended and, where that was a failure, what it complained about.
    fn finish(mut self) -> Result<(ExitStatus, String)> {
        // Whom it has started may hold its standard error open.
        self.end();
        let status = self.child.wait()?;
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok());
        Ok((status, complaints.unwrap_or_default()))
    }

    /// Ends all of its group; it fails only where nobody is left.
    fn end(&self) {
        let _ = kill_process_group(self.group(), Signal::KILL);
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Reaped, its number may be another's already.
        if self.complaints.is_some() {
            self.end();
            let _ = self.child.wait();
        }
    }
}

/// Hands over lines as long as they are wanted; longer ones in parts. What is no UTF-8 is replaced, not refused.
fn each_line(source: Option<impl Read>, mut wanted: impl FnMut(String) -> bool) {
    let Some(source) = source else { return };
    let (mut source, mut bytes) = (BufReader::new(source), Vec::new());
    while (&mut source).take(MOST_BYTES as u64).read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        if !wanted(String::from_utf8_lossy(&bytes).trim_end().to_owned()) {
            return;
        }
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explained;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn hear(command: &str, recordings: &[&str]) -> Result<Option<Vec<String>>> {
        let recordings: Vec<PathBuf> = recordings.iter().map(PathBuf::from).collect();
        Recogniser::new(command)?.hear(&recordings, &|_| {}, &|| false)
    }

    fn error(command: &str) -> String {
        Explained::of(hear(command, &["a.wav", "b.wav"]).unwrap_err().as_ref()).to_string()
    }

    #[test]
    fn one_run_for_each_recording() {
        let heard = hear("printf 'I heard\\n%s\\n' {wav}", &["a b.wav", "$(touch hacked); `id`"]).unwrap().unwrap();
        assert_eq!(heard, ["I heard a b.wav", "I heard $(touch hacked); `id`"]);
    }

    #[test]
    fn one_run_for_all_of_them_in_any_order() {
        let listen = "sh -c 'echo loading; sort -r | while read -r path; do echo \"$path| heard it\"; done'";
        assert_eq!(hear(listen, &["a.wav", "b|c.wav"]).unwrap().unwrap(), ["heard it"; 2]);
    }

    #[test]
    fn a_program_that_does_not_read_is_not_waited_for() {
        let many: Vec<String> = (0..20_000).map(|n| format!("clip {n}.wav")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(format!("{:#}", hear("true", &many).unwrap_err()).contains("printed no line for 20000 of 20000"));
    }

    #[test]
    fn failures_say_what_failed_and_why() {
        assert!(error("no-such-program {wav}").contains("`no-such-program` cannot be started"));
        let failed = error("sh -c 'echo out of memory >&2; exit 3' {wav}");
        assert!(failed.contains("a.wav: `sh` failed (exit status: 3): out of memory"), "{failed}");
        assert!(error("sh -c 'exit 3'").contains("said nothing"));
        let one = error("sh -c 'echo \"a.wav|text\"'");
        assert!(one.contains("no line for 1 of 2 recordings, the first of them b.wav"), "{one}");
        assert!(error("a 'b").contains("a quote is not closed") && error(" ").contains("is empty"));
    }

    #[test]
    fn one_that_never_comes_to_an_end_is_ended_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let recogniser = |command: &str| Recogniser::new(command).unwrap().with_patience(Duration::from_millis(400));
        let hangs = format!("sh -c '(sleep 2; touch {}) & wait'", mark.display());
        for command in [hangs.as_str(), "sh -c 'sleep 60' {wav}", "sh -c 'exec >&-; sleep 60'"] {
            let (start, paths) = (Instant::now(), ["a.wav".into()]);
            let error = recogniser(command).hear(&paths, &|_| {}, &|| false).unwrap_err();
            let error = Explained::of(error.as_ref()).to_string();
            assert!(error.contains("took longer than") && error.contains("--asr-timeout"), "{error}");
            assert!(start.elapsed() < Duration::from_secs(30), "{command}");
        }
        thread::sleep(Duration::from_millis(2500));
        assert!(!mark.exists(), "what it had started is ended as well");
        assert!(error("yes").contains("printed more than"));
        assert!(error("sh -c 'cat /dev/zero' {wav}").contains("printed more than"));
    }

    #[test]
    fn each_is_handed_over_as_soon_as_it_was_heard_and_has_its_own_time() {
        let slow = "sh -c 'while read -r path; do sleep 0.3; echo \"$path|$CUDA_VISIBLE_DEVICES.\"; done; exit 3'";
        let slow = Recogniser::new(slow).unwrap().with_patience(Duration::from_millis(1500)).without_gpus();
        let recordings: Vec<PathBuf> = (0..6).map(|clip| format!("{clip}.wav").into()).collect();
        let mut heard = Vec::new();
        let failed = slow.listen(&recordings, &mut |at, text| heard.push((at, text)), &|| false);
        assert!(failed.is_err(), "it fails at the end");
        assert_eq!(heard, (0..6).map(|at| (at, ".".to_owned())).collect::<Vec<_>>(), "after 1.8 s, and without a GPU");
    }

    #[test]
    fn ctrl_c_ends_the_program() {
        let (stop, start) = (AtomicBool::new(false), Instant::now());
        let recogniser = Recogniser::new("sleep 60").unwrap();
        thread::scope(|scope| {
            let heard = scope.spawn(|| recogniser.hear(&["a.wav".into()], &|_| {}, &|| stop.load(Ordering::Relaxed)));
            thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
            assert!(heard.join().unwrap().unwrap().is_none());
        });
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
