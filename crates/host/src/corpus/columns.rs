//! Which column is what: by a header row, or by looking at the rows.

use std::collections::HashSet;

/// Names of columns in headers, and of fields in JSON manifests.
pub(super) const AUDIO: [&str; 11] = [
    "audio_filepath",
    "audio_file",
    "audio_path",
    "audio",
    "path",
    "file_path",
    "file_name",
    "filename",
    "file",
    "wav",
    "clip",
];
pub(super) const TEXT: [&str; 6] = ["text", "sentence", "transcription", "transcript", "raw_text", "raw"];
pub(super) const NORMALISED: [&str; 9] = [
    "normalized_text",
    "normalised_text",
    "text_normalized",
    "normalized_transcription",
    "normalised_transcription",
    "normalized_transcript",
    "normalized",
    "normalised",
    "norm",
];
pub(super) const SPEAKER: [&str; 5] = ["speaker", "speaker_name", "speaker_id", "client_id", "spk"];
pub(super) const LANGUAGE: [&str; 5] = ["language", "lang", "locale", "language_code", "lang_id"];

/// Which column holds what, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Columns {
    pub audio: usize,
    pub text: usize,
    /// The normalised text, which wins over `text` where it is there and not empty.
    pub normalised: Option<usize>,
    pub speaker: Option<usize>,
    pub language: Option<usize>,
    /// How many cells a row may have.
    pub most: usize,
}

pub(super) const LJSPEECH: Columns =
    Columns { audio: 0, text: 1, normalised: Some(2), speaker: None, language: None, most: 3 };
pub(super) const PIPER: Columns =
    Columns { audio: 0, text: 2, normalised: None, speaker: Some(1), language: Some(3), most: 4 };

impl Columns {
    /// The columns that a header names. None where the line is a row like any other: a header names a column of
    /// recordings and one of texts.
    pub fn of_header(line: &str, separator: char) -> Option<Self> {
        let cells: Vec<String> =
            line.split(separator).map(|cell| cell.trim().to_lowercase().replace(' ', "_")).collect();
        let find = |names: &[&str]| names.iter().find_map(|name| cells.iter().position(|cell| cell == name));
        let (text, normalised) = (find(&TEXT), find(&NORMALISED));
        Some(Self {
            audio: find(&AUDIO).or_else(|| find(&["id"]))?,
            text: text.or(normalised)?,
            normalised,
            speaker: find(&SPEAKER),
            language: find(&LANGUAGE),
            most: cells.len(),
        })
    }

    /// How many cells a row must have.
    pub fn least(&self) -> usize {
        1 + self.audio.max(self.text).max(self.speaker.unwrap_or(0))
    }

    /// Says what a row should look like.
    pub fn describe(&self) -> String {
        match *self {
            LJSPEECH => "`id|text` or `id|raw|normalised`".into(),
            PIPER => "`path|speaker|text` or `path|speaker|text|language`".into(),
            Columns { most, .. } => format!("{} to {most}, as in the header", self.least()),
        }
    }
}

/// Whether a list of `|`-separated rows has a column of speakers: `path|speaker|text` looks like `id|raw|normalised`.
pub(super) fn names_speakers(head: &[String]) -> bool {
    if let Some(columns) = head.first().and_then(|line| Columns::of_header(line, '|')) {
        return columns.speaker.is_some();
    }
    let rows: Vec<Vec<&str>> = head.iter().map(|line| line.split('|').map(str::trim).collect()).collect();
    let fours = rows.iter().filter(|row| row.len() == 4).count();
    let threes: Vec<(&str, &str)> = rows.iter().filter(|row| row.len() == 3).map(|row| (row[1], row[2])).collect();
    if 2 * (fours + threes.len()) <= rows.len() {
        return false;
    }
    fours > threes.len() || are_speakers(&threes)
}

/// Whether the first cells are speakers of the second: speakers come again and again while texts differ; in a corpus
/// too small for that, they are single words.
fn are_speakers(rows: &[(&str, &str)]) -> bool {
    let distinct = |cells: &mut dyn Iterator<Item = &str>| cells.map(str::to_lowercase).collect::<HashSet<_>>().len();
    let (second, third) = (distinct(&mut rows.iter().map(|row| row.0)), distinct(&mut rows.iter().map(|row| row.1)));
    let is_word = |cell: &str| !cell.is_empty() && !cell.contains(char::is_whitespace);
    let are_words = rows.iter().all(|row| is_word(row.0)) && rows.iter().any(|row| row.1.contains(char::is_whitespace));
    // One empty cell for all is a normalised text left blank, or none at all.
    let are_given = rows.iter().filter(|row| !row.0.is_empty() && !row.1.is_empty()).count() * 2 > rows.len();
    are_given && (are_words || 2 * second <= third)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rows: &[&str]) -> bool {
        names_speakers(&rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_header_says_where_things_are() {
        let coqui = Columns::of_header("audio_file|text|speaker_name", '|').unwrap();
        assert_eq!((coqui.audio, coqui.text, coqui.speaker, coqui.most), (0, 1, Some(2), 3));
        let lj = Columns::of_header("ID|Transcription|Normalized Transcription", '|').unwrap();
        assert_eq!((lj.audio, lj.text, lj.normalised), (0, 1, Some(2)));
        let voice = "client_id\tpath\tsentence_id\tsentence\tup_votes\tage\tlocale\tsegment";
        let voice = Columns::of_header(voice, '\t').unwrap();
        assert_eq!((voice.audio, voice.text, voice.speaker, voice.language), (1, 3, Some(0), Some(6)));
        assert_eq!(Columns::of_header("LJ001-0001|Printing, in the only sense", '|'), None);
        assert_eq!(Columns::of_header("id|a text", '|'), None);
    }

    #[test]
    fn speakers_are_told_from_texts() {
        assert!(looks(&["a.wav|anna|one text", "b.wav|anna|another", "c.wav|bob|one more"]));
        assert!(looks(&["a|Anna Maria|one text", "b|Anna Maria|another", "c|Bob Ross|one more", "d|Bob Ross|x"]));
        assert!(looks(&["a.wav|1|你好", "b.wav|1|世界", "c.wav|2|我们", "d.wav|2|他们"]));
        assert!(looks(&["a|anna|text|en", "b|bob|text|de"]));
        assert!(looks(&["audio_file|text|speaker_name", "a.wav|text of one|text of two"]));
    }

    #[test]
    fn texts_are_not_speakers() {
        assert!(!looks(&["a|one text", "b|another"]));
        assert!(!looks(&["a|Dr. No said|Doctor No said", "b|In 1995|In nineteen ninety five"]));
        assert!(!looks(&["a|yes|yes", "b|no|no", "c|yes|yes", "d|yes|yes"]), "spoken commands");
        assert!(!looks(&["a|你好|你好", "b|世界|世界"]));
        assert!(!looks(&["a|one|", "b|two|", "c|three|"]));
        assert!(!looks(&["a.wav||one text", "b.wav||another"]));
        assert!(!looks(&[]));
    }
}
