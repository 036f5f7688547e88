//! Figures of all sentences: their spread, the worst of them, as a table and as JSON.

use super::ClipFigures;
use super::words::ErrorCount;
use host::telemetry::{Spread, median};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// A sentence with its recording, its speech and what was measured of them.
#[derive(Clone, Debug, Serialize)]
pub struct EvaluatedClip {
    pub id: String,
    pub speaker: String,
    pub language: Option<String>,
    pub text: String,
    pub recorded: PathBuf,
    pub spoken: PathBuf,
    /// Recording whose voice it was to have; none is the checkpoint's own.
    pub reference: Option<PathBuf>,
    #[serde(flatten)]
    pub figures: ClipFigures,
    pub heard: Option<Transcripts>,
}

/// What a recogniser made of the recording and of the speech.
#[derive(Clone, Debug, Serialize)]
pub struct Transcripts {
    pub recorded: Transcript,
    pub spoken: Transcript,
}

/// What a recogniser heard, and how far it is from the text.
#[derive(Clone, Debug, Serialize)]
pub struct Transcript {
    pub text: String,
    pub words: ErrorCount,
    pub characters: ErrorCount,
}

/// Figures of all sentences of an evaluation.
#[derive(Debug, Serialize)]
pub struct Evaluation {
    pub figures: BTreeMap<&'static str, FigureSummary>,
    /// Error of the speech over that of the recordings; none without a recogniser, or where it heard those without fault.
    pub word_error_ratio: Option<f64>,
    pub character_error_ratio: Option<f64>,
    pub clips: Vec<EvaluatedClip>,
    /// Sentences that could not be spoken or compared.
    pub failures: Vec<String>,
}

/// One figure over all clips that have it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FigureSummary {
    pub clips: u64,
    /// Mean over all words or characters for their errors, else over the clips.
    pub mean: f64,
    pub median: f64,
    pub worst: f64,
    /// Standard deviation over the clips.
    pub spread: f64,
}

/// A figure as people and programs know it.
struct Measure {
    key: &'static str,
    name: &'static str,
    /// What `%` names is a share.
    unit: &'static str,
    decimals: usize,
    /// Names pictures of the worst clips; none where it makes no clip a bad one.
    label: Option<&'static str>,
    of: Of,
}

enum Of {
    Value(fn(&EvaluatedClip) -> Option<f64>),
    Errors(fn(&EvaluatedClip) -> Option<ErrorCount>),
}

#[rustfmt::skip]
const MEASURES: [Measure; 10] = [
    measure("mel_cepstral_distortion_db", "mel-cepstral distortion", "dB", 2, Some("distortion"), Of::Value(|clip| Some(clip.figures.mel_cepstral_distortion_db))),
    measure("log_f0_rmse_cents", "log-F0 error", "cents", 0, Some("pitch"), Of::Value(|clip| clip.figures.log_f0_rmse_cents)),
    measure("log_f0_rmse", "", "natural log", 3, None, Of::Value(|clip| clip.figures.log_f0_rmse)),
    measure("voicing_error", "voicing error", "%", 1, Some("voicing"), Of::Value(|clip| Some(clip.figures.voicing_error))),
    measure(DURATION_RATIO, "duration ratio", "spoken / recorded", 2, Some("duration"), Of::Value(|clip| Some(clip.figures.duration_ratio))),
    measure("real_time_factor", "real-time factor", "", 3, None, Of::Value(|clip| Some(clip.figures.real_time_factor))),
    measure(WORD_ERROR[0], "word error, spoken", "%", 1, Some("words"), Of::Errors(|clip| Some(clip.heard.as_ref()?.spoken.words))),
    measure(WORD_ERROR[1], "  recorded", "%", 1, None, Of::Errors(|clip| Some(clip.heard.as_ref()?.recorded.words))),
    measure(CHARACTER_ERROR[0], "character error, spoken", "%", 1, None, Of::Errors(|clip| Some(clip.heard.as_ref()?.spoken.characters))),
    measure(CHARACTER_ERROR[1], "  recorded", "%", 1, None, Of::Errors(|clip| Some(clip.heard.as_ref()?.recorded.characters))),
];

const DURATION_RATIO: &str = "duration_ratio";
/// Keys of the error of speech, and of recordings.
const WORD_ERROR: [&str; 2] = ["word_error", "recorded_word_error"];
const CHARACTER_ERROR: [&str; 2] = ["character_error", "recorded_character_error"];

const fn measure(
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    decimals: usize,
    label: Option<&'static str>,
    of: Of,
) -> Measure {
    Measure { key, name, unit, decimals, label, of }
}

impl Measure {
    fn value(&self, clip: &EvaluatedClip) -> Option<f64> {
        match self.of {
            Of::Value(of) => of(clip),
            Of::Errors(of) => of(clip).map(|errors| errors.share()),
        }
    }

    fn badness(&self, value: f64) -> f64 {
        if self.key == DURATION_RATIO { value.ln().abs() } else { value }
    }

    fn summary(&self, clips: &[EvaluatedClip]) -> Option<FigureSummary> {
        let mut values: Vec<f64> = clips.iter().filter_map(|clip| self.value(clip)).collect();
        values.sort_by(f64::total_cmp);
        let spread: Spread = values.iter().copied().collect();
        let mean = match self.of {
            Of::Value(_) => spread.mean,
            Of::Errors(of) => clips.iter().filter_map(of).sum::<ErrorCount>().share(),
        };
        let worst = values.iter().copied().max_by(|a, b| self.badness(*a).total_cmp(&self.badness(*b)))?;
        let median = median(&values);
        Some(FigureSummary { clips: spread.count, mean, median, worst, spread: spread.std() })
    }

