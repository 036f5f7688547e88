//! What is wrong with a corpus, clip by clip.

use super::measure::Measure;
use crate::config::Config;
use crate::corpus::Corpus;
use crate::telemetry::median;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;

const MAX_CLIPPED_SHARE: f64 = 0.001;
const MAX_SILENT_SHARE: f64 = 0.6;
/// Offset that is too far: one per cent of full scale; recordings usually stay below a tenth of that.
const MAX_DC_OFFSET: f64 = 0.01;
/// Clips below which a median pace says little.
const PACE_MIN_CLIPS: usize = 20;
/// How far a pace may be from the median, in robust standard deviations (1.4826 × median absolute deviation) of its
/// logarithm, ...
const PACE_MAX_DEVIATIONS: f64 = 6.0;
/// ... and the factor that it may always be off by: in an even corpus six deviations are little.
const PACE_MIN_FACTOR: f64 = 1.5;

/// Something wrong with a row or a clip of a corpus.
#[derive(Debug, PartialEq, Serialize)]
pub struct CorpusProblem {
    /// The recording; for a row that could not be used, the metadata.
    pub path: PathBuf,
    /// Metadata file that the recording's row stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PathBuf>,
    pub line: usize,
    pub kind: ProblemKind,
    pub what: String,
}

/// What is wrong with a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    Metadata,
    Unreadable,
    TooLong,
    TooShort,
    TextTooLong,
    /// A text that the tokenizer refuses.
    Text,
    /// Digits and signs whose words are not known in the text's language.
    UncoveredNumbers,
    UnknownCharacters,
    Clipping,
    Silence,
    DcOffset,
    /// A number of characters per second far from its language's median: often a transcript of another clip.
    Pace,
    DuplicateAudio,
    DuplicateText,
}

impl ProblemKind {
    /// Whether a clip with this problem is better left out. The others are worth a look, and can be trained on.
    pub fn spoils(self) -> bool {
        !matches!(
            self,
            ProblemKind::Clipping | ProblemKind::DcOffset | ProblemKind::UnknownCharacters | ProblemKind::DuplicateText
        )
    }
}

impl fmt::Display for CorpusProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CorpusProblem { path, metadata, line, what, .. } = self;
        match metadata {
            None => write!(f, "{}:{line}: {what}", path.display()),
            Some(file) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                write!(f, "{}: {what} ({name}:{line})", path.display())
            }
        }
    }
}

/// All problems: those of metadata first, then clip by clip in corpus order.
pub(super) fn problems(corpus: &Corpus, config: &Config, measures: &[Result<Measure, String>]) -> Vec<CorpusProblem> {
    let rows = corpus.problems.iter().map(|row| {
        let (path, line, what) = (row.file.clone(), row.line, row.what.clone());
        CorpusProblem { path, metadata: None, line, kind: ProblemKind::Metadata, what }
    });
    let (paces, again) = (paces(measures), repeats(corpus, measures));
    let clips = measures.iter().zip(again).enumerate().flat_map(|(index, (measure, again))| {
        let found = match measure {
            Err(what) => vec![(ProblemKind::Unreadable, what.clone())],
            Ok(measure) => [clip_problems(measure, config, &paces[measure.language.as_str()]), again].concat(),
        };
        found.into_iter().map(move |(kind, what)| of_clip(corpus, index, kind, what))
    });
    rows.chain(clips).collect()
}

fn of_clip(corpus: &Corpus, index: usize, kind: ProblemKind, what: String) -> CorpusProblem {
    let origin = corpus.origins.get(index);
    let metadata = origin.and_then(|origin| corpus.files.get(origin.file as usize)).cloned();
    let line = origin.map_or(0, |origin| origin.line as usize);
    CorpusProblem { path: corpus.utterances.get(index).audio.to_string().into(), metadata, line, kind, what }
}

