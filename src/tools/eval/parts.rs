//! An evaluation by parts: the same sentences from the recording's own frames to everything predicted, so that each step
//! shows what it costs.

use super::{Case, Evaluation, SpeechMode};
use crate::synth::Options;
use serde::Serialize;
use std::fmt::Write;

/// How far speech is from its recording: each one predicts more than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvaluationPart {
    /// The recording's frames through the vocoder.
    Copy,
    /// Frames predicted along the recording's durations.
    Durations,
    /// Everything predicted.
    Spoken,
    /// Everything predicted, after another recording of the speaker.
    Clone,
}

/// A part with its figures.
#[derive(Serialize)]
pub struct EvaluatedPart {
    pub part: EvaluationPart,
    pub about: &'static str,
    #[serde(flatten)]
    pub report: Evaluation,
}

impl EvaluationPart {
    /// All that a voice has. `cloned`: speakers are only heard, so that nothing is spoken in the checkpoint's own voice.
    pub fn all(cloned: bool, clones: bool) -> Vec<Self> {
        let mut parts = vec![Self::Copy, Self::Durations];
        parts.extend((!cloned).then_some(Self::Spoken));
        parts.extend(clones.then_some(Self::Clone));
        parts
    }

    /// Names its folder and its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Durations => "durations",
            Self::Spoken => "spoken",
            Self::Clone => "clone",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Copy => "the recording's own mel frames through the vocoder",
            Self::Durations => "frames predicted along the recording's durations",
            Self::Spoken => "everything predicted",
            Self::Clone => "everything predicted, after another recording of the speaker",
        }
    }

    pub fn mode(self, options: Options) -> SpeechMode {
        match self {
            Self::Copy => SpeechMode::Copy,
            Self::Durations => SpeechMode::Along(options),
            Self::Spoken | Self::Clone => SpeechMode::Speak(options),
        }
    }

    /// The cases as this part takes them; a speaker with one recording cannot be cloned.
    pub fn cases(self, cases: &[Case]) -> Vec<Case> {
        match self {
            Self::Clone => cases.iter().filter_map(Case::cloned_voice).collect(),
            Self::Copy => cases.iter().map(|case| Case { reference: None, ..case.clone() }).collect(),
            Self::Durations | Self::Spoken => cases.to_vec(),
        }
    }
}

/// Means of every figure, a column for each part.
pub fn table(parts: &[EvaluatedPart]) -> String {
    let mut text = format!("{:24}", "");
    parts.iter().for_each(|part| text += &format!("{:>11}", part.part.name()));
    text.push('\n');
    let reports: Vec<&Evaluation> = parts.iter().map(|part| &part.report).collect();
    for figure in Evaluation::side_by_side(&reports) {
        let means: String = figure.means.iter().map(|mean| format!("{mean:>11}")).collect();
        text += format!("{:24}{means}  {}", figure.name, figure.unit).trim_end();
        text.push('\n');
    }
    for part in parts {
        let _ = writeln!(text, "{:12}{}", part.part.name(), part.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::evaluation::tests::clip;
    use super::*;

    #[test]
    fn a_table_has_a_column_for_each_part() {
        let part = |part: EvaluationPart, distortion_db| EvaluatedPart {
            part,
            about: part.about(),
            report: Evaluation::of(vec![clip("a", distortion_db, 1.0, 2)], vec![]),
        };
        let table = table(&[part(EvaluationPart::Copy, 1.25), part(EvaluationPart::Spoken, 5.5)]);
        assert!(table.starts_with(&format!("{:24}       copy     spoken\n", "")), "{table}");
        assert!(table.contains("mel-cepstral distortion        1.25       5.50  dB\n"), "{table}");
    }

    #[test]
    fn a_voice_that_cannot_clone_has_no_clone_and_clones_have_no_own_voice() {
        let names = |cloned, clones| EvaluationPart::all(cloned, clones).into_iter().map(EvaluationPart::name);
        assert!(names(false, false).eq(["copy", "durations", "spoken"]));
        assert!(names(false, true).eq(["copy", "durations", "spoken", "clone"]));
        assert!(names(true, true).eq(["copy", "durations", "clone"]));
    }
}
