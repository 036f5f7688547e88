//! Figures of all sentences: their spread, the worst of them, as a table and as JSON.

use super::ClipFigures;
use super::likeness::{Likeness, Likenesses};
use host::recogniser::words::ErrorCount;
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
    /// Another recording of its speaker, that likeness is measured by.
    pub other: Option<PathBuf>,
    #[serde(flatten)]
    pub figures: ClipFigures,
    pub heard: Option<Transcripts>,
    pub likeness: Likenesses,
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
    /// Gap between own and other of the speech over that of the recordings; none with one speaker.
    pub likeness_by_voice: Option<f64>,
    pub likeness_by_recogniser: Option<f64>,
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

/// The mean of one figure in several evaluations.
pub struct SharedFigure {
    pub name: &'static str,
    pub unit: &'static str,
    pub means: Vec<String>,
}

/// A figure as people and programs know it.
struct Measure {
    key: &'static str,
    name: &'static str,
    /// What `%` names is a share.
    unit: &'static str,
    decimals: usize,
    bad: Bad,
    /// Names pictures of the worst clips; none where it makes no clip a bad one.
    label: Option<&'static str>,
    of: Of,
}

/// Which of two values is the worse.
#[derive(Clone, Copy)]
enum Bad {
    High,
    Low,
    FarFromOne,
}

enum Of {
    Value(fn(&EvaluatedClip) -> Option<f64>),
    Errors(fn(&EvaluatedClip) -> Option<ErrorCount>),
}

#[rustfmt::skip]
const MEASURES: [Measure; 22] = [
    measure("mel_cepstral_distortion_db", "mel-cepstral distortion", "dB", 2, Some("distortion"), Of::Value(|clip| Some(clip.figures.mel_cepstral_distortion_db))),
    measure("log_f0_rmse_cents", "log-F0 error", "cents", 0, Some("pitch"), Of::Value(|clip| clip.figures.log_f0_rmse_cents)),
    measure("log_f0_rmse", "", "natural log", 3, None, Of::Value(|clip| clip.figures.log_f0_rmse)),
    measure("voicing_error", "voicing error", "%", 1, Some("voicing"), Of::Value(|clip| Some(clip.figures.voicing_error))),
    Measure { bad: Bad::FarFromOne, ..measure("duration_ratio", "duration ratio", "spoken / recorded", 2, Some("duration"), Of::Value(|clip| Some(clip.figures.duration_ratio))) },
    measure("real_time_factor", "real-time factor", "", 3, None, Of::Value(|clip| Some(clip.figures.real_time_factor))),
    measure(WORD_ERROR[0], "word error, spoken", "%", 1, Some("words"), Of::Errors(|clip| Some(clip.heard.as_ref()?.spoken.words))),
    measure(WORD_ERROR[1], "  recorded", "%", 1, None, Of::Errors(|clip| Some(clip.heard.as_ref()?.recorded.words))),
    measure(CHARACTER_ERROR[0], "character error, spoken", "%", 1, None, Of::Errors(|clip| Some(clip.heard.as_ref()?.spoken.characters))),
    measure(CHARACTER_ERROR[1], "  recorded", "%", 1, None, Of::Errors(|clip| Some(clip.heard.as_ref()?.recorded.characters))),
    good(OWN[0], "own, by the voice", "cosine", 3, Of::Value(|clip| Some(clip.likeness.voice?.spoken.own))),
    good(RECORDED_OWN[0], "  recorded", "cosine", 3, Of::Value(|clip| Some(clip.likeness.voice?.recorded.own))),
    measure(OTHER[0], "others, by the voice", "cosine", 3, None, Of::Value(|clip| clip.likeness.voice?.spoken.other)),
    measure(RECORDED_OTHER[0], "  recorded", "cosine", 3, None, Of::Value(|clip| clip.likeness.voice?.recorded.other)),
    good("own_is_nearest_by_voice", "nearest, by the voice", "%", 1, Of::Value(|clip| nearest(clip.likeness.voice?.spoken))),
    good("recorded_own_is_nearest_by_voice", "  recorded", "%", 1, Of::Value(|clip| nearest(clip.likeness.voice?.recorded))),
    good(OWN[1], "own, by recogniser", "cosine", 3, Of::Value(|clip| Some(clip.likeness.recogniser?.spoken.own))),
    good(RECORDED_OWN[1], "  recorded", "cosine", 3, Of::Value(|clip| Some(clip.likeness.recogniser?.recorded.own))),
    measure(OTHER[1], "others, by recogniser", "cosine", 3, None, Of::Value(|clip| clip.likeness.recogniser?.spoken.other)),
    measure(RECORDED_OTHER[1], "  recorded", "cosine", 3, None, Of::Value(|clip| clip.likeness.recogniser?.recorded.other)),
    good("own_is_nearest_by_recogniser", "nearest, by recogniser", "%", 1, Of::Value(|clip| nearest(clip.likeness.recogniser?.spoken))),
    good("recorded_own_is_nearest_by_recogniser", "  recorded", "%", 1, Of::Value(|clip| nearest(clip.likeness.recogniser?.recorded))),
];

