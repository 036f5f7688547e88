//! The clips that a run trains on, and how they are laid into a batch.

use super::batch::{BatchTiming, HostBatch};
use super::block::Block;
use super::block_layout::{BlockLayout, SoundKind};
use super::error::Error;
use super::fit_report::FitReport;
use super::layout::{Budget, Length, Span};
use super::pieces::{LongClip, Piece, levels};
use super::position::Position;
use super::stretch::stretch_durations;
use crate::cache::durations::{ClipSegment, Durations};
use crate::cache::{self, Cache, Clip, Failure};
use crate::config::{Config, LongClips};
use crate::rng::Rng;
use crate::simulate::{Hook, Moment};
use crate::text::Tokenizer;
use std::any::Any;
use std::collections::HashSet;
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
}

impl ClipLimits {
    pub fn of(config: &Config) -> Self {
        ClipLimits {
            max_frames: config.data.max_mel_frames,
            max_characters: config.data.max_text_length,
            long_clips: config.data.long_clips,
            speed: config.data.augment_speed,
        }
    }
}

/// Clips, or pieces of them, with their lengths in frames and tokens.
pub struct Dataset {
    cache: Cache,
    /// In corpus order.
    pieces: Vec<Piece>,
    lengths: Vec<Length>,
    /// Codes, sorted.
    languages: Vec<String>,
    speed: f64,
    /// Durations of every piece, where batches shall tell which token a frame belongs to.
    durations: Option<Arc<Durations>>,
}

/// A clip that cannot be used, by its index in the cache.
pub(super) struct BadClip {
    pub clip: usize,
    pub failure: Failure,
}

/// What a clip takes of a batch at its slowest.
fn room(length: Length, speed: f64) -> Length {
    Length { frames: (length.frames as f64 / (1.0 - speed)).ceil() as usize, ..length }
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
        let (mut pieces, mut fitting) = (Vec::new(), FitReport::new(limits));
        for clip in 0..cache.len() {
            pieces.extend(fit(&cache, clip, &breaks, &mut fitting)?);
        }
        let dataset = Dataset {
            lengths: pieces.iter().map(|piece| room(piece.length(), limits.speed)).collect(),
            pieces,
            cache,
            languages: tokenizer.languages().to_vec(),
            speed: limits.speed,
            durations: None,
        };
        Ok((dataset, fitting))
    }

    /// What each clip takes of a batch; more than its own length where it may be spoken slower.
    pub fn lengths(&self) -> &[Length] {
        &self.lengths
    }

    /// Tells two sets apart that differ in a recording, a text or a cut.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.segments().for_each(|(_, segment)| segment.hash(&mut hash));
        hash.finish()
    }

    /// Name of each clip, and what it is by its contents.
    pub fn segments(&self) -> impl Iterator<Item = (&str, ClipSegment)> {
        self.pieces.iter().map(|piece| (self.cache.source(piece.clip as usize).0, self.segment(piece)))
    }

    fn segment(&self, piece: &Piece) -> ClipSegment {
        self.cache.segment(piece.clip as usize, piece.frames.clone(), piece.tokens.clone())
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

    /// Seconds of speech in the whole set.
    pub fn seconds(&self, rate_hz: u32) -> f64 {
        self.lengths.iter().map(|l| l.frames * self.cache.hop_samples()).sum::<usize>() as f64 / f64::from(rate_hz)
    }

    /// Lays the given clips into one batch. `draw`, (seed, epoch, batch), decides on their speeds. Fails where a clip turns
    /// out to be damaged.
    pub fn batch(
        &self,
        clips: &[usize],
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
        clips: &[usize],
        layout: &BlockLayout,
        bytes: &mut [u8],
        draw: [u64; 3],
        without: &HashSet<usize>,
        hook: &Hook,
    ) -> Result<(Vec<Span>, Vec<Span>), BadClip> {
        hook.at(Moment::LayBatch(draw));
        let pieces: Vec<&Piece> = clips.iter().map(|&clip| &self.pieces[clip]).collect();
        let lengths: Vec<Length> = clips.iter().map(|&clip| self.lengths[clip]).collect();
        let (mut text_spans, mut frame_spans) = layout.budget.place(&lengths);
        for (index, (piece, span)) in pieces.iter().zip(&mut frame_spans).enumerate() {
            span.len =
                spoken(piece.length(), span.len, self.speed, &mut Rng::new(&[&draw[..], &[index as u64, 1]].concat()));
        }
        for (index, _) in pieces.iter().enumerate().filter(|(_, piece)| without.contains(&(piece.clip as usize))) {
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
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("panic: {}", message(&*panic)),
        };
        let (id, path) = self.cache.source(index);
        Err(BadClip { clip: index, failure: Failure { id: id.to_owned(), path: path.to_owned(), reason } })
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
fn fit(cache: &Cache, clip: usize, breaks: &[i32], fitting: &mut FitReport) -> Result<Vec<Piece>, cache::Error> {
    let length = Length { frames: cache.frames(clip), tokens: cache.tokens(clip) };
    let is_long = fitting.add(length.frames, cache.characters(clip));
    if !is_long && length.frames >= length.tokens {
        return Ok(vec![Piece::new(clip, 0..length.frames, 1..length.tokens)]);
    }
    let cut = is_long && fitting.limits.long_clips != LongClips::Refuse;
    let pieces = if cut { pieces(cache, clip, breaks, &fitting.limits)? } else { None };
    let Some(mut pieces) = pieces else {
        fitting.refuse(is_long);
        return Ok(Vec::new());
    };
    if fitting.limits.long_clips == LongClips::Crop {
        pieces.truncate(1);
        fitting.cropped += 1;
    } else {
        fitting.split += 1;
        fitting.pieces += pieces.len();
    }
    Ok(pieces)
}

fn pieces(
    cache: &Cache,
    index: usize,
    breaks: &[i32],
    limits: &ClipLimits,
) -> Result<Option<Vec<Piece>>, cache::Error> {
    let clip = cache.clip(index)?;
    let levels = levels(clip.sound, cache.frames(index), cache.values_per_frame());
    // Nothing tells which characters a token stands for, so a piece has its share of them. The tag is said by all.
    let tokens = 1 + (clip.tokens.len() - 1) * limits.max_characters / cache.characters(index).max(1);
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
