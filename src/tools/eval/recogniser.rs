//! A program of the user's that listens: recordings in, what it heard out.
//!
//! Two forms. With `{wav}` among its words it is run for each recording, and what it prints is what it heard. Without, it
//! is run once, is given the path of each recording on a line of standard input, and prints a line `path|text` for each, in
//! any order: a model that is slow to load is loaded once. No shell comes between, so nothing in a path can be a command.

use anyhow::{Context, Result, bail};
use host::error::{WithHint, hinted};
use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Stands for the path of a recording in a command.
const RECORDING: &str = "{wav}";
/// How often Ctrl-C is looked for while a program runs.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of what a program complained about that are shown when it fails.
const COMPLAINTS: usize = 5;

/// A program that listens, as words of its command.
pub struct Recogniser {
    words: Vec<String>,
}

impl Recogniser {
    /// Split as a shell would, quotes and all; but nothing is expanded.
    pub fn new(command: &str) -> Result<Self> {
        let words = shlex::split(command).with_context(|| format!("`{command}`: a quote is not closed"))?;
        if words.is_empty() {
            let hint = format!("a program and its arguments, as 'program {RECORDING}'");
            return Err(hinted("the recogniser's command is empty", hint));
        }
        Ok(Recogniser { words })
    }

    /// What was heard in each recording; none when stopped. `done` is told how many are through.
    pub fn hear(&self, recordings: &[PathBuf], done: &dyn Fn(usize), stop: &AtomicBool) -> Result<Option<Vec<String>>> {
        if self.words.iter().any(|word| word.contains(RECORDING)) {
            self.hear_each(recordings, done, stop)
        } else {
            self.hear_all(recordings, done, stop)
        }
    }

    fn hear_each(
        &self,
        recordings: &[PathBuf],
        done: &dyn Fn(usize),
        stop: &AtomicBool,
    ) -> Result<Option<Vec<String>>> {
        let mut heard = Vec::new();
        for path in recordings {
            let path = text_of(path)?;
            let words: Vec<String> = self.words.iter().map(|word| word.replace(RECORDING, path)).collect();
            let mut lines = Vec::new();
            if !run(&words, &[], &mut |line| lines.push(line), stop).with_context(|| path.to_owned())? {
                return Ok(None);
            }
            heard.push(lines.join(" ").trim().to_owned());
            done(heard.len());
        }
        Ok(Some(heard))
    }

    fn hear_all(&self, recordings: &[PathBuf], done: &dyn Fn(usize), stop: &AtomicBool) -> Result<Option<Vec<String>>> {
        let paths: Vec<&str> = recordings.iter().map(|path| text_of(path)).collect::<Result<_>>()?;
        let mut heard: HashMap<&str, String> = HashMap::new();
        let known: HashMap<&str, &str> = paths.iter().map(|path| (*path, *path)).collect();
        let mut take = |line: String| {
            // A path may have a bar in it; lines that begin with no path are the program's own talk.
            let found = line.match_indices('|').find_map(|(at, _)| Some((*known.get(&line[..at])?, at)));
            if let Some((path, at)) = found {
                heard.insert(path, line[at + 1..].trim().to_owned());
                done(heard.len());
            }
        };
        if !run(&self.words, &paths, &mut take, stop)? {
            return Ok(None);
        }
        let silent: Vec<&&str> = paths.iter().filter(|path| !heard.contains_key(**path)).collect();
        if let Some(first) = silent.first() {
            let (program, count, all) = (&self.words[0], silent.len(), paths.len());
            let fact =
                format!("`{program}` printed no line for {count} of {all} recordings, the first of them {first}");
            let hint = format!(
                "for each path on standard input print `path|what it made of it`; or name the recording with {RECORDING}, and the \
                 program is run for each"
            );
            return Err(hinted(fact, hint));
        }
        Ok(Some(paths.iter().map(|path| heard[path].clone()).collect()))
    }
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8, so no program can be told of it", path.display()))
}

/// Runs a program to its end with `input` on its standard input, and hands over each line as it prints it. False when
/// stopped: it is then ended, too. A failure shows the end of what it complained about.
fn run(words: &[String], input: &[&str], line: &mut dyn FnMut(String), stop: &AtomicBool) -> Result<bool> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let hint = "a command is a program and its arguments; with pipes or `&&` in it, write sh -c '…'";
    let child = command.spawn().hint(hint).with_context(|| format!("`{}` cannot be started", words[0]))?;
    let mut running = Running::new(child, input.iter().map(|path| format!("{path}\n")).collect());
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match running.lines.recv_timeout(LOOK) {
            Ok(printed) => line(printed),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    match running.finish()? {
        (status, _) if status.success() => Ok(true),
        (_, complaints) if complaints.is_empty() => bail!("`{}` failed and said nothing", words[0]),
        (status, complaints) => bail!("`{}` failed ({status}): {complaints}", words[0]),
    }
}

/// A program and the threads at its three ends. It is ended when this is dropped.
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
        let (sender, lines) = channel();
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

    fn finish(&mut self) -> Result<(ExitStatus, String)> {
        let status = self.child.wait()?;
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok());
        Ok((status, complaints.unwrap_or_default()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands over lines as long as they are wanted. What is no UTF-8 is replaced, not refused.
fn each_line(source: Option<impl Read>, mut wanted: impl FnMut(String) -> bool) {
    let Some(source) = source else { return };
    let (mut source, mut bytes) = (BufReader::new(source), Vec::new());
    while source.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        if !wanted(String::from_utf8_lossy(&bytes).trim_end().to_owned()) {
            return;
        }
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::error::Explained;
    use std::time::Instant;

    fn hear(command: &str, recordings: &[&str]) -> Result<Option<Vec<String>>> {
        let recordings: Vec<PathBuf> = recordings.iter().map(PathBuf::from).collect();
        Recogniser::new(command)?.hear(&recordings, &|_| {}, &AtomicBool::new(false))
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
    fn ctrl_c_ends_the_program() {
        let (stop, start) = (AtomicBool::new(false), Instant::now());
        let recogniser = Recogniser::new("sleep 60").unwrap();
        thread::scope(|scope| {
            let heard = scope.spawn(|| recogniser.hear(&["a.wav".into()], &|_| {}, &stop));
            thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
            assert!(heard.join().unwrap().unwrap().is_none());
        });
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
