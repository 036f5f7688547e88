//! Files that no writer wrote: random bytes, and real shards with something changed, cut or put in.

use super::*;
use proptest::prelude::*;
use shard::Shard;
use std::sync::LazyLock;

/// The bytes of a shard of samples, a shard of mel frames, and the table of a corpus.
static REAL: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let samples = Case::new(3);
    samples.run().unwrap();
    let mut mel = Case::new(3);
    mel.config.data.cache_content = CacheContent::Mel;
    mel.run().unwrap();
    [&samples.shards()[0], &mel.shards()[0], &samples.tables()[0]].map(|path| fs::read(path).unwrap())
});

/// Reads all that a run would read, as shard and as table. Damage that passes for a whole file would be a wrong sound
/// or a wrong text, so what is read at all must be what was written.
fn read_everything(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.arrow");
    fs::write(&path, bytes).unwrap();
    if let Ok(shard) = Shard::open(&path) {
        for (batch, rows) in shard.batches().unwrap_or_default().iter().enumerate() {
            for row in (0..rows.len()).filter_map(|row| shard.row(batch as u32, row as u32)) {
                let _ = row.sound.checksum() == row.checksum;
            }
        }
    }
    if let Some(table) = roster::Roster::open(&path) {
        for row in 0..table.len() {
            let _ = (table.is_whole(row), table.failure(row), table.audio(row), table.stamp(row), table.text(row));
        }
    }
}

/// The memory that this process holds, in bytes.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3000 }))]

    #[test]
    fn random_bytes_are_no_shard(bytes in prop::collection::vec(any::<u8>(), 0..2000), footer in any::<bool>()) {
        let length = (bytes.len() as u32 / 2).to_le_bytes();
        let ends: &[u8] = if footer { &[&length[..], b"ARROW1"].concat() } else { b"" };
        read_everything(&[b"ARROW1\0\0", &bytes[..], ends].concat());
    }

    #[test]
    fn mutated_files_are_read_without_panic_or_memory(
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
        let before = resident();
        read_everything(&bytes);
        prop_assert!(resident() < before + (64 << 20), "a length in the file became memory");
    }
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
        let files = [case.shards(), case.tables()].concat();
        let path = &files[rng.below(files.len())];
        let mut bytes = fs::read(path).unwrap();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        replace(path, &bytes);
        // First as a run that trusts sizes and times would meet it: a table whose shards are as it says.
        let Ok((cache, _)) = case.run() else { continue };
        for (index, (tokens, samples)) in truth.iter().enumerate().take(cache.len()) {
            if let Ok(clip) = cache.clip(index) {
                assert_eq!((clip.tokens, clip.sound), (&tokens[..], Sound::Pcm(samples)), "round {round}");
            }
        }
    }
}
