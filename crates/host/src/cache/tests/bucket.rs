//! A cache in a bucket: a folder behind a `file://` URL is treated as one, and can be harmed by hand.

use super::*;
use crate::config::ByteSize;
use crate::loader::{Budget, ClipLimits, Dataset, Lanes, Loader, LoaderOptions, Position, Share};
use std::collections::HashSet;
use std::sync::Arc;

const CLIPS: usize = 24;
/// Reached by the third clip of some 16,200 samples.
const SHARD_BYTES: u64 = 90_000;

/// Clips that are long enough for their texts.
fn spoken() -> Case {
    let case = Case::new(CLIPS);
    for (index, utterance) in case.utterances.iter().enumerate() {
        tone(utterance.audio.file().unwrap(), 200.0 + 10.0 * index as f32, 16_000 + 16 * index);
    }
    case
}

/// The features of `case` in a bucket beside it, in many small shards.
fn in_bucket(mut case: Case) -> Case {
    let url = format!("file://{}/bucket", case.root.path().display());
    case.config.data.cache_dir = Some(url.into());
    case.config.data.local_cache = Some(case.root.path().join("near"));
    (case.config.data.shard_size, case.config.data.shuffle_shards) = (ByteSize(SHARD_BYTES), 2);
    case
}

/// Another machine with the same recordings, which has fetched nothing.
fn elsewhere(case: &Case) -> Config {
    let mut config = case.config.clone();
    config.data.local_cache = Some(case.root.path().join("elsewhere"));
    config
}

fn opened(case: &Case, config: &Config) -> (Cache, CacheReport) {
    prepare(&case.rows(), &case.tokenizer, config, &|_| (), &AtomicBool::new(false)).unwrap()
}

/// The folder of these settings in the bucket.
fn bucket(case: &Case) -> PathBuf {
    case.root.path().join("bucket").join(FeatureSettings::new(&case.config).folder())
}

fn shards_in(dir: &Path) -> Vec<PathBuf> {
    if dir.exists() { folder::shards(dir).unwrap() } else { vec![] }
}

/// What lies in the store at one moment.
fn fetched_bytes(config: &Config) -> u64 {
    let root = config.data.local_cache.as_ref().unwrap();
    let _lock = root.exists().then(|| crate::storage::bounded::lock_room(root).unwrap());
    local_store::fetched(root).iter().map(|file| file.bytes).sum()
}

fn dataset(cache: Cache, case: &Case, shuffle_shards: usize) -> Arc<Dataset> {
    let limits = ClipLimits { shuffle_shards, ..ClipLimits::of(&case.config) };
    Arc::new(Dataset::new(cache, &case.tokenizer, &limits).unwrap().0)
}

fn loader(dataset: &Arc<Dataset>, from: Position, share: Share, max_failures: usize) -> Loader {
    let options = LoaderOptions { seed: 5, from, share, workers: 2, depth: 2, max_failures, ..Default::default() };
    Loader::start(dataset.clone(), Budget::packed(dataset.lengths(), 2), options).unwrap()
}

fn take(loader: &Loader) -> (Vec<u8>, Position, usize) {
    let batch = loader.next().unwrap().unwrap();
    let (bytes, utterances) = (batch.block.bytes().to_vec(), batch.utterances());
    loader.recycle(batch.block);
    (bytes, batch.position, utterances)
}

#[test]
fn features_are_built_into_a_bucket_and_read_from_elsewhere() {
    let near = spoken();
    let (truth, _) = near.run().unwrap();
    let case = in_bucket(near);
    let (_, report) = opened(&case, &case.config);
    assert_eq!((counts(&report), report.path), ((CLIPS, 0, 0, 0), bucket(&case)));
    assert!(shards_in(&bucket(&case).join("shards")).len() >= 8);
    let config = elsewhere(&case);
    let (cache, report) = opened(&case, &config);
    assert_eq!(counts(&report), (0, 0, CLIPS, 0));
    // Nobody said that shards are needed: each clip is fetched by itself, and no shard.
    assert!((0..CLIPS).all(|index| pcm(&cache, index) == pcm(&truth, index)));
    assert_eq!(fetched_bytes(&config), 0);
    // One that has changed is one clip's work, for whoever comes next too.
    tone(case.utterances[3].audio.file().unwrap(), 777.0, 1700);
    assert_eq!(counts(&opened(&case, &config).1), (1, 0, CLIPS - 1, 0));
    assert_eq!(counts(&opened(&case, &case.config).1).0, 0);
}

