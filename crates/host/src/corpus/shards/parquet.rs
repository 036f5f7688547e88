//! Tables as Hugging Face writes them: a column of sound (`struct<bytes, path>`, bytes, or a path), one of texts, and
//! perhaps speakers and languages. The file says by itself which column is sound, and what numbers in it stand for.
//!
//! Texts are read without touching the sound; the sound is read page by page, row after row. Pages are plain, Snappy or
//! Zstandard, whose decoders keep to the size that a page claims (below 2 GiB by the format); those of gzip and Brotli
//! would follow a bomb to the end of memory, and are refused.

use super::rows::{Contents, RowAudio, ShardRow};
use super::{MAX_MEMBER_BYTES, Shard, why};
use crate::catch_panic::catch_panic;
use crate::corpus::columns::{AUDIO, LANGUAGE, NORMALISED, SPEAKER, TEXT};
use crate::storage::{self, Object, Store, last_name};
use ::parquet::basic::Type as Physical;
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::{ParquetError, Result as ParquetResult};
use ::parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use bytes::Bytes;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// Rows whose texts are read at once.
const BATCH_ROWS: usize = 1_024;
/// Names of a column that tells rows apart.
const IDS: [&str; 6] = ["id", "utterance_id", "utt_id", "segment_id", "__key__", "key"];
/// The most that is read in one go: a page of sound, or the footer.
const MAX_READ_BYTES: usize = 1 << 30;
/// What is fetched of a remote table at a time, and kept.
const BLOCK_BYTES: u64 = 4 << 20;
const BLOCKS: usize = 4;
/// Page headers are some dozens of bytes.
const HEADER_BYTES: usize = 512;

type Table = SerializedFileReader<Chunks>;

/// Columns of a table, by the number of their leaf.
struct Layout {
    sound: Option<usize>,
    path: Option<usize>,
    text: usize,
    normalised: Option<usize>,
    speaker: Option<usize>,
    language: Option<usize>,
    id: Option<usize>,
    /// What numbers stand for, by leaf.
    labels: HashMap<usize, Vec<String>>,
}

/// Reads all that is not sound.
pub(super) fn read(shard: &Arc<Shard>) -> Contents {
    let mut rows = vec![];
    let end = guarded(|| {
        let table = open(shard)?;
        let layout = Layout::of(&table)?;
        let stem = last_name(&shard.object.key).trim_end_matches(".parquet");
        for group in 0..table.num_row_groups() {
            let first = rows.len();
            read_group(&table, group, &layout, |row, cells| {
                rows.push((first + row + 1, cells.row(stem, first + row, &layout)))
            })?;
        }
        Ok(())
    });
    Contents { rows, end: end.err().map(|error| why(&error)) }
}

/// The sound of rows, in their order.
pub(super) struct Cells {
    table: Table,
    leaf: usize,
    /// First row of each group, and the end of the last.
    starts: Vec<u64>,
    current: Option<Column>,
}

struct Column {
    group: usize,
    /// The row that is read next.
    next: u64,
    reader: ColumnReader,
}

impl Cells {
    pub fn open(shard: &Arc<Shard>) -> io::Result<Self> {
        guarded(|| {
            let table = open(shard)?;
            let leaf = Layout::of(&table)?.sound.ok_or("it has no sound in it")?;
            let mut starts = vec![0];
            for group in 0..table.num_row_groups() {
                let rows = table.metadata().row_group(group).num_rows().max(0) as u64;
                starts.push(starts[group] + rows);
            }
            Ok(Cells { table, leaf, starts, current: None })
        })
    }

    pub fn cell(&mut self, row: u64) -> io::Result<Vec<u8>> {
        // Whatever a hostile page did to the reader goes with it.
        let column = self.current.take();
        let (column, bytes) = guarded(|| self.read(column, row))?;
        self.current = Some(column);
        bytes.ok_or_else(|| io::Error::other("no sound in its row"))
    }

