//! What was wrong, what was changed, what it brought, and what is left: one report out of three.

use super::configure::Tuned;
use host::tools::report::{FindingsReport, Section};
use serde_json::json;

/// `before` and `after`: diagnoses of a run with the settings as they were, and as they are now. Only what is left
/// counts for the exit code.
pub fn report(before: &FindingsReport, tuned: &Tuned, after: &FindingsReport, command: &str) -> FindingsReport {
    let mut found = Section::new("Found");
    for finding in before.findings() {
        let left = after.findings().iter().any(|other| other.code == finding.code);
        let mark = if left { "still there" } else { "gone" };
        found.row(finding.code, format!("{} ({mark})", finding.fact));
    }
    if found.rows.is_empty() {
        found.row("nothing", "the run was well as it was");
    }
    let mut left = Section::new("Left");
    left.findings = after.findings().into_iter().cloned().collect();
    if left.findings.is_empty() {
        left.row("nothing", "a run with these settings has no finding");
    }
    let mut next = Section::new("Next");
    next.row("train", command);
    let tuned = tuned.report();
    let tuned_json = tuned.to_json();
    let mut sections = vec![found];
    sections.extend(tuned.sections.into_iter().map(|section| Section { findings: Vec::new(), ..section }));
    sections.extend([left, next]);
    let figures = json!({
        "before": before.to_json(),
        "tuned": tuned_json,
        "after": after.to_json(),
        "command": command,
    });
    FindingsReport { sections, figures, ..FindingsReport::new("Diagnosed, tuned and verified") }
}
