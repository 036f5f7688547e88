//! Writing the table of a corpus.

use super::Error;
use super::digest::{self, Digest, Hasher};
use super::entries::Entries;
use super::file_stat::FileStat;
use super::folder;
use super::identity::{Identity, language_of, text_key};
use super::output::Output;
use super::packed::Packed;
use super::places::Places;
use super::settings::AudioForm;
use super::shard::{Shard, ShardLocation};
use super::table::{self, ReadyClip, TableEntry, TableMetadata, TokenizedText};
use crate::corpus::{self, Rows, UtteranceRef};
use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything a table is made of.
pub(super) struct TableWriter<'a> {
    pub utterances: Rows<'a>,
    pub entries: &'a Entries,
    /// Utterances that have an entry, and that the table is of.
    pub done: &'a [u32],
    /// What relative paths of recordings start from.
    pub base: &'a Path,
    pub language: &'a str,
    pub form: AudioForm,
    pub whole: Option<&'a String>,
    pub tokenizer: &'a str,
    pub shards: &'a [Shard],
    pub places: &'a Places,
}

impl TableWriter<'_> {
    /// Returns where the table is.
    pub(super) fn write(&self, dir: &Path) -> Result<PathBuf, Error> {
        let temporary = folder::temporary(&dir.join("corpus"));
        self.try_write(dir, &temporary).map_err(|error| {
            let _ = fs::remove_file(&temporary);
            Error::arrow(&temporary, error)
        })
    }

    fn try_write(&self, dir: &Path, temporary: &Path) -> Result<PathBuf, ArrowError> {
        let (mut about, mut numbers) = (self.about(), HashMap::new());
        let (mut writer, mut content) = (None, Hasher::new());
        for start in (0..self.done.len().max(1)).step_by(table::PIECE_ROWS) {
            let rows = &self.done[start..(start + table::PIECE_ROWS).min(self.done.len())];
            let utterances: Vec<_> = rows.iter().map(|row| self.utterances.get(*row as usize)).collect();
            let entries: Vec<_> = rows.iter().filter_map(|row| self.entries.get(*row as usize)).collect();
            let places: Vec<_> = entries.iter().map(|entry| self.place(entry, &mut numbers, &mut about)).collect();
            about.unsettled |= entries.iter().any(|entry| entry.stat == FileStat::NEVER);
            let piece = PieceRows { of: self, utterances, entries, places };
            let lengths = Lengths::of(&piece);
            let batch = piece.batch(&lengths, &mut content)?;
            let writer: &mut FileWriter<Output> = match &mut writer {
                Some(writer) => writer,
                none => {
                    let writer = none.insert(FileWriter::try_new(Output::create(temporary)?, &batch.schema())?);
                    writer.get_mut().end_piece(); // the head of the file
                    writer
                }
            };
            writer.write(&batch)?;
            lengths.add_to(&mut about, self.form, writer.get_mut().end_piece());
        }
        let mut writer = writer.expect("a table has a piece");
        about.content = content.finish().hex();
        let about = serde_json::to_string(&about).map_err(|error| ArrowError::JsonError(error.to_string()))?;
        writer.write_metadata(table::ABOUT, &about);
        writer.finish()?;
        writer.into_inner()?.finish()?;
        let utterances = self.done.iter().map(|row| self.utterances.get(*row as usize));
        let identity = Identity::of(utterances, self.language, self.tokenizer, self.base);
        let identity = if self.whole.is_some() { identity.of_part() } else { identity };
        let path = dir.join(identity.file_name(Digest::of(about.as_bytes())));
        fs::rename(temporary, &path)?;
        // What the table said before is no longer so.
        let is_old = |other: &PathBuf| identity.is_claimed_by(other) && *other != path;
        fs::read_dir(dir)?.flatten().map(|entry| entry.path()).filter(is_old).try_for_each(fs::remove_file)?;
        Ok(path)
    }

    /// What the table says of all rows, as far as it is known before they are written.
    fn about(&self) -> TableMetadata {
        TableMetadata {
            format: table::FORMAT,
            tokenizer: self.tokenizer.to_owned(),
            whole: self.whole.cloned(),
            corpus: self.common_folder().to_string_lossy().into_owned(),
            rows: self.done.len(),
            fractions: [1f64.to_bits(), 0f64.to_bits()],
            ..TableMetadata::default()
        }
    }

    /// The place of an entry. Shards are numbered as they are met.
    fn place(&self, entry: &TableEntry, numbers: &mut HashMap<u32, u32>, about: &mut TableMetadata) -> ShardLocation {
        let place = entry.outcome.as_ref().ok().and_then(|ready| self.places.get(&ready.source));
        let Some(place) = place else { return ShardLocation { shard: 0, offset: 0, samples: 0, checksum: 0 } };
        let shard = *numbers.entry(place.shard).or_insert_with(|| {
            let Shard { path, stat, .. } = &self.shards[place.shard as usize];
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            about.shards.push((name, [stat.bytes, stat.modified_ns, stat.changed_ns]));
            about.shards.len() as u32 - 1
        });
        ShardLocation { shard, ..place }
    }

    fn common_folder(&self) -> PathBuf {
        let mut folders = self.done.iter().map(|row| self.base.join(self.utterances.get(*row as usize).audio.parent()));
        let mut common = folders.next().unwrap_or_default();
        for folder in folders {
            while !folder.starts_with(&common) && common.pop() {}
        }
        common
    }
}

