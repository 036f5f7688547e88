//! Durations that a voice found (`myxtts align`): how many frames each token of each clip lasts, in one file beside the
//! clips. It belongs to recordings and texts by their digests, never by their paths.
//!
//! ```text
//! durations-<hash of what it covers>-<digest of its bytes>.arrow   id, source, text, first_frame, frames, first_token, durations
//! ```

use super::bucket::{self, Bucket};
use super::digest::{self, Digest, Hasher};
use super::identity::field;
use super::output::Output;
use super::settings::FeatureSettings;
use super::{Error, Progress, file_stat, folder, kept_dir, map};
use crate::config::Config;
use crate::text::Tokenizer;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int32Array, ListArray, RecordBatch, StringArray, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) const TEMPORARY: &str = "durations";
/// Raised when older programs could not read what newer ones write.
const FORMAT: u32 = 1;
/// Files of durations that are kept: as many as tables of corpora.
const KEPT: usize = super::table::KEPT;
/// Clips that an error message names.
const NAMED: usize = 5;

/// A segment of a clip: which recording, which text, and which part of both. The language tag, token 0, is said before
/// every segment and is in no range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClipSegment {
    source: Digest,
    text: Digest,
    frames: Range<u32>,
    tokens: Range<u32>,
}

impl ClipSegment {
    pub(super) fn new(source: Digest, text: Digest, frames: Range<u32>, tokens: Range<u32>) -> Self {
        ClipSegment { source, text, frames, tokens }
    }

    /// Frames, and tokens with the tag.
    fn size(&self) -> (usize, usize) {
        (self.frames.len(), self.tokens.len() + 1)
    }
}

/// One segment and what a voice found in it.
#[derive(Clone, Debug)]
pub struct Aligned {
    pub id: String,
    pub segment: ClipSegment,
    /// Frames of each token, the tag's first.
    pub durations: Vec<i32>,
}

/// What the file says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationsMetadata {
    format: u32,
    /// The tokenizer's fingerprint.
    tokenizer: String,
    hop_samples: usize,
    /// Hash of the weights that aligned.
    pub checkpoint: String,
}

/// A file of durations, mapped.
pub struct Durations {
    path: PathBuf,
    about: DurationsMetadata,
    list: ListArray,
    rows: HashMap<ClipSegment, u32>,
}

impl Durations {
    /// Frames of each token of a segment.
    pub fn of(&self, segment: &ClipSegment) -> Option<&[i32]> {
        let row = *self.rows.get(segment)? as usize;
        let (ends, values) = (self.list.offsets(), self.list.values().as_primitive::<Int32Type>().values());
        Some(&values[ends[row] as usize..ends[row + 1] as usize])
    }

    /// Names these durations: the digest of the file.
    pub fn fingerprint(&self) -> &str {
        claimed(&self.path).unwrap_or_default()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn about(&self) -> &DurationsMetadata {
        &self.about
    }

    /// Reads and checks a whole file: some megabytes for a day of speech.
    fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |what: &str| Error::durations(path, what);
        let damaged = || wrong("durations that are not as they were written");
        let digest =
            File::open(path).and_then(|file| file_stat::digest(&file)).map_err(|error| Error::io(path, error))?;
        if claimed(path) != Some(digest.hex().as_str()) {
            return Err(damaged());
        }
        let (_, file) = map::open(path).map_err(|error| Error::io(path, error))?;
        let (schema, batches) = map::batches(&file).map_err(|_| damaged())?;
        let about =
            schema.metadata().get("about").and_then(|text| serde_json::from_str::<DurationsMetadata>(text).ok());
        let about =
            about.filter(|about| about.format == FORMAT).ok_or_else(|| wrong("durations of another version"))?;
        let [batch] = &batches[..] else { return Err(damaged()) };
        let (list, rows) = table(batch).ok_or_else(damaged)?;
        let durations = Durations { path: path.to_owned(), about, list, rows };
        // The digest tells of accidents; this of a file that somebody made.
        let sums = |segment: &ClipSegment| {
            let (frames, tokens) = segment.size();
            durations.of(segment).is_some_and(|list| is_sound(list, frames, tokens))
        };
        if durations.rows.keys().all(sums) { Ok(durations) } else { Err(damaged()) }
    }
}

/// Whether every token of a segment has a frame, and all frames have a token.
fn is_sound(durations: &[i32], frames: usize, tokens: usize) -> bool {
    let sum: i64 = durations.iter().map(|&frames| i64::from(frames)).sum();
    durations.len() == tokens && durations.iter().all(|&frames| frames >= 1) && sum == frames as i64
}

