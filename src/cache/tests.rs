//! The promises of the cache, each broken on purpose and seen to hold.

use super::*;
use crate::audio;
use std::f32::consts::TAU;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const RATE_HZ: u32 = 16_000;

/// A corpus of sine tones, each of its own pitch, length and text, and a cache folder beside it.
struct Case {
    root: TempDir,
    utterances: Vec<Utterance>,
    tokenizer: Tokenizer,
}

impl Case {
    fn new(clips: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let utterances: Vec<_> = (0..clips).map(|index| utterance(root.path(), index)).collect();
        for (index, utterance) in utterances.iter().enumerate() {
            tone(&utterance.audio, 200.0 + 10.0 * index as f32, 1600 + 16 * index);
        }
        let tokenizer = Tokenizer::fit(utterances.iter().map(|u| (u.text.as_str(), "en")));
        Case { root, utterances, tokenizer }
    }

    fn settings(&self) -> Settings {
        let (language, tokenizer) = ("en".to_owned(), self.tokenizer.fingerprint());
        Settings { rate_hz: RATE_HZ, trim_silence: false, normalize: false, language, tokenizer }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    fn run(&self, workers: usize, max_failures: usize) -> Result<(Cache, Report), Error> {
        self.run_with(workers, max_failures, &|_| (), &AtomicBool::new(false))
    }

    fn run_with(
        &self,
        workers: usize,
        max_failures: usize,
        progress: &(dyn Fn(Progress) + Sync),
        stop: &AtomicBool,
    ) -> Result<(Cache, Report), Error> {
        let (utterances, tokenizer) = (&self.utterances, &self.tokenizer);
        prepare(utterances, tokenizer, &self.settings(), &self.dir(), workers, max_failures, progress, stop)
    }

    fn shards(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir().join(self.settings().folder())).unwrap();
        let mut shards: Vec<_> = entries.map(|e| e.unwrap().path()).filter(|p| shard::claimed(p).is_some()).collect();
        shards.sort();
        shards
    }
}

fn utterance(root: &Path, index: usize) -> Utterance {
    let (id, speaker) = (format!("clip{index}"), "anna".to_owned());
    let text = "a".repeat(index + 1);
    Utterance { audio: root.join(format!("{id}.wav")), id, text, speaker, language: None }
}

/// Written an hour ago, as far as its modification time tells, so that a digest taken now is remembered.
fn tone(path: &Path, hz: f32, samples: usize) {
    let sine = |n: usize| 0.5 * (TAU * hz * n as f32 / RATE_HZ as f32).sin();
    audio::write_wav(path, &(0..samples).map(sine).collect::<Vec<_>>(), RATE_HZ).unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
}

fn counts(report: &Report) -> (usize, usize, usize) {
    (report.built, report.reused, report.failures.len())
}

#[test]
fn builds_once_and_opens_after() {
    let case = Case::new(5);
    let (cache, report) = case.run(2, 0).unwrap();
    assert_eq!(counts(&report), (5, 0, 0));
    assert_eq!(cache.len(), 5);
    let clip = cache.clip(3);
    assert_eq!((clip.id, clip.speaker, clip.language), ("clip3", "anna", "en"));
    assert_eq!(clip.tokens, case.tokenizer.encode("aaaa", "en"));
    assert_eq!((clip.pcm.len(), cache.samples(3), cache.tokens(3)), (1648, 1648, clip.tokens.len()));
    // A sine of amplitude 0.5: its samples are known.
    let expected = |n: usize| (0.5 * (TAU * 230.0 * n as f32 / RATE_HZ as f32).sin() * 32767.0).round();
    assert!((0..1648).all(|n| (f32::from(clip.pcm[n]) - expected(n)).abs() <= 1.0));

    let building = AtomicUsize::new(0);
    let count = |_| {
        building.fetch_add(1, Ordering::Relaxed);
    };
    let (again, report) = case.run_with(2, 0, &count, &AtomicBool::new(false)).unwrap();
    assert_eq!((counts(&report), building.into_inner()), ((0, 5, 0), 0));
    assert_eq!(again.clip(3).pcm, cache.clip(3).pcm);
}

