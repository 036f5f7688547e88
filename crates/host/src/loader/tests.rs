//! Batches out of a real cache: what lies in a block, in which order blocks come, and what failures do.

use super::*;
use crate::audio;
use crate::cache::durations::{self, Aligned};
use crate::cache::{self, Cache};
use crate::config::{CacheContent, Config, LongClips};
use crate::corpus::Utterance;
use crate::error::Explained;
use crate::rng::Rng;
use crate::simulate::{Hook, Moment};
use crate::text::Tokenizer;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RATE_HZ: usize = 16_000;
const HOP: usize = 256;
const CLIPS: usize = 12;
const LIMITS: ClipLimits =
    ClipLimits { max_frames: 100, max_characters: 9, long_clips: LongClips::Refuse, speed: 0.0, shuffle_shards: 2 };
const MOST: Length = Length { frames: 100, tokens: 10 };

/// Of the dataset below. The last clip is the only one of its speaker.
fn speaker(clip: usize) -> &'static str {
    if clip == CLIPS - 1 { "alone" } else { ["even", "odd"][clip % 2] }
}

/// Every clip has a period of its own, so that each can be told from its values.
fn wave(clip: usize) -> Vec<f32> {
    let sample = |at: usize| (at % (61 + 2 * clip)) as f32 / 256.0 - 0.1;
    (0..1600 * (1 + clip % 5)).map(sample).collect()
}

fn open(dir: &Path, content: CacheContent, clips: &[(Vec<f32>, &str, &str)]) -> (Cache, Tokenizer) {
    let utterances: Vec<Utterance> = clips
        .iter()
        .enumerate()
        .map(|(index, (samples, text, speaker))| {
            let audio = dir.join(format!("{index}.wav"));
            audio::write_wav(&audio, samples, RATE_HZ as u32).unwrap();
            let language = Some(["de", "en"][index % 2].into());
            Utterance {
                id: index.to_string(),
                audio: audio.into(),
                text: (*text).into(),
                speaker: (*speaker).into(),
                language,
            }
        })
        .collect();
    let config = config(dir, content);
    let tokenizer = Tokenizer::fit(utterances.iter().map(|u| (u.text.as_str(), u.language.as_deref().unwrap())));
    let cache = cache::open(
        &utterances.into_iter().collect(),
        &tokenizer,
        &config,
        &|_| (),
        &AtomicBool::new(false),
        &Hook::NONE,
    )
    .unwrap()
    .0;
    (cache, tokenizer)
}

fn config(dir: &Path, content: CacheContent) -> Config {
    let mut config = Config::default();
    (config.data.sample_rate, config.data.cache_dir) = (RATE_HZ as u32, Some(dir.join("cache")));
    (config.data.trim_silence, config.data.normalize_audio) = (false, false);
    config.data.cache_content = content;
    config
}

fn open_usual(dir: &Path, content: CacheContent) -> (Cache, Tokenizer) {
    let clips: Vec<_> = (0..CLIPS).map(|clip| (wave(clip), "a", speaker(clip))).collect();
    open(dir, content, &clips)
}

fn dataset() -> (tempfile::TempDir, Arc<Dataset>) {
    let dir = tempfile::tempdir().unwrap();
    let (cache, tokenizer) = open_usual(dir.path(), CacheContent::Pcm);
    let (dataset, fitting) = Dataset::new(cache, &tokenizer, &LIMITS).unwrap();
    assert!(fitting.is_plain());
    (dir, Arc::new(dataset))
}

/// The same clips in chunks of five, so that an epoch is planned in three pieces.
fn chunked() -> (tempfile::TempDir, Arc<Dataset>) {
    let (dir, dataset) = dataset();
    let dataset = Arc::into_inner(dataset).unwrap().in_chunks(5);
    assert_eq!(dataset.chunks(), 3);
    (dir, Arc::new(dataset))
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions { seed: 9, workers, depth: 3, ..Default::default() }
}

fn start(dataset: &Arc<Dataset>, options: LoaderOptions) -> Loader {
    Loader::start(dataset.clone(), Budget::packed(dataset.lengths(), 3), options).unwrap()
}

