//! In which chunks an epoch goes through its clips. Each chunk is planned by itself, from seed, epoch and its number alone:
//! so a plan takes the same memory whatever the size of the corpus, and any place of an epoch is reached at once.

use crate::rng::{Permutation, Rng};

/// Clips that are planned at once: some 250 hours of speech. A corpus of no more is one chunk.
const CHUNK_CLIPS: usize = 1 << 17;

/// What an epoch shuffles.
pub(super) enum Order {
    /// All clips, in chunks of so many at most.
    Clips { clips: usize, most: usize },
    /// Shards, of which a window at a time is a chunk: each is needed once an epoch, and its clips mix with those of the
    /// others of its window.
    Shards(ShardOrder),
}

/// The clips of every shard.
pub(super) struct ShardOrder {
    /// Number of each shard that has clips.
    shards: Vec<u32>,
    /// Clips by shard, and where those of each end.
    clips: Vec<u32>,
    ends: Vec<u32>,
    /// Shards that are shuffled together, at most.
    window: usize,
}

impl Order {
    pub fn of_clips(clips: usize) -> Self {
        Order::Clips { clips, most: CHUNK_CLIPS }
    }

    /// `shards` of each clip.
    pub fn of_shards(shards: &[u32], window: usize) -> Self {
        let mut clips: Vec<u32> = (0..shards.len() as u32).collect();
        clips.sort_by_key(|&clip| shards[clip as usize]);
        let (mut numbers, mut ends) = (Vec::new(), Vec::new());
        for (at, &clip) in clips.iter().enumerate() {
            if numbers.last() != Some(&shards[clip as usize]) {
                numbers.push(shards[clip as usize]);
                ends.push(at as u32);
            }
            *ends.last_mut().expect("a shard") = at as u32 + 1;
        }
        Order::Shards(ShardOrder { shards: numbers, clips, ends, window })
    }

    /// Chunks of every epoch.
    pub fn chunks(&self) -> u64 {
        let (things, most) = match self {
            Order::Clips { clips, most } => (*clips, *most),
            Order::Shards(order) => (order.shards.len(), order.window),
        };
        things.div_ceil(most).max(1) as u64
    }

    /// The clips of a chunk, and what decides on all else in it.
    pub fn chunk(&self, seed: u64, epoch: u64, chunk: u64) -> (Vec<u32>, Rng) {
        if let (Order::Clips { clips, .. }, 1) = (self, self.chunks()) {
            return ((0..*clips as u32).collect(), Rng::new(&[seed, epoch]));
        }
        let clips = match self {
            Order::Clips { clips, .. } => self.places(*clips, seed, epoch, chunk).map(|clip| clip as u32).collect(),
            Order::Shards(order) => {
                let shards = self.places(order.shards.len(), seed, epoch, chunk);
                shards.flat_map(|shard| order.clips_of(shard)).copied().collect()
            }
        };
        (clips, Rng::new(&[seed, epoch, chunk]))
    }

    /// Windows of shards that several lanes take at a time, one each; none where clips are shuffled whatever shard they
    /// are of, and lanes are one.
    pub fn lanes(&self, lanes: usize) -> usize {
        if matches!(self, Order::Shards(_)) { lanes } else { 1 }
    }

    /// The clips of a lane of so many, in the chunk that begins with this window, and what decides on all else in it.
    pub fn lane(&self, seed: u64, epoch: u64, chunk: u64, (lane, lanes): (usize, usize)) -> (Vec<u32>, Rng) {
        let Order::Shards(order) = self else { return self.chunk(seed, epoch, chunk) };
        if lanes == 1 {
            return self.chunk(seed, epoch, chunk);
        }
        let shards = self.windows(seed, epoch, chunk, lanes);
        let (own, is_dealt) = own_of(&shards, lane, lanes);
        let mut clips: Vec<u32> = own.iter().flat_map(|&shard| order.clips_of(shard)).copied().collect();
        if !is_dealt {
            (clips, _) = own_of(&clips, lane, lanes);
        }
        (clips, Rng::new(&[seed, epoch, chunk, lane as u64]))
    }

    /// The shards that a lane of so many needs of a chunk; none where clips are shuffled whatever shard they are of.
    pub fn shards(&self, seed: u64, epoch: u64, chunk: u64, (lane, lanes): (usize, usize)) -> Vec<u32> {
        let Order::Shards(order) = self else { return vec![] };
        let (own, _) = own_of(&self.windows(seed, epoch, chunk, lanes), lane, lanes);
        own.into_iter().map(|shard| order.shards[shard]).collect()
    }

    /// Places of the shards of so many windows, or as many as the epoch still has.
    fn windows(&self, seed: u64, epoch: u64, first: u64, windows: usize) -> Vec<usize> {
        let Order::Shards(order) = self else { return vec![] };
        let windows = first..(first + windows as u64).min(self.chunks());
        windows.flat_map(|window| self.places(order.shards.len(), seed, epoch, window)).collect()
    }

    /// What comes in a chunk, of so many things.
    fn places(&self, things: usize, seed: u64, epoch: u64, chunk: u64) -> impl Iterator<Item = usize> {
        let (order, chunks) = (Permutation::new(things, &mut Rng::new(&[seed, epoch])), self.chunks() as usize);
        let [start, end] = [chunk as usize, chunk as usize + 1].map(|chunk| things * chunk / chunks);
        (start..end).map(move |place| order.at(place))
    }
}

