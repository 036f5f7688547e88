//! The promises of the cache, each broken on purpose and seen to hold.

mod bucket;
mod clearing;
mod durations;
mod full;
mod hostile;
mod parts;
mod python;

use super::digest::Digest;
use super::*;
use crate::audio;
use crate::config::{CacheContent, MaxFailures};
use crate::corpus::Utterance;
use crate::error::Explained;
use std::f32::consts::TAU;
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const RATE_HZ: u32 = 16_000;

/// A corpus of sine tones, each of its own pitch, length and text, and a cache folder beside it.
pub(super) struct Case {
    pub root: TempDir,
    pub utterances: Vec<Utterance>,
    tokenizer: Tokenizer,
    pub config: Config,
}

impl Case {
    pub fn new(clips: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let utterances: Vec<_> = (0..clips).map(|index| utterance(root.path(), index)).collect();
        for (index, utterance) in utterances.iter().enumerate() {
            tone(utterance.audio.file().unwrap(), 200.0 + 10.0 * index as f32, 1600 + 16 * index);
        }
        let tokenizer = Tokenizer::fit(utterances.iter().map(|u| (u.text.as_str(), "en")));
        let mut config = Config::default();
        (config.data.sample_rate, config.data.cache_dir) = (RATE_HZ, Some(root.path().join("cache")));
        (config.data.trim_silence, config.data.normalize_audio) = (false, false);
        (config.data.num_workers, config.data.max_failures) = (Some(2), MaxFailures::Clips(0));
        config.data.language = "en".into();
        Case { root, utterances, tokenizer, config }
    }

    fn workers(mut self, workers: usize) -> Self {
        self.config.data.num_workers = Some(workers);
        self
    }

    pub fn rows(&self) -> Utterances {
        self.utterances.iter().cloned().collect()
    }

    /// The folder of these settings.
    pub fn dir(&self) -> PathBuf {
        kept_dir(&self.config.data).join(FeatureSettings::new(&self.config).folder())
    }

    pub fn run(&self) -> Result<(Cache, CacheReport), Error> {
        self.run_with(&|_| (), &AtomicBool::new(false))
    }

    fn run_with(&self, progress: &(dyn Fn(Progress) + Sync), stop: &AtomicBool) -> Result<(Cache, CacheReport), Error> {
        open(&self.rows(), &self.tokenizer, &self.config, progress, stop, &Hook::NONE)
    }

    pub fn counts(&self) -> (usize, usize, usize, usize) {
        counts(&self.run().unwrap().1)
    }

    pub fn shards(&self) -> Vec<PathBuf> {
        folder::shards(&self.dir()).unwrap()
    }

    pub fn tables(&self) -> Vec<PathBuf> {
        folder::tables(&self.dir()).unwrap()
    }

    fn tokens(&self, text: &str) -> Vec<i32> {
        self.tokenizer.encode(text, "en").unwrap()
    }
}

fn pcm(cache: &Cache, index: usize) -> Vec<i16> {
    let ClipSound::Pcm(samples) = cache.clip(index).unwrap().sound else { panic!("asked for samples") };
    samples.to_vec()
}

fn id(cache: &Cache, index: usize) -> &str {
    cache.clip(index).unwrap().id
}

fn utterance(root: &Path, index: usize) -> Utterance {
    let (id, speaker) = (format!("clip{index}"), "anna".to_owned());
    let text = "a".repeat(index + 1);
    Utterance { audio: root.join(format!("{id}.wav")).into(), id, text, speaker, language: None }
}

/// Written an hour ago, as far as its modification time tells, so that a digest taken now is remembered.
fn tone(path: &Path, hz: f32, samples: usize) {
    let sine = |n: usize| 0.5 * (TAU * hz * n as f32 / RATE_HZ as f32).sin();
    audio::write_wav(path, &(0..samples).map(sine).collect::<Vec<_>>(), RATE_HZ).unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
}