/// The bytes of the next batch, whose memory goes back at once.
fn bytes(loader: &Loader) -> Vec<u8> {
    take(loader).0
}

fn take(loader: &Loader) -> (Vec<u8>, Position) {
    let batch = loader.next().unwrap().unwrap();
    let bytes = batch.block.bytes().to_vec();
    loader.recycle(batch.block);
    (bytes, batch.position)
}

fn straight(dataset: &Arc<Dataset>, count: usize) -> Vec<Vec<u8>> {
    let loader = start(dataset, options(0));
    (0..count).map(|_| bytes(&loader)).collect()
}

#[test]
fn every_byte_of_a_used_block_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for content in [CacheContent::Pcm, CacheContent::Mel] {
        let (cache, tokenizer) = open_usual(dir.path(), content);
        let (dataset, _) = Dataset::new(cache, &tokenizer, &LIMITS).unwrap();
        for budget in [Budget::packed(dataset.lengths(), 5), Budget::padded(5, MOST)] {
            let layout = dataset.layout(&budget);
            let made = |poison: u8| {
                let mut block = Box::new(PlainBlock::new(layout.bytes));
                block.bytes_mut().fill(poison);
                dataset.batch(&[2, 0, 7], &layout, block, [1, 2, 3]).unwrap()
            };
            assert!(made(0xAA).block.bytes() == made(0).block.bytes());
        }
    }
}

#[test]
fn sound_tokens_and_languages_lie_where_the_layout_says() {
    let dir = tempfile::tempdir().unwrap();
    for content in [CacheContent::Pcm, CacheContent::Mel] {
        let (cache, tokenizer) = open_usual(dir.path(), content);
        let (dataset, _) = Dataset::new(cache.clone(), &tokenizer, &LIMITS).unwrap();
        assert_eq!((dataset.lengths().get(2).frames, dataset.languages()), (4800 / HOP + 1, tokenizer.languages()));
        let layout = dataset.layout(&Budget::packed(dataset.lengths(), 4));
        for section in [layout.sound, layout.tables] {
            assert_eq!(section.start_bytes % 64, 0);
        }
        let clips = [2, 1];
        let batch = dataset.batch(&clips, &layout, Box::new(PlainBlock::new(layout.bytes)), [0; 3]).unwrap();
        let mut expected = vec![0; layout.sound.bytes];
        for (span, clip) in batch.frame_spans.iter().zip(clips) {
            let sound = cache.clip(clip as usize).unwrap().sound;
            let values = sound.bytes();
            expected[span.start * layout.frame_bytes()..][..values.len()].copy_from_slice(values);
        }
        assert!(batch.block.bytes()[layout.sound.range()] == expected);
        let tables = layout.tables(&*batch.block);
        assert_eq!(tables[layout.languages.clone()], [0, 1, 0, 0, 0, 0]);
        assert_eq!(tables[layout.tokens.clone()][batch.text_spans[1].range()], *cache.clip(1).unwrap().tokens);
        let Budget { frames, utterances, longest_frames, .. } = layout.budget;
        let axis = Axis::new(&batch.frame_spans, frames, utterances, longest_frames);
        assert_eq!(layout.frames.read(tables), axis);
        assert_eq!((batch.utterances(), batch.speech_frames()), (2, 19 + 13));
    }
}

#[test]
fn the_order_is_the_same_at_any_number_of_workers() {
    let (_dir, dataset) = dataset();
    let expected = straight(&dataset, 30); // crosses epochs
    for workers in [1, 2, 5] {
        let loader = start(&dataset, options(workers));
        assert!((0..30).all(|at| bytes(&loader) == expected[at]), "{workers} workers");
    }
    let loader = start(&dataset, options(1));
    for (at, expected) in expected.iter().enumerate() {
        loader.set_workers([1, 4, 2, 0, 3][at / 4 % 5]).unwrap();
        loader.set_depth([3, 1, 6][at / 5 % 3]);
        assert!(bytes(&loader) == *expected, "batch {at}");
    }
}

