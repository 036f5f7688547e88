//! Phonemes as Piper and sherpa-onnx hand them to a model: each code point of a sentence's IPA, decomposed (NFD), by an id
//! out of a map, as `^ _ p _ p _ … $`. A tokenizer's own ids are `tag blank p blank p blank …` of composed symbols, so the
//! map has ids for marks that must be joined with the letter before them, and for what must be left out.

use super::tokenizer::Tokenizer;
use crate::error::hinted;
use anyhow::Result;
use std::collections::BTreeMap;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{compose, is_combining_mark};

/// Begins a sentence; stands behind every phoneme; ends a sentence.
pub const BEGIN: char = '^';
pub const PAD: char = '_';
pub const FINISH: char = '$';
/// Symbols of espeak-ng that a tokenizer leaves out: hyphens of liaison, and what ties letters together.
const LEFT_OUT: [char; 2] = ['-', '\u{200d}'];
/// Languages whose phonemes come out differently: what Piper takes apart cannot be put together again, or a mark of
/// punctuation is part of a phoneme. Seen with espeak-ng 1.51.
const REFUSED: [(&str, &str); 3] = [
    ("da", "espeak-ng writes `?` inside words, which Piper hands over as the end of a question"),
    ("hi", "espeak-ng writes a nasal vowel now as one symbol and now as two, and Piper hands over both as two"),
    ("zh", "espeak-ng writes `.` inside syllables, which Piper hands over as the end of a sentence"),
];

/// Ids of a file that Piper and sherpa-onnx speak with.
#[derive(Clone, Debug, PartialEq)]
pub struct PhonemeMap {
    /// Of every code point.
    pub ids: BTreeMap<char, i64>,
    /// Ids of a letter, of the mark behind it, and of what both are together.
    pub joined: Vec<[i64; 3]>,
    /// Of what is left out, with the pad behind it.
    pub left_out: i64,
    /// Number of ids, with those that a tokenizer does not have.
    pub count: usize,
    /// Number of the language among the tokenizer's.
    pub language: usize,
    /// Name of the language's voice in espeak-ng.
    pub espeak_voice: String,
}

impl PhonemeMap {
    pub fn new(tokenizer: &Tokenizer, language: &str) -> Result<Self> {
        let refused = |reason: &str| {
            let fact = format!("`{language}` cannot be spoken by Piper and sherpa-onnx: {reason}");
            hinted(fact, "`--format safetensors` writes the weights for other programs")
        };
        let primary = language.split('-').next().unwrap_or_default();
        if let Some((_, reason)) = REFUSED.iter().find(|(code, _)| *code == primary) {
            return Err(refused(reason));
        }
        let Some(symbols) = tokenizer.phoneme_ids(language)? else {
            return Err(refused("the voice reads characters, and they hand over phonemes of espeak-ng"));
        };
        let left_out = tokenizer.vocab_size() as i64;
        let mut map = PhonemeMap {
            ids: BTreeMap::from([(BEGIN, symbols.tag), (PAD, symbols.blank), (FINISH, left_out)]),
            joined: Vec::new(),
            left_out,
            count: left_out as usize + 1,
            language: symbols.language,
            espeak_voice: symbols.espeak_voice,
        };
        map.ids.extend(LEFT_OUT.map(|symbol| (symbol, left_out)));
        let mut composed = Vec::new();
        for (symbol, id) in symbols.phonemes {
            let parts: Vec<char> = symbol.nfd().collect();
            match parts.as_slice() {
                &[letter, mark] => composed.push((letter, mark, id)),
                _ => {
                    // The first has it: punctuation comes before a phoneme of the same sign.
                    map.ids.entry(symbol).or_insert(id);
                }
            }
        }
        for (letter, mark, whole) in composed {
            let letter = map.ids[&letter];
            let next = map.count as i64;
            let mark = *map.ids.entry(mark).or_insert(next);
            map.count += usize::from(mark == next);
            map.joined.push([letter, mark, whole]);
        }
        Ok(map)
    }

