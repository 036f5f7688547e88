//! Which clips share a batch: seeded, length-aware, and nearly full.
//!
//! Clips are dealt out evenly over a shuffled window; batches that a window leaves part empty go back into the next
//! one, so only a chunk's last batches may be short. The plan of a chunk is made at once (13,100 clips: milliseconds),
//! which is what makes any position in it reachable without replaying what came before.

use super::layout::{Budget, Length, Lengths};
use crate::rng::Rng;

/// Clips packed together before the window closes: enough for a tight fit, few enough for a random order.
const WINDOW_BATCHES: usize = 32;
/// A batch below this fill goes back into the next window.
const FULL_PERCENT: usize = 97;

/// The batches of a chunk: for each the indices of its clips, in the order in which they lie in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkPlan {
    clips: Vec<u32>,
    /// Where each batch ends.
    ends: Vec<u32>,
}

impl ChunkPlan {
    pub(super) fn new(batches: &[Vec<u32>]) -> Self {
        let mut plan = ChunkPlan::default();
        for batch in batches {
            plan.clips.extend(batch);
            plan.ends.push(plan.clips.len() as u32);
        }
        plan
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The clips of a batch.
    pub fn batch(&self, number: usize) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.clips[start as usize..self.ends[number] as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|number| self.batch(number))
    }
}

/// Batches of some clips. Depends on its arguments alone.
pub(super) fn pack(mut order: Vec<u32>, lengths: &Lengths, budget: &Budget, rng: &mut Rng) -> Vec<Vec<u32>> {
    rng.shuffle(&mut order);
    let window_frames = WINDOW_BATCHES * budget.frames;
    let (mut batches, mut window, mut frames) = (Vec::new(), Vec::new(), 0);
    for clip in order {
        window.push(clip);
        frames += budget.cost(lengths.get(clip as usize)).frames;
        if frames >= window_frames {
            let (full, rest): (Vec<_>, Vec<_>) =
                fill(&window, frames / budget.frames, lengths, budget).into_iter().partition(|bin| bin.is_full(budget));
            batches.extend(full.into_iter().map(|bin| bin.clips));
            window = rest.into_iter().flat_map(|bin| bin.clips).collect();
            frames = window.iter().map(|&clip| budget.cost(lengths.get(clip as usize)).frames).sum();
        }
    }
    // All but one are filled; or evenly, where these are all and little stays empty, as with a budget that was fitted to them.
    let all = frames.div_ceil(budget.frames);
    let are_even = batches.is_empty() && frames * 100 >= all * budget.frames * FULL_PERCENT;
    let even = if are_even { all } else { frames / budget.frames };
    batches.extend(fill(&window, even, lengths, budget).into_iter().map(|bin| bin.clips));
    for batch in &mut batches {
        rng.shuffle(batch);
    }
    rng.shuffle(&mut batches);
    batches
}

/// Sizes of batches are tried on as many of them.
const TRIAL_BATCHES: usize = 64;
/// Shares of a batch that may stay empty, smallest first, until the clips go into as few batches as their frames would fill.
const SLACK: [f64; 4] = [0.004, 0.008, 0.016, 0.03];
/// Room for more text than the fullest batch of a trial has: others have other clips.
const MORE_TEXT: f64 = 1.01;

/// The same budget with less room that stays empty; none of it is larger. A corpus of a few batches gets such that an epoch
/// fills, or its last one would be mostly padding; and text the room that it takes, which differs from corpus to corpus.
pub(super) fn fitted(loose: Budget, lengths: &Lengths) -> Budget {
    let frames: usize = lengths.iter().map(|length| loose.cost(length).frames).sum();
    let batches = frames.div_ceil(loose.frames);
    if batches == 0 {
        return loose;
    }
    let (every, tried) = (batches.div_ceil(TRIAL_BATCHES), batches.min(TRIAL_BATCHES));
    let clips: Vec<u32> = (0..lengths.len() as u32).step_by(every).collect();
    // Batches, and the tokens of the fullest.
    let trial = |budget: &Budget| {
        let packed = pack(clips.clone(), lengths, budget, &mut Rng::new(&[]));
        let tokens = |batch: &Vec<u32>| batch.iter().map(|&clip| budget.cost(lengths.get(clip as usize)).tokens).sum();
        (packed.len(), packed.iter().map(tokens).max().unwrap_or(0))
    };
    let sizes = SLACK.iter().map(|slack| (frames as f64 / batches as f64 * (1.0 + slack)) as usize);
    let mut sizes = sizes.map(|size| loose.with_room(size, loose.tokens)).filter(|budget| budget.frames < loose.frames);
    let even = (every == 1).then(|| sizes.find(|budget| trial(budget).0 <= tried)).flatten().unwrap_or(loose);
    let (count, tokens) = trial(&even);
    let tight = even.with_room(even.frames, (tokens as f64 * MORE_TEXT) as usize);
    if tight.tokens < even.tokens && trial(&tight).0 <= count { tight } else { even }
}