/// The columns of a file; none where they are not as they should be.
fn table(batch: &RecordBatch) -> Option<(ListArray, HashMap<ClipSegment, u32>)> {
    let digests = |name| {
        let column = batch.column_by_name(name)?.as_fixed_size_binary_opt()?;
        Some(column).filter(|column| column.value_length() as usize == digest::BYTES)
    };
    let numbers = |name| Some(batch.column_by_name(name)?.as_primitive_opt::<UInt32Type>()?.values());
    let list = batch.column_by_name("durations")?.as_list_opt::<i32>()?.clone();
    list.values().as_primitive_opt::<Int32Type>()?;
    let (sources, texts) = (digests("source")?, digests("text")?);
    let [first_frames, frames, first_tokens] = [numbers("first_frame")?, numbers("frames")?, numbers("first_token")?];
    let mut rows = HashMap::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let (source, text) = (Digest::from_bytes(sources.value(row))?, Digest::from_bytes(texts.value(row))?);
        let range = |start: u32, len: usize| Some(start..start.checked_add(u32::try_from(len).ok()?)?);
        let frames = range(first_frames[row], frames[row] as usize)?;
        let tokens = range(first_tokens[row], (list.value_length(row) as usize).checked_sub(1)?)?;
        rows.entry(ClipSegment::new(source, text, frames, tokens)).or_insert(row as u32);
    }
    Some((list, rows))
}

/// The durations of these segments, each with its clip's name: of all files for this tokenizer and hop, the one that
/// has most of them. One that lacks any is an error: a step searches for a whole batch or not at all.
pub fn find(config: &Config, tokenizer: &Tokenizer, wanted: &[(&str, ClipSegment)]) -> Result<Durations, Error> {
    let dir = kept_dir(&config.data).join(FeatureSettings::new(config).folder());
    if let Some(bucket) = Bucket::open(&config.data, &FeatureSettings::new(config))? {
        bucket.pull(bucket::DURATIONS, |path| claimed(path).is_some())?;
    }
    let (hop, tokens) = (config.model.hop_length as usize, tokenizer.fingerprint());
    let mut refused = Error::durations(&dir, "no durations of this corpus are kept here");
    let mut found: Option<(usize, Durations)> = None;
    for path in files(&dir)? {
        let durations = match Durations::open(&path) {
            Ok(durations) => durations,
            Err(error) => {
                refused = error;
                continue;
            }
        };
        let DurationsMetadata { hop_samples, tokenizer, .. } = &durations.about;
        if *hop_samples != hop || *tokenizer != tokens {
            let what = match *hop_samples == hop {
                true => "durations of other tokens: this run's tokenizer is not the one they were found with".into(),
                false => format!("durations in frames of {hop_samples} samples, and this run's `hop_length` is {hop}"),
            };
            refused = Error::durations(&path, &what);
            continue;
        }
        let missing = wanted.iter().filter(|(_, segment)| durations.of(segment).is_none()).count();
        if found.as_ref().is_none_or(|(fewest, _)| missing <= *fewest) {
            found = Some((missing, durations));
        }
    }
    match found {
        None => Err(refused),
        Some((0, durations)) => Ok(durations),
        Some((missing, durations)) => {
            let lacking = wanted.iter().filter(|(_, segment)| durations.of(segment).is_none());
            let names: Vec<&str> = lacking.map(|(id, _)| *id).take(NAMED).collect();
            let more = if missing > NAMED { ", …" } else { "" };
            let what = format!("{missing} of {} clips have no durations: {}{more}", wanted.len(), names.join(", "));
            Err(Error::durations(&durations.path, &what))
        }
    }
}

/// Writes one file; it replaces an earlier one of the same segments.
pub fn write(
    config: &Config,
    tokenizer: &Tokenizer,
    checkpoint: String,
    aligned: &[Aligned],
    stop: &AtomicBool,
) -> Result<PathBuf, Error> {
    for Aligned { id, segment, durations } in aligned {
        let (frames, tokens) = segment.size();
        assert!(is_sound(durations, frames, tokens), "clip {id}: {frames} frames, {tokens} tokens, {durations:?}");
    }
    let dir = kept_dir(&config.data).join(FeatureSettings::new(config).folder());
    let hop_samples = config.model.hop_length as usize;
    let about = DurationsMetadata { format: FORMAT, tokenizer: tokenizer.fingerprint(), hop_samples, checkpoint };
    let _lock = folder::lock(&dir, &|_: Progress| (), stop)?;
    let temporary = folder::temporary(&dir.join(TEMPORARY));
    let path = try_write(&dir, &temporary, &about, aligned).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::arrow(&temporary, error)
    })?;
    if let Some(bucket) = Bucket::open(&config.data, &FeatureSettings::new(config))? {
        bucket.push(bucket::DURATIONS, &path)?;
    }
    Ok(path)
}