/// (built, encoded, reused, failed)
fn counts(report: &CacheReport) -> (usize, usize, usize, usize) {
    (report.built, report.encoded, report.reused, report.failures.len())
}

/// Replaced by rename: this process still maps the old file.
fn replace(path: &Path, bytes: &[u8]) {
    let copy = path.with_extension("copy");
    fs::write(&copy, bytes).unwrap();
    fs::rename(&copy, path).unwrap();
}

#[test]
fn builds_once_and_opens_after() {
    let case = Case::new(5);
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (5, 0, 0, 0));
    assert_eq!(cache.len(), 5);
    let clip = cache.clip(3).unwrap();
    assert_eq!((clip.id, clip.speaker, clip.language), ("clip3", "anna", "en"));
    assert_eq!(clip.tokens, case.tokens("aaaa"));
    let length = ClipLength { frames: 1648 / 256 + 1, tokens: clip.tokens.len(), characters: 4, shard: 0 };
    assert_eq!(cache.length(3), length);
    // A sine of amplitude 0.5: its samples are known.
    let expected = |n: usize| (0.5 * (TAU * 230.0 * n as f32 / RATE_HZ as f32).sin() * 32767.0).round();
    let samples = pcm(&cache, 3);
    assert_eq!(samples.len(), 1648);
    assert!((0..1648).all(|n| (f32::from(samples[n]) - expected(n)).abs() <= 1.0));

    let building = AtomicUsize::new(0);
    let count = |_| {
        building.fetch_add(1, Ordering::Relaxed);
    };
    let (again, report) = case.run_with(&count, &AtomicBool::new(false)).unwrap();
    assert_eq!((counts(&report), building.into_inner()), ((0, 0, 5, 0), 0));
    assert_eq!(pcm(&again, 3), samples);
}

#[test]
fn mel_frames_are_those_of_the_extractor() {
    let mut case = Case::new(2);
    case.config.data.cache_content = CacheContent::Mel;
    case.config.model.n_mels = 20;
    let (cache, report) = case.run().unwrap();
    let FeatureSettings { rate_hz, mel: Some(mel), .. } = FeatureSettings::new(&case.config) else {
        panic!("asked for mel")
    };
    let extractor =
        audio::mel::Extractor::new(rate_hz, mel.n_fft, mel.hop_samples, mel.n_mels, mel.f_min_hz, mel.f_max_hz);
    let wave = audio::decode(case.utterances[1].audio.file().unwrap()).unwrap();
    let mut work = audio::mel::MelScratch::default();
    let expected = extractor.log_mel(&wave.samples, &mut work);
    let ClipSound::Mel(frames) = cache.clip(1).unwrap().sound else { panic!("asked for mel") };
    assert_eq!((frames.len(), cache.values_per_frame()), (cache.length(1).frames * 20, 20));
    // Half precision has 11 bits: half a thousandth of the value.
    assert!(frames.iter().zip(expected).all(|(ours, exact)| (ours.to_f32() - exact).abs() <= exact.abs() / 1024.0));
    assert_eq!(report.bytes as usize, (cache.length(0).frames + cache.length(1).frames) * 20 * 2 + 4 * (2 + 3));
    assert_eq!(case.counts(), (0, 0, 2, 0));
}

#[test]
fn one_changed_clip_redoes_one_clip() {
    let mut case = Case::new(4);
    case.run().unwrap();
    tone(case.utterances[1].audio.file().unwrap(), 999.0, 1616);
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (1, 0, 3, 0), "same size, other bytes");
    assert_eq!(id(&cache, 1), "clip1");
    case.utterances[2].text = "another".into();
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (0, 1, 3, 0), "another text is no work for sound");
    assert_eq!(cache.clip(2).unwrap().tokens, case.tokens("another"));
    case.utterances.remove(0);
    let (cache, report) = case.run().unwrap();
    assert_eq!((counts(&report), id(&cache, 0)), ((0, 0, 3, 0), "clip1"), "clips that went are ignored");
    case.utterances.push(utterance(case.root.path(), 9));
    tone(case.utterances[3].audio.file().unwrap(), 555.0, 1700);
    assert_eq!(case.counts(), (1, 0, 3, 0));
}

