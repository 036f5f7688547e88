//! A small seeded generator (SplitMix64, Steele et al. 2014). Orders must not change with a dependency's version:
//! they are what an exact resume rests on.

pub struct Rng(u64);

impl Rng {
    /// A stream of its own for every list of numbers, such as (seed, epoch).
    pub fn new(parts: &[u64]) -> Self {
        let mut rng = Rng(0);
        for &part in parts {
            rng.0 ^= part;
            rng.0 = rng.next_u64();
        }
        rng
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; the bias of the modulo is below 2⁻³² for any list that fits in memory.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }

    /// From 0 up to and without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A shuffled order of `0..len` of which any place can be asked for, and none is kept: a Feistel network of SplitMix64
/// over the next power of four, whose numbers beyond the end are put in again until one is inside (Black and Rogaway,
/// 2002).
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// Four make a permutation that nobody tells from a random one (Luby and Rackoff, 1988); two more, because a half has
/// few bits.
const ROUNDS: usize = 6;

impl Permutation {
    pub fn new(len: usize, rng: &mut Rng) -> Self {
        let bits = usize::BITS - len.saturating_sub(1).leading_zeros();
        let keys = std::array::from_fn(|_| rng.next_u64());
        Permutation { len: len as u64, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// What comes at a place.
    pub fn at(&self, place: usize) -> usize {
        assert!((place as u64) < self.len, "a place of the order");
        let mut number = self.round_trip(place as u64);
        while number >= self.len {
            number = self.round_trip(number);
        }
        number as usize
    }

    fn round_trip(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (Rng(key ^ right).next_u64() & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::{Permutation, Rng};

    #[test]
    fn a_permutation_has_every_number_once() {
        for len in [1, 2, 3, 5, 16, 17, 1000, 65_537] {
            let order = Permutation::new(len, &mut Rng::new(&[7, len as u64]));
            let mut seen: Vec<usize> = (0..len).map(|place| order.at(place)).collect();
            assert!(len < 16 || !seen.is_sorted());
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "{len}");
        }
    }

    /// Of a random order, the mean distance between what were neighbours is a third of its length.
    #[test]
    fn neighbours_come_apart() {
        let (len, seed) = (100_000, 3);
        let order = Permutation::new(len, &mut Rng::new(&[seed]));
        let apart = |place: usize| order.at(place).abs_diff(order.at(place + 1)) as f64;
        let mean = (0..len - 1).map(apart).sum::<f64>() / (len as f64 - 1.0);
        // The deviation of one distance is 0.236 of the length; the mean of 10⁵ is within 5 of its own.
        assert!((mean / len as f64 - 1.0 / 3.0).abs() < 5.0 * 0.236 / (len as f64).sqrt(), "{mean}");
    }

    #[test]
    fn first_outputs_match_the_reference_implementation() {
        // splitmix64.c by Sebastiano Vigna, state 0.
        let mut rng = Rng(0);
        assert_eq!([rng.next_u64(), rng.next_u64()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(&[1, 2]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
