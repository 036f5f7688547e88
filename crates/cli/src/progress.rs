//! Progress bars and Ctrl-C, alike in every command. Bars go to stderr; where that is no terminal, nothing is drawn.

use crate::{INTERRUPTED, say};
use anyhow::{Context, Result};
use host::cache::Progress;
use host::telemetry::console;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A bar that counts to `total`, with rate and time left.
pub fn bar(total: u64, name: &'static str) -> ProgressBar {
    let bar = if console::is_quiet() { ProgressBar::hidden() } else { ProgressBar::new(total) }.with_prefix(name);
    let template = "{prefix} {wide_bar} {pos}/{len} · {per_sec} · {eta} left · {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("a template that every command uses"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A bar beside a line that says everything else: how a training goes.
pub fn status(name: &'static str) -> ProgressBar {
    let bar = bar(0, name);
    bar.set_style(
        ProgressStyle::with_template("{prefix} {bar:12} {wide_msg}").expect("a template that is tested by use"),
    );
    bar
}

/// Shows the cache being built on `bar`.
pub fn of_cache(bar: &ProgressBar) -> impl Fn(Progress) + Sync + '_ {
    |progress| match progress {
        Progress::Waiting => bar.set_message("another process builds this cache; waiting for it"),
        Progress::Verifying { done, total } => {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message("verifying shards");
        }
        Progress::Building { done, total, failed } => {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(if failed > 0 { format!("{failed} failed") } else { String::new() });
        }
    }
}

/// A flag that Ctrl-C (or SIGTERM) sets, one for all who ask. The second one ends the program at once by `exit_now`,
/// which loses nothing that was saved.
pub fn stop_flag(exit_now: fn(u8) -> !) -> Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(flag.clone());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            exit_now(INTERRUPTED);
        }
        say("\nstopping where nothing is lost; once more to stop at once");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(FLAG.get_or_init(|| stop).clone())
}

/// Ends a program that has no library with threads of its own.
pub(crate) fn exit(code: u8) -> ! {
    std::process::exit(code.into())
}
