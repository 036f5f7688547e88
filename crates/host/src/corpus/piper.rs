//! Piper and Coqui style: `path|speaker|text` or `path|speaker|text|language`, the path relative to the corpus folder
//! or to its folder of recordings. A header may put the columns in another order.

use super::builder::CorpusBuilder;
use super::columns::PIPER;
use super::detect::LIST_EXTENSIONS;
use super::list::List;
use super::{CorpusFormat, Error, Reader};
use std::path::Path;

pub(super) const READER: Reader = Reader {
    format: CorpusFormat::Piper,
    parts: "expected metadata.csv with lines `path|speaker|text`",
    extensions: LIST_EXTENSIONS,
    find: |folder| Ok(folder.list_metadata()),
    recognise: |metadata| {
        let why = || format!("{} has a column of speakers", metadata.file_name());
        Ok(metadata.names_speakers()?.then(why))
    },
    read,
    has_lists: true,
};

fn read(file: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
    let list = List { separator: '|', columns: PIPER, folders: &["", "wavs", "wav", "audio", "clips"] };
    list.read(file, builder)
}

#[cfg(test)]
mod tests {
    use crate::config::CorpusFormat;
    use crate::corpus::tests::{auto, folder, told};

    #[test]
    fn speakers_languages_and_paths() {
        let rows =
            "audio/a.ogg|anna|\"Yes,\" she said|en_US\nb|bob|Ja, so ist es|de\n./audio/sub/c.wav|bob|No language|\n";
        let dir = folder(&[
            ("metadata.csv", rows.as_bytes()),
            ("audio/a.ogg", b""),
            ("wavs/b.wav", b""),
            ("audio/sub/c.wav", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.problems.len()), (CorpusFormat::Piper, 0));
        assert_eq!(
            told(&dir, &corpus),
            [
                ["audio/a", "audio/a.ogg", "\"Yes,\" she said", "anna", "en-us"],
                ["b", "wavs/b.wav", "Ja, so ist es", "bob", "de"],
                ["audio/sub/c", "audio/sub/c.wav", "No language", "bob", ""],
            ]
        );
    }

    #[test]
    fn bad_rows_are_named() {
        let rows =
            b"a.wav|anna|some text\na.wav|anna|twice the same\n../x.wav|anna|up and out\n/etc/a.wav|anna|no way\n\
                     b.wav|anna\na.wav|anna|text|nonsense\na.wav|anna|text|en|five\na.wav|anna||en\n";
        let dir = folder(&[("train_list.txt", rows), ("a.wav", b"")]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.utterances.len()), (CorpusFormat::Piper, 1));
        let truth = [
            (2, "id `a` again, first on line 1"),
            (3, "`../x.wav` leads out of the corpus"),
            (4, "`/etc/a.wav` leads out"),
            (5, "columns: 2, expected `path|speaker|text`"),
            (6, "`nonsense` is no language code"),
            (7, "columns: 5"),
            (8, "the text is empty"),
        ];
        assert_eq!(corpus.problems.len(), truth.len());
        for (problem, (line, what)) in corpus.problems.iter().zip(truth) {
            assert!(problem.line == line && problem.what.contains(what), "{problem}");
        }
    }
}
