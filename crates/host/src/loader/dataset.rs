//! The clips that a run trains on, and how they are laid into a batch.

use super::batch::{BatchTiming, HostBatch};
use super::block::Block;
use super::block_layout::{BlockLayout, SoundKind};
use super::error::Error;
use super::fit_report::FitReport;
use super::lanes::Lanes;
use super::layout::{Budget, Length, Lengths, Span};
use super::order::Order;
use super::packer::{ChunkPlan, pack};
use super::pieces::{LongClip, Piece, levels};
use super::plans::CHUNKS_AT_A_TIME;
use super::position::Position;
use super::stretch::stretch_durations;
use crate::cache::durations::{ClipSegment, Durations};
use crate::cache::{self, Cache, Clip, ClipLength, Failure};
use crate::config::{Config, LongClips};
use crate::rng::Rng;
use crate::simulate::{Hook, Moment};
use crate::text::Tokenizer;
use rayon::prelude::*;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

/// What a run takes of its clips.
#[derive(Clone, Copy, Debug)]
pub struct ClipLimits {
    pub max_frames: usize,
    /// Of the text, as the corpus has it.
    pub max_characters: usize,
    pub long_clips: LongClips,
    /// Utterances are spoken faster or slower by at most this share.
    pub speed: f64,
    /// Shards of a bucket that are shuffled together.
    pub shuffle_shards: usize,
}

impl ClipLimits {
    pub fn of(config: &Config) -> Self {
        ClipLimits {
            max_frames: config.data.max_mel_frames,
            max_characters: config.data.max_text_length,
            long_clips: config.data.long_clips,
            speed: config.data.augment_speed,
            shuffle_shards: config.data.shuffle_shards,
        }
    }
}

/// Clips, or pieces of them, with their lengths in frames and tokens. Twelve bytes each: everything else of a clip is read
/// when it is laid into a batch.
pub struct Dataset {
    cache: Cache,
    /// Clip of each piece, in corpus order.
    clips: Vec<u32>,
    /// First frame and first token of pieces that do not begin where their clip does.
    starts: HashMap<u32, [u32; 2]>,
    lengths: Lengths,
    order: Order,
    /// Codes, sorted.
    languages: Vec<String>,
    speed: f64,
    /// Durations of every piece, where batches shall tell which token a frame belongs to.
    durations: Option<Arc<Durations>>,
}

/// Some pieces on their way into a dataset.
struct Fitted {
    clips: Vec<u32>,
    /// Of each, where the order goes by them.
    shards: Vec<u32>,
    starts: HashMap<u32, [u32; 2]>,
    lengths: Lengths,
    report: FitReport,
}

impl Fitted {
    fn new(clips: usize, limits: &ClipLimits) -> Self {
        let (lengths, report) = (Lengths::new(clips, limits.speed), FitReport::new(limits));
        Fitted { clips: Vec::with_capacity(clips), shards: vec![], starts: HashMap::new(), lengths, report }
    }

    fn push(&mut self, piece: Piece) {
        if (piece.frames.start, piece.tokens.start) != (0, 1) {
            self.starts.insert(self.clips.len() as u32, [piece.frames.start, piece.tokens.start]);
        }
        self.clips.push(piece.clip);
        self.lengths.push(piece.length());
    }

    fn append(&mut self, other: Fitted) {
        let first = self.clips.len() as u32;
        self.starts.extend(other.starts.into_iter().map(|(piece, start)| (first + piece, start)));
        self.clips.extend(other.clips);
        self.shards.extend(other.shards);
        self.lengths.append(other.lengths);
        self.report.merge(other.report);
    }
}

/// What cannot be used: a clip, by its index in the cache, or all clips of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spoilt {
    Clip(usize),
    Shard(u32),
}

/// What a batch has to do without, and why.
pub(super) struct BadClip {
    pub what: Spoilt,
    pub failure: Failure,
}