#[test]
fn a_slow_batch_keeps_its_place_and_stops_no_one() {
    let slow = Hook::new(|moment| {
        if matches!(moment, Moment::LayBatch([_, 0, 1])) {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let (_dir, dataset) = dataset();
    let expected = straight(&dataset, 8);
    let loader = start(&dataset, LoaderOptions { hook: slow, ..options(2) });
    assert!(bytes(&loader) == expected[0]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(loader.status().ready >= 3, "the other worker went on: {:?}", loader.status());
    assert!((1..8).all(|at| bytes(&loader) == expected[at]));
}

#[test]
fn a_saved_position_gives_the_same_next_batch_with_any_number_of_workers() {
    let (_dir, dataset) = dataset();
    let expected = straight(&dataset, 30);
    for stop in [1, 7, 13] {
        let loader = start(&dataset, options(3));
        let position = (0..stop).map(|_| take(&loader).1).last().unwrap();
        assert!(position.ahead.is_empty());
        let resumed = start(&dataset, LoaderOptions { from: position, ..options(1) });
        assert!((stop..30).all(|at| bytes(&resumed) == expected[at]));
    }
}

/// A run goes on from any batch as if it had not been stopped, across chunks and epochs, and every epoch has every clip
/// once.
#[test]
fn chunks_of_an_epoch_are_resumed_at_any_batch() {
    let (_dir, dataset) = chunked();
    let budget = Budget::packed(dataset.lengths(), 3);
    for epoch in 0..3 {
        let plans: Vec<_> = (0..3).map(|chunk| dataset.plan(&budget, 9, epoch, chunk)).collect();
        let mut clips: Vec<u32> = plans.iter().flat_map(|plan| plan.iter().flatten()).copied().collect();
        clips.sort_unstable();
        assert!(clips.into_iter().eq(0..CLIPS as u32), "epoch {epoch}");
    }
    let (expected, loader) = (straight(&dataset, 30), start(&dataset, options(2)));
    let mut seen = std::collections::BTreeSet::new();
    for stop in 1..20 {
        let position = take(&loader).1;
        seen.insert((position.epoch, position.chunk));
        let stored = serde_json::from_str(&serde_json::to_string(&position).unwrap()).unwrap();
        let resumed = start(&dataset, LoaderOptions { from: stored, ..options(1) });
        assert!((stop..stop + 8).all(|at| bytes(&resumed) == expected[at]), "from {position:?}");
    }
    assert!(seen.len() > 4, "several chunks and epochs: {seen:?}");
}

/// Two ranks, then three, then one: together they take what one rank takes, and a position is good for any number.
#[test]
fn ranks_take_turns_and_go_on_in_other_numbers() {
    for (_dir, dataset) in [dataset(), chunked()] {
        ranks_take_turns(&dataset);
    }
}

fn ranks_take_turns(dataset: &Arc<Dataset>) {
    let expected = straight(dataset, 30);
    let (mut from, mut next) = (Position::default(), 0);
    for (ranks, turns) in [(2, 4), (3, 5), (1, 3)] {
        let share = |rank| LoaderOptions { share: Share { rank, ranks }, from: from.clone(), ..options(1 + rank) };
        let loaders: Vec<Loader> = (0..ranks).map(|rank| start(dataset, share(rank))).collect();
        let mut positions = Vec::new();
        for _ in 0..turns {
            positions.clear();
            for loader in &loaders {
                let (bytes, position) = take(loader);
                assert!(bytes == expected[next], "batch {next} of {ranks} ranks");
                (next, _) = (next + 1, positions.push(position));
            }
        }
        assert!(positions.windows(2).all(|pair| pair[0] == pair[1]), "{positions:?}");
        from = positions.remove(0);
    }
}

/// Random delays, a changing number of workers, stops anywhere: no batch is lost and none comes twice.
#[test]
fn batches_that_overtake_are_neither_lost_nor_repeated() {
    let delays = Mutex::new(Rng::new(&[5]));
    let hook = Hook::new(move |moment| {
        if matches!(moment, Moment::LayBatch(_)) {
            let micros = delays.lock().unwrap().below(8).pow(4);
            std::thread::sleep(Duration::from_micros(micros as u64));
        }
    });
    let (_dir, dataset) = dataset();
    let expected = straight(&dataset, 80);
    let number = |bytes: Vec<u8>| expected.iter().position(|known| *known == bytes).unwrap() as u64;
    let (mut got, mut from, mut overtaken) = (Vec::new(), Position::default(), false);
    for round in 0..8 {
        let ordered = round == 5;
        let resumed = LoaderOptions { from: from.clone(), ordered, hook: hook.clone(), ..options(1 + round % 4) };
        let loader = start(&dataset, resumed);
        for at in 0..7 {
            let (bytes, position) = take(&loader);
            got.push(number(bytes));
            overtaken |= !position.ahead.is_empty();
            assert!(position.ahead.len() <= 1 + round % 4 + 3 + 1 + 8, "bounded");
            from = serde_json::from_str(&serde_json::to_string(&position).unwrap()).unwrap();
            loader.set_workers(1 + (at + round) % 4).unwrap();
        }
    }
    let budget = Budget::packed(dataset.lengths(), 3);
    let before = (0..from.epoch).map(|epoch| dataset.plan(&budget, 9, epoch, 0).len() as u64).sum::<u64>();
    let low = before + from.batch;
    let done: Vec<u64> = (0..low).chain(from.ahead.iter().map(|distance| low + distance)).collect();
    // Two batches of one clip may be the same.
    let known = |numbers: &[u64]| {
        let mut known: Vec<u64> = numbers.iter().map(|&at| number(expected[at as usize].clone())).collect();
        known.sort_unstable();
        known
    };
    assert_eq!(known(&got), known(&done));
    assert!(overtaken);
    // What is left comes in order.
    let rest = start(&dataset, LoaderOptions { from, hook, ..options(2) });
    let missing: Vec<usize> = (low as usize..80).filter(|number| !done.contains(&(*number as u64))).collect();
    assert!(missing[..5].iter().all(|&at| bytes(&rest) == expected[at]));
}

#[test]
fn memory_is_bounded_and_allocated_once() {
    let (_dir, dataset) = dataset();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let allocate: Allocate = Arc::new(move |bytes| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(PlainBlock::new(bytes)))
    });
    let loader = start(&dataset, LoaderOptions { allocate, in_flight: 2, ..options(3) });
    assert_eq!(loader.host_bytes(), (3 + 3 + 2) * loader.layout().bytes);
    for _ in 0..40 {
        let held = [loader.next().unwrap().unwrap(), loader.next().unwrap().unwrap()];
        std::thread::scope(|scope| {
            scope.spawn(|| held.into_iter().for_each(|batch| loader.recycle(batch.block)));
        });
    }
    assert!(count.load(Ordering::Relaxed) <= 8);
    loader.set_workers(1).unwrap();
    loader.set_depth(1);
    assert_eq!(loader.host_bytes(), (1 + 1 + 2) * loader.layout().bytes);
    assert!((0..20).all(|_| !bytes(&loader).is_empty()));
    assert_eq!(loader.status().workers, 1);
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let (_dir, dataset) = dataset();
    for workers in [0, 2] {
        let allocate: Allocate = Arc::new(|_| Err("out of pinned memory".into()));
        let loader = start(&dataset, LoaderOptions { allocate, ..options(workers) });
        let error = Explained::of(&loader.next().unwrap().err().unwrap()).to_string();
        assert!(error.contains("no memory for a batch of 1 MiB: out of pinned memory\nhint:"), "{error}");
        assert!(loader.next().is_none());
        let allocate: Allocate = Arc::new(|_| panic!("the driver is gone"));
        let loader = start(&dataset, LoaderOptions { allocate, ..options(2) });
        let error = Explained::of(&loader.next().unwrap().err().unwrap()).to_string();
        assert!(error.contains("ended: the driver is gone\nhint:"), "{error}");
    }
}

/// The clip is silent wherever it should be; everything else stays.
#[test]
fn a_clip_that_panics_is_left_out_and_counted_once() {
    let hook = Hook::new(|moment| assert!(moment != Moment::OpenClip(4), "no such sound"));
    let (_dir, dataset) = dataset();
    let layout = dataset.layout(&Budget::packed(dataset.lengths(), 3));
    let expected = straight(&dataset, 20);
    for workers in [0, 1, 3] {
        let loader = start(&dataset, LoaderOptions { max_failures: 1, hook: hook.clone(), ..options(workers) });
        let made: Vec<Vec<u8>> = (0..20).map(|_| bytes(&loader)).collect();
        let failures = loader.failures();
        assert_eq!((failures.len(), failures[0].id.as_str()), (1, "4"));
        assert!(failures[0].path.ends_with("4.wav") && failures[0].reason == "panic: no such sound");
        let silent = made.iter().zip(&expected).filter(|(a, b)| a[layout.sound.range()] != b[layout.sound.range()]);
        let plans: Vec<_> = (0..20).map(|epoch| dataset.plan(&layout.budget, 9, epoch, 0)).collect();
        let batches = plans.iter().flat_map(|plan| plan.iter()).take(20);
        assert_eq!(silent.count(), batches.filter(|clips| clips.contains(&4)).count());
        let loader = start(&dataset, LoaderOptions { hook: hook.clone(), ..options(workers) });
        let error = std::iter::from_fn(|| loader.next()).find_map(|batch| batch.map(|b| loader.recycle(b.block)).err());
        let error = error.unwrap().to_string();
        assert!(error.starts_with("1 clips failed while training, and `max_failures` allows 0:\n"), "{error}");
        assert!(loader.next().is_none());
    }
}

#[test]
fn a_clip_that_rots_on_disk_is_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, tokenizer) = open_usual(dir.path(), CacheContent::Pcm);
    let values = cache.clip(3).unwrap().sound.bytes().to_vec();
    let (cache, _) = open_usual(dir.path(), CacheContent::Pcm);
    rot(&dir.path().join("cache"), &values);
    let dataset = Arc::new(Dataset::new(cache, &tokenizer, &LIMITS).unwrap().0);
    let loader = start(&dataset, LoaderOptions { max_failures: 1, ..options(2) });
    let batches = dataset.plan(&loader.layout().budget, 9, 0, 0).len();
    let utterances: usize = (0..batches)
        .map(|_| {
            let batch = loader.next().unwrap().unwrap();
            let utterances = batch.utterances();
            loader.recycle(batch.block);
            utterances
        })
        .sum();
    assert_eq!((utterances, loader.failures().len()), (CLIPS - 1, 1));
    assert!(loader.failures()[0].reason.contains("clip `3` is not as it was written"));
}