/// An epoch needs every shard once, a window at a time; the store keeps to its size, and what comes is what lies there.
#[test]
fn shards_are_fetched_ahead_once_an_epoch_into_bounded_room() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let all: u64 = shards_in(&bucket(&case).join("shards")).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    let mut config = elsewhere(&case);
    config.data.local_cache_size = ByteSize(all * 7 / 8);
    let set = dataset(opened(&case, &config).0, &case, 2);
    assert!(set.chunks() >= 4);
    set.check_room(2).unwrap();
    let free = loader(&dataset(opened(&case, &case.config).0, &case, 2), Position::default(), Share::WHOLE, 0);
    let bounded = loader(&set, Position::default(), Share::WHOLE, 0);
    let (mut utterances, mut seen) = (0, HashSet::new());
    for _ in 0..60 {
        let (bytes, position, some) = take(&bounded);
        assert!(bytes == take(&free).0);
        utterances +=
            if position.epoch == 0 || position == (Position { epoch: 1, ..Position::default() }) { some } else { 0 };
        seen.insert((position.epoch, position.chunk));
        assert!(fetched_bytes(&config) <= all * 7 / 8, "{} of {}", fetched_bytes(&config), all * 7 / 8);
    }
    assert_eq!(utterances, CLIPS);
    assert!(seen.len() > 8, "{seen:?}");
    config.data.local_cache_size = ByteSize(1000);
    let tiny = dataset(opened(&case, &config).0, &case, 2);
    let error = Explained::of(&tiny.check_room(2).unwrap_err()).to_string();
    assert!(error.contains("too few") && error.contains("hint: raise --local-cache-size"), "{error}");
}

#[test]
fn a_run_from_a_bucket_is_resumed_anywhere_and_shared_by_ranks() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let set = dataset(opened(&case, &case.config).0, &case, 2);
    let whole = loader(&set, Position::default(), Share::WHOLE, 0);
    let (expected, positions): (Vec<_>, Vec<_>) = (0..40).map(|_| take(&whole)).map(|(b, p, _)| (b, p)).unzip();
    for stop in [1, 5, 9, 17, 30] {
        let set = dataset(opened(&case, &elsewhere(&case)).0, &case, 2);
        let resumed = loader(&set, positions[stop - 1].clone(), Share::WHOLE, 0);
        assert!((stop..stop + 5).all(|at| take(&resumed).0 == expected[at]), "from {:?}", positions[stop - 1]);
    }
    let ranks: Vec<Loader> =
        (0..2).map(|rank| loader(&set, Position::default(), Share { rank, ranks: 2 }, 0)).collect();
    assert!((0..20).all(|at| take(&ranks[at % 2]).0 == expected[at]));
}