/// Frames that a clip is spoken in this time: a draw between its fastest and its slowest, and one for each token at
/// least.
fn spoken(length: Length, room: usize, speed: f64, rng: &mut Rng) -> usize {
    if speed == 0.0 {
        return length.frames;
    }
    let factor = 1.0 + speed * (rng.unit() * 2.0 - 1.0);
    ((length.frames as f64 / factor).round() as usize).clamp(length.tokens.min(room), room)
}

impl Dataset {
    /// Only long clips that are to be cut have their sound read here.
    pub fn new(cache: Cache, tokenizer: &Tokenizer, limits: &ClipLimits) -> Result<(Self, FitReport), cache::Error> {
        let breaks = tokenizer.breaks();
        let some = |clips: &mut dyn Iterator<Item = (usize, ClipLength)>| {
            let mut fitted = Fitted::new(0, limits);
            for (clip, length) in clips {
                fit(&cache, clip, length, &breaks, &mut fitted)?;
                if cache.is_away() {
                    fitted.shards.resize(fitted.clips.len(), length.shard);
                }
            }
            Ok::<_, cache::Error>(fitted)
        };
        let (mut all, mut failed) = (Fitted::new(cache.len(), limits), None);
        cache.lengths(some, |fitted| match fitted {
            Ok(fitted) => all.append(fitted),
            Err(error) => failed = failed.take().or(Some(error)),
        })?;
        failed.map_or(Ok(()), Err)?;
        let Fitted { mut clips, starts, mut lengths, shards, report } = all;
        clips.shrink_to_fit();
        lengths.shrink();
        let order = match cache.is_away() {
            true => Order::of_shards(&shards, limits.shuffle_shards),
            false => Order::of_clips(clips.len()),
        };
        let dataset = Dataset {
            order,
            clips,
            starts,
            lengths,
            cache,
            languages: tokenizer.languages().to_vec(),
            speed: limits.speed,
            durations: None,
        };
        Ok((dataset, report))
    }

    /// The same clips, planned in chunks of so many at most.
    #[cfg(test)]
    pub(super) fn in_chunks(self, most: usize) -> Self {
        Dataset { order: Order::Clips { clips: self.lengths.len(), most }, ..self }
    }

    /// What each clip takes of a batch; more than its own length where it may be spoken slower.
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Chunks that every epoch is planned in.
    pub fn chunks(&self) -> u64 {
        self.order.chunks()
    }

    /// The batches of one chunk of an epoch.
    pub fn plan(&self, budget: &Budget, seed: u64, epoch: u64, chunk: u64) -> ChunkPlan {
        self.plan_of_lanes(budget, seed, epoch, chunk, &Lanes::ONE)
    }

    /// The batches of all lanes in the chunk that begins here, in the turns of ranks.
    pub(super) fn plan_of_lanes(&self, budget: &Budget, seed: u64, epoch: u64, chunk: u64, lanes: &Lanes) -> ChunkPlan {
        let count = self.order.lanes(lanes.count());
        let lane = |lane: usize| {
            let (clips, mut rng) = self.order.lane(seed, epoch, chunk, (lane, count));
            pack(clips, &self.lengths, budget, &mut rng)
        };
        match count {
            1 => ChunkPlan::new(&lane(0)),
            _ => ChunkPlan::new(&lanes.in_turns((0..count).into_par_iter().map(lane).collect())),
        }
    }

    /// Whether lanes have shards of their own.
    pub(super) fn has_lanes(&self, lanes: &Lanes) -> bool {
        self.order.lanes(lanes.count()) > 1
    }

    /// Batches of an epoch: those of the first chunk, and as many for the clips of the others. Epochs differ by a few.
    pub fn batches(&self, budget: &Budget, seed: u64) -> usize {
        let first = self.plan(budget, seed, 0, 0);
        let clips: usize = first.iter().map(<[u32]>::len).sum();
        (first.len() * self.lengths.len()).div_ceil(clips.max(1))
    }