/// In a corpus too large to look at every recording when it is opened.
#[test]
fn a_recording_that_was_not_looked_at_is_looked_at_when_it_is_used() {
    let case = Case::new(4);
    case.run().unwrap();
    let open_unseen = || {
        let (progress, stop) = (|_| (), AtomicBool::new(false));
        with_job(0, all(&case.rows()), &case.tokenizer, &case.config, (&progress, &stop, &Hook::NONE), build_missing)
            .unwrap()
            .unwrap()
    };
    tone(case.utterances[1].audio.file().unwrap(), 999.0, 1616);
    let (cache, report) = open_unseen();
    assert_eq!(counts(&report), (0, 0, 4, 0));
    assert!(cache.clip(0).is_ok() && cache.clip(3).is_ok());
    let error = cache.clip(1).unwrap_err().to_string();
    assert!(error.starts_with(&case.utterances[1].audio.to_string()), "{error}");
    assert_eq!(counts(&open_unseen().1), (1, 0, 3, 0), "the next run makes it again");
}

/// So many shards that they are not all mapped: one is when a clip of it is first used, and what is wrong is found then.
#[test]
fn shards_that_were_not_mapped_are_mapped_when_they_are_used() {
    let mut case = Case::new(3);
    case.run().unwrap();
    case.utterances.extend((3..6).map(|index| utterance(case.root.path(), index)));
    (3..6).for_each(|index| tone(case.utterances[index].audio.file().unwrap(), 300.0 + index as f32, 1700));
    let (whole, _) = case.run().unwrap();
    let shards = case.shards();
    assert_eq!(shards.len(), 2);
    let (progress, stop) = (|_| (), AtomicBool::new(false));
    let lazily = |job: &BuildJob| build_missing(&BuildJob { mapped_at_once: 1, ..job.clone() });
    let open = || {
        with_job(9, all(&case.rows()), &case.tokenizer, &case.config, (&progress, &stop, &Hook::NONE), lazily)
            .unwrap()
            .unwrap()
    };
    let (cache, report) = open();
    assert_eq!(counts(&report), (0, 0, 6, 0));
    assert!((0..6).all(|index| pcm(&cache, index) == pcm(&whole, index)));
    // One of the two is looked at when the cache is opened. The other goes unnoticed until a clip is asked for.
    let (cache, _) = open();
    let gone = shards.iter().position(|shard| shard::claimed(shard) == Some(cache.shard_name(1))).unwrap();
    fs::remove_file(&shards[gone]).unwrap();
    let (cache, _) = open();
    let failed = (0..6).filter(|&index| cache.clip(index).is_err()).count();
    assert_eq!(failed, 3);
    assert_eq!(case.counts(), (3, 0, 3, 0), "the next run makes it again");
}

/// Clips of many lengths in several batches, as samples and as frames of an odd number of bands.
#[test]
fn what_is_where_is_told_without_reading_it_back() {
    for content in [CacheContent::Pcm, CacheContent::Mel] {
        let mut case = Case::new(30);
        (case.config.data.cache_content, case.config.model.n_mels) = (content, 27);
        for (index, utterance) in case.utterances.iter().enumerate() {
            tone(utterance.audio.file().unwrap(), 300.0, 90_001 - 997 * index);
        }
        let (told, _) = case.run().unwrap();
        distrust(&case.config).unwrap();
        let (read, report) = case.run().unwrap();
        assert_eq!(counts(&report), (0, 30, 0, 0));
        assert!((0..30).all(|index| told.clip(index).unwrap().sound == read.clip(index).unwrap().sound));
    }
}

