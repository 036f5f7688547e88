//! The LJSpeech layout: `metadata.csv` with `id|text` or `id|raw|normalised`, and `wavs/<id>.wav`.

use super::builder::CorpusBuilder;
use super::columns::LJSPEECH;
use super::detect::LIST_EXTENSIONS;
use super::list::List;
use super::{CorpusFormat, Error, Reader};
use std::path::Path;

pub(super) const READER: Reader = Reader {
    format: CorpusFormat::Ljspeech,
    parts: "expected metadata.csv with lines `id|text` and recordings in wavs/",
    extensions: LIST_EXTENSIONS,
    find: |folder| Ok(folder.list_metadata()),
    recognise: |metadata| {
        let why = || format!("{} has rows `id|text` or `id|raw|normalised`", metadata.file_name());
        Ok((!metadata.names_speakers()?).then(why))
    },
    read,
    has_lists: true,
};

fn read(file: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
    let list = List { separator: '|', columns: LJSPEECH, folders: &["wavs", "wav", ""] };
    list.read(file, builder)
}

#[cfg(test)]
mod tests {
    use crate::config::CorpusFormat;
    use crate::corpus::Corpus;
    use crate::corpus::tests::{auto, folder, told};

    #[test]
    fn both_row_forms_with_mark_crlf_quotes_and_blank_lines() {
        let rows = "\u{feff}a|Say \"hi|\r\n\r\n  \nb|Dr. No|Doctor No\r\nc.mp3|see\r\n";
        let audio: [(&str, &[u8]); 3] = [("wavs/a.wav", b""), ("wavs/b.flac", b""), ("wavs/c.mp3", b"")];
        let dir = folder(&[&[("metadata.csv", rows.as_bytes())], &audio[..]].concat());
        let corpus = auto(&dir).unwrap();
        assert_eq!((corpus.format, corpus.problems.len(), corpus.validation_from), (CorpusFormat::Ljspeech, 0, None));
        let found: Vec<_> = told(&dir, &corpus).into_iter().map(|[id, audio, text, ..]| [id, audio, text]).collect();
        assert_eq!(
            found,
            [["a", "wavs/a.wav", "Say \"hi"], ["b", "wavs/b.flac", "Doctor No"], ["c", "wavs/c.mp3", "see"]]
        );
        assert!(corpus.utterances.iter().all(|row| row.speaker.starts_with("voice-") && row.language.is_none()));
    }

    #[test]
    fn every_bad_row_is_named_with_its_line() {
        let rows = [
            &b"good|fine\nlonely\ngood|once more\nempty||\n|text\ngone|text\n"[..],
            b"../up|text\n/etc/x|text\nbad|\xff\xfe\na|b|c|d\ngood.wav|again\n",
        ];
        let dir = folder(&[
            ("metadata.csv", &rows.concat()),
            ("wavs/good.wav", b""),
            ("wavs/empty.wav", b""),
            ("up.wav", b""),
        ]);
        let Corpus { utterances, problems, .. } = auto(&dir).unwrap();
        assert_eq!(utterances.len(), 1);
        let truth = [
            (2, "columns: 1"),
            (3, "id `good` again, first on line 1"),
            (4, "the text is empty"),
            (5, "the id is empty"),
            (6, "no recording wavs/gone.wav"),
            (7, "leads out of the corpus"),
            (8, "leads out of the corpus"),
            (9, "not UTF-8 at byte 5"),
            (10, "columns: 4"),
            (11, "id `good` again"),
        ];
        assert_eq!(problems.len(), truth.len());
        for (problem, (line, what)) in problems.iter().zip(truth) {
            assert!(problem.line == line && problem.what.contains(what), "{problem}");
            assert!(problem.to_string().contains(&format!("metadata.csv:{line}: ")));
        }
    }
}