    /// Symbols that may stand side by side in any order, and what each becomes.
    pub fn letters(&self) -> Vec<(char, i64)> {
        let stands_alone = |symbol: char| ![BEGIN, PAD, FINISH].contains(&symbol) && !is_combining_mark(symbol);
        let plain = self.ids.iter().filter(|(symbol, id)| stands_alone(**symbol) && **id != self.left_out);
        let symbol_of = |id: i64| self.ids.iter().find(|(_, own)| **own == id).map(|(symbol, _)| *symbol);
        let composed =
            |[letter, mark, whole]: &[i64; 3]| Some((compose(symbol_of(*letter)?, symbol_of(*mark)?)?, *whole));
        plain.map(|(symbol, id)| (*symbol, *id)).chain(self.joined.iter().filter_map(composed)).collect()
    }

    /// Ids of phonemes as Piper makes them.
    pub fn encode(&self, phonemes: &str) -> Vec<i64> {
        let (begin, pad) = (self.ids[&BEGIN], self.ids[&PAD]);
        let each = phonemes.nfd().filter_map(|symbol| self.ids.get(&symbol)).flat_map(|id| [*id, pad]);
        [begin, pad].into_iter().chain(each).chain([self.ids[&FINISH]]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(kind: &str) -> Tokenizer {
        let stored = match kind {
            "phonemes" => {
                r#"{"kind": "phonemes", "languages": ["da", "de", "en"], "usual": "de", "espeak_ng": "1.51"}"#
            }
            _ => r#"{"kind": "characters", "languages": ["de"], "usual": "de", "characters": ["a"]}"#,
        };
        serde_json::from_str(stored).unwrap()
    }

    /// What the graph does, told in Rust.
    fn tokens(map: &PhonemeMap, ids: &[i64]) -> Vec<i64> {
        let mut tokens: Vec<i64> = Vec::new();
        let mut at = 0;
        while at < ids.len() {
            let joined = |rule: &&[i64; 3]| ids[at] == rule[0] && ids.get(at + 2) == Some(&rule[1]);
            match map.joined.iter().find(joined) {
                Some(rule) => {
                    tokens.push(rule[2]);
                    at += 3;
                }
                None if ids[at] == map.left_out => at += 2,
                None => {
                    tokens.push(ids[at]);
                    at += 1;
                }
            }
        }
        tokens
    }

    #[test]
    fn what_piper_takes_apart_is_what_the_tokenizer_has() {
        if super::super::phonemes::POOL.version().is_err() {
            return crate::skipped("espeak-ng is not installed");
        }
        let (tokenizer, language) = (tokenizer("phonemes"), "de");
        let map = PhonemeMap::new(&tokenizer, language).unwrap();
        assert_eq!((map.espeak_voice.as_str(), map.language), ("de", 1));
        // With what Piper 1.8 made of the first, by its own espeak-ng.
        for (text, phonemes) in [("ich möchte.", "ɪç mˈœçtə."), ("ja, nein", "jˈɑː, nˈaɪn")] {
            let own: Vec<i64> = tokenizer.encode(text, language).unwrap().into_iter().map(i64::from).collect();
            assert_eq!(tokens(&map, &map.encode(phonemes)), own, "{text}");
        }
        // French liaison.
        let (with, without) = (map.encode("de-z ɑ"), map.encode("dez ɑ"));
        assert_eq!(tokens(&map, &with), tokens(&map, &without));
    }

    #[test]
    fn a_language_that_would_sound_wrong_is_refused_with_its_reason() {
        let refused = |kind: &str, language: &str| PhonemeMap::new(&tokenizer(kind), language).unwrap_err().to_string();
        assert!(refused("phonemes", "da").contains("end of a question"));
        assert!(refused("characters", "de").contains("reads characters"));
    }
}
