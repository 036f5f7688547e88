//! Lines for people: on stderr, and in a log file where one was asked for.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// One for the process, as stderr is.
static LOG: Mutex<Option<File>> = Mutex::new(None);

/// From now on everything that is said goes to the end of this file too, each line with its time in UTC.
pub fn log_to(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    Ok(())
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// From here on `say` is silent, and nobody is thought to look: another process speaks for this one.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Says something on stderr, and in the log file. Where nobody can read it, nothing is lost.
pub fn say(text: impl Display) {
    if !is_quiet() {
        complain(text);
    }
}

/// Says something that must be heard, whoever speaks.
pub fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
    log(text);
}

/// Writes to the log file alone.
pub fn log(text: impl Display) {
    if let Some(file) = &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let _ = file.write_all(stamped(&text.to_string(), now.as_secs()).as_bytes());
    }
}

/// Whether somebody looks at stderr as it changes, so that a bar may be drawn there.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Every line of a text with a time in front.
fn stamped(text: &str, unix_seconds: u64) -> String {
    let time = utc(unix_seconds);
    text.lines().filter(|line| !line.is_empty()).map(|line| format!("{time} {line}\n")).collect()
}

/// "2024-02-29T12:34:56Z". Days to dates after Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400 + 719_468, unix_seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) =
        (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truth: `date -u -d @N +%FT%TZ`.
    #[test]
    fn times_are_those_of_the_calendar() {
        let truths = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        truths.iter().for_each(|(seconds, date)| assert_eq!(utc(*seconds), *date));
    }

    #[test]
    fn every_line_has_its_time_and_the_file_is_added_to() {
        assert_eq!(stamped("a\n\nb", 0), "1970-01-01T00:00:00Z a\n1970-01-01T00:00:00Z b\n");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/run.log");
        for text in ["first", "second"] {
            log_to(&path).unwrap();
            log(text);
        }
        let text = fs::read_to_string(path).unwrap();
        assert!(text.lines().count() == 2 && text.contains("Z first\n") && text.ends_with("Z second\n"), "{text}");
    }
}
