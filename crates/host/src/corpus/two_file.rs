//! The two-file layout: `metadata_train.csv` and `metadata_eval.csv`, recordings in `wavs_train/` and `wavs_eval/`,
//! in a common `wavs/`, or beside. The second file is the validation part.

use super::builder::CorpusBuilder;
use super::columns::{LJSPEECH, PIPER, names_speakers};
use super::detect::{Folder, LIST_EXTENSIONS, LOOK_ROWS, Metadata, is_list};
use super::list::List;
use super::{CorpusFormat, Error, Reader, lines};
use std::path::Path;

const TRAINING: [&str; 4] = ["metadata_train.csv", "metadata_train.txt", "train.csv", "train.txt"];
const VALIDATION: [&str; 5] = ["eval", "val", "valid", "validation", "dev"];

pub(super) const READER: Reader = Reader {
    format: CorpusFormat::TwoFile,
    parts: "expected metadata_train.csv and metadata_eval.csv with lines `id|text`",
    extensions: LIST_EXTENSIONS,
    find: |folder| Ok(find(folder)),
    recognise: |metadata| Ok(why(metadata)),
    read,
    has_lists: true,
};

/// Both files are needed where a `metadata.csv` is there too: one alone would be a part of it.
fn find(folder: &Folder) -> Option<Metadata> {
    let training =
        TRAINING.into_iter().find(|name| folder.has(name) && is_list(&folder.tree, &folder.dir.join(name)))?;
    let mut candidates = VALIDATION.iter().map(|part| training.replace("train", part));
    let validation = candidates.find(|name| folder.has(name));
    let is_alone = validation.is_none() && (folder.has("metadata.csv") || !training.starts_with("metadata"));
    (!is_alone).then(|| folder.metadata(training, validation.as_deref()))
}

/// What tells the layout: both files, or the name of one; none for a file that is no part of such a pair by its name.
fn why(metadata: &Metadata) -> Option<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match &metadata.validation {
        Some(validation) => Some(format!("{} and {} are there", name(&metadata.file), name(validation))),
        None => part(&metadata.file).map(|_| format!("it is called {}", name(&metadata.file))),
    }
}

fn read(file: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
    let own = part(file).map_or("wavs".into(), |part| format!("wavs_{part}"));
    let columns =
        if names_speakers(&lines::head(&builder.recordings.tree, file, LOOK_ROWS)?) { PIPER } else { LJSPEECH };
    List { separator: '|', columns, folders: &[&own, "wavs", "wav", ""] }.read(file, builder)
}

/// The part that a file's name tells: `train` of `metadata_train.csv`.
fn part(file: &Path) -> Option<&str> {
    let stem = file.file_stem()?.to_str()?;
    stem.strip_prefix("metadata_").filter(|part| *part == "train" || VALIDATION.contains(part))
}

#[cfg(test)]
mod tests {
    use crate::config::CorpusFormat;
    use crate::corpus::tests::{auto, folder, told};
    use crate::corpus::{ReadOptions, read};

    #[test]
    fn the_second_file_is_the_validation_part() {
        let dir = folder(&[
            ("metadata_train.csv", b"1|one\n2|two|deux\n"),
            ("metadata_eval.csv", b"1|another one\n2|two\n1|again\n"),
            ("wavs_train/1.wav", b""),
            ("wavs/2.wav", b""),
            ("wavs_eval/1.wav", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.validation_from), (CorpusFormat::TwoFile, Some(2)));
        assert_eq!(corpus.why, "metadata_train.csv and metadata_eval.csv are there");
        let problems: Vec<String> = corpus.problems.iter().map(|problem| problem.to_string()).collect();
        assert!(
            problems[0].ends_with("metadata_eval.csv:2: id `2` again, which is on line 2 of the training part"),
            "what trains cannot validate"
        );
        assert!(problems[1].ends_with("metadata_eval.csv:3: id `1` again, first on line 1"));
        let audio: Vec<String> = told(&dir, &corpus).into_iter().map(|[_, audio, ..]| audio).collect();
        assert_eq!(audio, ["wavs_train/1.wav", "wavs/2.wav", "wavs_eval/1.wav"]);
        let (training, validation) = corpus.into_parts();
        assert_eq!((training.len(), validation.map(|part| part.len())), (2, Some(1)));
    }

    /// A row that is left out for its speaker is no utterance that a later row could repeat.
    #[test]
    fn rows_without_speaker_are_not_seen() {
        let dir = folder(&[
            ("metadata_train.csv", b"1|one\n"),
            ("metadata_eval.csv", b"1|one\na1|two\n"),
            ("1.wav", b""),
            ("a1.wav", b""),
        ]);
        let options =
            ReadOptions { speaker_pattern: Some(regex::Regex::new("([a-z])").unwrap()), ..ReadOptions::default() };
        let corpus = read(dir.path(), &options).unwrap();
        assert_eq!((corpus.utterances.len(), corpus.problems.len(), corpus.validation_from), (1, 2, Some(0)));
    }

    #[test]
    fn a_header_names_speakers_and_one_file_is_enough() {
        let rows = b"audio_file|text|speaker_name\nwavs/a.wav|one text|Anna B\nwavs/b.wav|another|Carl\n";
        let dir = folder(&[("metadata_train.csv", rows), ("wavs/a.wav", b""), ("wavs/b.wav", b"")]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.validation_from, corpus.problems.len()), (CorpusFormat::TwoFile, None, 0));
        assert_eq!(told(&dir, &corpus)[0], ["wavs/a", "wavs/a.wav", "one text", "Anna B", ""]);
        let file = dir.path().join("metadata_train.csv");
        assert_eq!(read(&file, &ReadOptions::default()).unwrap().utterances, corpus.utterances);
    }

    #[test]
    fn a_part_beside_the_whole_does_not_hide_it() {
        let dir = folder(&[
            ("metadata_train.csv", b"a|one\n"),
            ("metadata.csv", b"a|one\nb|two\n"),
            ("a.wav", b""),
            ("b.wav", b""),
        ]);
        assert_eq!(auto(&dir).unwrap().format, CorpusFormat::Ljspeech);
        std::fs::write(dir.path().join("metadata_val.csv"), "b|two\n").unwrap();
        assert_eq!(auto(&dir).unwrap().validation_from, Some(1));
    }
}
