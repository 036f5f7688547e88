//! Rows of cells between separators. Not CSV: nothing is quoted, so quotation marks are plain characters of the text.

use super::Error;
use super::builder::{CorpusBuilder, Row};
use super::columns::Columns;
use super::language;
use super::lines::Lines;
use super::recordings::Recordings;
use std::path::Path;

/// How to read a list; its header, where it has one, wins over `columns`.
pub(super) struct List<'a> {
    pub separator: char,
    pub columns: Columns,
    /// Folders where recordings may be, `""` for the corpus folder itself.
    pub folders: &'a [&'a str],
}

impl List<'_> {
    pub fn read(&self, file: &Path, builder: &mut CorpusBuilder) -> Result<(), Error> {
        let (mut lines, mut columns, mut is_first) = (Lines::open(&builder.recordings.tree, file)?, self.columns, true);
        while let Some((number, line)) = lines.next()? {
            let header = line.as_ref().ok().filter(|_| is_first);
            is_first = false;
            if let Some(named) = header.and_then(|line| Columns::of_header(line, self.separator)) {
                columns = named;
                continue;
            }
            let row = line.and_then(|line| self.row(line, &columns, &mut builder.recordings));
            builder.add(file, number, row);
        }
        Ok(())
    }

    fn row(&self, line: &str, columns: &Columns, recordings: &mut Recordings) -> Result<Row, String> {
        let cells: Vec<&str> = line.split(self.separator).map(str::trim).collect();
        if !(columns.least()..=columns.most).contains(&cells.len()) {
            return Err(format!("columns: {}, expected {}", cells.len(), columns.describe()));
        }
        let cell = |column: Option<usize>| column.and_then(|at| cells.get(at)).filter(|cell| !cell.is_empty());
        let text = cell(columns.normalised).or_else(|| cell(Some(columns.text))).ok_or("the text is empty")?;
        let name = cell(Some(columns.audio)).ok_or("the id is empty")?;
        let language = cell(columns.language).map(|cell| language::code(cell)).transpose()?;
        let (id, audio) = recordings.find(self.folders, name)?;
        let speaker = cell(columns.speaker).map(ToString::to_string);
        Ok(Row { id, audio, text: text.to_string(), speaker, language })
    }
}