    fn row(&self, summary: &FigureSummary) -> String {
        let Measure { name, unit, decimals, .. } = self;
        let scale = if *unit == "%" { 100.0 } else { 1.0 };
        let FigureSummary { mean, median, worst, spread, .. } = summary;
        let figures = [mean, median, worst, spread].map(|figure| format!("{:>9.decimals$}", figure * scale));
        format!("{name:24}{}  {unit}", figures.concat()).trim_end().to_owned()
    }
}

impl Evaluation {
    pub fn of(clips: Vec<EvaluatedClip>, failures: Vec<String>) -> Self {
        let figures: BTreeMap<&str, FigureSummary> =
            MEASURES.iter().filter_map(|measure| Some((measure.key, measure.summary(&clips)?))).collect();
        let ratio = |[spoken, recorded]: [&str; 2]| {
            let recorded = figures.get(recorded)?.mean;
            (recorded > 0.0).then(|| figures[spoken].mean / recorded)
        };
        let (word_error_ratio, character_error_ratio) = (ratio(WORD_ERROR), ratio(CHARACTER_ERROR));
        Evaluation { figures, word_error_ratio, character_error_ratio, clips, failures }
    }

    pub fn table(&self) -> String {
        let mut text = format!("{:24}{:>9}{:>9}{:>9}{:>9}\n", "", "mean", "median", "worst", "spread");
        for measure in &MEASURES {
            if let Some(summary) = self.figures.get(measure.key) {
                text += &(measure.row(summary) + "\n");
            }
        }
        if let (Some(words), Some(characters)) = (self.word_error_ratio, self.character_error_ratio) {
            let _ = writeln!(text, "errors, spoken / recorded: {words:.1} in words, {characters:.1} in characters");
        }
        text
    }

    /// The worst clip by each figure in turn, then the second worst, until there are `count`; each with what it is bad at.
    pub fn worst(&self, count: usize) -> Vec<(&'static str, &EvaluatedClip)> {
        let ranked = |measure: &Measure| {
            let value = |clip: &&EvaluatedClip| measure.value(clip).map(|value| measure.badness(value));
            let mut clips: Vec<&EvaluatedClip> =
                self.clips.iter().filter(|clip| value(clip).is_some_and(|bad| bad > 0.0)).collect();
            clips.sort_by(|a, b| value(b).partial_cmp(&value(a)).unwrap_or(Ordering::Equal));
            clips
        };
        let lists: Vec<_> = MEASURES.iter().filter_map(|measure| Some((measure.label?, ranked(measure)))).collect();
        let mut worst: Vec<(&str, &EvaluatedClip)> = Vec::new();
        for (label, clip) in
            (0..self.clips.len()).flat_map(|n| lists.iter().filter_map(move |l| Some((l.0, *l.1.get(n)?))))
        {
            if worst.len() < count && worst.iter().all(|(_, other)| other.spoken != clip.spoken) {
                worst.push((label, clip));
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(id: &str, distortion_db: f64, duration_ratio: f64, wrong: usize) -> EvaluatedClip {
        let transcript = |edits| {
            let errors = ErrorCount { edits, of: 10 };
            Transcript { text: String::new(), words: errors, characters: errors }
        };
        let figures = ClipFigures {
            recorded_seconds: 1.0,
            spoken_seconds: 1.0,
            mel_cepstral_distortion_db: distortion_db,
            log_f0_rmse: None,
            log_f0_rmse_cents: None,
            voicing_error: 0.0,
            duration_ratio,
            real_time_factor: 0.1,
        };
        EvaluatedClip {
            id: id.into(),
            speaker: "a".into(),
            language: None,
            text: "text".into(),
            recorded: id.into(),
            spoken: id.into(),
            reference: None,
            figures,
            heard: Some(Transcripts { recorded: transcript(1), spoken: transcript(wrong) }),
        }
    }

    fn report() -> Evaluation {
        Evaluation::of(vec![clip("a", 4.0, 0.5, 2), clip("b", 9.0, 1.6, 0), clip("c", 5.0, 1.0, 7)], vec![])
    }

    #[test]
    fn figures_are_summed_up() {
        let Evaluation { figures, word_error_ratio, .. } = report();
        let distortion = figures["mel_cepstral_distortion_db"];
        assert_eq!((distortion.mean, distortion.median, distortion.worst, distortion.clips), (6.0, 5.0, 9.0, 3));
        assert!((distortion.spread - (14f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(figures[DURATION_RATIO].worst, 0.5, "half is further from 1 than 1.6");
        assert_eq!((figures["word_error"].mean, word_error_ratio), (0.3, Some(0.3 / 0.1)));
        assert!(!figures.contains_key("log_f0_rmse"), "no clip has a pitch");
    }

    #[test]
    fn the_worst_are_bad_at_something_each() {
        let report = report();
        let named =
            |count| report.worst(count).iter().map(|(label, clip)| format!("{label} {}", clip.id)).collect::<Vec<_>>();
        assert_eq!(named(9), ["distortion b", "duration a", "words c"]);
        assert_eq!(named(1), ["distortion b"]);
    }

    #[test]
    fn the_table_has_a_row_for_each_figure_there_is() {
        let table = report().table();
        assert!(table.contains("mel-cepstral distortion      6.00     5.00     9.00     2.16  dB\n"), "{table}");
        assert!(table.contains("errors, spoken / recorded: 3.0 in words") && !table.contains("F0"), "{table}");
    }
}
