//! Listing a cache and clearing it up.

use super::*;
use store::{Retention, list, prune};

fn root(case: &Case) -> PathBuf {
    kept_dir(&case.config.data)
}

fn use_long_ago(case: &Case, days: u64) {
    let long_ago = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    for table in case.tables() {
        File::open(table).unwrap().set_modified(long_ago).unwrap();
    }
}

#[test]
fn what_is_there_is_listed() {
    let case = Case::new(3);
    assert_eq!(list(&root(&case)).unwrap().len(), 0, "no cache yet");
    case.run().unwrap();
    use_long_ago(&case, 3);
    let [folder] = &list(&root(&case)).unwrap()[..] else { panic!("one folder") };
    assert_eq!(folder.settings.as_ref(), Some(&FeatureSettings::new(&case.config)));
    assert!(folder.bytes > 2 * 3 * 1600);
    let [corpus] = &folder.corpora[..] else { panic!("one corpus") };
    assert_eq!((&*corpus.corpus, corpus.clips, corpus.age().as_secs() / 3600), (case.root.path(), 3, 72));
}

#[test]
fn a_used_cache_is_not_pruned() {
    let case = Case::new(3);
    case.run().unwrap();
    let pruned = prune(&root(&case), &Retention::default(), false).unwrap();
    assert_eq!((pruned.files, pruned.busy.len()), (0, 0));
    assert_eq!(case.counts(), (0, 0, 3, 0));
}

#[test]
fn what_no_corpus_uses_goes() {
    let case = Case::new(3);
    case.run().unwrap();
    let (before, old) = (case.shards(), root(&case).join("0123456789abcdef"));
    fs::create_dir(&old).unwrap();
    fs::write(old.join("digests.arrow"), b"old").unwrap();
    fs::write(old.join("notes.txt"), b"not ours").unwrap();
    fs::write(case.dir().join(shard::name(digest::Digest::of(b""))), b"").unwrap();
    fs::write(case.dir().join("shard.0123456789ab.tmp"), b"half").unwrap();
    let dry = prune(&root(&case), &Retention::default(), true).unwrap();
    assert_eq!((dry.files, dry.bytes), (3, 3 + 4));
    assert_eq!(prune(&root(&case), &Retention::default(), false).unwrap().files, 3 + 1, "and the lock it took");
    assert_eq!(
        (case.shards(), old.join("notes.txt").exists(), old.join("digests.arrow").exists()),
        (before, true, false)
    );
}

#[test]
fn limits_of_age_size_and_corpus() {
    let [case, other] = [Case::new(2), Case::new(2)];
    for limits in [
        Retention { unused_for: Some(Duration::from_secs(24 * 3600)), ..Retention::default() },
        Retention { bytes: Some(1000), ..Retention::default() },
        Retention { corpus: Some(other.root.path().to_owned()), ..Retention::default() },
    ] {
        case.run().unwrap();
        use_long_ago(&case, 2);
        prune(&root(&case), &limits, false).unwrap();
        assert!(!case.dir().exists(), "{limits:?}");
    }
    case.run().unwrap();
    let roomy = Retention {
        unused_for: Some(Duration::from_secs(24 * 3600)),
        bytes: Some(1 << 20),
        corpus: Some(case.root.path().to_owned()),
    };
    assert_eq!(prune(&root(&case), &roomy, false).unwrap().files, 0);
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let case = Case::new(2);
    case.run().unwrap();
    use_long_ago(&case, 2);
    let held = File::create(case.dir().join(folder::LOCK)).unwrap();
    held.lock().unwrap();
    let limits = Retention { bytes: Some(0), ..Retention::default() };
    let pruned = prune(&root(&case), &limits, false).unwrap();
    assert_eq!((pruned.files, pruned.busy), (0, vec![case.dir()]));
}
