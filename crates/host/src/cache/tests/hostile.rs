//! Files that no writer wrote: random bytes, and real files with something changed, cut or put in.

use super::*;
use digest::Digest;
use proptest::prelude::*;
use settings::AudioForm;
use shard::Shard;
use std::process::Command;
use std::sync::LazyLock;
use table::CorpusTable;

/// The bytes of a shard of samples, a shard of mel frames, and the table of a corpus.
static REAL: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let samples = Case::new(3);
    samples.run().unwrap();
    let mut mel = Case::new(3);
    mel.config.data.cache_content = CacheContent::Mel;
    mel.run().unwrap();
    [&samples.shards()[0], &mel.shards()[0], &samples.tables()[0]].map(|path| fs::read(path).unwrap())
});

/// Reads all that a run would read, under names that say the bytes are as they were written: the worst case, since
/// what is not gets no further than its name.
fn read_everything(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let digest = Digest::of(bytes);
    let put = |name: String| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    for n_mels in [None, Some(80)] {
        let form = AudioForm { hop_samples: 256, n_mels };
        let Ok(shard) = Shard::open(&put(shard::name(digest)), form) else { continue };
        for (_, place) in shard.recordings(0, form).unwrap_or_default() {
            let _ =
                shard.sound(place.offset, form.values(place.samples as usize)).map(|sound| sound.as_audio().checksum());
        }
        for (offset, count) in [(0, usize::MAX), (u64::MAX, 1), (u64::MAX, usize::MAX), (bytes.len() as u64, 1)] {
            assert!(shard.sound(offset, count).is_none());
        }
    }
    let table = put(format!("corpus-{0}-{0}.arrow", digest.hex()));
    if let Some(table) = CorpusTable::open(&table) {
        for row in 0..table.len() {
            let _ = (table.tokens(row), table.failure(row), table.audio(row), table.stat(row), table.text(row));
            let _ = (table.id(row), table.speaker(row), table.language(row), table.place(row), table.source(row));
        }
    }
}

fn cases() -> ProptestConfig {
    let cases = if cfg!(debug_assertions) { 200 } else { 2000 };
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_bytes_are_no_shard(bytes in prop::collection::vec(any::<u8>(), 0..2000), footer in any::<bool>()) {
        let length = (bytes.len() as u32 / 2).to_le_bytes();
        let end: &[u8] = if footer { &[&length[..], b"ARROW1"].concat() } else { b"" };
        read_everything(&[b"ARROW1\0\0", &bytes[..], end].concat());
    }

    #[test]
    fn mutated_files_are_read_without_panic(
        file in 0usize..3,
        // The ends of a file hold its schema and its footer, where every byte matters.
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = REAL[file].clone();
        for (at, region, value) in changes {
            let size = bytes.len();
            let range = [0..size, 0..size.min(900), size.saturating_sub(1200)..size][region].clone();
            bytes[range.start + at.index(range.len())] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_everything(&bytes);
    }
}

/// The two tests above once more, where a length from a file that became memory would end the program.
#[test]
fn hostile_files_do_not_become_memory() {
    let tests = ["random_bytes_are_no_shard", "mutated_files_are_read_without_panic"];
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 1500000 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(tests.map(|name| format!("cache::tests::hostile::{name}")))
        .args(["--exact", "--test-threads=1"])
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("2 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// The whole way: whatever is done to the files of a cache, what a run gets from it is the truth or an error.
#[test]
fn a_cache_with_changed_files_tells_the_truth_or_nothing() {
    let case = Case::new(3);
    let (first, _) = case.run().unwrap();
    let truth: Vec<_> =
        (0..3).map(|index| (first.clip(index).unwrap().tokens.to_vec(), pcm(&first, index).to_vec())).collect();
    let mut rng = crate::rng::Rng::new(&[3]);
    for round in 0..60 {
        let (cache, _) = case.run().unwrap();
        let files = [case.shards(), case.tables()].concat();
        let path = &files[rng.below(files.len())];
        let size = fs::metadata(path).unwrap().len() as usize;
        let rots_while_mapped = shard::claimed(path).is_some() && rng.below(2) == 0;
        for _ in 0..1 + rng.below(4) {
            flip_in_place(path, rng.below(size) as u64);
        }
        let cache = if rots_while_mapped { cache } else { case.run().unwrap().0 };
        for (index, (tokens, samples)) in truth.iter().enumerate() {
            if let Ok(clip) = cache.clip(index) {
                assert_eq!(
                    (clip.tokens, clip.sound.as_audio()),
                    (&tokens[..], ClipAudio::Pcm(samples)),
                    "round {round}"
                );
            }
        }
    }
}