/// Each machine fetches its share of the shards and no more, all have as many batches, and every clip comes once.
#[test]
fn machines_fetch_their_own_shards_and_go_on_in_other_numbers() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let all = shards_in(&bucket(&case).join("shards")).len();
    let machine = |rank: usize| {
        let mut config = case.config.clone();
        config.data.local_cache = Some(case.root.path().join(format!("machine{rank}")));
        config
    };
    let start = |rank: usize, names: &[&str], from: &Position| {
        let (set, share) = (dataset(opened(&case, &machine(rank)).0, &case, 2), Share { rank, ranks: names.len() });
        let (lanes, from, budget) = (Lanes::of_machines(names), from.clone(), Budget::packed(set.lengths(), 2));
        let options = LoaderOptions { seed: 5, from, share, lanes, workers: 2, depth: 2, ..Default::default() };
        Loader::start(set, budget, options).unwrap()
    };
    let two = ["a", "b"];
    let ranks = [0, 1].map(|rank| start(rank, &two, &Position::default()));
    let (mut batches, mut positions, mut utterances) = (vec![], vec![], 0);
    while positions.last().is_none_or(|position: &Position| position.epoch == 0) {
        let [one, other] = [0, 1].map(|rank| take(&ranks[rank]));
        assert_eq!(one.1, other.1, "all stand at the same place");
        utterances += one.2 + other.2;
        positions.push(one.1.clone());
        batches.push([one.0, other.0]);
    }
    // Clips are few here: some batches of one clip may have had to be said twice.
    assert!((CLIPS..CLIPS + 2).contains(&utterances), "{utterances}");
    drop(ranks);
    let fetched = |rank| shards_in(&kept_dir(&machine(rank).data).join(FeatureSettings::new(&case.config).folder()));
    let own: Vec<HashSet<_>> = [0, 1]
        .iter()
        .map(|&rank| fetched(rank).iter().map(|path| path.file_name().unwrap().to_owned()).collect())
        .collect();
    // Of the next epoch the first chunk is fetched, two shards more each.
    assert!(
        own.iter().all(|own| (all / 2..=all / 2 + 3).contains(&own.len())),
        "{} of {all}, {}",
        own[0].len(),
        own[1].len()
    );
    for stop in [1, 3, 4] {
        let ranks = [0, 1].map(|rank| start(rank, &two, &positions[stop - 1]));
        assert!((stop..batches.len()).all(|at| [0, 1].map(|rank| take(&ranks[rank]).0) == batches[at]), "from {stop}");
        // One machine, or three: they go on in the windows at hand, and stay together.
        let one = start(0, &["a"], &positions[stop - 1]);
        assert!(take(&one).1.epoch <= 1);
        let three = [0, 1, 2].map(|rank| start(rank, &["a", "b", "c"], &positions[stop - 1]));
        for _ in 0..4 {
            let at: Vec<Position> = three.iter().map(|rank| take(rank).1).collect();
            assert!(at.windows(2).all(|pair| pair[0] == pair[1]), "{at:?}");
        }
    }
}

/// It counts as one failure, whatever the number of its clips; all else goes on.
#[test]
fn a_shard_that_cannot_be_read_is_counted_once_and_skipped() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let shards = shards_in(&bucket(&case).join("shards"));
    let (gone, spoilt) = (&shards[1], &shards[4]);
    fs::remove_file(gone).unwrap();
    let mut bytes = fs::read(spoilt).unwrap();
    bytes[700] ^= 1;
    fs::write(spoilt, bytes).unwrap();
    let set = dataset(opened(&case, &elsewhere(&case)).0, &case, 2);
    let run = loader(&set, Position::default(), Share::WHOLE, 2);
    let mut utterances = 0;
    loop {
        let (_, position, some) = take(&run);
        utterances += some;
        if position.epoch == 1 {
            break;
        }
    }
    let failures = run.failures();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures.iter().any(|failure| failure.reason == "its bytes are not what its name says"), "{failures:?}");
    assert!(failures.iter().all(|failure| failure.id.contains("/shards/shard-")));
    assert!((CLIPS - 8..CLIPS).contains(&utterances), "{utterances}");
    let few = loader(&set, Position::default(), Share::WHOLE, 1);
    let error = std::iter::from_fn(|| few.next()).find_map(|batch| batch.map(|batch| few.recycle(batch.block)).err());
    assert!(error.unwrap().to_string().starts_with("2 clips failed while training"));
    // A build finds what is missing by name and size, and makes it again.
    let (_, report) = opened(&case, &elsewhere(&case));
    assert_eq!(report.built, 0, "a table says that all is there, and no shard is asked for");
    fs::remove_dir_all(bucket(&case).join("tables")).unwrap();
    fs::remove_dir_all(case.root.path().join("elsewhere")).unwrap();
    fs::remove_dir_all(case.root.path().join("near")).unwrap();
    assert_eq!(counts(&opened(&case, &elsewhere(&case)).1), (CLIPS, 0, 0, 0));
}

