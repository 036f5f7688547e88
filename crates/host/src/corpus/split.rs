//! Training and validation parts, by a hash of each id: adding clips never moves old ones.

use super::Utterance;
use crate::config::Data;
use std::convert::Infallible;

/// What an utterance is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Train,
    Validation,
}

/// Where the shares of a corpus end, on the scale of [`hash_fraction`].
pub struct Borders {
    held_out: f64,
    trained_from: f64,
}

impl Borders {
    /// Of so many utterances, whose hashes reach from `lowest` to `highest`. `from` counts those that are no lower than a border, and
    /// says which is the lowest of them.
    pub fn new<E>(
        utterances: usize,
        [lowest, highest]: [f64; 2],
        data: &Data,
        from: impl FnOnce(f64) -> Result<(usize, f64), E>,
    ) -> Result<Self, E> {
        let held_out = border(utterances, lowest, highest, data.val_split);
        let mut trained_from = held_out;
        if data.val_split != 0.0 && data.train_split + data.val_split <= 1.0 - 1e-9 {
            // The same hash decides, so what lies between the two shares is left out of both.
            let (count, lowest) = from(held_out)?;
            trained_from = held_out.max(border(count, lowest, highest, 1.0 - data.train_split));
        }
        Ok(Borders { held_out, trained_from })
    }

    pub fn share(&self, fraction: f64) -> Option<Share> {
        match fraction < self.held_out {
            true => Some(Share::Validation),
            false => (fraction >= self.trained_from).then_some(Share::Train),
        }
    }
}

/// Training and validation part, each in the order given. With a share above 0, two or more utterances fill both parts:
/// should the hashes leave one empty, the utterance nearest to the border moves, and only that one may move back later.
pub fn split(utterances: Vec<Utterance>, data: &Data) -> (Vec<Utterance>, Vec<Utterance>) {
    let fractions: Vec<f64> = utterances.iter().map(|utterance| hash_fraction(&utterance.id)).collect();
    let lowest =
        |from: f64| fractions.iter().filter(|at| **at >= from).fold((0, 1.0), |(n, low), at| (n + 1, at.min(low)));
    let range = [lowest(0.0).1, fractions.iter().copied().fold(0.0, f64::max)];
    let borders = Borders::new(utterances.len(), range, data, |border| Ok::<_, Infallible>(lowest(border)));
    let Ok(borders) = borders;
    let [mut train, mut validation] = [vec![], vec![]];
    for (utterance, fraction) in utterances.into_iter().zip(fractions) {
        match borders.share(fraction) {
            Some(Share::Train) => train.push(utterance),
            Some(Share::Validation) => validation.push(utterance),
            None => {}
        }
    }
    (train, validation)
}

/// What is below it is held out, of so many utterances whose hashes reach from `lowest` to `highest`.
fn border(utterances: usize, lowest: f64, highest: f64, val_share: f64) -> f64 {
    if utterances < 2 || val_share.is_nan() || val_share <= 0.0 {
        return 0.0;
    }
    val_share.max(lowest.next_up()).min(highest)
}

/// Hash of an id as a number in 0..1: an order that has nothing to do with its own, and that more clips do not change.
pub fn hash_fraction(id: &str) -> f64 {
    let hash = blake3::hash(id.as_bytes());
    let bits = hash.as_bytes()[..8].iter().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::collections::HashSet;

    fn clips(count: usize) -> Vec<Utterance> {
        let clip = |n| Utterance {
            id: format!("clip-{n}"),
            audio: "a.wav".into(),
            text: "a".into(),
            speaker: "s".into(),
            language: None,
        };
        (0..count).map(clip).collect()
    }

    /// Without what lies between the shares.
    fn split(utterances: Vec<Utterance>, val_split: f64) -> (Vec<Utterance>, Vec<Utterance>) {
        super::split(utterances, &Data { val_split, train_split: 1.0, ..Config::default().data })
    }

    fn ids(part: &[Utterance]) -> HashSet<String> {
        part.iter().map(|utterance| utterance.id.clone()).collect()
    }

    #[test]
    fn adding_clips_moves_none() {
        let (training, validation) = split(clips(1_000), 0.1);
        let (more_training, more_validation) = split(clips(3_000), 0.1);
        assert!(ids(&training).is_subset(&ids(&more_training)));
        assert!(ids(&validation).is_subset(&ids(&more_validation)));
        // 3 standard deviations of a binomial with n = 3000, p = 0.1.
        assert!((more_validation.len() as f64 - 300.0).abs() < 50.0, "{}", more_validation.len());
    }

    #[test]
    fn both_parts_have_something() {
        for (count, share) in [(2, 1e-9), (2, 1.0), (3, 0.5), (50, 0.001), (50, 7.0)] {
            let (training, validation) = split(clips(count), share);
            assert!(!training.is_empty() && !validation.is_empty(), "{count} clips, share {share}");
            assert_eq!(training.len() + validation.len(), count);
        }
    }

    #[test]
    fn nothing_to_hold_out() {
        for (count, share) in [(0, 0.5), (1, 0.5), (9, 0.0), (9, -1.0), (9, f64::NAN)] {
            assert_eq!(split(clips(count), share).0.len(), count);
        }
    }
}
