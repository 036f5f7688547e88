//! Which ranks read the same shards of a bucket: those of one machine. Each machine is a lane with shards of its own, so that
//! it fetches its share of them and no more.
//!
//! A chunk has as many batches for every rank. They lie in turns, one for each rank, so a batch's number tells whose it is.

/// The lane of each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes(Vec<usize>);

impl Lanes {
    /// All ranks read the same.
    pub const ONE: Lanes = Lanes(Vec::new());

    /// A lane for each machine, by the names of every rank's. One for all where some have more ranks than others: their shares
    /// would need room in proportion.
    pub fn of_machines<T: PartialEq>(names: &[T]) -> Self {
        let first = |name: &T| names.iter().position(|other| other == name);
        let machines: Vec<usize> = (0..names.len()).filter(|&rank| first(&names[rank]) == Some(rank)).collect();
        let lanes: Vec<usize> =
            names.iter().filter_map(|name| machines.iter().position(|&rank| names[rank] == *name)).collect();
        let size = |lane: usize| lanes.iter().filter(|&&other| other == lane).count();
        let is_even = (1..machines.len()).all(|lane| size(lane) == size(0));
        if is_even && machines.len() > 1 { Lanes(lanes) } else { Lanes::ONE }
    }

    pub fn count(&self) -> usize {
        self.0.iter().max().map_or(1, |last| last + 1)
    }

    pub fn of(&self, rank: usize) -> usize {
        self.0.get(rank).copied().unwrap_or(0)
    }

    /// Batches of each lane in the turns of ranks. Where a lane has too few for that, its batches of most clips are halved;
    /// where all have one clip, the last is said again.
    pub(super) fn in_turns(&self, mut lanes: Vec<Vec<Vec<u32>>>) -> Vec<Vec<u32>> {
        let ranks_each = self.0.len() / lanes.len();
        let rounds = lanes.iter().map(|lane| lane.len().div_ceil(ranks_each)).max().unwrap_or(0);
        lanes.iter_mut().for_each(|lane| extend(lane, rounds * ranks_each));
        let mut lanes: Vec<_> = lanes.into_iter().map(Vec::into_iter).collect();
        (0..rounds).flat_map(|_| &self.0).filter_map(|&lane| lanes[lane].next()).collect()
    }
}

fn extend(batches: &mut Vec<Vec<u32>>, wanted: usize) {
    while batches.len() < wanted {
        let largest = batches.iter_mut().max_by_key(|batch| batch.len()).expect("a lane has clips");
        let half = largest.len() / 2;
        let more = if half > 0 { largest.split_off(half) } else { largest.clone() };
        batches.push(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_a_machine_where_all_have_as_many_ranks() {
        assert_eq!(Lanes::of_machines(&["a", "a", "b", "b"]), Lanes(vec![0, 0, 1, 1]));
        assert_eq!(Lanes::of_machines(&["a", "b", "a", "b"]), Lanes(vec![0, 1, 0, 1]));
        for one in [&["a", "a"][..], &["a"], &["a", "b", "b"]] {
            assert_eq!((Lanes::of_machines(one), Lanes::ONE.count()), (Lanes::ONE, 1));
        }
    }

    #[test]
    fn every_rank_has_as_many_batches_and_each_of_its_own_lane() {
        let lanes = Lanes::of_machines(&["a", "b", "b", "a"]);
        let [first, second] = [vec![vec![1, 2, 3], vec![4], vec![5, 6]], vec![vec![11, 12], vec![13]]];
        let turns = lanes.in_turns(vec![first, second]);
        assert_eq!(turns.len(), 8);
        for (number, batch) in turns.iter().enumerate() {
            assert!(batch.iter().all(|clip| usize::from(*clip > 10) == lanes.of(number % 4)), "{number}: {batch:?}");
        }
        let mut clips = turns.concat();
        clips.sort_unstable();
        // Three clips cannot be four batches: one is said twice.
        clips.dedup();
        assert_eq!(clips, [1, 2, 3, 4, 5, 6, 11, 12, 13]);
    }
}