/// Who ends a run does not wait for a shard that does not come, and may still read what is there.
#[test]
fn a_run_that_ends_lets_go() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let (cache, _) = opened(&case, &elsewhere(&case));
    let shard = cache.length(0).shard;
    // Another process seems to fetch it, and does not get on.
    let dir = kept_dir(&elsewhere(&case).data).join(FeatureSettings::new(&case.config).folder());
    let name = shards_in(&bucket(&case).join("shards"))
        .into_iter()
        .find(|path| shard::claimed(path) == Some(cache.shard_name(shard)));
    let part = dir.join(name.unwrap().file_name().unwrap()).with_extension("part");
    let other = File::create(&part).unwrap();
    other.lock().unwrap();
    cache.want(vec![shard]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.clip(0).map(|_| ()).map_err(|error| error.to_string()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        cache.stop_fetching();
        assert!(waiting.join().unwrap().unwrap_err().ends_with("the run is over"));
    });
    assert!(cache.clip(0).is_ok(), "by itself");
    // The other process died: what it left half done is done again.
    drop(other);
    cache.want(vec![shard]).unwrap();
    assert!(cache.clip(1).is_ok());
    let is_here = || shards_in(&dir).len() == 1 && !part.exists();
    (0..200).take_while(|_| !is_here()).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
    assert!(is_here());
}

/// What a run holds is not deleted by another that needs room; what nobody holds is.
#[test]
fn a_run_never_deletes_what_another_reads() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let mut config = elsewhere(&case);
    let (one, _) = opened(&case, &config);
    one.want(vec![0, 1, 2]).unwrap();
    let near = |index: usize| one.length(index).shard < 3;
    let clips: Vec<usize> = (0..CLIPS).filter(|&index| near(index)).collect();
    clips.iter().for_each(|&index| drop(one.clip(index).unwrap()));
    let held: HashSet<PathBuf> =
        shards_in(&kept_dir(&config.data).join(FeatureSettings::new(&config).folder())).into_iter().collect();
    assert_eq!(held.len(), 3);
    config.data.local_cache_size = ByteSize(fetched_bytes(&config) + 110_000);
    let (two, _) = opened(&case, &config);
    for shard in 3..8 {
        two.want(vec![shard]).unwrap();
        let index = (0..CLIPS).find(|&index| two.length(index).shard == shard).unwrap();
        two.clip(index).unwrap();
        assert!(held.iter().all(|path| path.exists()), "shard {shard}");
        assert!(fetched_bytes(&config) <= config.data.local_cache_size.0);
    }
    // The first run is over: its shards go as others need room.
    drop(one);
    (3..8).for_each(|shard| {
        two.want(vec![shard, (shard + 1) % 8]).unwrap();
        let index = (0..CLIPS).find(|&index| two.length(index).shard == shard).unwrap();
        two.clip(index).unwrap();
    });
    assert!(held.iter().any(|path| !path.exists()));
}

/// A corpus whose features are in a bucket, and a store that three of its shards fit into.
fn with_room_for_three() -> (Case, Config) {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let mut config = elsewhere(&case);
    let largest = shards_in(&bucket(&case).join("shards")).iter().map(|path| fs::metadata(path).unwrap().len()).max();
    config.data.local_cache_size = ByteSize(3 * largest.unwrap());
    (case, config)
}

