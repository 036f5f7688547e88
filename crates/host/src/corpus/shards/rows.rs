//! Rows of a corpus in shards, in the order of the shards, whichever was read first.

use super::find::{Found, Unit};
use super::{Shard, index, parquet, shar, webdataset};
use crate::corpus::builder::{CorpusBuilder, Row};
use crate::corpus::recordings::inside;
use crate::corpus::tree::Tree;
use crate::corpus::{AudioSource, Corpus, Error, Member, ReadOptions, language};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Shards that are read at once: enough to hide the latency of a network. Each may be this far ahead of who takes them.
const AT_ONCE: usize = 8;

/// A clip as its shard tells of it.
#[derive(Serialize, Deserialize)]
pub(super) struct ShardRow {
    /// Its name in the shard.
    pub key: String,
    pub audio: RowAudio,
    pub text: String,
    pub speaker: Option<String>,
    pub language: Option<String>,
}

/// Where a shard says that the sound of a clip lies.
#[derive(Serialize, Deserialize)]
pub(super) enum RowAudio {
    /// In the shard: the place that a [`Member`] has.
    Here { at: u64, bytes: u64 },
    /// In a file of its own, beside the shard.
    Beside(String),
}

/// What a shard holds.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Contents {
    /// Clips with their number in the shard, or what is wrong with each.
    pub rows: Vec<(usize, Result<ShardRow, String>)>,
    /// Why the shard, or the rest of it, could not be read.
    pub end: Option<String>,
}

/// Reads all shards of a corpus, which `path` names. Their folder names the speaker where nothing else does.
pub(in crate::corpus) fn read(found: &Found, path: &Path, options: &ReadOptions) -> Result<Corpus, Error> {
    let mut builder = CorpusBuilder::new(Tree::Disk, &found.dir, options.speaker_pattern.as_ref());
    take(&found.training, &mut builder);
    if !found.validation.is_empty() {
        builder.start_validation();
        take(&found.validation, &mut builder);
    }
    builder.finish(path, found.format, found.why.clone())
}

fn take(units: &[Unit], builder: &mut CorpusBuilder) {
    in_order(units, AT_ONCE, contents, |unit, Contents { rows, end }| {
        let (shard, file) = (unit.sound(), Path::new(unit.sound().name()));
        for (number, row) in rows {
            builder.add_of_shard(file, number, row.and_then(|row| to_row(row, shard)));
        }
        if let Some(why) = end {
            builder.add_of_shard(file, 0, Err(why));
        }
    });
    index::trim();
}

fn contents(unit: &Unit) -> Contents {
    index::contents(unit, || match unit {
        Unit::Tar(shard) => webdataset::read(shard),
        Unit::Table(shard) => parquet::read(shard),
        Unit::Shar { cuts, sound } => shar::read(cuts, sound),
    })
}

fn to_row(row: ShardRow, shard: &Arc<Shard>) -> Result<Row, String> {
    let ShardRow { key, audio, text, speaker, language } = row;
    let language = language.as_deref().map(language::code).transpose()?;
    let audio = match audio {
        RowAudio::Here { at, bytes } => AudioSource::Member(Member { shard: shard.clone(), at, bytes }),
        RowAudio::Beside(path) => beside(shard, &path)?.into(),
    };
    Ok(Row { id: key, audio, text, speaker, language })
}

/// A file that a table names: absolute, or beside the table.
fn beside(shard: &Shard, path: &str) -> Result<PathBuf, String> {
    let folder =
        Path::new(shard.name()).parent().filter(|_| shard.is_local()).ok_or("its sound is not in the table")?;
    let file = if Path::new(path).is_absolute() { path.into() } else { folder.join(inside(path)?) };
    if file.is_file() { Ok(file) } else { Err(format!("no recording {path}")) }
}

/// Works on items in parallel and takes what comes of them in their order. At most `at_once` wait to be taken.
pub(in crate::corpus) fn in_order<T: Sync, R: Send>(
    items: &[T],
    at_once: usize,
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    struct State<R> {
        begun: usize,
        taken: usize,
        done: BTreeMap<usize, thread::Result<R>>,
    }
    let state = Mutex::new(State { begun: 0, taken: 0, done: BTreeMap::new() });
    let changed = Condvar::new();
    let lock = || state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let work = || loop {
        let mut now = lock();
        while now.begun < items.len() && now.begun >= now.taken + at_once {
            now = changed.wait(now).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if now.begun == items.len() {
            return;
        }
        let index = now.begun;
        now.begun += 1;
        drop(now);
        let result = catch_unwind(AssertUnwindSafe(|| work(&items[index])));
        lock().done.insert(index, result);
        changed.notify_all();
    };
    thread::scope(|scope| {
        for _ in 0..at_once.min(items.len()) {
            scope.spawn(work);
        }
        for (index, item) in items.iter().enumerate() {
            let mut now = lock();
            let result = loop {
                match now.done.remove(&index) {
                    Some(result) => break result,
                    None => now = changed.wait(now).unwrap_or_else(|poisoned| poisoned.into_inner()),
                }
            };
            now.taken = index + 1;
            if result.is_err() {
                now.begun = items.len(); // nobody begins anything any more
            }
            drop(now);
            changed.notify_all();
            take(item, result.unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
}