/// Rows of one piece.
struct PieceRows<'a> {
    of: &'a TableWriter<'a>,
    utterances: Vec<UtteranceRef<'a>>,
    entries: Vec<TableEntry>,
    places: Vec<ShardLocation>,
}

impl PieceRows<'_> {
    /// What is read of every row when a table is opened comes first.
    fn batch(&self, lengths: &Lengths, content: &mut Hasher) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<(&str, ArrayRef)> =
            [lengths.columns(), self.words(content)?, placed(&self.places), self.stats()].concat();
        let field =
            |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), *name == "failure");
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect())
    }

    fn words(&self, content: &mut Hasher) -> Result<Vec<(&'static str, ArrayRef)>, ArrowError> {
        let TableWriter { tokenizer, language, base, .. } = self.of;
        let key = |utterance: &UtteranceRef| text_key(tokenizer, utterance.text, language_of(utterance, language));
        let text = TokenizedText { language: String::new(), tokens: Packed::of(&[]) };
        let nothing = ReadyClip { source: Digest::NONE, text };
        let made: Vec<_> = self.entries.iter().map(|entry| entry.outcome.as_ref().unwrap_or(&nothing)).collect();
        let keys: Vec<Digest> = self.utterances.iter().map(key).collect();
        for (ready, key) in made.iter().zip(&keys) {
            content.update(&ready.source.bytes()).update(&key.bytes());
        }
        let ids = StringArray::from_iter_values(self.utterances.iter().map(|utterance| utterance.id));
        let speakers = StringArray::from_iter_values(self.utterances.iter().map(|utterance| utterance.speaker));
        let audio = self.utterances.iter().map(|u| u.audio.name(base).as_os_str().as_bytes().to_vec());
        Ok(vec![
            ("id", Arc::new(ids)),
            ("speaker", Arc::new(speakers)),
            ("language", Arc::new(StringArray::from_iter_values(made.iter().map(|ready| &ready.text.language)))),
            ("tokens", lists(&made)?),
            ("text", digests(keys.into_iter())?),
            ("audio", Arc::new(BinaryArray::from_iter_values(audio))),
            ("source", digests(made.iter().map(|ready| ready.source))?),
            (
                "failure",
                Arc::new(StringArray::from_iter(self.entries.iter().map(|entry| entry.outcome.as_ref().err()))),
            ),
        ])
    }

    fn stats(&self) -> Vec<(&'static str, ArrayRef)> {
        let stat = |of: fn(&FileStat) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(self.entries.iter().map(|entry| of(&entry.stat))))
        };
        vec![
            ("bytes", stat(|stat| stat.bytes)),
            ("modified_ns", stat(|stat| stat.modified_ns)),
            ("changed_ns", stat(|stat| stat.changed_ns)),
        ]
    }
}

