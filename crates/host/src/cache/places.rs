//! Where the sound of every recording lies while a corpus is built, in bounded memory: some 20 bytes for each recording,
//! the rest lies in a [`Spill`].

use super::digest::{self, Digest};
use super::shard::ShardLocation;
use crate::spill::Spill;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Places in shards by the digests of recordings.
#[derive(Default)]
pub(super) struct Places {
    records: Spill,
    /// Places of the records.
    table: HashTable<u64>,
}

impl Places {
    /// Makes room for so many more.
    pub fn reserve(&mut self, recordings: usize) {
        let Places { records, table } = self;
        table.reserve(recordings, |at| source(records, *at).short());
    }

    /// Where a recording was before is forgotten.
    pub fn insert(&mut self, recording: Digest, location: ShardLocation) {
        let Places { records, table } = self;
        let at = records.push(|record| put(record, recording, location));
        let is_same = |at: &u64| source(records, *at) == recording;
        match table.entry(recording.short(), is_same, |at| source(records, *at).short()) {
            Entry::Occupied(mut earlier) => *earlier.get_mut() = at,
            Entry::Vacant(room) => _ = room.insert(at),
        }
    }

    pub fn get(&self, recording: &Digest) -> Option<ShardLocation> {
        let at = self.table.find(recording.short(), |at| source(&self.records, *at) == *recording)?;
        Some(location(&self.records, *at))
    }

    pub fn contains(&self, recording: &Digest) -> bool {
        self.get(recording).is_some()
    }

    /// Takes in all of another.
    pub fn extend(&mut self, other: Places) {
        if self.table.is_empty() {
            *self = other;
            return;
        }
        for at in &other.table {
            self.insert(source(&other.records, *at), location(&other.records, *at));
        }
    }
}

fn put(record: &mut Vec<u8>, recording: Digest, location: ShardLocation) {
    let ShardLocation { shard, offset, samples, checksum } = location;
    record.extend(recording.bytes());
    [offset, checksum].iter().for_each(|number| record.extend(number.to_le_bytes()));
    [shard, samples].iter().for_each(|number| record.extend(number.to_le_bytes()));
}

fn source(records: &Spill, at: u64) -> Digest {
    Digest::from_bytes(&records.get(at)[..digest::BYTES]).expect("as many bytes as a digest has")
}

fn location(records: &Spill, at: u64) -> ShardLocation {
    let record = &records.get(at)[digest::BYTES..];
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| record[at + byte]));
    let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| record[at + byte]));
    ShardLocation { offset: long(0), checksum: long(8), shard: short(16), samples: short(20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u32) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    fn place(number: u32) -> ShardLocation {
        let wide = u64::from(number);
        ShardLocation { shard: number, offset: wide << 33, samples: number + 1, checksum: !wide }
    }

    #[test]
    fn the_last_place_of_a_recording_counts() {
        let [mut places, mut more] = [Places::default(), Places::default()];
        (0..1000).for_each(|number| places.insert(digest(number), place(number)));
        (500..1500).for_each(|number| more.insert(digest(number), place(number + 7)));
        places.insert(digest(3), place(9));
        places.extend(more);
        let told = |number: u32| {
            places.get(&digest(number)).map(|found| (found.shard, found.offset, found.samples, found.checksum))
        };
        let as_is = |number: u32| Some((number, u64::from(number) << 33, number + 1, !u64::from(number)));
        assert_eq!((told(3), told(4), told(499)), (as_is(9), as_is(4), as_is(499)));
        assert_eq!((told(500), told(1499), told(1500)), (as_is(507), as_is(1506), None));
    }
}
