//! The figures of a run, read as far as they are written and thinned on the way.

use super::figures::scan;
use super::series::Series;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 1 << 20;
/// Places in the file that a range of steps is looked up by; twice as many are never there.
const MARKS: usize = 2048;
/// A line that is longer is no line of figures.
const MOST_LINE_BYTES: usize = 4 << 20;

/// Reads a file of figures that may still grow, and keeps curves of all of them in a bounded amount of memory.
pub struct MetricsReader {
    path: PathBuf,
    /// Of the file that was read: a run that is resumed puts another in its place.
    inode: u64,
    read_bytes: u64,
    size_bytes: u64,
    /// Begin of a line whose end is not written yet.
    tail: Vec<u8>,
    table: Table,
    marks: Marks,
}

/// Curves of some names, and how far the file was read.
#[derive(Serialize)]
pub struct Curves<'a> {
    pub read_bytes: u64,
    pub size_bytes: u64,
    /// Lines that hold no figures.
    pub broken_lines: u64,
    pub series: BTreeMap<&'a str, &'a Series>,
}

/// Steps that a closer look is for.
#[derive(Clone, Copy, Debug)]
pub struct RangeQuery {
    pub from: u64,
    pub to: u64,
}

impl MetricsReader {
    pub fn new(path: PathBuf) -> Self {
        MetricsReader {
            path,
            inode: 0,
            read_bytes: 0,
            size_bytes: 0,
            tail: Vec::new(),
            table: Table::default(),
            marks: Marks::default(),
        }
    }

    /// Reads on, to the end or for so long: whether it came to the end. A run with more is shown as far as it was read.
    pub fn advance(&mut self, at_most: Duration) -> io::Result<bool> {
        let start = Instant::now();
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true), // it has logged nothing yet
            opened => opened?,
        };
        let meta = file.metadata()?;
        if meta.ino() != self.inode || meta.len() < self.read_bytes {
            *self = MetricsReader { inode: meta.ino(), ..MetricsReader::new(std::mem::take(&mut self.path)) };
        }
        self.size_bytes = meta.len();
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut chunk = vec![0; CHUNK_BYTES.min((meta.len() - self.read_bytes) as usize + 1)];
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                return Ok(true);
            }
            self.take(&chunk[..count]);
            if start.elapsed() > at_most {
                return Ok(self.read_bytes >= self.size_bytes);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut at = self.read_bytes - self.tail.len() as u64;
        self.read_bytes += bytes.len() as u64;
        self.size_bytes = self.size_bytes.max(self.read_bytes);
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        if !self.tail.is_empty() {
            self.tail.extend(lines.next().unwrap_or_default());
            if self.tail.last() != Some(&b'\n') && self.tail.len() < MOST_LINE_BYTES {
                return;
            }
            let line = std::mem::take(&mut self.tail);
            self.line(at, &line);
            at += line.len() as u64;
        }
        for line in lines {
            if line.last() != Some(&b'\n') {
                self.tail = line.to_vec();
                return;
            }
            self.line(at, line);
            at += line.len() as u64;
        }
    }

    fn line(&mut self, at: u64, line: &[u8]) {
        if let Some(step) = self.table.line(line) {
            self.marks.push(step, at);
        }
    }

    /// Bytes that were read and that there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.read_bytes, self.size_bytes)
    }

    /// Names of all figures, in the order in which they first came.
    pub fn names(&self) -> &[String] {
        &self.table.names
    }

    /// The newest figure of every name, with its step.
    pub fn latest(&self) -> BTreeMap<&str, (u64, f64)> {
        let named = self.table.names.iter().zip(&self.table.series);
        named.filter_map(|(name, series)| Some((name.as_str(), series.last()?))).collect()
    }

    /// Step and Unix time of the newest line.
    pub fn newest(&self) -> Option<(u64, f64)> {
        self.table.newest
    }

    /// The curves of some names, over all steps.
    pub fn curves<'a>(&'a self, names: &[&str]) -> Curves<'a> {
        self.table.curves(names, (self.read_bytes, self.size_bytes))
    }

    /// The part of the file that holds a range of steps, for [`read_range`].
    pub fn part(&self, range: RangeQuery) -> (PathBuf, u64, u64) {
        let (from, to) = self.marks.bytes(range);
        (self.path.clone(), from, to.unwrap_or(self.read_bytes))
    }
}

/// Curves of a range of steps, from a part of the file, as finely as they fit.
pub struct RangeCurves(Table, u64);