/// Flips one bit of these values, in whichever shard they are.
fn rot(dir: &Path, values: &[u8]) {
    let folders = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let find = |path: PathBuf| {
        let bytes = fs::read(&path).ok()?;
        Some((path, bytes.windows(values.len()).position(|window| window == values)?))
    };
    let (path, at) = files.filter(|path| path.is_file()).find_map(find).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[values[100] ^ 1], at as u64 + 100).unwrap();
}

#[test]
fn a_batch_that_panics_is_tried_again_then_left_out() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let once = Hook::new(move |moment| {
        let third = matches!(moment, Moment::LayBatch([9, 0, 2]));
        assert!(!third || counter.fetch_add(1, Ordering::Relaxed) > 0, "a bad day");
    });
    let (_dir, dataset) = dataset();
    let expected = straight(&dataset, 8);
    let loader = start(&dataset, LoaderOptions { hook: once, ..options(2) });
    assert!((0..8).all(|at| bytes(&loader) == expected[at]) && loader.failures().is_empty());
    let always = Hook::new(|moment| assert!(moment != Moment::LayBatch([9, 0, 2]), "a bad day"));
    for workers in [0, 2] {
        let loader = start(&dataset, LoaderOptions { max_failures: 1, hook: always.clone(), ..options(workers) });
        assert!([0, 1, 3, 4, 5].into_iter().all(|at: usize| bytes(&loader) == expected[at]));
        assert_eq!(loader.failures()[0].id, "batch 2 of epoch 0");
        assert_eq!(loader.failures()[0].reason, "panic: a bad day");
    }
}

