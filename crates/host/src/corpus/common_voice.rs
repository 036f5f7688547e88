//! Mozilla Common Voice: tab-separated files with a header (`client_id path sentence … locale`), and `clips/`.
//!
//! `validated.tsv` holds all clips that two listeners agreed on, and is preferred: `train.tsv` and `dev.tsv` hold a
//! part of them, in which each sentence is read once.

use super::builder::CorpusBuilder;
use super::columns::Columns;
use super::detect::{Folder, Metadata};
use super::list::List;
use super::tree::Tree;
use super::{CorpusFormat, Error, Reader, lines};
use std::path::Path;

pub(super) const READER: Reader = Reader {
    format: CorpusFormat::CommonVoice,
    parts: "expected validated.tsv, or train.tsv, and clips/",
    extensions: &["tsv"],
    find: |folder| Ok(find(folder)),
    recognise: |metadata| {
        let why = || format!("the header of {} names recordings and sentences", metadata.file_name());
        Ok(header(&metadata.tree, &metadata.file)?.map(|_| why()))
    },
    read,
    has_lists: true,
};

fn find(folder: &Folder) -> Option<Metadata> {
    if folder.has("validated.tsv") {
        return Some(folder.metadata("validated.tsv", None));
    }
    let validation = Some("dev.tsv").filter(|name| folder.has(name));
    folder.has("train.tsv").then(|| folder.metadata("train.tsv", validation))
}

fn read(file: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
    let hint = "the first line names the columns: client_id, path, sentence, locale, separated by tabs";
    let columns = header(&builder.recordings.tree, file)?.ok_or_else(|| Error::missing(file, "no header", hint))?;
    List { separator: '\t', columns, folders: &["clips", ""] }.read(file, builder)
}

fn header(tree: &Tree, file: &Path) -> Result<Option<Columns>, Error> {
    Ok(lines::head(tree, file, 1)?.first().and_then(|line| Columns::of_header(line, '\t')))
}

#[cfg(test)]
mod tests {
    use crate::config::CorpusFormat;
    use crate::corpus::tests::{auto, explained, folder, told};
    use crate::corpus::{ReadOptions, read};

    const HEADER: &str = "client_id\tpath\tsentence\tup_votes\tlocale\tsegment\n";

    #[test]
    fn validated_clips_with_empty_columns_and_quotes() {
        let rows = format!(
            "{HEADER}\ta.mp3\t\"So, he said\t2\tfa\t\n1f\tb.mp3\tسلام\t2\tfa\t\r\n1f\tgone.mp3\tx\t2\tfa\t\n1f\ta.mp3\n"
        );
        let dir = folder(&[
            ("validated.tsv", rows.as_bytes()),
            ("train.tsv", b"not looked at"),
            ("clips/a.mp3", b""),
            ("clips/b.mp3", b""),
        ]);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.validation_from), (CorpusFormat::CommonVoice, None));
        let told = told(&dir, &corpus);
        assert_eq!(told[0][..3], ["a", "clips/a.mp3", "\"So, he said"]);
        assert!(told[0][3].starts_with("voice-"), "no client: one speaker for the folder");
        assert_eq!(told[1], ["b", "clips/b.mp3", "سلام", "1f", "fa"]);
        let problems: Vec<_> = corpus.problems.iter().map(|problem| (problem.line, problem.what.as_str())).collect();
        let columns = "columns: 2, expected 3 to 6, as in the header";
        assert_eq!(problems, [(4, "no recording clips/gone.mp3"), (5, columns)]);
    }

    #[test]
    fn train_and_dev_where_there_is_no_more() {
        let row = |name: &str| format!("{HEADER}1f\t{name}\tsome text\t2\ten\t\n");
        let (train, dev) = (row("a"), row("b.mp3"));
        let files: [(&str, &[u8]); 5] = [
            ("train.tsv", train.as_bytes()),
            ("dev.tsv", dev.as_bytes()),
            ("test.tsv", dev.as_bytes()),
            ("clips/a.mp3", b""),
            ("clips/b.mp3", b""),
        ];
        let dir = folder(&files);
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.utterances.len(), corpus.validation_from), (2, Some(1)));
        let alone = read(&dir.path().join("dev.tsv"), &ReadOptions::default()).unwrap();
        assert_eq!((alone.utterances.get(0).id, alone.validation_from), ("b", None));
    }

    #[test]
    fn without_a_header_it_is_none() {
        let dir = folder(&[("validated.tsv", b"1f\ta.mp3\ttext\n"), ("clips/a.mp3", b"")]);
        assert!(auto(&dir).unwrap_err().to_string().contains("no metadata were found"));
        let named = read(dir.path(), &ReadOptions { format: CorpusFormat::CommonVoice, speaker_pattern: None });
        assert!(explained(named.unwrap_err()).contains("validated.tsv: no header\nhint: the first line names"));
    }
}