/// Batches that are laid ahead reach beyond what fits here: nobody waits for room, neither they nor who asks for a clip in
/// between, as a validation does.
#[test]
fn a_store_smaller_than_what_is_laid_ahead_keeps_nobody_waiting() {
    let (case, config) = with_room_for_three();
    let (cache, _) = opened(&case, &config);
    let set = dataset(cache.clone(), &case, 1);
    set.check_room(1).unwrap();
    let options = LoaderOptions { seed: 5, workers: 2, depth: 9, ..Default::default() };
    let run = Loader::start(set.clone(), Budget::packed(set.lengths(), 2), options).unwrap();
    let start = std::time::Instant::now();
    for _ in 0..30 {
        take(&run);
        assert!((0..CLIPS).all(|index| cache.clip(index).is_ok()));
        assert!(fetched_bytes(&config) <= config.data.local_cache_size.0);
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

/// A batch has copies of its clips, so shards are let go when their batches are laid and not when they are taken: the room is for
/// shards to come, which are fetched before a worker asks for them.
#[test]
fn shards_of_batches_that_wait_make_room_for_those_to_come() {
    let (case, config) = with_room_for_three();
    let (cache, _) = opened(&case, &config);
    let set = dataset(cache.clone(), &case, 1);
    let (budget, ahead) = (Budget::packed(set.lengths(), 2), 8);
    let options = LoaderOptions { seed: 5, workers: 2, depth: ahead - 3, ..Default::default() };
    let run = Loader::start(set.clone(), budget, options).unwrap();
    // Shards of the chunk of the first batch that nobody makes yet, and of the next two; a chunk has one.
    let (mut batches, mut first) = (0, 0);
    while batches + set.plan(&budget, 5, 0, first).len() <= ahead {
        batches += set.plan(&budget, 5, 0, first).len();
        first += 1;
    }
    assert!(first >= 3 && first + 3 <= set.chunks(), "{first} of {}", set.chunks());
    let shard = |chunk| cache.shard(set.plan(&budget, 5, 0, chunk).batch(0)[0] as usize).unwrap();
    let to_come: HashSet<_> = (first..first + 3).map(|chunk| cache.shard_name(shard(chunk))).collect();
    let dir = kept_dir(&config.data).join(FeatureSettings::new(&config).folder());
    let here = || shards_in(&dir).iter().filter_map(|path| shard::claimed(path)).collect::<HashSet<_>>();
    (0..500).take_while(|_| here() != to_come).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
    assert_eq!((here(), run.status().ready), (to_come, ahead), "and no batch was taken");
}

/// It takes milliseconds, for which neither a step nor a worker should wait: they did, at every window.
#[test]
fn shards_are_unmapped_by_those_who_fetch() {
    let case = in_bucket(spoken());
    opened(&case, &case.config);
    let run = loader(&dataset(opened(&case, &elsewhere(&case)).0, &case, 1), Position::default(), Share::WHOLE, 0);
    (0..20).for_each(|_| drop(take(&run)));
    let let_go = || {
        let all = local_store::LET_GO.lock().unwrap().clone();
        all.into_iter().filter(|(path, _)| path.starts_with(case.root.path())).collect::<Vec<_>>()
    };
    (0..500).take_while(|_| let_go().len() < 5).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
    let own = let_go();
    assert!(own.len() >= 5, "{own:?}");
    assert!(own.iter().all(|(_, thread)| thread.as_deref() == Some("fetch")), "{own:?}");
}

/// Machines that share nothing but the bucket, one of which does another's work again.
#[test]
fn parts_are_built_into_a_bucket_by_several_machines() {
    let case = in_bucket(spoken().workers(1));
    let part = |number, config: &Config| {
        let stop = AtomicBool::new(false);
        prepare_part(&case.rows(), Part { number, of: 3 }, &case.tokenizer, config, &|_| (), &stop).unwrap().built
    };
    let machines: Vec<Config> = (0..3)
        .map(|number| {
            let mut config = case.config.clone();
            config.data.local_cache = Some(case.root.path().join(format!("machine{number}")));
            config
        })
        .collect();
    assert_eq!(machines.iter().enumerate().map(|(number, config)| part(number, config)).sum::<usize>(), CLIPS);
    let tables = || fs::read_dir(bucket(&case).join("tables")).unwrap().count();
    let shards = shards_in(&bucket(&case).join("shards"));
    assert_eq!((shards.len(), tables()), (9, 3));
    assert_eq!(part(1, &machines[2]), 0, "done by another");
    let (cache, report) = opened(&case, &elsewhere(&case));
    assert_eq!((counts(&report), cache.len(), tables()), ((0, 0, CLIPS, 0), CLIPS, 1));
    assert_eq!(shards_in(&bucket(&case).join("shards")), shards);
}

#[test]
fn a_local_part_without_a_bucket_is_an_error() {
    let mut case = Case::new(1);
    case.config.data.local_cache = Some("near".into());
    let error = Explained::of(&case.run().map(|_| ()).unwrap_err()).to_string();
    assert!(error.contains("local_cache is for features that lie in a bucket\nhint: name a bucket"), "{error}");
}
