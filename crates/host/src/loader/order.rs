//! In which chunks an epoch goes through its clips. Each chunk is planned by itself, from seed, epoch and its number alone:
//! so a plan takes the same memory whatever the size of the corpus, and any place of an epoch is reached at once.

use crate::rng::{Permutation, Rng};

/// Clips that are planned at once: some 250 hours of speech. A corpus of no more is one chunk.
const CHUNK_CLIPS: usize = 1 << 17;

/// The clips of an epoch, all shuffled.
pub(super) struct Order {
    clips: usize,
    most: usize,
}

impl Order {
    pub fn new(clips: usize) -> Self {
        Order { clips, most: CHUNK_CLIPS }
    }

    /// In chunks of so many clips at most.
    #[cfg(test)]
    pub fn in_chunks(clips: usize, most: usize) -> Self {
        Order { clips, most }
    }

    /// Chunks of every epoch.
    pub fn chunks(&self) -> u64 {
        self.clips.div_ceil(self.most).max(1) as u64
    }

    /// The clips of a chunk, and what decides on all else in it.
    pub fn chunk(&self, seed: u64, epoch: u64, chunk: u64) -> (Vec<u32>, Rng) {
        let chunks = self.chunks() as usize;
        if chunks == 1 {
            return ((0..self.clips as u32).collect(), Rng::new(&[seed, epoch]));
        }
        let order = Permutation::new(self.clips, &mut Rng::new(&[seed, epoch]));
        let [start, end] = [chunk as usize, chunk as usize + 1].map(|chunk| self.clips * chunk / chunks);
        let clips = (start..end).map(|place| order.at(place) as u32).collect();
        (clips, Rng::new(&[seed, epoch, chunk]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_clip_is_in_one_chunk_of_an_epoch(clips in 1usize..3000, most in 1usize..500, seed: u64, epoch: u64) {
            let order = Order::in_chunks(clips, most);
            let mut seen = Vec::new();
            for chunk in 0..order.chunks() {
                let (some, _) = order.chunk(seed, epoch, chunk);
                prop_assert!(!some.is_empty() && some.len() <= most);
                seen.extend(some);
            }
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..clips as u32));
        }
    }

    #[test]
    fn chunks_depend_on_seed_and_epoch() {
        let order = Order::in_chunks(1000, 100);
        let clips = |seed, epoch, chunk| order.chunk(seed, epoch, chunk).0;
        assert_eq!(clips(1, 2, 3), clips(1, 2, 3));
        assert!(clips(1, 2, 3) != clips(2, 2, 3) && clips(1, 2, 3) != clips(1, 3, 3));
    }
}