#[test]
fn another_tokenizer_is_no_work_for_sound() {
    let mut case = Case::new(4);
    let (before, _) = case.run().unwrap();
    case.tokenizer = Tokenizer::fit([("größer", "de"), ("aaaa", "en")].into_iter());
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (0, 4, 0, 0));
    assert_ne!(cache.clip(3).unwrap().tokens, before.clip(3).unwrap().tokens);
    assert_eq!((cache.clip(3).unwrap().tokens, pcm(&cache, 3)), (&*case.tokens("aaaa"), pcm(&before, 3)));
    assert_eq!(case.shards().len(), 1);
}

#[test]
fn the_same_recording_under_two_names_is_kept_once() {
    let mut case = Case::new(3);
    fs::copy(case.utterances[0].audio.file().unwrap(), case.utterances[2].audio.file().unwrap()).unwrap();
    case.utterances[1].audio = case.utterances[0].audio.clone();
    let (cache, report) = case.run().unwrap();
    assert_eq!((report.built, cache.len()), (3, 3));
    assert_eq!((pcm(&cache, 1), pcm(&cache, 2)), (pcm(&cache, 0), pcm(&cache, 0)));
    assert!(fs::metadata(&case.shards()[0]).unwrap().len() < 2 * 3200 + 4096);
}

/// The rows that a table keeps for training and validation are those that the split of a corpus gives, whatever failed.
#[test]
fn parts_are_those_of_the_corpus() {
    let mut case = Case::new(40);
    fs::write(case.utterances[7].audio.file().unwrap(), b"RIFF").unwrap();
    case.config.data.max_failures = MaxFailures::Clips(1);
    let (cache, _) = case.run().unwrap();
    let ids = |cache: &Cache| (0..cache.len()).map(|index| id(cache, index).to_owned()).collect::<Vec<_>>();
    let all_of = |part: Vec<Utterance>| {
        part.into_iter().map(|utterance| utterance.id).filter(|id| id != "clip7").collect::<Vec<_>>()
    };
    for (train, val) in [(0.9, 0.1), (1.0, 0.0), (0.5, 0.3), (0.01, 0.01), (0.2, 0.8)] {
        (case.config.data.train_split, case.config.data.val_split) = (train, val);
        let corpus = crate::corpus::Corpus { utterances: case.rows(), ..Default::default() };
        let (expected, held_out) = crate::dataset::parts(corpus, &case.config.data);
        let (training, validation) = cache.parts(None, &case.config.data).unwrap();
        assert_eq!((ids(&training), ids(&validation)), (all_of(expected), all_of(held_out)), "{train} {val}");
    }
    let (training, validation) = cache.parts(Some(30), &case.config.data).unwrap();
    assert_eq!((training.len(), validation.len(), id(&validation, 0)), (29, 10, "clip30"));
    assert_eq!(pcm(&validation, 1), pcm(&cache, 30));
    assert_eq!((cache.before(Some(30)).len(), cache.before(None).len()), (29, 39));
}

#[test]
fn damaged_shards_are_found_and_rebuilt() {
    let case = Case::new(4).workers(1);
    let (first, _) = case.run().unwrap();
    let harms: [fn(&mut Vec<u8>); 3] = [|b| b.truncate(b.len() / 2), |b| b.clear(), |b| *b.last_mut().unwrap() ^= 1];
    let flip: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    };
    for harm in harms.into_iter().chain([flip]) {
        let [shard] = &case.shards()[..] else { panic!("one shard") };
        let (mut bytes, modified) = (fs::read(shard).unwrap(), fs::metadata(shard).unwrap().modified().unwrap());
        harm(&mut bytes);
        replace(shard, &bytes);
        File::options().write(true).open(shard).unwrap().set_modified(modified).unwrap();
        let (cache, report) = case.run().unwrap();
        assert_eq!((counts(&report), report.damaged_shards), ((4, 0, 0, 0), 1));
        assert_eq!(pcm(&cache, 2), pcm(&first, 2));
    }
}