    /// Has the shards of these chunks fetched that a lane of so many needs, each chunk an epoch and a number, in this order. Where
    /// shards are not fetched it does nothing.
    pub(super) fn fetch_ahead(
        &self,
        seed: u64,
        chunks: impl Iterator<Item = (u64, u64)>,
        lane: (usize, usize),
    ) -> Result<(), cache::Error> {
        if !self.cache.is_away() {
            return Ok(());
        }
        let (mut wanted, mut seen) = (Vec::new(), HashSet::new());
        for (epoch, chunk) in chunks {
            wanted.extend(self.order.shards(seed, epoch, chunk, lane).into_iter().filter(|shard| seen.insert(*shard)));
        }
        self.cache.want(wanted)
    }

    /// Lets go of what was fetched ahead.
    pub(super) fn stop_fetching(&self) {
        self.cache.stop_fetching();
    }

    /// Fails where the shards that are needed at a time do not fit on this machine: of the chunk at hand, and of those that are
    /// fetched or read beside it.
    pub fn check_room(&self, shuffle_shards: usize) -> Result<(), cache::Error> {
        self.cache.check_room(CHUNKS_AT_A_TIME * shuffle_shards)
    }

    /// Epoch and chunk behind another; lanes take a window each.
    pub(super) fn after(&self, epoch: u64, chunk: u64, lanes: &Lanes) -> (u64, u64) {
        let next = chunk + self.order.lanes(lanes.count()) as u64;
        if next < self.chunks() { (epoch, next) } else { (epoch + 1, 0) }
    }

    /// Tells two sets apart that differ in a recording, a text or a cut.
    pub fn fingerprint(&self) -> u64 {
        let (mut hash, (content, rows)) = (Xxh3::new(), self.cache.content());
        content.hash(&mut hash);
        for piece in 0..self.clips.len() {
            let Piece { clip, frames, tokens } = self.piece(piece);
            (rows[clip as usize], frames, tokens).hash(&mut hash);
        }
        hash.finish()
    }

    /// Name of each clip, and what it is by its contents.
    pub fn segments(&self) -> impl Iterator<Item = (&str, ClipSegment)> {
        (0..self.clips.len()).map(|piece| self.segment_of(piece))
    }

    /// Name of a clip, and what it is by its contents.
    pub fn segment_of(&self, piece: usize) -> (&str, ClipSegment) {
        let piece = self.piece(piece);
        (self.cache.source(piece.clip as usize).0, self.segment(&piece))
    }

    /// Whether a piece is the whole of its clip.
    pub fn is_whole(&self, piece: usize) -> bool {
        let clip = self.clips[piece] as usize;
        self.lengths.own(piece).tokens == self.cache.length(clip).tokens
    }

    fn segment(&self, piece: &Piece) -> ClipSegment {
        self.cache.segment(piece.clip as usize, piece.frames.clone(), piece.tokens.clone())
    }

    fn piece(&self, index: usize) -> Piece {
        let Length { frames, tokens } = self.lengths.own(index);
        let [frame, token] = self.starts.get(&(index as u32)).copied().unwrap_or([0, 1]).map(|start| start as usize);
        Piece::new(self.clips[index] as usize, frame..frame + frames, token..token + tokens - 1)
    }

    /// From now on batches hold the token of every frame. `durations` has those of all clips.
    pub fn freeze(&mut self, durations: Arc<Durations>) {
        self.durations = Some(durations);
    }

