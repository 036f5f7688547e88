//! Training and validation parts, by a hash of each id: adding clips never moves old ones.

use super::Utterance;

/// Training and validation part, each in the order given. With a share above 0, two or more utterances fill both parts:
/// should the hashes leave one empty, the utterance nearest to the border moves, and only that one may move back later.
pub fn split(utterances: Vec<Utterance>, val_share: f64) -> (Vec<Utterance>, Vec<Utterance>) {
    let fractions: Vec<f64> = utterances.iter().map(|utterance| hash_fraction(&utterance.id)).collect();
    let (lowest, highest) = fractions.iter().fold((1.0f64, 0.0f64), |(low, high), &at| (low.min(at), high.max(at)));
    let border = border(utterances.len(), lowest, highest, val_share);
    let (validation, training): (Vec<_>, Vec<_>) =
        utterances.into_iter().zip(fractions).partition(|(_, fraction)| *fraction < border);
    let utterances = |part: Vec<(Utterance, f64)>| part.into_iter().map(|(utterance, _)| utterance).collect();
    (utterances(training), utterances(validation))
}

/// What is below it is held out, of so many utterances whose hashes reach from `lowest` to `highest`.
pub fn border(utterances: usize, lowest: f64, highest: f64, val_share: f64) -> f64 {
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