    fn read(&self, column: Option<Column>, row: u64) -> Result<(Column, Option<Vec<u8>>), Wrong> {
        let group = self.starts.partition_point(|start| *start <= row).saturating_sub(1);
        if group + 1 >= self.starts.len() {
            return Err("the table ends before it".into());
        }
        let column = column.filter(|column| column.group == group && column.next <= row);
        let mut column = match column {
            Some(column) => column,
            None => Column {
                group,
                next: self.starts[group],
                reader: self.table.get_row_group(group)?.get_column_reader(self.leaf)?,
            },
        };
        let ColumnReader::ByteArrayColumnReader(reader) = &mut column.reader else {
            return Err("its sound is no bytes".into());
        };
        let skipped = reader.skip_records((row - column.next) as usize)? as u64;
        let (mut levels, mut values) = (vec![], Vec::<ByteArray>::new());
        let (records, ..) = reader.read_records(1, Some(&mut levels), None, &mut values)?;
        if skipped != row - column.next || records != 1 {
            return Err("the table ends before it".into());
        }
        column.next = row + 1;
        let bytes = values.first().map(|value| value.data());
        match bytes {
            Some(bytes) if bytes.len() as u64 > MAX_MEMBER_BYTES => {
                Err(format!("longer than {} MiB", MAX_MEMBER_BYTES >> 20).into())
            }
            bytes => Ok((column, bytes.filter(|bytes| !bytes.is_empty()).map(<[u8]>::to_vec))),
        }
    }
}

/// The cells of some columns in one row.
struct RowCells(Vec<(usize, Option<String>)>);

impl RowCells {
    fn at(&mut self, leaf: Option<usize>) -> Option<String> {
        let cell = self.0.iter_mut().find(|(at, _)| Some(*at) == leaf)?;
        cell.1.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn row(&mut self, stem: &str, row: usize, layout: &Layout) -> Result<ShardRow, String> {
        let text = self.at(layout.normalised).or_else(|| self.at(Some(layout.text))).ok_or("the text is empty")?;
        let audio = match (layout.sound, self.at(layout.path)) {
            (Some(_), _) => RowAudio::Here { at: row as u64, bytes: 0 },
            (None, Some(path)) => RowAudio::Beside(path),
            (None, None) => return Err("neither a sound nor the path of one".into()),
        };
        let key = self.at(layout.id).unwrap_or_else(|| format!("{stem}/{row}"));
        Ok(ShardRow { key, audio, text, speaker: self.at(layout.speaker), language: self.at(layout.language) })
    }
}

impl Layout {
    fn of(table: &Table) -> Result<Self, Wrong> {
        let schema = table.metadata().file_metadata().schema_descr();
        let features = features(table);
        let leaves: Vec<(String, usize)> = schema
            .columns()
            .iter()
            .enumerate()
            .filter(|(_, column)| column.max_rep_level() == 0)
            .map(|(leaf, column)| (column.path().string().to_lowercase(), leaf))
            .collect();
        let leaf = |name: &str| leaves.iter().find(|(path, _)| path == name).map(|(_, leaf)| *leaf);
        let find = |names: &[&str]| names.iter().find_map(|name| leaf(name));
        let told =
            features.iter().find(|(_, feature)| feature["_type"] == "Audio").map(|(name, _)| name.to_lowercase());
        let names = told.as_deref().into_iter().chain(AUDIO);
        let is_bytes = |leaf: &usize| schema.column(*leaf).physical_type() == Physical::BYTE_ARRAY;
        let is_text = |leaf: usize| schema.column(leaf).converted_type() == ::parquet::basic::ConvertedType::UTF8;
        let (mut sound, mut path) = (None, None);
        for name in names {
            sound = leaf(&format!("{name}.bytes")).filter(is_bytes).filter(|leaf| has_values(table, *leaf));
            path = leaf(&format!("{name}.path"));
            match leaf(name).filter(is_bytes) {
                Some(leaf) if is_text(leaf) => path = Some(leaf),
                Some(leaf) => sound = Some(leaf),
                None => {}
            }
            if sound.is_some() || path.is_some() {
                break;
            }
        }
        if sound.is_none() && path.is_none() {
            return Err("no column of sound: `audio` with `bytes` and `path` is expected".into());
        }
        let (text, normalised) = (find(&TEXT), find(&NORMALISED));
        let text =
            text.or(normalised).ok_or("no column of texts: `text`, `sentence` or `transcription` is expected")?;
        let labels = features.iter().filter_map(|(name, feature)| {
            let names =
                feature["names"].as_array()?.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
            Some((leaf(&name.to_lowercase())?, names))
        });
        let labels = labels.collect();
        Ok(Layout {
            sound,
            path,
            text,
            normalised,
            speaker: find(&SPEAKER),
            language: find(&LANGUAGE),
            id: find(&IDS),
            labels,
        })
    }

