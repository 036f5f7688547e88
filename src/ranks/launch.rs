//! The program as its own launcher: it starts one process a rank on this machine, keeps their store, and ends with them.

use anyhow::{Context, Result};
use cli::{INTERRUPTED, complain};
use host::error::hinted;
use host::ranks::Membership;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use torchx::collectives::Store;

const POLL: Duration = Duration::from_millis(50);
/// Share of the time-out that ranks get to end by themselves after one has failed.
const GRACE: f64 = 0.2;

struct Rank {
    number: usize,
    process: Child,
    ended: Option<ExitStatus>,
}

/// Runs this command once for each of `size` ranks, and waits for all. Ctrl-C goes to each of them once: they stop
/// together, and rank 0 saves.
pub fn launch(size: usize, timeout: Duration, stop: &Arc<AtomicBool>) -> Result<ExitCode> {
    cli::be_quiet(); // rank 0 speaks
    let store = Store::serve(0, timeout).context("no port can be opened for the ranks")?;
    let mut ranks = Vec::new();
    for number in 0..size {
        match start(number, size, store.port()) {
            Ok(process) => ranks.push(Rank { number, process, ended: None }),
            Err(error) => {
                kill(&mut ranks);
                return Err(error);
            }
        }
    }
    let outcome = watch(&mut ranks, &store, timeout.mul_f64(GRACE), stop);
    kill(&mut ranks);
    outcome
}

fn start(number: usize, size: usize, port: u16) -> Result<Child> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).envs(Membership::variables(number, size, port));
    // A group of its own: the terminal's Ctrl-C would reach it beside ours, and the second one means "at once".
    command.stdin(Stdio::null()).process_group(0);
    if number > 0 {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
    }
    let mut process = command.spawn().with_context(|| format!("rank {number} cannot be started"))?;
    if let Some(lines) = process.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                complain(format!("rank {number}: {line}"));
            }
        });
    }
    Ok(process)
}

fn watch(ranks: &mut [Rank], store: &Store, grace: Duration, stop: &AtomicBool) -> Result<ExitCode> {
    let (mut told, mut failed): (bool, Option<(usize, ExitStatus, Instant)>) = (false, None);
    loop {
        if stop.load(Ordering::Relaxed) && !told {
            told = true;
            signal(ranks, Signal::INT);
        }
        for rank in ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            let Some(status) = rank.process.try_wait()? else { continue };
            rank.ended = Some(status);
            let code = status.code().unwrap_or(-1);
            let is_well = matches!(code, 0 | 1) || code == i32::from(INTERRUPTED);
            if !is_well && failed.is_none() {
                failed = Some((rank.number, status, Instant::now()));
                // One that was killed had no time to say so.
                if let Some(signal) = status.signal() {
                    let reason = format!("rank {} was ended by signal {signal}", rank.number);
                    store.set("myxtts/0/failed", reason.as_bytes())?;
                }
            }
        }
        if let Some((number, status, at)) = failed
            && (at.elapsed() > grace || ranks.iter().all(|rank| rank.ended.is_some()))
        {
            let how = match (status.code(), status.signal()) {
                (Some(code), _) => return Ok(ExitCode::from(code as u8)), // it has said why
                (_, Some(signal)) => format!("by signal {signal}"),
                _ => "somehow".into(),
            };
            return Err(hinted(
                format!("rank {number} was ended {how}, and all others with it"),
                "the last checkpoint is intact; go on from it with --resume",
            ));
        }
        if ranks.iter().all(|rank| rank.ended.is_some()) {
            // Rank 0 speaks for all.
            let code = ranks[0].ended.and_then(|status| status.code()).unwrap_or(2);
            return Ok(ExitCode::from(code as u8));
        }
        std::thread::sleep(POLL);
    }
}

fn signal(ranks: &[Rank], signal: Signal) {
    for rank in ranks.iter().filter(|rank| rank.ended.is_none()) {
        if let Some(process) = Pid::from_raw(rank.process.id() as i32) {
            let _ = kill_process(process, signal);
        }
    }
}

/// Nobody is left behind.
fn kill(ranks: &mut [Rank]) {
    signal(ranks, Signal::KILL);
    for rank in ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
        let _ = rank.process.wait();
    }
}
