//! What a tool found out, for a person to read in a minute and for a program to read at all: figures by section, and
//! findings, each with what it costs and what to do about it.

use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    Good,
    Warning,
    Problem,
}

impl Grade {
    pub fn mark(self) -> &'static str {
        match self {
            Self::Good => "✅",
            Self::Warning => "⚠️ ", // the sign is two columns wide, and terminals count it as one
            Self::Problem => "❌",
        }
    }
}

/// One thing that a tool found out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub grade: Grade,
    /// A name for programs and tests, such as `slow-decode`.
    pub code: &'static str,
    /// What was measured, with its figures.
    pub fact: String,
    /// One thing to do; none where nothing is wrong.
    pub advice: Option<String>,
    /// Share of the time that is lost to the finding, 0 to 1: what findings are ordered by.
    pub cost: f64,
}

impl Finding {
    pub fn good(code: &'static str, fact: impl Into<String>) -> Self {
        Finding { grade: Grade::Good, code, fact: fact.into(), advice: None, cost: 0.0 }
    }

    pub fn warning(code: &'static str, cost: f64, fact: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { grade: Grade::Warning, code, fact: fact.into(), advice: Some(advice.into()), cost }
    }

    pub fn problem(code: &'static str, cost: f64, fact: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { grade: Grade::Problem, ..Self::warning(code, cost, fact, advice) }
    }
}

/// Orders findings, the costliest first; of equal cost, problems before warnings.
pub fn by_cost(a: &Finding, b: &Finding) -> Ordering {
    b.cost.total_cmp(&a.cost).then(b.grade.cmp(&a.grade))
}

/// A count with its noun: "1 clip", "2 clips".
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Figures that belong together, and what they say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    pub title: String,
    /// Name of each figure, and the figure with its unit.
    pub rows: Vec<(String, String)>,
    pub findings: Vec<Finding>,
}

impl Section {
    pub fn new(title: impl Into<String>) -> Self {
        Section { title: title.into(), ..Section::default() }
    }

    pub fn row(&mut self, name: impl Into<String>, figure: impl Into<String>) -> &mut Self {
        self.rows.push((name.into(), figure.into()));
        self
    }
}

/// All that a tool found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingsReport {
    pub title: String,
    pub sections: Vec<Section>,
    /// The figures of all sections as numbers, for programs.
    pub figures: Value,
}

impl FindingsReport {
    pub fn new(title: impl Into<String>) -> Self {
        FindingsReport { title: title.into(), ..FindingsReport::default() }
    }

    /// Warnings and problems of all sections, by cost.
    pub fn findings(&self) -> Vec<&Finding> {
        let all = self.sections.iter().flat_map(|section| &section.findings);
        let mut found: Vec<&Finding> = all.filter(|finding| finding.grade > Grade::Good).collect();
        found.sort_by(|a, b| by_cost(a, b));
        found
    }

    /// Exit code of the tool. 0: nothing found, 1: warnings, 2: problems.
    pub fn exit_code(&self) -> u8 {
        self.findings().iter().map(|finding| finding.grade).max().unwrap_or(Grade::Good) as u8
    }

    pub fn to_json(&self) -> Value {
        let section = |section: &Section| {
            let rows: serde_json::Map<String, Value> =
                section.rows.iter().map(|(name, figure)| (name.clone(), json!(figure))).collect();
            json!({ "title": section.title, "rows": rows, "findings": section.findings })
        };
        json!({
            "title": self.title,
            "exit_code": self.exit_code(),
            "findings": self.findings(),
            "sections": self.sections.iter().map(section).collect::<Vec<_>>(),
            "figures": self.figures,
        })
    }
}

impl fmt::Display for FindingsReport {
    /// Sections with their figures and marks, then what to do, the most valuable first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for section in &self.sections {
            write!(f, "\n{section}")?;
        }
        let found = self.findings();
        if found.is_empty() {
            return write!(f, "\n{} nothing to improve was found", Grade::Good.mark());
        }
        write!(f, "\nWhat to do, most valuable first")?;
        for (number, finding) in found.iter().enumerate() {
            let cost = if finding.cost >= 0.005 { format!(" · {:.0} %", finding.cost * 100.0) } else { String::new() };
            write!(f, "\n{}. {} {}{cost}", number + 1, finding.grade.mark(), finding.code)?;
            if let Some(advice) = &finding.advice {
                write!(f, "\n   {advice}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, figure) in &self.rows {
            let pad = " ".repeat(width - name.chars().count());
            writeln!(f, "  {name}{pad}  {figure}")?;
        }
        for finding in &self.findings {
            writeln!(f, "  {} {}", finding.grade.mark(), finding.fact)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> FindingsReport {
        let mut load = Section::new("Data load");
        load.row("load", "12.0 ± 1.0 ms").row("wait for it", "3 %");
        load.findings.push(Finding::warning("slow-decode", 0.2, "decoding takes 12 ms", "use a cache"));
        load.findings.push(Finding::good("order", "batches come in order"));
        let mut train = Section::new("Training");
        train.findings.push(Finding::problem("jittery-steps", 0.4, "CV 0.5", "look for other programs"));
        train.findings.push(Finding::problem("few-workers", 0.2, "1 worker", "take 4"));
        FindingsReport { sections: vec![load, train], ..FindingsReport::new("profile of 30 steps") }
    }

    #[test]
    fn findings_come_by_cost_and_decide_the_exit_code() {
        let report = report();
        let codes: Vec<_> = report.findings().iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["jittery-steps", "few-workers", "slow-decode"]);
        assert_eq!(report.exit_code(), 2);
        let first = FindingsReport { sections: vec![report.sections[0].clone()], ..FindingsReport::default() };
        assert_eq!(first.exit_code(), 1);
        assert_eq!(FindingsReport::default().exit_code(), 0);
    }

    #[test]
    fn text_has_figures_then_advice_and_json_has_both() {
        let text = report().to_string();
        let expected = "profile of 30 steps\n\nData load\n  load         12.0 ± 1.0 ms\n  wait for it  3 %\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\n1. ❌ jittery-steps · 40 %\n   look for other programs\n2. "), "{text}");
        let clean = FindingsReport::new("x").to_string();
        assert!(clean.ends_with("✅ nothing to improve was found"), "{clean}");
        let json = report().to_json();
        assert_eq!(json["findings"][0]["code"], "jittery-steps");
        assert_eq!(json["sections"][0]["rows"]["wait for it"], "3 %");
        assert_eq!((&json["exit_code"], &json["findings"][2]["grade"]), (&json!(2), &json!("warning")));
    }
}