/// The first columns of a piece.
struct Lengths {
    samples: Vec<u32>,
    tokens: Vec<u32>,
    characters: Vec<u32>,
    shards: Vec<u32>,
    fractions: Vec<f64>,
}

impl Lengths {
    fn of(piece: &PieceRows) -> Self {
        let PieceRows { utterances, entries, places, .. } = piece;
        let tokens = |entry: &TableEntry| entry.outcome.as_ref().map_or(0, |ready| ready.text.tokens.len() as u32);
        Lengths {
            samples: places.iter().map(|place| place.samples).collect(),
            tokens: entries.iter().map(tokens).collect(),
            characters: utterances.iter().map(|utterance| utterance.text.chars().count() as u32).collect(),
            shards: places.iter().map(|place| place.shard).collect(),
            fractions: utterances.iter().map(|utterance| corpus::hash_fraction(utterance.id)).collect(),
        }
    }

    fn columns(&self) -> Vec<(&'static str, ArrayRef)> {
        let Lengths { samples, tokens, characters, shards, fractions } = self;
        let number = |numbers: &Vec<u32>| -> ArrayRef { Arc::new(UInt32Array::from(numbers.clone())) };
        let fractions = Arc::new(Float64Array::from(fractions.clone()));
        let columns = [number(samples), number(tokens), number(characters), number(shards), fractions];
        table::LENGTH_COLUMNS.into_iter().zip(columns).collect()
    }

    /// Adds these rows to what the table says of all of them.
    fn add_to(&self, about: &mut TableMetadata, form: AudioForm, piece: Digest) {
        let ready = || self.samples.iter().map(|samples| *samples as usize).filter(|samples| *samples > 0);
        about.clips += ready().count();
        about.samples += ready().sum::<usize>();
        about.values += ready().map(|samples| form.values(samples)).sum::<usize>();
        about.tokens += self.tokens.iter().map(|tokens| *tokens as usize).sum::<usize>();
        let [low, high] = about.fractions.map(f64::from_bits);
        let (low, high) = self.fractions.iter().fold((low, high), |(low, high), at| (low.min(*at), high.max(*at)));
        about.fractions = [low.to_bits(), high.to_bits()];
        let lengths = table::digest_of([&self.samples, &self.tokens, &self.characters, &self.shards], &self.fractions);
        about.pieces.push([piece.short(), lengths]);
    }
}

fn placed(places: &[ShardLocation]) -> Vec<(&'static str, ArrayRef)> {
    let large = |of: fn(&ShardLocation) -> u64| UInt64Array::from_iter_values(places.iter().map(of));
    vec![("offset", Arc::new(large(|place| place.offset))), ("checksum", Arc::new(large(|place| place.checksum)))]
}

fn digests(digests: impl Iterator<Item = Digest>) -> Result<ArrayRef, ArrowError> {
    let bytes: Vec<u8> = digests.flat_map(Digest::bytes).collect();
    Ok(Arc::new(FixedSizeBinaryArray::try_new(digest::BYTES as i32, Buffer::from_vec(bytes), None)?))
}

fn lists(made: &[&ReadyClip]) -> Result<ArrayRef, ArrowError> {
    let ends = OffsetBuffer::from_lengths(made.iter().map(|ready| ready.text.tokens.len()));
    let values: Vec<i32> = made.iter().flat_map(|ready| ready.text.tokens.iter()).collect();
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    Ok(Arc::new(ListArray::try_new(item, ends, Arc::new(Int32Array::from(values)), None)?))
}