struct Bin {
    clips: Vec<u32>,
    used: Length,
}

impl Bin {
    fn takes(&self, cost: Length, budget: &Budget) -> bool {
        self.used.frames + cost.frames <= budget.frames
            && self.used.tokens + cost.tokens <= budget.tokens
            && self.clips.len() < budget.utterances
    }

    fn is_full(&self, budget: &Budget) -> bool {
        self.used.frames * 100 >= budget.frames * FULL_PERCENT || self.clips.len() == budget.utterances
    }
}

/// The longest clip first, into the emptiest of `even` batches, so that each gets its share of long and short ones. What fits
/// none of them goes into the fullest of the batches that are left over.
fn fill(clips: &[u32], even: usize, lengths: &Lengths, budget: &Budget) -> Vec<Bin> {
    let mut sorted = clips.to_vec();
    sorted.sort_by_key(|&clip| std::cmp::Reverse((lengths.get(clip as usize).frames, clip)));
    let even = even.max(1);
    let mut bins: Vec<Bin> =
        (0..even).map(|_| Bin { clips: Vec::new(), used: Length { frames: 0, tokens: 0 } }).collect();
    for clip in sorted {
        let cost = budget.cost(lengths.get(clip as usize));
        let fits = |bin: &&mut Bin| bin.takes(cost, budget);
        let (main, rest) = bins.split_at_mut(even);
        let emptiest = main.iter_mut().filter(fits).min_by_key(|bin| bin.used.frames);
        match emptiest.or_else(|| rest.iter_mut().filter(fits).max_by_key(|bin| bin.used.frames)) {
            Some(bin) => {
                bin.used.frames += cost.frames;
                bin.used.tokens += cost.tokens;
                bin.clips.push(clip);
            }
            None => bins.push(Bin { clips: vec![clip], used: cost }),
        }
    }
    bins.retain(|bin| !bin.clips.is_empty());
    bins
}

#[cfg(test)]
mod tests {
    use super::super::layout::GAP;
    use super::super::order::Order;
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    /// Lengths like LJSpeech's: 1 to 10 s at 86 frames/s with a mean near 6.6 s, about 0.17 tokens a frame.
    fn speech_like(count: usize) -> Lengths {
        let mut rng = Rng::new(&[7]);
        (0..count)
            .map(|_| {
                let frames = 95 + (rng.below(400) + rng.below(400)).min(780);
                Length { frames, tokens: frames / 6 + rng.below(20) }
            })
            .collect()
    }

    fn plan(lengths: &Lengths, budget: &Budget, seed: u64, epoch: u64) -> ChunkPlan {
        ChunkPlan::new(&pack((0..lengths.len() as u32).collect(), lengths, budget, &mut Rng::new(&[seed, epoch])))
    }

    /// Truth: what this program planned before it planned in chunks. A run that was begun then goes on exactly.
    #[test]
    fn a_corpus_of_one_chunk_has_the_order_that_it_always_had() {
        let lengths = speech_like(5000);
        let budget = Budget::packed(&lengths, 16);
        for (seed, epoch, known) in [(0, 0, 0xad4a_765f_f51e_bda5), (1, 3, 0xe517_7019_1bc1_f3c7)] {
            let (clips, mut rng) = Order::of_clips(lengths.len()).chunk(seed, epoch, 0);
            let batches = pack(clips, &lengths, &budget, &mut rng);
            let numbers = batches
                .iter()
                .flat_map(|batch| [batch.len() as u64].into_iter().chain(batch.iter().map(|&clip| u64::from(clip))));
            // FNV-1a, 64 bits.
            let hash = numbers
                .flat_map(u64::to_le_bytes)
                .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            assert_eq!((batches.len(), hash), (315, known));
        }
    }

