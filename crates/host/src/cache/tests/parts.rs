//! A corpus that several machines build, each its part, and what becomes of it when one dies or two do the same.

use super::*;
use std::thread::scope;

fn build(case: &Case, number: usize, of: usize) -> Result<CacheReport, Error> {
    let (part, stop) = (Part { number, of }, AtomicBool::new(false));
    prepare_part(&case.rows(), part, &case.tokenizer, &case.config, &|_| (), &stop)
}

fn prepared(case: &Case) -> (Cache, CacheReport) {
    prepare(&case.rows(), &case.tokenizer, &case.config, &|_| (), &AtomicBool::new(false)).unwrap()
}

fn clips(cache: &Cache) -> Vec<(String, Vec<i32>, Vec<i16>)> {
    let clip = |index| (id(cache, index).to_owned(), cache.clip(index).unwrap().tokens.to_vec(), pcm(cache, index));
    (0..cache.len()).map(clip).collect()
}

/// Many at once and more of them than tables are kept; then one index, for which nothing is built.
#[test]
fn parts_that_are_built_at_once_become_one_index() {
    let case = Case::new(30).workers(1);
    let truth = clips(&prepared(&case).0);
    fs::remove_dir_all(case.dir()).unwrap();
    let built: usize = scope(|scope| {
        let parts: Vec<_> = (0..12)
            .map(|number| {
                scope.spawn({
                    let case = &case;
                    move || build(case, number, 12)
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap().unwrap().built).sum()
    });
    assert_eq!((built, case.tables().len(), case.shards().len()), (30, 12, 12));
    let reads = AtomicUsize::new(0);
    let hook = Hook::new(move |moment| assert!(moment != crate::simulate::Moment::ReadRecording, "{reads:?}"));
    let (cache, report) =
        open(&case.rows(), &case.tokenizer, &case.config, &|_| (), &AtomicBool::new(false), &hook).unwrap();
    assert_eq!((counts(&report), clips(&cache)), ((0, 0, 30, 0), truth));
    assert_eq!(case.tables().len(), 1, "parts have served");
    assert_eq!(case.counts(), (0, 0, 30, 0));
}

#[test]
fn a_machine_that_dies_is_done_again_without_harm() {
    let case = Case::new(20).workers(1);
    build(&case, 0, 2).unwrap();
    let whole = case.shards();
    // It left a shard without a table, and one that is half written.
    build(&case, 1, 2).unwrap();
    for table in case.tables() {
        let is_second = table::CorpusTable::open(&table).unwrap().id(0) == "clip10";
        is_second.then(|| fs::remove_file(table).unwrap());
    }
    fs::write(case.dir().join("shard.0123456789ab.tmp"), b"half").unwrap();
    let shards = case.shards();
    assert_eq!((whole.len(), shards.len(), case.tables().len()), (1, 2, 1));
    let stats: Vec<_> = shards.iter().map(|path| file_stat::FileStat::of(path)).collect();
    assert_eq!(build(&case, 1, 2).unwrap().built, 10);
    assert_eq!(case.shards(), shards, "the same bytes under the same name");
    assert_eq!(shards.iter().map(|path| file_stat::FileStat::of(path)).collect::<Vec<_>>(), stats, "and left alone");
    assert_eq!(build(&case, 1, 2).unwrap().reused, 10);
    assert_eq!(counts(&prepared(&case).1), (0, 0, 20, 0));
    assert!(!case.dir().join("shard.0123456789ab.tmp").exists());
}

/// Two machines that cannot see each other's locks: both do the same part, and another program reads meanwhile.
#[test]
fn two_that_do_the_same_work_agree() {
    let (one, two) = (Case::new(12).workers(1), Case::new(12).workers(2));
    build(&one, 1, 3).unwrap();
    build(&two, 1, 3).unwrap();
    let names = |case: &Case| case.shards().iter().map(|path| path.file_name().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&one), names(&two));
    // A damaged one of the same name is replaced.
    let [shard] = &one.shards()[..] else { panic!("one shard") };
    let bytes = fs::read(shard).unwrap();
    replace(shard, &vec![0; bytes.len()]);
    fs::remove_file(&one.tables()[0]).unwrap();
    assert_eq!(build(&one, 1, 3).unwrap().built, 4);
    assert!(fs::read(shard).unwrap() == bytes);
}

#[test]
fn parts_wait_for_a_build_of_the_whole_and_not_for_each_other() {
    let case = Case::new(6);
    fs::create_dir_all(case.dir()).unwrap();
    let other = File::create(case.dir().join("lock")).unwrap();
    other.lock_shared().unwrap();
    assert_eq!(build(&case, 0, 2).unwrap().built, 3);
    other.unlock().unwrap();
    other.lock().unwrap();
    let (waited, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let note = |progress| {
        waited.fetch_or(progress == Progress::Waiting, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
    };
    let part = Part { number: 1, of: 2 };
    let ended = prepare_part(&case.rows(), part, &case.tokenizer, &case.config, &note, &stop);
    // Asked to stop while it waits.
    assert!(matches!(ended, Err(Error::Interrupted { built: 0 })) || waited.into_inner());
}

/// Clearing up leaves parts alone that wait for the others.
#[test]
fn parts_are_not_pruned_before_they_have_served() {
    let case = Case::new(6);
    build(&case, 0, 2).unwrap();
    let pruned = store::prune(&kept_dir(&case.config.data), &store::Retention::default(), false).unwrap();
    assert_eq!((case.shards().len(), case.tables().len(), pruned.files), (1, 1, 1), "the lock of the part goes");
    assert_eq!(counts(&prepared(&case).1), (3, 0, 3, 0));
}