    fn leaves(&self) -> Vec<usize> {
        let path = self.path.filter(|_| self.sound.is_none());
        let mut leaves: Vec<usize> = [Some(self.text), self.normalised, self.speaker, self.language, self.id, path]
            .into_iter()
            .flatten()
            .collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// A number as the table means it.
    fn number(&self, leaf: usize, number: i64) -> String {
        let label = self.labels.get(&leaf).and_then(|names| names.get(usize::try_from(number).ok()?));
        label.cloned().unwrap_or_else(|| number.to_string())
    }
}

/// What Hugging Face says of each column.
fn features(table: &Table) -> serde_json::Map<String, Value> {
    let pairs = table.metadata().file_metadata().key_value_metadata();
    let text = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == "huggingface")?.value.as_deref());
    let told: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
    told.and_then(|told| told["info"]["features"].as_object().cloned()).unwrap_or_default()
}

/// Whether a column is not known to be empty throughout.
fn has_values(table: &Table, leaf: usize) -> bool {
    let groups = table.metadata().row_groups();
    let nulls = |group: &::parquet::file::metadata::RowGroupMetaData| {
        let column = group.columns().get(leaf)?;
        Some(column.statistics()?.null_count_opt()? as i64 >= column.num_values())
    };
    groups.is_empty() || !groups.iter().all(|group| nulls(group).unwrap_or(false))
}

/// Reads a group's texts, some rows of all columns at a time.
fn read_group(
    table: &Table,
    group: usize,
    layout: &Layout,
    mut each: impl FnMut(usize, &mut RowCells),
) -> Result<(), Wrong> {
    let rows = table.metadata().row_group(group).num_rows().max(0) as usize;
    let reader = table.get_row_group(group)?;
    let mut columns = vec![];
    for leaf in layout.leaves() {
        let most = table.metadata().file_metadata().schema_descr().column(leaf).max_def_level();
        columns.push((leaf, most, reader.get_column_reader(leaf)?));
    }
    let mut done = 0;
    while done < rows {
        let mut batch = vec![];
        for (leaf, most, reader) in &mut columns {
            batch.push((*leaf, texts(reader, *leaf, *most, BATCH_ROWS.min(rows - done), layout)?.into_iter()));
        }
        let count = batch.first().map_or(0, |(_, cells)| cells.len());
        if count == 0 || batch.iter().any(|(_, cells)| cells.len() != count) {
            return Err(format!("row group {group} ends after {done} of {rows} rows").into());
        }
        for row in done..done + count {
            let mut cells = RowCells(batch.iter_mut().map(|(leaf, cells)| (*leaf, cells.next().flatten())).collect());
            each(row, &mut cells);
        }
        done += count;
    }
    Ok(())
}

/// Cells of a column as texts.
fn texts(
    reader: &mut ColumnReader,
    leaf: usize,
    most: i16,
    rows: usize,
    layout: &Layout,
) -> Result<Vec<Option<String>>, Wrong> {
    macro_rules! cells {
        ($reader:expr, $text:expr) => {{
            let (mut levels, mut values) = (vec![], vec![]);
            let (records, ..) = $reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            let mut values = values.iter().map($text);
            if most == 0 {
                levels = vec![0; records];
            }
            levels.iter().map(|level| if *level == most { values.next() } else { None }).collect()
        }};
    }
    Ok(match reader {
        ColumnReader::ByteArrayColumnReader(reader) => {
            cells!(reader, |value: &ByteArray| String::from_utf8_lossy(value.data()).into_owned())
        }
        ColumnReader::Int32ColumnReader(reader) => cells!(reader, |value: &i32| layout.number(leaf, i64::from(*value))),
        ColumnReader::Int64ColumnReader(reader) => cells!(reader, |value: &i64| layout.number(leaf, *value)),
        _ => return Err("a column of texts holds neither texts nor numbers".into()),
    })
}