/// What a lane gets when things are dealt out, and whether they were: where there is not one for each, all take all.
fn own_of<T: Copy>(things: &[T], lane: usize, lanes: usize) -> (Vec<T>, bool) {
    let is_dealt = things.len() >= lanes;
    let own = if is_dealt { things.iter().skip(lane).step_by(lanes).copied().collect() } else { things.to_vec() };
    (own, is_dealt)
}

impl ShardOrder {
    fn clips_of(&self, shard: usize) -> &[u32] {
        let start = shard.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.clips[start as usize..self.ends[shard] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn all(order: &Order, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
        (0..order.chunks()).map(|chunk| order.chunk(seed, epoch, chunk).0).collect()
    }

    proptest! {
        #[test]
        fn every_clip_is_in_one_chunk_of_an_epoch(clips in 1usize..3000, most in 1usize..500, seed: u64, epoch: u64) {
            let chunks = all(&Order::Clips { clips, most }, seed, epoch);
            prop_assert!(chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= most));
            let mut seen = chunks.concat();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..clips as u32));
        }

        #[test]
        fn every_shard_is_needed_in_one_chunk_of_an_epoch(
            shards in prop::collection::vec(0u32..60, 1..400), window in 1usize..20, seed: u64, epoch: u64,
        ) {
            let order = Order::of_shards(&shards, window);
            let chunks = all(&order, seed, epoch);
            let mut seen = chunks.concat();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..shards.len() as u32));
            let mut needed = Vec::new();
            for (number, clips) in chunks.iter().enumerate() {
                let held = order.shards(seed, epoch, number as u64, (0, 1));
                prop_assert!(held.len() <= window);
                let of_clips: BTreeSet<u32> = clips.iter().map(|&clip| shards[clip as usize]).collect();
                prop_assert_eq!(&of_clips, &held.iter().copied().collect());
                needed.extend(held);
            }
            let once: BTreeSet<u32> = needed.iter().copied().collect();
            prop_assert_eq!(once.len(), needed.len());
        }

        /// Lanes share an epoch out: every clip is in one of them, and each needs as many shards as the others, but for one
        /// a chunk.
        #[test]
        fn a_lane_needs_its_share_of_the_shards(
            clips in 100usize..1000, window in 1usize..8, lanes in 2usize..5, seed: u64, epoch: u64,
        ) {
            let shards: Vec<u32> = (0..clips).map(|clip| clip as u32 / 5).collect();
            let order = Order::of_shards(&shards, window);
            let (mut seen, mut needed) = (vec![], vec![0; lanes]);
            for chunk in (0..order.chunks()).step_by(lanes) {
                let of = |lane| order.shards(seed, epoch, chunk, (lane, lanes));
                for (lane, needed) in needed.iter_mut().enumerate() {
                    let held: BTreeSet<u32> = of(lane).into_iter().collect();
                    let (own, _) = order.lane(seed, epoch, chunk, (lane, lanes));
                    prop_assert!(held.len() <= window.max(lanes - 1) && !own.is_empty());
                    prop_assert!(own.iter().all(|&clip| held.contains(&shards[clip as usize])));
                    *needed += held.len();
                    seen.extend(own);
                }
            }
            seen.sort_unstable();
            // The last clips of an epoch may be fewer than the lanes, and then come in all of them.
            prop_assert!(seen.len() < clips + lanes * lanes);
            seen.dedup();
            prop_assert!(seen.into_iter().eq(0..clips as u32));
            let chunks = order.chunks().div_ceil(lanes as u64) as usize;
            prop_assert!(needed.iter().max().unwrap() - needed.iter().min().unwrap() <= chunks, "{needed:?}");
        }
    }

    #[test]
    fn chunks_depend_on_seed_and_epoch() {
        let shards: Vec<u32> = (0..1000).map(|clip| clip / 10).collect();
        for order in [Order::Clips { clips: 1000, most: 100 }, Order::of_shards(&shards, 10)] {
            let clips = |seed, epoch, chunk| order.chunk(seed, epoch, chunk).0;
            assert_eq!(clips(1, 2, 3), clips(1, 2, 3));
            assert!(clips(1, 2, 3) != clips(2, 2, 3) && clips(1, 2, 3) != clips(1, 3, 3));
        }
    }

    /// How far windows of shards are from a full shuffle: of two clips that a full shuffle would put next to each other in
    /// any pairing, how many are of the same shard. `docs/cache.md` has the figures.
    #[test]
    fn neighbours_of_one_shard_are_as_many_as_the_window_says() {
        let shards: Vec<u32> = (0..230 * 1000).map(|clip| clip / 230).collect();
        let same = |window: usize| {
            let order = Order::of_shards(&shards, window);
            let (mut pairs, mut same) = (0, 0);
            for chunk in 0..order.chunks() {
                let (mut clips, mut rng) = order.chunk(1, 0, chunk);
                rng.shuffle(&mut clips);
                pairs += clips.len() - 1;
                let is_same = |pair: &&[u32]| shards[pair[0] as usize] == shards[pair[1] as usize];
                same += clips.windows(2).filter(is_same).count();
            }
            same as f64 / pairs as f64
        };
        // One in as many as a window has shards; of a full shuffle, one in as many as there are.
        for window in [1, 8, 32, 128] {
            let (found, wanted) = (same(window), 1.0 / window as f64);
            assert!((found / wanted - 1.0).abs() < 0.1, "{window}: {found}");
        }
    }
}