    /// What the numbers in the table `languages` stand for.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    pub fn layout(&self, budget: &Budget) -> BlockLayout {
        let kind = self.cache.n_mels().map_or(SoundKind::Pcm, |n_mels| SoundKind::Mel { n_mels });
        let aligned = self.durations.is_some();
        BlockLayout::new(budget, kind, self.cache.hop_samples(), aligned)
    }

    /// Speaker and language of a clip.
    pub fn labels(&self, piece: usize) -> (&str, &str) {
        self.cache.labels(self.clips[piece] as usize)
    }

    /// Samples of a frame.
    pub fn hop_samples(&self) -> usize {
        self.cache.hop_samples()
    }

    /// Seconds of speech in the whole set.
    pub fn seconds(&self, rate_hz: u32) -> f64 {
        self.lengths.iter().map(|l| l.frames * self.cache.hop_samples()).sum::<usize>() as f64 / f64::from(rate_hz)
    }

    /// Lays the given clips into one batch. `draw`, (seed, epoch, batch), decides on their speeds. Fails where a clip turns
    /// out to be damaged.
    pub fn batch(
        &self,
        clips: &[u32],
        layout: &BlockLayout,
        mut block: Box<dyn Block>,
        draw: [u64; 3],
    ) -> Result<HostBatch, Error> {
        let start = Instant::now();
        let laid = self.lay(clips, layout, block.bytes_mut(), draw, &HashSet::new(), &Hook::NONE);
        let (text_spans, frame_spans) = laid.map_err(|spoilt| Error::Clip(spoilt.failure))?;
        let timing = BatchTiming { worker: 0, start, wall: start.elapsed(), locked: Duration::ZERO, ran: None };
        let position = Position::default();
        Ok(HostBatch { block, text_spans, frame_spans, position, timing })
    }

    /// Writes every byte of a batch: (text spans, frame spans). Clips of the cache in `without` stay silent.
    pub(super) fn lay(
        &self,
        clips: &[u32],
        layout: &BlockLayout,
        bytes: &mut [u8],
        draw: [u64; 3],
        without: &HashSet<Spoilt>,
        hook: &Hook,
    ) -> Result<(Vec<Span>, Vec<Span>), BadClip> {
        hook.at(Moment::LayBatch(draw));
        let pieces: Vec<Piece> = clips.iter().map(|&clip| self.piece(clip as usize)).collect();
        let lengths: Vec<Length> = clips.iter().map(|&clip| self.lengths.get(clip as usize)).collect();
        let (mut text_spans, mut frame_spans) = layout.budget.place(&lengths);
        for (index, (piece, span)) in pieces.iter().zip(&mut frame_spans).enumerate() {
            span.len =
                spoken(piece.length(), span.len, self.speed, &mut Rng::new(&[&draw[..], &[index as u64, 1]].concat()));
        }
        for (index, _) in pieces.iter().enumerate().filter(|(_, piece)| self.is_without(piece, without)) {
            (text_spans[index].len, frame_spans[index].len) = (0, 0);
        }
        let (sound, tables) = layout.split(bytes);
        layout.text.fill(tables, &text_spans);
        layout.frames.fill(tables, &frame_spans);
        tables[layout.tokens.clone()].fill(0);
        tables[layout.languages.start..layout.token_of_frame.end].fill(0);
        let mut sound = Filler { bytes: sound, at: 0 };
        for (index, piece) in pieces.iter().enumerate().filter(|(index, _)| frame_spans[*index].len > 0) {
            self.attempt(piece.clip as usize, hook, |clip| {
                hook.at(Moment::LayClip);
                let values = part(clip.sound.bytes(), &piece.frames, layout.frame_bytes());
                sound.put(frame_spans[index].start * layout.frame_bytes(), values);
                let tokens = &mut tables[layout.tokens.clone()][text_spans[index].range()];
                tokens[0] = clip.tokens[0];
                tokens[1..].copy_from_slice(&clip.tokens[piece.tokens.start as usize..piece.tokens.end as usize]);
                tables[layout.languages.start + index] = self.language(clip.language);
                tables[layout.source_lens.start + index] = piece.length().frames as i32;
                if let Some(durations) = &self.durations {
                    let known = durations.of(&self.segment(piece)).expect("durations of every clip");
                    let frames = &mut tables[layout.token_of_frame.clone()][frame_spans[index].range()];
                    stretch_durations(known, text_spans[index].start, frames);
                }
            })?;
        }
        sound.finish();
        Ok((text_spans, frame_spans))
    }

    /// Does one clip's part of a batch. A damaged clip, or a panic, is that clip's fault and nobody else's.
    fn attempt(&self, index: usize, hook: &Hook, mut work: impl FnMut(Clip)) -> Result<(), BadClip> {
        let done = catch_unwind(AssertUnwindSafe(|| {
            hook.at(Moment::OpenClip(index));
            self.cache.clip(index).map(&mut work)
        }));
        let reason = match done {
            Ok(Ok(())) => return Ok(()),
            // One failure, whatever the number of its clips.
            Ok(Err(cache::Error::Shard(name, reason))) => {
                let what = self.cache.shard(index).map_or(Spoilt::Clip(index), Spoilt::Shard);
                return Err(BadClip { what, failure: Failure { id: name.clone(), path: name.into(), reason } });
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("panic: {}", message(&*panic)),
        };
        let (id, path) = self.cache.source(index);
        Err(BadClip {
            what: Spoilt::Clip(index),
            failure: Failure { id: id.to_owned(), path: path.to_owned(), reason },
        })
    }

    fn is_without(&self, piece: &Piece, without: &HashSet<Spoilt>) -> bool {
        let clip = piece.clip as usize;
        let of_shard = || self.cache.shard(clip).is_some_and(|shard| without.contains(&Spoilt::Shard(shard)));
        !without.is_empty() && (without.contains(&Spoilt::Clip(clip)) || (self.cache.is_away() && of_shard()))
    }

    fn language(&self, code: &str) -> i32 {
        self.languages.binary_search_by(|known| known.as_str().cmp(code)).unwrap_or(0) as i32
    }
}