fn clip_problems(clip: &Measure, config: &Config, pace: &Pace) -> Vec<(ProblemKind, String)> {
    let (max_frames, max_characters) = (config.data.max_mel_frames, config.data.max_text_length);
    let Measure { frames, seconds, language, .. } = clip;
    let tokens = *clip.tokens.as_ref().unwrap_or(&0);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let unknown = || clip.unknown.iter().map(|letter| format!("{letter:?}")).collect::<Vec<_>>().join(" ");
    let checks: [(bool, ProblemKind, &dyn Fn() -> String); 10] = [
        (*frames > max_frames, ProblemKind::TooLong, &|| {
            format!("{seconds:.1} s, {frames} frames, above max_mel_frames {max_frames}")
        }),
        (*frames < tokens, ProblemKind::TooShort, &|| {
            format!("{frames} frames for {tokens} tokens, each of which needs one")
        }),
        (clip.written > max_characters, ProblemKind::TextTooLong, &|| {
            format!("{} characters of text, above max_text_length {max_characters}", clip.written)
        }),
        (clip.tokens.is_err(), ProblemKind::Text, &|| clip.tokens.as_ref().err().cloned().unwrap_or_default()),
        (!clip.uncovered.is_empty(), ProblemKind::UncoveredNumbers, &|| {
            format!("no words are known in `{language}` for {}: write them out", clip.uncovered.join(" "))
        }),
        (!clip.unknown.is_empty(), ProblemKind::UnknownCharacters, &|| format!("no sound is known for {}", unknown())),
        (clip.clipped_share > MAX_CLIPPED_SHARE, ProblemKind::Clipping, &|| {
            format!("{} of its samples are at full scale", percent(clip.clipped_share))
        }),
        (clip.silent_share > MAX_SILENT_SHARE, ProblemKind::Silence, &|| {
            format!("{} silence", percent(clip.silent_share))
        }),
        (clip.dc_offset.abs() > MAX_DC_OFFSET, ProblemKind::DcOffset, &|| {
            format!("its mean is off zero by {} of full scale", percent(clip.dc_offset))
        }),
        (pace.is_odd(clip), ProblemKind::Pace, &|| pace.tell(clip)),
    ];
    checks.iter().filter(|(found, ..)| *found).map(|(_, kind, what)| (*kind, what())).collect()
}

/// For each clip, the earlier ones that it repeats.
fn repeats(corpus: &Corpus, measures: &[Result<Measure, String>]) -> Vec<Vec<(ProblemKind, String)>> {
    let (mut sounds, mut texts) = (HashMap::new(), HashMap::new());
    let one = |index: usize| {
        let Ok(clip) = &measures[index] else { return vec![] };
        let utterance = corpus.utterances.get(index);
        let name = |first: usize| corpus.utterances.get(first).audio;
        let sound = earlier(&mut sounds, clip.sound, index);
        let sound = sound.map(|first| (ProblemKind::DuplicateAudio, format!("the same sound as {}", name(first))));
        // Several speakers may read the same sentence.
        let text = earlier(&mut texts, (utterance.speaker, &clip.text), index);
        let text = text.map(|first| (ProblemKind::DuplicateText, format!("the same text as {}", name(first))));
        sound.into_iter().chain(text).collect()
    };
    (0..measures.len()).map(one).collect()
}

/// The first index that had this key.
fn earlier<K: Hash + Eq>(seen: &mut HashMap<K, usize>, key: K, index: usize) -> Option<usize> {
    let first = *seen.entry(key).or_insert(index);
    (first != index).then_some(first)
}

/// The usual pace of each language: characters stand for more or less speech in one than in another.
fn paces(measures: &[Result<Measure, String>]) -> HashMap<&str, Pace> {
    let mut clips: HashMap<&str, Vec<f64>> = HashMap::new();
    for clip in measures.iter().flatten() {
        clips.entry(&clip.language).or_default().push(Pace::log(clip));
    }
    clips.into_iter().map(|(language, paces)| (language, Pace::of(&paces))).collect()
}

/// The usual pace of a language, and how far from it a clip may be. In logarithms: half as fast is as odd as twice.
struct Pace {
    usual: f64,
    /// The largest factor between a clip's pace and the usual one; infinite where there are too few clips to tell.
    most: f64,
}

impl Pace {
    /// `paces`: logarithms of those of its clips.
    fn of(paces: &[f64]) -> Self {
        let usual = median(paces);
        let deviation = 1.4826 * median(&paces.iter().map(|pace| (pace - usual).abs()).collect::<Vec<_>>());
        let most = (PACE_MAX_DEVIATIONS * deviation).exp().max(PACE_MIN_FACTOR);
        Pace { usual: usual.exp(), most: if paces.len() < PACE_MIN_CLIPS { f64::INFINITY } else { most } }
    }

    fn log(clip: &Measure) -> f64 {
        (clip.characters().max(1) as f64 / clip.seconds).ln()
    }

    fn is_odd(&self, clip: &Measure) -> bool {
        let factor = Pace::log(clip).exp() / self.usual;
        factor.max(1.0 / factor) > self.most
    }

    fn tell(&self, clip: &Measure) -> String {
        let pace = Pace::log(clip).exp();
        let language = &clip.language;
        format!("{pace:.1} characters a second where {:.1} are usual in `{language}`: is this its text?", self.usual)
    }
}
