//! A text file line by line, in bounded memory: byte-order mark, CR and blank lines are gone, lines that are no text
//! come as what is wrong with them.

use super::Error;
use super::tree::Tree;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Far above any transcript. A longer line is no metadata, and costs no more memory than this.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Number of a line, counted from 1, and the line or what is wrong with it.
pub(super) type Line<'a> = (usize, Result<&'a str, String>);

/// Reads a file line by line.
pub(super) struct Lines {
    path: PathBuf,
    input: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    number: usize,
}

impl Lines {
    pub fn open(tree: &Tree, path: &Path) -> Result<Self, Error> {
        let input = BufReader::with_capacity(1 << 16, tree.open(path)?);
        Ok(Self { path: path.into(), input, line: vec![], number: 0 })
    }

    /// The next line that is not blank.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, Error> {
        while self.fill().map_err(Error::at(&self.path))? {
            if self.line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Ok(Some((self.number, text(&self.line, self.number == 1))));
            }
        }
        Ok(None)
    }

    /// Reads a line into the buffer; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.line.clear();
        let read = (&mut self.input).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read > MAX_LINE_BYTES {
            self.input.skip_until(b'\n')?;
        }
        if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
        }
        Ok(true)
    }
}

fn text(line: &[u8], is_first: bool) -> Result<&str, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("longer than {} KiB", MAX_LINE_BYTES >> 10));
    }
    if is_first && (line.starts_with(b"\xff\xfe") || line.starts_with(b"\xfe\xff")) {
        return Err("UTF-16; save the file as UTF-8".into());
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    std::str::from_utf8(line).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to() + 1))
}

/// The first lines that are text, to look at.
pub(super) fn head(tree: &Tree, path: &Path, count: usize) -> Result<Vec<String>, Error> {
    let (mut lines, mut head, mut bytes) = (Lines::open(tree, path)?, vec![], 0);
    while let Some((number, line)) = lines.next()? {
        bytes += line.as_ref().map_or(0, |line| line.len());
        head.extend(line.map(String::from));
        if number >= count || bytes > MAX_LINE_BYTES {
            break;
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(usize, Result<String, String>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let (mut lines, mut all) = (Lines::open(&Tree::Disk, file.path()).unwrap(), vec![]);
        while let Some((number, line)) = lines.next().unwrap() {
            all.push((number, line.map(String::from)));
        }
        all
    }

    #[test]
    fn marks_carriage_returns_and_blank_lines_go() {
        let lines = read("\u{feff}\ta\t\r\n\r\n \t\nb".as_bytes());
        assert_eq!(lines, [(1, Ok("\ta\t".into())), (4, Ok("b".into()))], "tabs are columns");
        assert_eq!(read("\u{feff}".as_bytes()), []);
    }

    #[test]
    fn what_is_no_text_is_said() {
        assert_eq!(read(b"a\xffb\nc"), [(1, Err("not UTF-8 at byte 2".into())), (2, Ok("c".into()))]);
        assert!(
            read(b"\xff\xfea\0\n\0").first().is_some_and(|line| line.1 == Err("UTF-16; save the file as UTF-8".into()))
        );
    }

    #[test]
    fn an_endless_line_is_passed_over() {
        let bytes = [vec![b'x'; MAX_LINE_BYTES], vec![b'\n'], vec![b'x'; 3 * MAX_LINE_BYTES], b"\nb".to_vec()].concat();
        let lines = read(&bytes);
        assert_eq!((lines[0].0, lines[0].1.as_ref().unwrap().len()), (1, MAX_LINE_BYTES));
        assert_eq!(lines[1..], [(2, Err("longer than 1024 KiB".into())), (3, Ok("b".into()))]);
    }
}