fn try_write(
    dir: &Path,
    temporary: &Path,
    about: &DurationsMetadata,
    aligned: &[Aligned],
) -> Result<PathBuf, ArrowError> {
    let batch = batch(about, aligned)?;
    let mut writer = FileWriter::try_new(Output::create(temporary)?, &batch.schema())?;
    writer.write(&batch)?;
    writer.finish()?;
    let digest = writer.into_inner()?.finish()?;
    let covers = covers(about, aligned);
    let path = dir.join(format!("durations-{covers}-{}.arrow", digest.hex()));
    fs::rename(temporary, &path)?;
    let kept = files(dir).unwrap_or_default();
    let of_the_same = |other: &&PathBuf| other.to_string_lossy().contains(&covers) && **other != path;
    for old in kept.iter().filter(of_the_same).chain(kept.iter().rev().skip(KEPT)) {
        let _ = fs::remove_file(old);
    }
    Ok(path)
}

fn batch(about: &DurationsMetadata, aligned: &[Aligned]) -> Result<RecordBatch, ArrowError> {
    let digests = |of: fn(&ClipSegment) -> Digest| -> Result<ArrayRef, ArrowError> {
        let bytes: Vec<u8> = aligned.iter().flat_map(|row| of(&row.segment).bytes()).collect();
        Ok(Arc::new(FixedSizeBinaryArray::try_new(digest::BYTES as i32, Buffer::from_vec(bytes), None)?))
    };
    let numbers = |of: fn(&ClipSegment) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(aligned.iter().map(|row| of(&row.segment))))
    };
    let ends = OffsetBuffer::from_lengths(aligned.iter().map(|row| row.durations.len()));
    let values: Vec<i32> = aligned.iter().flat_map(|row| row.durations.iter().copied()).collect();
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let columns: [(&str, ArrayRef); 7] = [
        ("id", Arc::new(StringArray::from_iter_values(aligned.iter().map(|row| &row.id)))),
        ("source", digests(|segment| segment.source)?),
        ("text", digests(|segment| segment.text)?),
        ("first_frame", numbers(|segment| segment.frames.start)),
        ("frames", numbers(|segment| segment.frames.len() as u32)),
        ("first_token", numbers(|segment| segment.tokens.start)),
        ("durations", Arc::new(ListArray::try_new(item, ends, Arc::new(Int32Array::from(values)), None)?)),
    ];
    let about = serde_json::to_string(about).map_err(|error| ArrowError::JsonError(error.to_string()))?;
    let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), false);
    let schema = Schema::new_with_metadata(
        columns.iter().map(field).collect::<Vec<_>>(),
        HashMap::from([("about".to_owned(), about)]),
    );
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect())
}

/// A hash of tokenizer, hop and segments, whatever was found in them.
fn covers(about: &DurationsMetadata, aligned: &[Aligned]) -> String {
    let mut bytes = Vec::new();
    field(&mut bytes, about.tokenizer.as_bytes());
    field(&mut bytes, &about.hop_samples.to_le_bytes());
    for ClipSegment { source, text, frames, tokens } in aligned.iter().map(|row| &row.segment) {
        [source, text].iter().for_each(|digest| bytes.extend(digest.bytes()));
        [frames.start, frames.end, tokens.start, tokens.end].iter().for_each(|at| bytes.extend(at.to_le_bytes()));
    }
    Hasher::new().update(&bytes).finish().hex()
}

/// The digest that a file's name claims.
pub(super) fn claimed(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_prefix("durations-")?.strip_suffix(".arrow")?;
    name.split_once('-').filter(|(covers, digest)| (covers.len(), digest.len()) == (32, 32)).map(|(_, digest)| digest)
}

/// The tokenizer that a file's tokens are of, where it can be read.
pub(super) fn tokenizer(path: &Path) -> Option<String> {
    Some(Durations::open(path).ok()?.about.tokenizer)
}

/// All files of durations in a folder, the oldest first.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = if dir.exists() { folder::files(dir)? } else { vec![] };
    files.retain(|path| claimed(path).is_some());
    files.sort_by_cached_key(|path| (folder::used(path), path.clone()));
    Ok(files)
}
