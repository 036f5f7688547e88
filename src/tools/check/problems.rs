//! What is wrong with a corpus, clip by clip.

use super::{Measure, median};
use crate::config::Config;
use crate::corpus::Corpus;
use serde::Serialize;
use std::path::PathBuf;

const MAX_CLIPPED_SHARE: f64 = 0.001;
const MAX_SILENT_SHARE: f64 = 0.6;
/// Below this many clips a median pace says little.
const PACE_MIN_CLIPS: usize = 20;
/// Robust standard deviations (1.4826 × median absolute deviation) of the logarithm of the pace, ...
const PACE_MAX_DEVIATIONS: f64 = 6.0;
/// ... and at least this factor: in an even corpus six deviations are little.
const PACE_MIN_FACTOR: f64 = 1.5;

#[derive(Debug, PartialEq, Serialize)]
pub struct Problem {
    pub path: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub kind: Kind,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Metadata,
    Unreadable,
    TooLong,
    TooShort,
    TextTooLong,
    Clipping,
    Silence,
    /// Characters per second far from the median: often a transcript of another clip.
    Pace,
}

/// Metadata first, then clip by clip in corpus order.
pub(super) fn problems(corpus: &Corpus, config: &Config, measures: &[Result<Measure, String>]) -> Vec<Problem> {
    let rows = corpus.problems.iter().map(|row| {
        let (path, line) = (row.file.clone(), Some(row.line));
        Problem { path, line, kind: Kind::Metadata, what: row.what.clone() }
    });
    let pace = Pace::of(measures);
    let clips = corpus.utterances.iter().zip(measures).flat_map(|(utterance, measure)| {
        let found = match measure {
            Err(what) => vec![(Kind::Unreadable, what.clone())],
            Ok(measure) => clip_problems(measure, config, &pace),
        };
        let path = utterance.audio.clone();
        found.into_iter().map(move |(kind, what)| Problem { path: path.clone(), line: None, kind, what })
    });
    rows.chain(clips).collect()
}

fn clip_problems(clip: &Measure, config: &Config, pace: &Pace) -> Vec<(Kind, String)> {
    let (max_frames, max_tokens) = (config.data.max_mel_frames, config.data.max_text_length);
    let Measure { frames, tokens, seconds, .. } = clip;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let checks = [
        (
            *frames > max_frames,
            Kind::TooLong,
            format!("{seconds:.1} s, {frames} frames, above max_mel_frames {max_frames}"),
        ),
        (frames < tokens, Kind::TooShort, format!("{frames} frames for {tokens} tokens, each of which needs one")),
        (*tokens > max_tokens, Kind::TextTooLong, format!("{tokens} tokens, above max_text_length {max_tokens}")),
        (
            clip.clipped_share > MAX_CLIPPED_SHARE,
            Kind::Clipping,
            format!("{} of its samples are at full scale", percent(clip.clipped_share)),
        ),
        (clip.silent_share > MAX_SILENT_SHARE, Kind::Silence, format!("{} silence", percent(clip.silent_share))),
        (pace.is_odd(clip), Kind::Pace, pace.tell(clip)),
    ];
    checks.into_iter().filter(|(found, ..)| *found).map(|(_, kind, what)| (kind, what)).collect()
}

/// The usual pace of the corpus, and how far from it a clip may be. In logarithms: half as fast is as odd as twice.
struct Pace {
    usual: f64,
    /// A factor; infinite where there are too few clips to tell.
    most: f64,
}

impl Pace {
    fn of(measures: &[Result<Measure, String>]) -> Self {
        let paces: Vec<f64> = measures.iter().flatten().map(Pace::log).collect();
        let usual = median(paces.clone());
        let deviation = 1.4826 * median(paces.iter().map(|pace| (pace - usual).abs()).collect());
        let most = (PACE_MAX_DEVIATIONS * deviation).exp().max(PACE_MIN_FACTOR);
        Pace { usual: usual.exp(), most: if paces.len() < PACE_MIN_CLIPS { f64::INFINITY } else { most } }
    }

    fn log(clip: &Measure) -> f64 {
        (clip.characters.max(1) as f64 / clip.seconds).ln()
    }

    fn is_odd(&self, clip: &Measure) -> bool {
        let factor = Pace::log(clip).exp() / self.usual;
        factor.max(1.0 / factor) > self.most
    }

    fn tell(&self, clip: &Measure) -> String {
        let pace = Pace::log(clip).exp();
        format!("{pace:.1} characters a second where {:.1} are usual: is this its text?", self.usual)
    }
}