impl RangeCurves {
    pub fn read((path, from, to): (PathBuf, u64, u64), range: RangeQuery) -> io::Result<Self> {
        let mut reader = MetricsReader::new(path.clone());
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(from))?;
        reader.table.range = Some(range);
        let mut part = file.take(to.saturating_sub(from));
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match part.read(&mut chunk)? {
                0 => break,
                count => reader.take(&chunk[..count]),
            }
        }
        Ok(RangeCurves(reader.table, to - from))
    }

    pub fn curves<'a>(&'a self, names: &[&str]) -> Curves<'a> {
        self.0.curves(names, (self.1, self.1))
    }
}

/// Curves by name.
#[derive(Default)]
struct Table {
    names: Vec<String>,
    by_name: HashMap<Vec<u8>, usize>,
    series: Vec<Series>,
    newest: Option<(u64, f64)>,
    broken_lines: u64,
    /// Other steps are passed over.
    range: Option<RangeQuery>,
    /// Figures of the line at hand, by number: nothing of a line that is cut may stay.
    line: Vec<(usize, f64)>,
}

impl Table {
    /// Takes a line of figures: its step, unless it is broken.
    fn line(&mut self, line: &[u8]) -> Option<u64> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        let (mut step, mut time, mut next) = (None, None, 0);
        let mut figures = std::mem::take(&mut self.line);
        figures.clear();
        let is_whole = scan(line, |name, value| match name {
            b"step" => step = Some(value),
            b"time" => time = Some(value),
            _ => {
                let at = self.number(name, next);
                next = at + 1;
                figures.push((at, value));
            }
        });
        let step = step.filter(|step| is_whole && *step >= 0.0 && *step < 1e15).map(|step| step as u64);
        match step {
            None => self.broken_lines += 1,
            Some(step) if self.range.is_none_or(|range| range.from <= step && step <= range.to) => {
                figures.iter().for_each(|(at, value)| self.series[*at].push(step, *value));
                self.newest = Some((step, time.unwrap_or(0.0)));
            }
            Some(_) => {}
        }
        self.line = figures;
        step
    }

    /// The number of a name. `expected`: lines are alike, so it is most often that behind the one before.
    fn number(&mut self, name: &[u8], expected: usize) -> usize {
        if self.names.get(expected).is_some_and(|known| known.as_bytes() == name) {
            return expected;
        }
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let number = self.names.len();
        self.names.push(String::from_utf8_lossy(name).into_owned());
        self.by_name.insert(name.to_vec(), number);
        self.series.push(Series::default());
        number
    }

    fn curves<'a>(&'a self, names: &[&str], (read_bytes, size_bytes): (u64, u64)) -> Curves<'a> {
        let find = |name: &&str| self.by_name.get(name.as_bytes()).copied();
        let found = names.iter().filter_map(find).filter(|at| !self.series[*at].is_empty());
        let series = found.map(|at| (self.names[at].as_str(), &self.series[at])).collect();
        Curves { read_bytes, size_bytes, broken_lines: self.broken_lines, series }
    }
}

/// Where steps stand in the file: every so many lines.
#[derive(Default)]
struct Marks {
    marks: Vec<(u64, u64)>,
    every: u64,
    lines: u64,
}

impl Marks {
    fn push(&mut self, step: u64, at: u64) {
        self.every = self.every.max(1);
        if self.lines.is_multiple_of(self.every) {
            if self.marks.len() == 2 * MARKS {
                self.marks = self.marks.iter().step_by(2).copied().collect();
                self.every *= 2;
            }
            self.marks.push((step, at));
        }
        self.lines += 1;
    }

    /// From the last mark before a range to the first behind it, where there is one.
    fn bytes(&self, range: RangeQuery) -> (u64, Option<u64>) {
        let before = self.marks.partition_point(|(step, _)| *step < range.from).saturating_sub(1);
        let behind = self.marks.partition_point(|(step, _)| *step <= range.to) + 1;
        (self.marks.get(before).map_or(0, |(_, at)| *at), self.marks.get(behind).map(|(_, at)| *at))
    }
}