/// Noise with a pause behind each of four words, too long for 100 frames.
fn four_words() -> Vec<f32> {
    let mut rng = Rng::new(&[3]);
    let mut noise = |_| rng.below(1000) as f32 / 2000.0 - 0.25;
    let mut word = |_| [(0..5 * 1600).map(&mut noise).collect(), vec![0.0; 1600]].concat();
    (0..4).flat_map(&mut word).collect()
}

#[test]
fn long_clips_are_refused_cropped_or_split() {
    let dir = tempfile::tempdir().unwrap();
    let long = four_words();
    let clips = [(long.clone(), "aaaa bbbb, cccc dddd", "s"), (wave(1), "a", "s"), (long, "aaaaaaaaaaaaaaaaaaaa", "s")];
    for content in [CacheContent::Pcm, CacheContent::Mel] {
        let (cache, tokenizer) = open(dir.path(), content, &clips);
        let make = |long_clips| {
            let limits = ClipLimits { max_characters: 13, long_clips, ..LIMITS };
            Dataset::new(cache.clone(), &tokenizer, &limits).unwrap()
        };
        let (refused, report) = make(LongClips::Refuse);
        assert_eq!((refused.lengths().len(), report.above_limits), (1, 2));
        let limits = "2 above max_mel_frames 100 (151 keeps 99 %), 2 above max_text_length 13 (20 keeps 99 %)";
        assert_eq!(report.to_string(), format!("2 of 3 clips left out: {limits}"));
        let (cropped, report) = make(LongClips::Crop);
        assert_eq!((cropped.lengths().len(), report.cropped, report.above_limits), (2, 1, 1));
        let (split, report) = make(LongClips::Split);
        assert_eq!((split.lengths().len(), report.split, report.pieces), (3, 1, 2));
        assert!(
            report
                .to_string()
                .ends_with("1 clips split into 2 pieces within max_mel_frames 100 and max_text_length 13")
        );

        // The pieces, laid one after the other, are the clip; so is their text, each with the tag in front.
        let layout = split.layout(&Budget::packed(split.lengths(), 5));
        let block = Box::new(PlainBlock::new(layout.bytes));
        let batch = split.batch(&[0, 1], &layout, block, [0; 3]).unwrap();
        let clip = cache.clip(0).unwrap();
        let sound = &batch.block.bytes()[layout.sound.range()];
        let laid: Vec<u8> =
            batch.frame_spans.iter().flat_map(|s| &sound[scaled(s, layout.frame_bytes())]).copied().collect();
        let values = clip.sound.bytes();
        assert!(laid[..values.len()] == *values && laid[values.len()..].iter().all(|&byte| byte == 0));
        let tokens = &layout.tables(&*batch.block)[layout.tokens.clone()];
        let texts: Vec<&[i32]> = batch.text_spans.iter().map(|span| &tokens[span.range()]).collect();
        assert!(texts.iter().all(|text| text[0] == clip.tokens[0]));
        assert_eq!(texts.iter().flat_map(|text| text[1..].to_vec()).collect::<Vec<_>>(), clip.tokens[1..]);
        assert_eq!(texts.iter().map(|text| text.len() - 1).collect::<Vec<_>>(), [11, 9], "two words each");
        let cut_s = (batch.frame_spans[0].len * HOP) as f64 / RATE_HZ as f64;
        assert!((1.1..1.2).contains(&cut_s), "in the pause behind the second word, not at {cut_s} s");
    }
}

