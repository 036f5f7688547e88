//! What commands print, and what they end with.

pub use host::telemetry::console::{be_quiet, complain, say};

use host::cache::Error as CacheError;
use host::error::{Explained, Interrupted};
use host::tools::report::FindingsReport;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Exit codes: 0 done; 1 done, with findings; 2 an error or wrong usage; 130 interrupted.
pub const INTERRUPTED: u8 = 130;

/// Prints a line for programs and people, on stdout. A full disk is then an error, not a panic.
pub fn print_line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Prints a report, and says by the exit code how bad it is.
pub fn finish(report: &FindingsReport, json: bool) -> anyhow::Result<ExitCode> {
    match json {
        true => print_line(serde_json::to_string_pretty(&report.to_json())?)?,
        false => print_line(report)?,
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Says what went wrong and what to do about it; the exit code of a command that failed.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<io::Error>()
        && error.kind() == ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS; // the reader of our output has seen enough
    }
    complain(format!("error: {}", Explained::of(error.as_ref())));
    let interrupted = error.is::<Interrupted>() || matches!(error.downcast_ref(), Some(CacheError::Interrupted { .. }));
    ExitCode::from(if interrupted { INTERRUPTED } else { 2 })
}
