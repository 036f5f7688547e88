//! The largest batch that fits, by trying; and the one to take, which need not be the largest.

use super::dry_run::Trial;
use anyhow::Result;

/// Batches are multiples of this many frames.
const STEP_FRAMES: usize = 64;
/// Once the limit lies between two sizes that differ by less, it is known well enough.
const CLOSE: f64 = 1.25;

/// Where to look, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub least: usize,
    pub most: usize,
    pub trials: usize,
}

/// What came of one size.
#[derive(Clone, Debug)]
pub enum Attempt {
    Fits(Box<Trial>),
    /// Tried, or foreseen, and what was said.
    TooLarge(String),
    /// It was not tried any more.
    OutOfTime,
}

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// The largest is known to `CLOSE`.
    Memory,
    /// Larger ones make no sense with this corpus.
    Corpus,
    Trials,
    Time,
}

/// Sizes of batches that were tried, and where that ended.
#[derive(Debug)]
pub struct SizeSearch {
    /// Trials in the order of their size.
    pub trials: Vec<Trial>,
    /// The smallest that does not fit, and why.
    pub too_large: Option<(usize, String)>,
    pub end: SearchEnd,
}

/// Doubles from `first` until something does not fit, then halves the gap between what fits and what does not; steps
/// back first where `first` itself is too large. `attempt` gets frames, and says in its trial how many they became.
pub fn search(first: usize, bounds: Bounds, mut attempt: impl FnMut(usize) -> Result<Attempt>) -> Result<SizeSearch> {
    let mut found = SizeSearch { trials: Vec::new(), too_large: None, end: SearchEnd::Trials };
    let mut frames = first.clamp(bounds.least, bounds.most);
    for _ in 0..bounds.trials {
        match attempt(frames)? {
            Attempt::Fits(trial) => found.trials.push(*trial),
            Attempt::TooLarge(why) => found.too_large = Some((frames, why)),
            Attempt::OutOfTime => {
                found.end = SearchEnd::Time;
                break;
            }
        }
        match next(&found, bounds) {
            Ok(following) => frames = following,
            Err(end) => {
                found.end = end;
                break;
            }
        }
    }
    found.trials.sort_by_key(|trial| trial.frames);
    Ok(found)
}

/// The next size, or why there is none.
fn next(found: &SizeSearch, Bounds { least, most, .. }: Bounds) -> Result<usize, SearchEnd> {
    let largest = found.trials.iter().map(|trial| trial.asked).max();
    let limit = found.too_large.as_ref().map(|(frames, _)| *frames);
    let wanted = match (largest, limit) {
        (Some(fits), None) if fits >= most => return Err(SearchEnd::Corpus),
        (Some(fits), None) => (fits * 2).min(most),
        (None, Some(limit)) if limit <= least => return Err(SearchEnd::Memory),
        (None, Some(limit)) => (limit / 2).max(least),
        (Some(fits), Some(limit)) if limit as f64 / fits as f64 <= CLOSE => return Err(SearchEnd::Memory),
        (Some(fits), Some(limit)) => (fits as f64 * limit as f64).sqrt() as usize,
        (None, None) => least,
    };
    // Rounded down, or the middle of a gap could be its upper end.
    let rounded = (wanted / STEP_FRAMES * STEP_FRAMES).clamp(least, most);
    let tried = |frames: usize| found.trials.iter().any(|trial| trial.asked == frames) || limit == Some(frames);
    match (tried(rounded), limit) {
        (false, _) => Ok(rounded),
        (true, Some(_)) => Err(SearchEnd::Memory),
        (true, None) => Err(SearchEnd::Corpus),
    }
}

impl SizeSearch {
    pub fn fastest(&self) -> Option<&Trial> {
        self.trials.iter().max_by(|a, b| a.audio_seconds_per_second.total_cmp(&b.audio_seconds_per_second))
    }