/// Bits that rot leave size and times as they are. Written in place before the map reads the page, that is what they
/// look like to the program.
#[test]
fn rot_is_found_at_first_use_and_mended_by_the_next_run() {
    let case = Case::new(4).workers(1);
    let (first, _) = case.run().unwrap();
    let truth = pcm(&first, 2);
    drop(first);
    let (cache, _) = case.run().unwrap();
    let [shard] = &case.shards()[..] else { panic!("one shard") };
    flip_in_place(shard, 2 * (1600 + 1616 + 100) + 512);
    let found: Vec<_> = (0..4).map(|index| cache.clip(index).map(|_| ()).map_err(|error| error.to_string())).collect();
    let [error] = &found.iter().filter_map(|clip| clip.as_ref().err()).collect::<Vec<_>>()[..] else {
        panic!("one clip is damaged: {found:?}")
    };
    assert!(error.contains("shard-") && error.contains("is not as it was written"), "{error}");
    assert!(!shard.exists());
    let (cache, report) = case.run().unwrap();
    assert_eq!((counts(&report), pcm(&cache, 2)), ((4, 0, 0, 0), truth));

    let [table] = &case.tables()[..] else { panic!("one table") };
    let bytes = fs::read(table).unwrap();
    let tokens: Vec<u8> = case.tokens("aaaa").iter().flat_map(|token| token.to_le_bytes()).collect();
    let at = bytes.windows(tokens.len()).position(|window| window == tokens).unwrap();
    flip_in_place(table, at as u64 + 4);
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (0, 4, 0, 0), "the sound is still there");
    assert_eq!(cache.clip(3).unwrap().tokens, case.tokens("aaaa"));
}

fn flip_in_place(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn shards_outlive_the_tables() {
    let case = Case::new(3);
    case.run().unwrap();
    replace(&case.tables()[0], b"not a table");
    assert_eq!(case.counts(), (0, 3, 0, 0));
    fs::remove_file(&case.tables()[0]).unwrap();
    assert_eq!(case.counts(), (0, 3, 0, 0));
}

#[test]
fn bad_clips_are_counted_skipped_and_remembered() {
    let mut case = Case::new(4);
    fs::write(case.utterances[1].audio.file().unwrap(), b"RIFF").unwrap();
    fs::remove_file(case.utterances[2].audio.file().unwrap()).unwrap();
    case.config.data.max_failures = MaxFailures::Percent(50.0);
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (2, 0, 0, 2));
    assert_eq!((id(&cache, 0), id(&cache, 1)), ("clip0", "clip3"));
    assert_eq!(Some(&*report.failures[1].path), case.utterances[2].audio.file());
    assert_eq!(case.counts(), (0, 0, 2, 2));
    // 49 % of 4 clips is one clip.
    case.config.data.max_failures = MaxFailures::Percent(49.0);
    let Err(error @ Error::TooManyFailures { .. }) = case.run().map(|_| ()) else { panic!("two failures") };
    let text = Explained::of(&error).to_string();
    assert!(text.contains("clip1.wav: ") && text.contains("hint: `myxtts check DIR`"), "{text}");
    tone(case.utterances[2].audio.file().unwrap(), 300.0, 1600);
    assert_eq!(case.counts(), (1, 0, 2, 1), "a clip that was mended is taken in");
    case.config.data.max_failures = MaxFailures::Clips(9);
    case.utterances = case.utterances[1..2].to_vec();
    assert!(matches!(case.run(), Err(Error::NothingUsable { .. })));
}

#[test]
fn a_text_that_cannot_be_read_fails_its_clip_and_is_tried_again() {
    let mut case = Case::new(3);
    let Ok(tokenizer) = Tokenizer::of_corpus(&case.rows(), "en", crate::config::TokenizerKind::Phonemes) else {
        return crate::skipped("espeak-ng, whose voices can be missing, is not installed");
    };
    case.tokenizer = tokenizer;
    case.utterances[1].language = Some("xx".into());
    case.config.data.max_failures = MaxFailures::Clips(1);
    for built in [2, 0] {
        let (cache, report) = case.run().unwrap();
        assert_eq!((cache.len(), report.built, report.failures.len()), (2, built, 1));
        assert!(report.failures[0].reason.starts_with("its text: "), "{:?}", report.failures);
    }
}