/// Keys by our own encoder, and by a recogniser.
const OWN: [&str; 2] = ["own_by_voice", "own_by_recogniser"];
const RECORDED_OWN: [&str; 2] = ["recorded_own_by_voice", "recorded_own_by_recogniser"];
const OTHER: [&str; 2] = ["other_by_voice", "other_by_recogniser"];
const RECORDED_OTHER: [&str; 2] = ["recorded_other_by_voice", "recorded_other_by_recogniser"];

fn nearest(likeness: Likeness) -> Option<f64> {
    likeness.nearest.map(|nearest| f64::from(u8::from(nearest)))
}

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
    Measure { key, name, unit, decimals, bad: Bad::High, label, of }
}

/// A figure of which more is better.
const fn good(key: &'static str, name: &'static str, unit: &'static str, decimals: usize, of: Of) -> Measure {
    Measure { bad: Bad::Low, ..measure(key, name, unit, decimals, None, of) }
}

impl Measure {
    fn value(&self, clip: &EvaluatedClip) -> Option<f64> {
        match self.of {
            Of::Value(of) => of(clip),
            Of::Errors(of) => of(clip).map(|errors| errors.share()),
        }
    }

    fn badness(&self, value: f64) -> f64 {
        match self.bad {
            Bad::High => value,
            Bad::Low => -value,
            Bad::FarFromOne => value.ln().abs(),
        }
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
        let FigureSummary { mean, median, worst, spread, .. } = summary;
        let figures = [mean, median, worst, spread].map(|figure| format!("{:>9}", self.shown(*figure)));
        let Measure { name, unit, .. } = self;
        format!("{name:24}{}  {unit}", figures.concat()).trim_end().to_owned()
    }

    fn shown(&self, figure: f64) -> String {
        let decimals = self.decimals;
        format!("{:.decimals$}", if self.unit == "%" { 100.0 * figure } else { figure })
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
        let gap = |own: &str, other: &str| Some(figures.get(own)?.mean - figures.get(other)?.mean);
        let share = |by: usize| {
            let recorded = gap(RECORDED_OWN[by], RECORDED_OTHER[by]).filter(|gap| *gap > 0.0)?;
            Some(gap(OWN[by], OTHER[by])? / recorded)
        };
        let (likeness_by_voice, likeness_by_recogniser) = (share(0), share(1));
        Evaluation {
            figures,
            word_error_ratio,
            character_error_ratio,
            likeness_by_voice,
            likeness_by_recogniser,
            clips,
            failures,
        }
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
        let by = [(self.likeness_by_voice, "the voice"), (self.likeness_by_recogniser, "the recogniser")];
        let by: Vec<String> = by.iter().filter_map(|(gap, who)| Some(format!("{:.2} by {who}", (*gap)?))).collect();
        if !by.is_empty() {
            let _ = writeln!(text, "gap of own and others, spoken / recorded: {}", by.join(", "));
        }
        text
    }

    /// Names, units and means of several evaluations side by side; an empty text where one has no such figure.
    pub fn side_by_side(evaluations: &[&Evaluation]) -> Vec<SharedFigure> {
        let figure = |measure: &Measure| {
            let mean = |one: &&Evaluation| one.figures.get(measure.key).map(|summary| measure.shown(summary.mean));
            let means: Vec<String> = evaluations.iter().map(|one| mean(one).unwrap_or_default()).collect();
            let Measure { name, unit, .. } = measure;
            means.iter().any(|mean| !mean.is_empty()).then_some(SharedFigure { name, unit, means })
        };
        MEASURES.iter().filter_map(figure).collect()
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
pub(super) mod tests {
    use super::super::likeness::LikenessPair;
    use super::*;

    pub fn clip(id: &str, distortion_db: f64, duration_ratio: f64, wrong: usize) -> EvaluatedClip {
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
            other: None,
            figures,
            heard: Some(Transcripts { recorded: transcript(1), spoken: transcript(wrong) }),
            likeness: Likenesses::default(),
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
        assert_eq!(figures["duration_ratio"].worst, 0.5, "half is further from 1 than 1.6");
        assert_eq!((figures["word_error"].mean, word_error_ratio), (0.3, Some(0.3 / 0.1)));
        assert!(!figures.contains_key("log_f0_rmse"), "no clip has a pitch");
    }

    #[test]
    fn likeness_is_a_share_of_what_recordings_have() {
        let like = |own, other, nearest| Likeness { own, other: Some(other), nearest: Some(nearest) };
        let pair = |own| LikenessPair { recorded: like(0.8, 0.4, true), spoken: like(own, 0.4, own > 0.6) };
        let with = |own| EvaluatedClip {
            likeness: Likenesses { voice: Some(pair(own)), recogniser: None },
            ..clip("a", 1.0, 1.0, 0)
        };
        let report = Evaluation::of(vec![with(0.5), with(0.7)], vec![]);
        assert!((report.likeness_by_voice.unwrap() - 0.5).abs() < 1e-9 && report.likeness_by_recogniser.is_none());
        assert_eq!((report.figures["own_by_voice"].worst, report.figures["own_is_nearest_by_voice"].mean), (0.5, 0.5));
        let table = report.table();
        assert!(table.contains("spoken / recorded: 0.50 by the voice\n") && !table.contains("recogniser"), "{table}");
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