#[test]
fn one_changed_clip_redoes_one_clip() {
    let mut case = Case::new(4);
    case.run(2, 0).unwrap();
    tone(&case.utterances[1].audio, 999.0, 1616);
    let (cache, report) = case.run(2, 0).unwrap();
    assert_eq!(counts(&report), (1, 3, 0), "same size, other bytes");
    assert_eq!(cache.clip(1).id, "clip1");
    case.utterances[2].text = "another".into();
    let (cache, report) = case.run(2, 0).unwrap();
    assert_eq!(counts(&report), (1, 3, 0));
    assert_eq!(cache.clip(2).tokens, case.tokenizer.encode("another", "en"));
    case.utterances.remove(0);
    let (cache, report) = case.run(2, 0).unwrap();
    assert_eq!((counts(&report), cache.clip(0).id), ((0, 3, 0), "clip1"), "clips that went are ignored");
}

#[test]
fn damaged_shards_are_found_and_rebuilt() {
    let case = Case::new(4);
    let (first, _) = case.run(1, 0).unwrap();
    let pcm = first.clip(2).pcm.to_vec();
    let harms: [fn(&mut Vec<u8>); 3] = [|b| b.truncate(b.len() / 2), |b| b.clear(), |b| *b.last_mut().unwrap() ^= 1];
    let flip: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    };
    for harm in harms.into_iter().chain([flip]) {
        let [shard] = &case.shards()[..] else { panic!("one shard") };
        let (mut bytes, modified) = (fs::read(shard).unwrap(), fs::metadata(shard).unwrap().modified().unwrap());
        harm(&mut bytes);
        // Replaced by rename: this process still maps the old file.
        let copy = shard.with_extension("copy");
        fs::write(&copy, bytes).unwrap();
        File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
        fs::rename(&copy, shard).unwrap();
        let (cache, report) = case.run(1, 0).unwrap();
        assert_eq!((counts(&report), report.damaged_shards), ((4, 0, 0), 1));
        assert_eq!(cache.clip(2).pcm, pcm);
    }
}

#[test]
fn shards_outlive_the_table_of_digests() {
    let case = Case::new(3);
    case.run(1, 0).unwrap();
    let table = case.dir().join(case.settings().folder()).join("digests.arrow");
    fs::write(&table, b"not a table").unwrap();
    assert_eq!(counts(&case.run(1, 0).unwrap().1), (0, 3, 0));
    fs::remove_file(&table).unwrap();
    assert_eq!(counts(&case.run(1, 0).unwrap().1), (0, 3, 0));
}

#[test]
fn bad_clips_are_counted_and_skipped() {
    let case = Case::new(4);
    fs::write(&case.utterances[1].audio, b"RIFF").unwrap();
    fs::remove_file(&case.utterances[2].audio).unwrap();
    let (cache, report) = case.run(2, 2).unwrap();
    assert_eq!(counts(&report), (2, 0, 2));
    assert_eq!((cache.clip(0).id, cache.clip(1).id), ("clip0", "clip3"));
    assert_eq!(report.failures[1].path, case.utterances[2].audio);
    let Err(error @ Error::TooManyFailures { .. }) = case.run(2, 1).map(|_| ()) else { panic!("two failures") };
    let text = error.to_string();
    assert!(text.contains("clip1.wav: ") && text.contains("hint: `myxtts check DIR`"), "{text}");
    let only_bad = Case { utterances: case.utterances[1..3].to_vec(), ..case };
    assert!(matches!(only_bad.run(2, 9), Err(Error::NothingUsable { .. })));
}