/// The newest figures in a file, by name, from its last lines alone: those of training and of a validation take turns.
pub(super) fn newest_figures(path: &Path) -> Option<Vec<(String, f64)>> {
    const END_BYTES: u64 = 64 << 10;
    const LAST_LINES: usize = 2;
    let mut file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(END_BYTES))).ok()?;
    let mut end = Vec::new();
    file.take(END_BYTES).read_to_end(&mut end).ok()?;
    let parse = |line: &[u8]| {
        let mut figures = Vec::new();
        let take = |name: &[u8], value| figures.push((String::from_utf8_lossy(name).into_owned(), value));
        (scan(line, take) && figures.iter().any(|(name, _)| name == "step")).then_some(figures)
    };
    let mut lines = end.split(|byte| *byte == b'\n').rev().filter_map(parse);
    let mut newest = lines.next()?;
    for (name, value) in lines.take(LAST_LINES).flatten() {
        if newest.iter().all(|(known, _)| *known != name) {
            newest.push((name, value));
        }
    }
    Some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    const ALL: Duration = Duration::MAX;

    fn columns(reader: &MetricsReader, name: &str) -> serde_json::Value {
        serde_json::to_value(reader.curves(&[name])).unwrap()["series"][name].clone()
    }

    #[test]
    fn a_file_that_grows_is_read_on_and_a_cut_line_waits_for_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        fs::write(&path, "{\"step\":1,\"time\":5,\"loss\":3}\n{\"step\":2,\"ti").unwrap();
        let mut reader = MetricsReader::new(path.clone());
        assert!(reader.advance(ALL).unwrap());
        assert_eq!(columns(&reader, "loss")["step"], serde_json::json!([1]));
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"me\":6,\"loss\":2,\"new\":1}\n").unwrap();
        reader.advance(ALL).unwrap();
        assert_eq!(columns(&reader, "loss")["mean"], serde_json::json!([3.0, 2.0]));
        assert_eq!((reader.newest(), reader.names().len()), (Some((2, 6.0)), 2));
        assert_eq!(reader.curves(&["loss"]).broken_lines, 0);

        // Resumed from step 1: another file lies in its place.
        fs::write(dir.path().join("other"), "{\"step\":1,\"time\":5,\"loss\":3}\n").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        reader.advance(ALL).unwrap();
        assert_eq!(columns(&reader, "loss")["mean"], serde_json::json!([3.0]));
    }

    #[test]
    fn broken_lines_are_counted_and_harm_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut text = b"{\"step\":1,\"loss\":3}\n\xff\xfe\0binary\n{\"step\":2,\"loss\":9,\n\n{\"loss\":4}\n".to_vec();
        text.extend(b"{\"step\":-1,\"loss\":9}\n{\"step\":3,\"loss\":1}\n");
        fs::write(&path, text).unwrap();
        let mut reader = MetricsReader::new(path);
        reader.advance(ALL).unwrap();
        assert_eq!(columns(&reader, "loss")["mean"], serde_json::json!([3.0, 1.0]));
        assert_eq!(reader.curves(&[]).broken_lines, 4);
    }

    #[test]
    fn a_range_is_read_again_from_its_part_of_the_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let line = |step: u64| format!("{{\"step\":{step},\"time\":0,\"loss\":{}}}\n", step as f64 / 100_000.0);
        fs::write(&path, (0..100_000).map(line).collect::<String>()).unwrap();
        let mut reader = MetricsReader::new(path);
        reader.advance(ALL).unwrap();
        assert!(columns(&reader, "loss")["max"].is_array(), "thinned");
        let range = RangeQuery { from: 50_000, to: 50_500 };
        let part = reader.part(range);
        assert!(part.2 - part.1 < 60_000, "{} bytes of {}", part.2 - part.1, reader.progress().1);
        let close = RangeCurves::read(part, range).unwrap();
        let close = serde_json::to_value(close.curves(&["loss"])).unwrap();
        let steps = close["series"]["loss"]["step"].as_array().unwrap();
        assert_eq!((steps.len(), &steps[0], &steps[500]), (501, &50_000.into(), &50_500.into()));
        let past = RangeQuery { from: 99_990, to: u64::MAX };
        let last = RangeCurves::read(reader.part(past), past).unwrap();
        assert_eq!(last.curves(&["loss"]).series["loss"].last(), Some((99_999, 0.99999)));
    }

    #[test]
    fn the_newest_figures_are_found_from_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let whole = "{\"step\":8,\"loss\":1}\n{\"step\":9,\"validation/loss\":2}\n";
        fs::write(&path, format!("{}{whole}{{\"step\":10,\"lo", "x\n".repeat(100_000))).unwrap();
        let wanted = [("step", 9.0), ("validation/loss", 2.0), ("loss", 1.0)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(newest_figures(&path).unwrap(), wanted);
        assert_eq!(newest_figures(&dir.path().join("none")), None);
    }
}
