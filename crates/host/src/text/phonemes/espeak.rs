//! One long-lived `espeak-ng`. Without a text or file it reads standard input line by line and flushes its answer after
//! every line (it has since 2018: "Always flush stdout when reading stdin line by line"), so no terminal is needed.

use super::super::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// A line no text has; its answer marks the end of what was asked before it.
const SENTINEL: &str = "zyxwv qjkxz";
/// Bytes of the longest line: the program reads lines into 1000, and would cut a longer one inside a letter.
const LINE_BYTES: usize = 900;
/// How long an answer may take; a sentence takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the program is started with. `-q` still makes the sound, and that is where the time goes; fast and high speech
/// is less of it, with the same phonemes: 385 sentences took 0.7 s of processor time instead of 1.7 s.
const ARGUMENTS: [&str; 9] = ["-q", "--ipa", "-b", "1", "-s", "350", "-p", "99", "-z"];

/// A running `espeak-ng` with one voice.
#[derive(Debug)]
pub(super) struct Espeak {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    end: String,
}

impl Espeak {
    /// A process that speaks with this voice; none where there is no such voice.
    pub fn start(program: &str, voice: &str) -> Result<Option<Self>, Error> {
        let mut command = Command::new(program);
        command.args(ARGUMENTS).args(["-v", voice]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Absent,
            _ => Error::Failed(format!("{program}: {error}")),
        })?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed("no pipes to the process".into()));
        };
        let (sender, lines) = channel();
        // Ends with the process, whose exit closes the pipe. It keeps reading, so neither side can fill a pipe and wait.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            for line in lines {
                if sender.send(String::from_utf8_lossy(&line).trim().to_owned()).is_err() {
                    break;
                }
            }
        });
        let mut espeak = Espeak { child, stdin, lines, end: String::new() };
        match espeak.greet() {
            Ok(end) => espeak.end = end,
            // Its pipes are closed: it has ended by itself, or is about to, and said why on the error stream.
            Err(_) if espeak.ended() => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(espeak))
    }

    /// What the program answers to the sentinel. An unknown voice makes it exit instead.
    fn greet(&mut self) -> Result<String, Error> {
        self.send(&[SENTINEL, SENTINEL])?;
        let (first, second) = (self.line()?, self.line()?);
        if first.is_empty() || first != second {
            return Err(Error::Failed(format!("unsteady answers: {first:?}, {second:?}")));
        }
        Ok(first)
    }

    fn ended(&mut self) -> bool {
        matches!(self.lines.try_recv(), Err(TryRecvError::Disconnected))
            && self.child.wait().is_ok_and(|status| !status.success())
    }

    /// An answer for each part. All at once, and one by one where a part came back as several clauses.
    pub fn read(&mut self, parts: &[&str]) -> Result<Vec<String>, Error> {
        let whole = parts.iter().all(|part| part.len() <= LINE_BYTES);
        if whole {
            let answers = self.ask(parts)?;
            if answers.len() == parts.len() {
                return Ok(answers);
            }
        }
        parts.iter().map(|part| self.ask(&pieces(part)).map(|answers| answers.join(" "))).collect()
    }

    fn ask(&mut self, lines: &[&str]) -> Result<Vec<String>, Error> {
        let asked: Vec<&str> = lines.iter().copied().filter(|line| *line != SENTINEL).chain([SENTINEL]).collect();
        self.send(&asked)?;
        let mut answers = Vec::with_capacity(lines.len());
        loop {
            match self.line()? {
                line if line == self.end => return Ok(answers),
                line => answers.push(line),
            }
        }
    }

    fn send(&mut self, lines: &[&str]) -> Result<(), Error> {
        let text = lines.join("\n") + "\n";
        let sent = self.stdin.write_all(text.as_bytes()).and_then(|()| self.stdin.flush());
        sent.map_err(|error| Error::Failed(format!("it takes no text: {error}")))
    }

    fn line(&self) -> Result<String, Error> {
        self.lines.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::Failed(format!("no answer within {} s", PATIENCE.as_secs())),
            RecvTimeoutError::Disconnected => Error::Failed("the process ended".into()),
        })
    }
}

impl Drop for Espeak {
    /// Ends the process. Closing its input would end it too, and does when this program is killed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A part cut between words where there are any, to fit lines.
fn pieces(part: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while rest.len() > LINE_BYTES {
        let limit = (0..=LINE_BYTES).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let cut = rest[..limit].rfind(' ').filter(|at| *at > 0).unwrap_or(limit);
        pieces.push(&rest[..cut]);
        rest = rest[cut..].trim_start();
    }
    pieces.push(rest);
    pieces
}

/// Version of the program: `1.51` of `eSpeak NG text-to-speech: 1.51  Data at: …`.
pub(super) fn version(program: &str) -> Result<String, Error> {
    let told = Command::new(program).arg("--version").stdin(Stdio::null()).output().map_err(|_| Error::Absent)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let number = told.split_once("text-to-speech: ").and_then(|(_, rest)| rest.split_whitespace().next());
    number.map(String::from).ok_or_else(|| Error::Failed(format!("`{program} --version` says {:?}", told.trim())))
}