#[test]
fn an_interrupted_build_goes_on() {
    let case = Case::new(60);
    let stop = AtomicBool::new(false);
    let stop_at_third = |progress| {
        if let Progress::Building { done: 3, .. } = progress {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let Err(Error::Interrupted { built }) = case.run_with(1, 0, &stop_at_third, &stop).map(|_| ()) else {
        panic!("was stopped")
    };
    assert!((3..60).contains(&built), "{built}");
    let (cache, report) = case.run(1, 0).unwrap();
    assert_eq!(counts(&report), (60 - built, built, 0));
    assert!((0..60).all(|index| cache.clip(index).id == format!("clip{index}")));
}

#[test]
fn a_killed_build_leaves_whole_shards_only() {
    let case = Case::new(2);
    let dir = case.dir().join(case.settings().folder());
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("shard.tmp"), b"half").unwrap();
    assert_eq!(counts(&case.run(1, 0).unwrap().1), (2, 0, 0));
    assert!(!dir.join("shard.tmp").exists());
}

#[test]
fn order_and_bytes_do_not_depend_on_workers() {
    let case = Case::new(40);
    let (one, _) = case.run(1, 0).unwrap();
    let shards = case.shards();
    fs::remove_dir_all(case.dir()).unwrap();
    let (four, _) = case.run(4, 0).unwrap();
    assert_eq!(case.shards(), shards, "a shard's name is the digest of its bytes");
    for index in 0..40 {
        let (a, b) = (one.clip(index), four.clip(index));
        assert_eq!((a.id, a.tokens, a.pcm), (b.id, b.tokens, b.pcm));
    }
}

#[test]
fn a_second_process_waits_for_the_builder() {
    let case = Case::new(3);
    let dir = case.dir().join(case.settings().folder());
    fs::create_dir_all(&dir).unwrap();
    let held = File::create(dir.join("lock")).unwrap();
    held.lock().unwrap();
    let waited = AtomicBool::new(false);
    let note =
        |progress| waited.store(waited.load(Ordering::Relaxed) | (progress == Progress::Waiting), Ordering::Relaxed);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| case.run_with(1, 0, &note, &AtomicBool::new(false)).map(|(_, report)| report));
        while !waited.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        held.unlock().unwrap();
        assert_eq!(counts(&other.join().unwrap().unwrap()), (3, 0, 0));
    });
}

#[test]
fn without_caching_nothing_stays() {
    let case = Case::new(2);
    let data = Data { enable_caching: false, sample_rate: RATE_HZ, ..crate::config::Config::default().data };
    let (cache, report) = open(&case.utterances, &case.tokenizer, &data, &|_| (), &AtomicBool::new(false)).unwrap();
    assert_eq!((cache.len(), report.path.exists()), (2, false));
    assert!(cache.clip(1).pcm.iter().any(|&sample| sample != 0), "the maps outlive the names");
}

#[test]
fn distrust_reads_everything_again() {
    let case = Case::new(3);
    let (cache_dir, sample_rate) = (Some(case.dir()), RATE_HZ);
    let data = Data { cache_dir, sample_rate, ..crate::config::Config::default().data };
    let seen = std::sync::Mutex::new(Vec::new());
    let note = |progress| seen.lock().unwrap().push(progress);
    let run = || open(&case.utterances, &case.tokenizer, &data, &note, &AtomicBool::new(false)).unwrap().1;
    run();
    seen.lock().unwrap().clear();
    distrust(&data, &case.tokenizer).unwrap();
    assert_eq!(counts(&run()), (0, 3, 0));
    assert_eq!(seen.lock().unwrap()[0], Progress::Verifying { done: 1, total: 1 });
    assert_eq!(seen.lock().unwrap()[3], Progress::Building { done: 3, total: 3, failed: 0 });
}

#[test]
fn an_unwritable_folder_is_named() {
    let case = Case::new(1);
    fs::write(case.dir(), b"a file, not a folder").unwrap();
    let error = case.run(1, 0).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with(&case.dir().display().to_string()), "{error}");
}