fn open(shard: &Arc<Shard>) -> Result<Table, Wrong> {
    Ok(SerializedFileReader::new(Chunks::open(&shard.store, &shard.object)?)?)
}

/// Why a table cannot be read.
struct Wrong(io::Error);

impl From<&str> for Wrong {
    fn from(what: &str) -> Self {
        Wrong(io::Error::other(what.to_owned()))
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Wrong(io::Error::other(what))
    }
}

impl From<storage::Error> for Wrong {
    fn from(error: storage::Error) -> Self {
        Wrong(error.into())
    }
}

impl From<ParquetError> for Wrong {
    fn from(error: ParquetError) -> Self {
        Wrong(match error {
            // What storage said is to be found again.
            ParquetError::External(cause) => match cause.downcast::<storage::Error>() {
                Ok(error) => (*error).into(),
                Err(cause) => io::Error::other(cause),
            },
            other => io::Error::other(format!("damaged: {other}")),
        })
    }
}

/// The parquet crate checks much and not everything: what a hostile file makes it do ends here.
fn guarded<T>(work: impl FnOnce() -> Result<T, Wrong>) -> io::Result<T> {
    match catch_panic(|_| true, work) {
        Ok(done) => done.map_err(|wrong| wrong.0),
        Err(_) => Err(io::Error::other("damaged: its decoder failed on it")),
    }
}

/// The bytes of a table, wherever it lies.
#[derive(Clone)]
struct Chunks(Arc<Place>);

enum Place {
    File(File, u64),
    Remote { store: Store, object: Object, blocks: Mutex<VecDeque<(u64, Bytes)>> },
}

impl Chunks {
    fn open(store: &Store, object: &Object) -> Result<Self, Wrong> {
        let place = match store.file(&object.key) {
            Some(path) => Place::File(File::open(path).map_err(Wrong)?, object.bytes),
            None => Place::Remote { store: store.clone(), object: object.clone(), blocks: Mutex::default() },
        };
        Ok(Chunks(Arc::new(place)))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &*self.0 {
            Place::File(file, _) => file.read_at(buffer, at),
            Place::Remote { object, .. } if at >= object.bytes => Ok(0),
            Place::Remote { store, object, blocks } => {
                let number = at / BLOCK_BYTES;
                let mut kept = blocks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let found = kept.iter().find(|(known, _)| *known == number).map(|(_, bytes)| bytes.clone());
                let block = match found {
                    Some(block) => block,
                    None => {
                        let start = number * BLOCK_BYTES;
                        let block = store.get_range(object, start..(start + BLOCK_BYTES).min(object.bytes))?;
                        kept.push_back((number, block.clone()));
                        if kept.len() > BLOCKS {
                            kept.pop_front();
                        }
                        block
                    }
                };
                let rest = &block[(at - number * BLOCK_BYTES) as usize..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
        }
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        match &*self.0 {
            Place::File(_, bytes) => *bytes,
            Place::Remote { object, .. } => object.bytes,
        }
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<ChunkRead>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::with_capacity(HEADER_BYTES, ChunkRead { chunks: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if length > MAX_READ_BYTES || start.saturating_add(length as u64) > self.len() {
            return Err(ParquetError::EOF(format!("{length} bytes at byte {start} of {}", self.len())));
        }
        let (mut bytes, mut read) = (vec![0; length], 0);
        while read < length {
            match self.read_at(start + read as u64, &mut bytes[read..]).map_err(external)? {
                0 => return Err(ParquetError::EOF("it is shorter than it was".into())),
                count => read += count,
            }
        }
        Ok(bytes.into())
    }
}

fn external(error: io::Error) -> ParquetError {
    match error.downcast::<storage::Error>() {
        Ok(error) => ParquetError::External(Box::new(error)),
        Err(error) => ParquetError::External(Box::new(error)),
    }
}

struct ChunkRead {
    chunks: Chunks,
    at: u64,
}

impl Read for ChunkRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.chunks.read_at(self.at, buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}