#[test]
fn an_interrupted_build_goes_on() {
    let case = Case::new(60).workers(1);
    let stop = AtomicBool::new(false);
    let stop_at_third = |progress| {
        if let Progress::Building { done: 3, .. } = progress {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let Err(Error::Interrupted { built }) = case.run_with(&stop_at_third, &stop).map(|_| ()) else {
        panic!("was stopped")
    };
    assert!((3..60).contains(&built), "{built}");
    let (cache, report) = case.run().unwrap();
    assert_eq!(counts(&report), (60 - built, 0, built, 0));
    assert!((0..60).all(|index| id(&cache, index) == format!("clip{index}")));
}

#[test]
fn a_killed_build_leaves_whole_shards_only() {
    let case = Case::new(2);
    fs::create_dir_all(case.dir()).unwrap();
    fs::write(case.dir().join("shard.tmp"), b"half").unwrap();
    assert_eq!(case.counts(), (2, 0, 0, 0));
    assert!(!case.dir().join("shard.tmp").exists());
}

#[test]
fn order_and_bytes_do_not_depend_on_workers() {
    let case = Case::new(40).workers(1);
    let (one, _) = case.run().unwrap();
    let shards = case.shards();
    fs::remove_dir_all(case.dir()).unwrap();
    let case = case.workers(4);
    let (four, _) = case.run().unwrap();
    assert_eq!(case.shards(), shards, "a shard's name is the digest of its bytes");
    for index in 0..40 {
        let (a, b) = (one.clip(index).unwrap(), four.clip(index).unwrap());
        assert_eq!((a.id, a.tokens, a.sound), (b.id, b.tokens, b.sound));
    }
}

#[test]
fn a_second_process_waits_for_the_builder() {
    let case = Case::new(3);
    fs::create_dir_all(case.dir()).unwrap();
    let held = File::create(case.dir().join("lock")).unwrap();
    held.lock().unwrap();
    let waited = AtomicBool::new(false);
    let note =
        |progress| waited.store(waited.load(Ordering::Relaxed) | (progress == Progress::Waiting), Ordering::Relaxed);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| case.run_with(&note, &AtomicBool::new(false)).map(|(_, report)| report));
        while !waited.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        held.unlock().unwrap();
        assert_eq!(counts(&other.join().unwrap().unwrap()), (3, 0, 0, 0));
    });
}

#[test]
fn without_caching_nothing_stays() {
    let mut case = Case::new(2);
    case.config.data.enable_caching = false;
    let (cache, report) = case.run().unwrap();
    assert_eq!((cache.len(), report.path.exists()), (2, false));
    assert!(pcm(&cache, 1).iter().any(|&sample| sample != 0), "the maps outlive the names");
}

#[test]
fn an_empty_part_is_a_cache_too() {
    let mut case = Case::new(1);
    case.utterances.clear();
    assert!(case.run().unwrap().0.is_empty());
    assert!(case.run().unwrap().0.is_empty());
}

#[test]
fn distrust_reads_everything_again() {
    let case = Case::new(3);
    let seen = std::sync::Mutex::new(Vec::new());
    let note = |progress| seen.lock().unwrap().push(progress);
    let run = || case.run_with(&note, &AtomicBool::new(false)).unwrap().1;
    distrust(&case.config).unwrap();
    run();
    seen.lock().unwrap().clear();
    distrust(&case.config).unwrap();
    assert_eq!(counts(&run()), (0, 3, 0, 0));
    assert_eq!(seen.lock().unwrap()[0], Progress::Verifying { done: 1, total: 1 });
    assert_eq!(seen.lock().unwrap()[3], Progress::Building { done: 3, total: 3, failed: 0 });
}

#[test]
fn an_unwritable_folder_is_named() {
    let case = Case::new(1);
    let dir = kept_dir(&case.config.data);
    fs::write(&dir, b"a file, not a folder").unwrap();
    let error = case.run().map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with(&dir.display().to_string()), "{error}");
}