    #[test]
    fn padding_share_of_speech_like_lengths_is_at_most_three_percent() {
        let lengths = speech_like(13_100);
        let used: usize = lengths.iter().map(|l| l.frames).sum();
        for batch_size in [16, 32, 64] {
            let budget = Budget::packed(&lengths, batch_size);
            let batches = plan(&lengths, &budget, 1, 0);
            let share = 1.0 - used as f64 / (batches.len() * budget.frames) as f64;
            assert!(share <= 0.03, "padding share {share:.4} at {batch_size}");
        }
    }

    /// A corpus of forty minutes, or of one: its last batch was mostly padding, and a sixth of the text's room.
    #[test]
    fn an_epoch_of_a_small_corpus_fills_its_batches() {
        for (clips, batch_size) in [(369, 32), (100, 32), (40, 32), (33, 32), (250, 16)] {
            let lengths = speech_like(clips);
            let budget = Budget::packed(&lengths, batch_size);
            for seed in 0..3 {
                let batches = plan(&lengths, &budget, seed, 0);
                let used = |count: fn(Length) -> usize| lengths.iter().map(count).sum::<usize>() as f64;
                let frames = used(|length| length.frames) / (batches.len() * budget.frames) as f64;
                let tokens = used(|length| length.tokens) / (batches.len() * budget.tokens) as f64;
                assert!(frames > 0.95, "{clips} by {batch_size}: frames fill {frames:.3}");
                assert!(tokens > 0.8, "{clips} by {batch_size}: text fills {tokens:.3}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_fitted_budget_is_never_larger_and_stays_what_it_is(
            frames in prop::collection::vec(1usize..900, 1..200), batch_size in 1usize..40,
        ) {
            let lengths: Lengths = frames.iter().map(|&frames| Length { frames, tokens: frames / 5 + 1 }).collect();
            let budget = Budget::packed(&lengths, batch_size);
            let again = Budget::of_frames(&lengths, budget.frames);
            prop_assert_eq!(again.frames, budget.frames);
            let asked = batch_size * (frames.iter().sum::<usize>().div_ceil(frames.len()) + GAP);
            prop_assert!(budget.frames <= asked.max(budget.longest_frames + GAP).next_multiple_of(64));
        }
    }

    #[test]
    fn order_depends_on_seed_and_epoch_only() {
        let lengths = speech_like(500);
        let budget = Budget::packed(&lengths, 8);
        assert_eq!(plan(&lengths, &budget, 1, 3), plan(&lengths, &budget, 1, 3));
        assert_ne!(plan(&lengths, &budget, 1, 3), plan(&lengths, &budget, 1, 4));
        assert_ne!(plan(&lengths, &budget, 1, 3), plan(&lengths, &budget, 2, 3));
    }

    proptest! {
        #[test]
        fn every_clip_once_and_no_batch_over_budget(
            frames in prop::collection::vec(1usize..900, 1..200), batch_size in 1usize..20, seed: u64, padded: bool,
        ) {
            let lengths: Lengths = frames.iter().map(|&frames| Length { frames, tokens: frames / 5 + 1 }).collect();
            let most = Length { frames: 900, tokens: 181 };
            let budget = if padded { Budget::padded(batch_size, most) } else { Budget::packed(&lengths, batch_size) };
            let batches = plan(&lengths, &budget, seed, 0);
            let mut seen: Vec<u32> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len() as u32).collect::<Vec<_>>());
            for batch in batches.iter() {
                let spans = budget.place(&batch.iter().map(|&clip| lengths.get(clip as usize)).collect::<Vec<_>>());
                prop_assert!(batch.len() <= budget.utterances);
                for pair in spans.1.windows(2) {
                    prop_assert!(pair[0].end() + GAP <= pair[1].start);
                }
            }
        }
    }
}
