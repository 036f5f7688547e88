//! Sentences from a small grammar. Few words, so that 200 clips say each often; nearly every English sound is in them.

use crate::rng::Rng;
use std::collections::{HashMap, HashSet};

type Slot = &'static [&'static str];

const WHICH: Slot = &["the", "my", "your", "this"];
const KIND: Slot = &["old", "small", "red", "quiet", "blue", "warm", "young", "green", "happy"];
const WHO: Slot = &["cat", "dog", "child", "fox", "bird", "girl", "farmer", "teacher", "king", "horse", "mouse"];
const DOES: Slot = &["sleeps", "sings", "waits", "jumps", "walks", "plays", "laughs", "works"];
const PLACED: Slot = &["under", "near", "behind", "over", "with"];
const PLACE: Slot = &["tree", "river", "bridge", "table", "church", "village", "door", "shop", "garden", "zoo"];
const ACTS: Slot = &["likes", "sees", "finds", "takes", "loves"];
const WHAT: Slot = &["apple", "bread", "milk", "book", "cheese", "treasure", "juice", "voice"];
const WHEN: Slot = &["today", "often", "again", "slowly"];

/// Patterns of sentences, of 3 to 7 words each.
const PATTERNS: [&[Slot]; 7] = [
    &[WHICH, WHO, DOES],
    &[WHICH, KIND, WHO, DOES],
    &[WHICH, WHO, DOES, WHEN],
    &[WHICH, WHO, ACTS, WHICH, WHAT],
    &[WHICH, WHO, DOES, PLACED, WHICH, PLACE],
    &[WHICH, KIND, WHO, ACTS, WHICH, WHAT],
    &[WHICH, KIND, WHO, DOES, PLACED, WHICH, PLACE],
];

/// Distinct sentences, the same for the same seed; a larger count begins with those of a smaller.
/// The grammar makes over a million, so drawing until one is new stays cheap for the counts a sample corpus may have.
pub fn generate(count: usize, seed: u64) -> Vec<String> {
    let mut random = Rng::new(&[seed]);
    let mut said = HashMap::new();
    let mut seen = HashSet::new();
    let drawn = std::iter::repeat_with(|| sentence(&mut random, &mut said));
    drawn.filter(|sentence| seen.insert(sentence.clone())).take(count).collect()
}

fn sentence(random: &mut Rng, said: &mut HashMap<&str, usize>) -> String {
    let pattern = PATTERNS[random.below(PATTERNS.len())];
    let words: Vec<&str> = pattern.iter().map(|slot| word(slot, random, said)).collect();
    let text = words.join(" ");
    text[..1].to_uppercase() + &text[1..] + "."
}

/// The one of two random words that was said less: keeps the words balanced without making the order regular.
fn word(slot: Slot, random: &mut Rng, said: &mut HashMap<&str, usize>) -> &'static str {
    let [one, other] = [slot[random.below(slot.len())], slot[random.below(slot.len())]];
    let word = if said.get(one) <= said.get(other) { one } else { other };
    *said.entry(word).or_default() += 1;
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_short_and_repeatable() {
        let sentences = generate(5_000, 7);
        assert_eq!(sentences.iter().collect::<HashSet<_>>().len(), 5_000);
        assert!(sentences.iter().all(|sentence| (3..=7).contains(&sentence.split(' ').count())));
        assert_eq!(generate(100, 7), sentences[..100]);
        assert_ne!(generate(100, 8), sentences[..100]);
    }

    /// A word that 200 clips say only once or twice cannot be learned from them.
    #[test]
    fn every_word_is_said_often_enough() {
        let text = generate(200, 1).join(" ").to_lowercase().replace('.', "");
        for word in [WHICH, KIND, WHO, DOES, PLACED, PLACE, ACTS, WHAT, WHEN].concat() {
            let said = text.split(' ').filter(|said| *said == word).count();
            assert!(said >= 4, "{word}: {said}");
        }
    }
}
