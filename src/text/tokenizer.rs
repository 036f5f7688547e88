//! Characters to ids, with a language tag in front: 0 padding, 1 unknown, then language tags, then characters.

use super::normalize::{self, normalize};
use crate::corpus::Utterance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Every vocabulary holds these, so that a voice fitted to a few sentences can be asked for others.
const BASE: &str = "abcdefghijklmnopqrstuvwxyz !\"'(),-.:;?";
const UNKNOWN: i32 = 1;
const FIRST_TAG: usize = 2;
const DEFAULT_LANGUAGE: &str = "en";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vocabulary")]
pub struct Tokenizer {
    languages: Vec<String>,
    characters: Vec<char>,
}

impl Tokenizer {
    /// Fitted on the whole corpus, before any split: the vocabulary is part of every cached feature's key.
    /// `language` is that of utterances that name none.
    pub fn of_corpus(utterances: &[Utterance], language: &str) -> Self {
        Self::fit(utterances.iter().map(|u| (u.text.as_str(), u.language.as_deref().unwrap_or(language))))
    }

    /// Learns the letters and languages of a corpus from its (text, language) pairs.
    pub fn fit<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut languages = BTreeSet::new();
        let mut characters: BTreeSet<char> = BASE.chars().collect();
        for (text, language) in texts {
            languages.insert(named(language));
            characters.extend(normalize(text).chars());
        }
        let languages = languages.into_iter().map(String::from).collect();
        Self { languages, characters: characters.into_iter().collect() }
    }

    /// The language tag, then a token for each character of the normalised text.
    pub fn encode(&self, text: &str, language: &str) -> Vec<i32> {
        let tag = self.languages.binary_search_by(|known| known.as_str().cmp(named(language)));
        let tag = tag.map_or(UNKNOWN, |index| (FIRST_TAG + index) as i32);
        std::iter::once(tag).chain(normalize(text).chars().map(|letter| self.id(letter))).collect()
    }

    pub fn vocab_size(&self) -> usize {
        FIRST_TAG + self.languages.len() + self.characters.len()
    }

    /// The characters of the normalised text that this vocabulary lacks, each once.
    pub fn unknown(&self, text: &str) -> Vec<char> {
        let letters: BTreeSet<char> = normalize(text).chars().collect();
        letters.into_iter().filter(|&letter| self.id(letter) == UNKNOWN).collect()
    }

    /// Equal for two tokenizers exactly when they encode every text alike.
    pub fn fingerprint(&self) -> String {
        let content = (normalize::VERSION, &self.languages, &self.characters);
        blake3::hash(format!("{content:?}").as_bytes()).to_hex()[..32].to_string()
    }

    fn id(&self, letter: char) -> i32 {
        let first = FIRST_TAG + self.languages.len();
        self.characters.binary_search(&letter).map_or(UNKNOWN, |index| (first + index) as i32)
    }
}

fn named(language: &str) -> &str {
    if language.is_empty() { DEFAULT_LANGUAGE } else { language }
}

/// A vocabulary as a file has it: it may be out of order, and then ids would silently mean other letters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vocabulary {
    languages: Vec<String>,
    characters: Vec<char>,
}

impl TryFrom<Vocabulary> for Tokenizer {
    type Error = &'static str;

    fn try_from(Vocabulary { languages, characters }: Vocabulary) -> Result<Self, Self::Error> {
        if !languages.is_sorted_by(|a, b| a < b) || !characters.is_sorted_by(|a, b| a < b) {
            return Err("tokenizer: languages and characters must be sorted, each once");
        }
        Ok(Self { languages, characters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn english() -> Tokenizer {
        Tokenizer::fit([("Hello, world.", "en")].into_iter())
    }

    /// Truth: the order of ids in the module's first line; the base vocabulary in code-point order starts with " !\"'".
    #[test]
    fn ids_are_tag_then_characters() {
        let tokenizer = english();
        assert_eq!(tokenizer.encode(" !\"'", "en"), [2, 4, 5, 6], "the leading space is no part of the text");
        assert_eq!(tokenizer.encode("A b", ""), tokenizer.encode("a  b", "en"));
        assert_eq!(tokenizer.encode("ß", "de"), [1, 1]);
        assert_eq!(tokenizer.vocab_size(), 2 + 1 + BASE.chars().count());
        assert_eq!(tokenizer.unknown("straße? ß!"), ['ß']);
    }

    #[test]
    fn persian_letters_are_learned() {
        let text = "می‌خواهم به خانه بروم؟";
        let tokenizer = Tokenizer::fit([(text, "fa"), ("Home.", "en")].into_iter());
        let ids = tokenizer.encode(text, "fa");
        assert_eq!(ids.len(), 1 + text.chars().count());
        assert!(ids.iter().all(|&id| id > UNKNOWN) && ids[0] == 3);
        assert_eq!(english().unknown(text).len(), text.chars().filter(|c| *c != ' ').collect::<BTreeSet<_>>().len());
    }

    #[test]
    fn json_round_trip_and_order() {
        let tokenizer = Tokenizer::fit([("Grüße", "de"), ("été", "fr")].into_iter());
        let json = serde_json::to_string(&tokenizer).unwrap();
        assert_eq!(serde_json::from_str::<Tokenizer>(&json).unwrap(), tokenizer);
        let shuffled = r#"{"languages":["fr","de"],"characters":["a"]}"#;
        assert!(serde_json::from_str::<Tokenizer>(shuffled).unwrap_err().to_string().contains("sorted"));
    }

    #[test]
    fn fingerprint_follows_the_vocabulary() {
        assert_eq!(english().fingerprint(), Tokenizer::fit([("World, hello!", "en")].into_iter()).fingerprint());
        assert_ne!(english().fingerprint(), Tokenizer::fit([("Hello", "de")].into_iter()).fingerprint());
        assert_ne!(english().fingerprint(), Tokenizer::fit([("Grüße", "en")].into_iter()).fingerprint());
    }

    proptest! {
        #[test]
        fn ids_stay_inside_the_vocabulary(seen in any::<String>(), text in any::<String>(), language in "[a-z]{0,3}") {
            let tokenizer = Tokenizer::fit([(seen.as_str(), "en")].into_iter());
            let ids = tokenizer.encode(&text, &language);
            prop_assert!(ids.iter().all(|&id| id >= 1 && (id as usize) < tokenizer.vocab_size()));
            prop_assert!(tokenizer.unknown(&seen).is_empty());
        }
    }
}