/// What a panic said.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// What the limits leave of a clip: all of it, pieces, or nothing.
fn fit(
    cache: &Cache,
    clip: usize,
    length: ClipLength,
    breaks: &[i32],
    fitted: &mut Fitted,
) -> Result<(), cache::Error> {
    let ClipLength { frames, tokens, characters, .. } = length;
    let is_long = fitted.report.add(frames, characters);
    if !is_long && frames >= tokens {
        fitted.push(Piece::new(clip, 0..frames, 1..tokens));
        return Ok(());
    }
    let limits = fitted.report.limits;
    let cut = is_long && limits.long_clips != LongClips::Refuse;
    let pieces = if cut { pieces(cache, clip, length, breaks, &limits)? } else { None };
    let Some(mut pieces) = pieces else {
        fitted.report.refuse(is_long);
        return Ok(());
    };
    if limits.long_clips == LongClips::Crop {
        pieces.truncate(1);
        fitted.report.cropped += 1;
    } else {
        fitted.report.split += 1;
        fitted.report.pieces += pieces.len();
    }
    pieces.into_iter().for_each(|piece| fitted.push(piece));
    Ok(())
}

fn pieces(
    cache: &Cache,
    index: usize,
    length: ClipLength,
    breaks: &[i32],
    limits: &ClipLimits,
) -> Result<Option<Vec<Piece>>, cache::Error> {
    let clip = cache.clip(index)?;
    let levels = levels(clip.sound.as_audio(), length.frames, cache.values_per_frame());
    // Nothing tells which characters a token stands for, so a piece has its share of them. The tag is said by all.
    let tokens = 1 + (clip.tokens.len() - 1) * limits.max_characters / length.characters.max(1);
    let max = Length { frames: limits.max_frames, tokens: tokens.max(2) };
    Ok(LongClip { levels, tokens: clip.tokens, breaks, max }.pieces(index))
}

/// The frames of a piece, out of the bytes of a clip, which may end inside its last frame.
fn part<'a>(bytes: &'a [u8], frames: &std::ops::Range<u32>, frame_bytes: usize) -> &'a [u8] {
    let end = (frames.end as usize * frame_bytes).min(bytes.len());
    &bytes[frames.start as usize * frame_bytes..end]
}

/// Writes a stretch from front to back: values where they belong, silence between them.
struct Filler<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Filler<'_> {
    fn put(&mut self, start: usize, values: &[u8]) {
        self.bytes[self.at..start].fill(0);
        self.at = start + values.len();
        self.bytes[start..self.at].copy_from_slice(values);
    }

    fn finish(self) {
        self.bytes[self.at..].fill(0);
    }
}