    /// The smallest that is as fast as the fastest; not below `asked` frames without need, for the size of a batch also
    /// decides how a voice learns.
    pub fn knee(&self, asked: usize) -> Option<&Trial> {
        let fastest = self.fastest()?;
        let mut fast = self.trials.iter().filter(|trial| !fastest.is_faster_than(trial));
        fast.clone().find(|trial| trial.asked >= asked).or_else(|| fast.next_back())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { least: 1_024, most: 1 << 20, trials: 16 };

    /// Throughput that saturates at `knee` frames.
    fn trial(frames: usize, knee: usize) -> Trial {
        let audio_seconds_per_second = 1_000.0 * frames as f64 / (frames.max(knee)) as f64;
        Trial { asked: frames, frames, audio_seconds_per_second, ..Trial::default() }
    }

    /// A card with room for so many frames; the sizes that were tried.
    fn on_a_card(room: usize, first: usize) -> (SizeSearch, Vec<usize>) {
        let mut tried = Vec::new();
        let found = search(first, BOUNDS, |frames| {
            tried.push(frames);
            Ok(match frames <= room {
                true => Attempt::Fits(Box::new(trial(frames, 20_000))),
                false => Attempt::TooLarge("out of memory".into()),
            })
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn an_out_of_memory_is_stepped_back_from_and_the_limit_is_found() {
        for room in [1_024, 1_500, 5_000, 40_000, 333_333] {
            for first in [1_024, 16_384, 500_000] {
                let (found, tried) = on_a_card(room, first);
                let largest = found.trials.last().unwrap().frames;
                assert!(
                    largest <= room && largest as f64 * CLOSE * 1.07 >= room as f64,
                    "{room} from {first}: {largest}"
                );
                assert_eq!(found.end, SearchEnd::Memory);
                assert!(tried.len() <= 14, "{room} from {first}: {tried:?}");
                let mut once = tried.clone();
                once.sort_unstable();
                once.dedup();
                assert_eq!(once.len(), tried.len(), "something was tried twice: {tried:?}");
            }
        }
    }

    #[test]
    fn where_nothing_fits_there_is_no_trial() {
        let (found, tried) = on_a_card(100, 8_192);
        assert!(found.trials.is_empty() && found.knee(8_192).is_none());
        assert_eq!(tried, [8_192, 4_096, 2_048, 1_024]);
        assert_eq!(found.too_large.unwrap().0, 1_024);
    }

    #[test]
    fn the_corpus_the_number_of_trials_and_the_time_end_it() {
        let (found, tried) = on_a_card(usize::MAX, 8_192);
        assert_eq!((found.end, *tried.last().unwrap()), (SearchEnd::Corpus, BOUNDS.most));
        let fits = |frames| Ok(Attempt::Fits(Box::new(trial(frames, 1))));
        let few = search(8_192, Bounds { trials: 2, ..BOUNDS }, fits).unwrap();
        assert_eq!((few.end, few.trials.len()), (SearchEnd::Trials, 2));
        let mut left = 3;
        let late = search(8_192, BOUNDS, |frames| {
            left -= 1;
            if left == 0 { Ok(Attempt::OutOfTime) } else { fits(frames) }
        });
        let late = late.unwrap();
        assert_eq!((late.end, late.trials.len()), (SearchEnd::Time, 2));
    }

    #[test]
    fn the_knee_is_taken_and_not_the_largest() {
        let (found, _) = on_a_card(300_000, 4_096);
        assert!(found.trials.last().unwrap().frames > 200_000);
        // 16,384 reach 82 % of what 20,000 and more do.
        assert_eq!(found.knee(4_096).unwrap().frames, 32_768);
        assert_eq!(found.knee(100_000).unwrap().frames, 131_072, "not below what was asked for");
        // Nothing as large as what was asked for fits: the largest of the fast ones.
        let (small, _) = on_a_card(70_000, 4_096);
        assert_eq!(small.knee(1 << 20).unwrap().frames, small.trials.last().unwrap().frames);
    }
}