fn scaled(span: &Span, by: usize) -> std::ops::Range<usize> {
    span.start * by..span.end() * by
}

#[test]
fn spoken_lengths_vary_within_the_speed_and_fit_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, tokenizer) = open_usual(dir.path(), CacheContent::Pcm);
    let (dataset, _) = Dataset::new(cache, &tokenizer, &ClipLimits { speed: 0.2, ..LIMITS }).unwrap();
    let layout = dataset.layout(&Budget::packed(dataset.lengths(), 5));
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..20 {
        let block = Box::new(PlainBlock::new(layout.bytes));
        let batch = dataset.batch(&[4, 3, 0], &layout, block, [1, 0, number]).unwrap();
        let source = &layout.tables(&*batch.block)[layout.source_lens.clone()];
        for (span, &frames) in batch.frame_spans.iter().zip(source) {
            let factor = f64::from(frames) / span.len as f64;
            assert!((0.75..1.25).contains(&factor), "{frames} frames in {}", span.len);
        }
        seen.insert(batch.frame_spans[0].len);
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[test]
fn known_durations_are_laid_along_the_frames_of_clips_and_pieces_at_any_speed() {
    let dir = tempfile::tempdir().unwrap();
    let clips = [(four_words(), "aaaa bbbb, cccc dddd", "s"), (wave(1), "a", "s")];
    let (cache, tokenizer) = open(dir.path(), CacheContent::Pcm, &clips);
    let (config, stop) = (config(dir.path(), CacheContent::Pcm), AtomicBool::new(false));
    let limits = ClipLimits { max_characters: 13, long_clips: LongClips::Split, ..LIMITS };
    let frozen = |speed: f64| {
        let (mut dataset, _) = Dataset::new(cache.clone(), &tokenizer, &ClipLimits { speed, ..limits }).unwrap();
        let wanted: Vec<_> = dataset.segments().collect();
        let found = durations::find(&config, &tokenizer, &wanted);
        found.map(|durations| dataset.freeze(Arc::new(durations))).map(|()| dataset)
    };
    assert!(frozen(0.0).is_err());
    // Every token but the last has two frames.
    let (plain, _) = Dataset::new(cache.clone(), &tokenizer, &limits).unwrap();
    let lasting = |length: Length| {
        let others = length.tokens - 1;
        [vec![2; others], vec![(length.frames - 2 * others) as i32]].concat()
    };
    let aligned: Vec<Aligned> = plain
        .segments()
        .zip(plain.lengths().iter())
        .map(|((id, segment), length)| Aligned { id: id.into(), segment, durations: lasting(length) })
        .collect();
    assert_eq!(aligned.len(), 3, "two pieces and a clip");
    durations::write(&config, &tokenizer, String::new(), &aligned, &stop).unwrap();
    for speed in [0.0, 0.2] {
        let dataset = frozen(speed).ok().unwrap();
        let layout = dataset.layout(&Budget::packed(dataset.lengths(), 5));
        for number in 0..5 {
            let mut block = Box::new(PlainBlock::new(layout.bytes));
            block.bytes_mut().fill(0xAA);
            let batch = dataset.batch(&[1, 2, 0], &layout, block, [1, 0, number]).unwrap();
            let mut path = layout.tables(&*batch.block)[layout.token_of_frame.clone()].to_vec();
            for (text, frames) in batch.text_spans.iter().zip(&batch.frame_spans) {
                let own = &mut path[frames.range()];
                let tokens: Vec<i32> = own.chunk_by(|a, b| a == b).map(|chunk| chunk[0]).collect();
                assert!(tokens.iter().map(|&token| token as usize).eq(text.range()));
                assert!(speed > 0.0 || own[..4] == [0, 0, 1, 1].map(|token| token + text.start as i32));
                own.fill(0);
            }
            assert!(path.iter().all(|&token| token == 0), "gaps point at the first token");
        }
    }
    // In other pieces they are other clips.
    let (cut, _) = Dataset::new(cache, &tokenizer, &ClipLimits { max_frames: 60, ..limits }).unwrap();
    let wanted: Vec<_> = cut.segments().collect();
    let error = durations::find(&config, &tokenizer, &wanted).err().unwrap().to_string();
    assert!(error.contains("clips have no durations: 0"), "{error}");
}
