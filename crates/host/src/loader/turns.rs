//! Which batches are this rank's, and where a run stands: turns of one rank against numbers that count for all.
//!
//! Ranks deal out what one rank would take in order: of `ranks` batches in a row each gets one. So a step of several
//! ranks takes the very batches that one rank takes with as many accumulated, and a position means the same at any size.

/// The rank that a loader works for, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub rank: usize,
    pub ranks: usize,
}

impl Share {
    /// Of a run of one process.
    pub const WHOLE: Share = Share { rank: 0, ranks: 1 };
}

pub(super) struct Turns {
    share: Share,
    /// The lowest number that had not been delivered when the run began, and those beyond it that had.
    low: u64,
    taken: Vec<u64>,
}

impl Turns {
    /// Goes on from `low`, of which the batches at these distances were delivered before.
    pub fn new(share: Share, low: u64, ahead: &[u64]) -> Self {
        let mut taken: Vec<u64> = ahead.iter().map(|distance| low + distance).collect();
        taken.sort_unstable();
        Turns { share, low, taken }
    }

    /// Number of the batch of this rank's turn.
    pub fn number(&self, turn: u64) -> u64 {
        self.nth(turn * self.share.ranks as u64 + self.share.rank as u64)
    }

    /// The `n`-th of all that had not been delivered.
    fn nth(&self, n: u64) -> u64 {
        self.taken.iter().fold(self.low + n, |number, taken| number + u64::from(*taken <= number))
    }

    /// Where the run stands after this rank's turns up to `turn` and some beyond it: the lowest number that was not
    /// delivered, and the distances of those that were. Several ranks deliver in order, so all are at the same turn.
    pub fn delivered(&self, (turn, beyond): (u64, Vec<u64>)) -> (u64, Vec<u64>) {
        let low = self.nth(turn * self.share.ranks as u64);
        let early = beyond.iter().map(|distance| self.number(turn + distance));
        let mut ahead: Vec<u64> = self.taken.iter().copied().chain(early).filter(|number| *number > low).collect();
        ahead.sort_unstable();
        (low, ahead.into_iter().map(|number| number - low).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranks_deal_out_what_one_would_take() {
        for (ahead, ranks) in [(vec![], 3), (vec![1, 4], 2), (vec![2, 3, 9], 4)] {
            let one = Turns::new(Share::WHOLE, 5, &ahead);
            for turn in 0..6 {
                for rank in 0..ranks {
                    let turns = Turns::new(Share { rank, ranks }, 5, &ahead);
                    assert_eq!(turns.number(turn), one.number(turn * ranks as u64 + rank as u64));
                    assert_eq!(turns.delivered((turn, vec![])), one.delivered((turn * ranks as u64, vec![])));
                }
            }
        }
    }

    #[test]
    fn a_run_goes_on_where_it_stood_whatever_overtook() {
        let (mut seen, mut at) = (BTreeSet::new(), (0, vec![]));
        for (turn, beyond) in [(2, vec![1, 3]), (0, vec![2]), (4, vec![])] {
            let turns = Turns::new(Share::WHOLE, at.0, &at.1);
            for number in (0..turn).chain(beyond.iter().map(|distance| turn + distance)).map(|turn| turns.number(turn))
            {
                assert!(seen.insert(number), "{number} twice");
            }
            at = turns.delivered((turn, beyond));
        }
        let expected: BTreeSet<u64> = (0..at.0).chain(at.1.iter().map(|distance| at.0 + distance)).collect();
        assert_eq!(seen, expected);
    }
}
