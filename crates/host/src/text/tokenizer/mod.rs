//! Texts to ids, with a language tag in front: 0 is padding, 1 unknown. Characters: tags, then the corpus's characters.
//! Phonemes: the fixed vocabulary, then tags, then the characters of languages that have no voice; behind each a blank, so that it has two states (Kim et al. 2020,
//! Glow-TTS): a sound and how it goes over into the next one. Word error of one voice: 6.1 and 7.7 % with it, 10.7 and
//! 12.7 % without.

use super::detect::{Detector, detect};
use super::error::Error;
use super::normalize::{self, normalize};
use super::phonemes::{self, POOL};
use crate::config::TokenizerKind;
use crate::corpus::Utterances;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Characters that every vocabulary of them holds, so that a voice fitted to a few sentences can be asked for others.
const BASE: &str = "abcdefghijklmnopqrstuvwxyz !\"'(),-.:;?";
/// Punctuation between words, in the scripts that have their own.
const BREAKS: &str = "!(),.:;?…—،؛؟۔।、。！，：；？";
/// Id of the blank, which is padding's: both mean that nothing is said here.
const BLANK: i32 = 0;
const UNKNOWN: i32 = 1;
/// Id of the first symbol.
const FIRST: usize = 2;
const AUTO: &str = "auto";
const DEFAULT_LANGUAGE: &str = "en";
/// Share of a corpus below which a detected language is left out: it is a mistake of the detector more often than a
/// language.
const LEAST_SHARE: f64 = 0.02;

/// Turns texts into ids and names what they stand for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Tokenizer {
    languages: Vec<String>,
    /// The language that is taken where none is named and none can be detected: the corpus's most frequent.
    usual: String,
    symbols: Symbols,
    /// Why these symbols, where they were chosen and not asked for; not stored.
    why: Option<String>,
    detector: Arc<Detector>,
}

/// Ids of a language that is read by phonemes.
pub struct PhonemeIds {
    pub tag: i64,
    pub blank: i64,
    /// Punctuation, then phonemes.
    pub phonemes: Vec<(char, i64)>,
    /// Number of the language.
    pub language: usize,
    /// Name of its voice in espeak-ng.
    pub espeak_voice: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Symbols {
    Characters(Vec<char>),
    Phonemes { espeak_ng: String, spelled: Spelled },
}

/// Languages without a voice, among others that have one: their texts are read by characters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Spelled {
    languages: Vec<String>,
    characters: Vec<char>,
}

impl Spelled {
    fn is_empty(&self) -> bool {
        self.languages.is_empty()
    }

    fn has(&self, language: &str) -> bool {
        self.languages.binary_search_by(|known| known.as_str().cmp(language)).is_ok()
    }
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        (&self.languages, &self.usual, &self.symbols) == (&other.languages, &other.usual, &other.symbols)
    }
}

impl Tokenizer {
    /// Fits a tokenizer on the whole corpus, before any split: the vocabulary is part of every cached feature's key.
    /// `language` is that of utterances that name none, or `auto`.
    pub fn of_corpus(utterances: &Utterances, language: &str, kind: TokenizerKind) -> Result<Self, Error> {
        let texts = || utterances.iter().map(|u| (u.text, u.language.unwrap_or(language)));
        if kind == TokenizerKind::Characters {
            return Ok(Self::fit(texts()));
        }
        match (Self::phonemes(texts(), kind), kind) {
            (Ok(tokenizer), _) => Ok(tokenizer),
            (Err(error), TokenizerKind::Phonemes) => Err(error),
            (Err(error), _) => Ok(Self { why: Some(error.to_string()), ..Self::fit(texts()) }),
        }
    }

    /// Fits a tokenizer of characters: learns the letters and languages of a corpus from its (text, language) pairs.
    pub fn fit<'a>(texts: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Self {
        let (languages, usual) = languages(texts.clone());
        let mut fitted = Self::new(languages, usual, Symbols::Characters(Vec::new()));
        let mut characters: BTreeSet<char> = BASE.chars().collect();
        for (text, language) in texts {
            characters.extend(normalize(text, fitted.language(text, language)).chars());
        }
        fitted.symbols = Symbols::Characters(characters.into_iter().collect());
        fitted
    }

    /// Phonemes for every language that has a voice; where they were not asked for, characters for the others.
    fn phonemes<'a>(
        texts: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        kind: TokenizerKind,
    ) -> Result<Self, Error> {
        let espeak_ng = POOL.version()?;
        let (languages, usual) = languages(texts.clone());
        let (mut spelled, mut why) = (Spelled::default(), None);
        for language in &languages {
            if let Err(error) = POOL.check(language) {
                spelled.languages.push(language.clone());
                why = Some(error);
            }
        }
        let all = spelled.languages.len() == languages.len();
        if let Some(error) = why.filter(|_| all || kind == TokenizerKind::Phonemes) {
            return Err(error);
        }
        let mut fitted = Self::new(languages, usual, Symbols::Phonemes { espeak_ng, spelled: spelled.clone() });
        if !spelled.is_empty() {
            let read = |(text, language)| (text, fitted.language(text, language));
            let by_characters = texts.map(read).filter(|(_, language)| spelled.has(language));
            let characters: BTreeSet<char> = by_characters
                .flat_map(|(text, language)| normalize(text, language).chars().collect::<Vec<_>>())
                .collect();
            spelled.characters = characters.into_iter().collect();
            let Symbols::Phonemes { spelled: own, .. } = &mut fitted.symbols else { unreachable!("made above") };
            *own = spelled;
        }
        Ok(fitted)
    }

    fn new(languages: Vec<String>, usual: String, symbols: Symbols) -> Self {
        let codes: Vec<&str> = languages.iter().map(String::as_str).collect();
        let detector = Arc::new(Detector::of(&codes));
        Self { languages, usual, symbols, why: None, detector }
    }

    /// Ids of a text: those of `encode_normalized`. `language` may be `auto`.
    pub fn encode(&self, text: &str, language: &str) -> Result<Vec<i32>, Error> {
        let language = self.language(text, language);
        self.encode_normalized(&normalize(text, language), language)
    }

    /// Ids of a text that `normalize` has been through: the language tag, then a token for each character or phoneme.
    /// Threads may share a tokenizer: each that asks has a process of its own.
    pub fn encode_normalized(&self, plain: &str, language: &str) -> Result<Vec<i32>, Error> {
        let tag = self.languages.binary_search_by(|known| known.as_str().cmp(language));
        let mut ids = Vec::with_capacity(1 + plain.len());
        ids.push(tag.map_or(UNKNOWN, |index| (self.first_tag() + index) as i32));
        match &self.symbols {
            Symbols::Characters(_) => ids.extend(plain.chars().map(|letter| self.id(letter))),
            Symbols::Phonemes { spelled, .. } if spelled.has(language) => {
                ids.push(BLANK);
                ids.extend(plain.chars().flat_map(|letter| [self.id(letter), BLANK]));
            }
            Symbols::Phonemes { .. } => {
                let positions = phonemes::read(plain, language, &POOL)?;
                let phoneme = |at: Option<usize>| at.map_or(UNKNOWN, |at| (FIRST + at) as i32);
                ids.push(BLANK);
                ids.extend(positions.into_iter().flat_map(|at| [phoneme(at), BLANK]));
            }
        }
        Ok(ids)
    }

    /// The code that a text is read by: `auto` is detected among the languages this tokenizer knows.
    pub fn language<'a>(&'a self, text: &str, language: &'a str) -> &'a str {
        match language {
            "" => &self.usual,
            AUTO => {
                let found = self.detector.detect(text);
                let known = |code: &str| self.languages.iter().find(|known| known.split('-').next() == Some(code));
                found.and_then(known).unwrap_or(&self.usual)
            }
            named => named,
        }
    }

    /// Number of ids.
    pub fn vocab_size(&self) -> usize {
        let symbols = match &self.symbols {
            Symbols::Characters(characters) => characters.len(),
            Symbols::Phonemes { spelled, .. } => *phonemes::COUNT + spelled.characters.len(),
        };
        FIRST + self.languages.len() + symbols
    }

    /// What each id stands for, in the order of ids: equal names in two tokenizers mean the same.
    pub fn names(&self) -> Vec<String> {
        let tags = self.languages.iter().map(|language| format!("<{language}>"));
        let first = if self.has_blanks() { "<blank>" } else { "<padding>" };
        let mut names = vec![first.to_owned(), "<unknown>".to_owned()];
        match &self.symbols {
            Symbols::Characters(characters) => names.extend(tags.chain(characters.iter().map(char::to_string))),
            Symbols::Phonemes { spelled, .. } => {
                names.extend((0..*phonemes::COUNT).map(|phoneme| format!("<phoneme {phoneme}>")).chain(tags));
                names.extend(spelled.characters.iter().map(char::to_string));
            }
        }
        names
    }

    /// Ids of a language's phonemes; none where it is read by characters, or not at all.
    pub fn phoneme_ids(&self, language: &str) -> Result<Option<PhonemeIds>, Error> {
        let number = self.languages.iter().position(|known| known == language);
        let Some(number) = number.filter(|_| self.letters(language).is_none()) else { return Ok(None) };
        let phonemes = phonemes::spoken_symbols().map(|(symbol, at)| (symbol, (FIRST + at) as i64)).collect();
        let (tag, blank) = ((self.first_tag() + number) as i64, i64::from(BLANK));
        Ok(Some(PhonemeIds { tag, blank, phonemes, language: number, espeak_voice: POOL.voice(language)? }))
    }

    /// What each id looks like, in the order of ids: letters or IPA, and all else in angle brackets.
    pub fn symbols(&self) -> Vec<String> {
        let mut symbols = self.names();
        if matches!(self.symbols, Symbols::Phonemes { .. }) {
            symbols[FIRST..].iter_mut().zip(phonemes::symbols()).for_each(|(name, symbol)| *name = symbol.to_string());
        }
        symbols
    }

    /// A tokenizer that reads all that either reads; `None` where one reads characters and the other phonemes.
    pub fn joined(&self, other: &Tokenizer) -> Option<Tokenizer> {
        let symbols = match (&self.symbols, &other.symbols) {
            (Symbols::Characters(a), Symbols::Characters(b)) => {
                let all: BTreeSet<char> = a.iter().chain(b).copied().collect();
                Symbols::Characters(all.into_iter().collect())
            }
            (Symbols::Phonemes { espeak_ng, spelled }, Symbols::Phonemes { spelled: others, .. }) => {
                // Of a language that both have, this machine's voices decide.
                let theirs = others.languages.iter().filter(|language| !self.languages.contains(language));
                let languages: BTreeSet<String> = spelled.languages.iter().chain(theirs).cloned().collect();
                let characters: BTreeSet<char> = spelled.characters.iter().chain(&others.characters).copied().collect();
                let spelled = Spelled {
                    languages: languages.into_iter().collect(),
                    characters: characters.into_iter().collect(),
                };
                Symbols::Phonemes { espeak_ng: espeak_ng.clone(), spelled }
            }
            _ => return None,
        };
        let languages: BTreeSet<String> = self.languages.iter().chain(&other.languages).cloned().collect();
        Some(Self { why: self.why.clone(), ..Self::new(languages.into_iter().collect(), self.usual.clone(), symbols) })
    }

    /// Codes of the languages that have a tag.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// Ids of spaces and punctuation, sorted: behind them a text may be cut.
    pub fn breaks(&self) -> Vec<i32> {
        match &self.symbols {
            Symbols::Characters(characters) => {
                characters.iter().filter(|letter| is_break(**letter)).map(|&letter| self.id(letter)).collect()
            }
            Symbols::Phonemes { spelled, .. } => {
                let of_phonemes = phonemes::breaks().map(|at| (FIRST + at) as i32);
                let letters = spelled.characters.iter().filter(|letter| is_break(**letter));
                of_phonemes.chain(letters.map(|&letter| self.id(letter))).collect()
            }
        }
    }

    /// The characters of a text, once it is normalised, that this vocabulary lacks, each once. Phonemes lack none.
    pub fn unknown(&self, text: &str, language: &str) -> Vec<char> {
        let language = self.language(text, language);
        match self.letters(language) {
            Some(_) => self.unknown_normalized(&normalize(text, language), language),
            None => Vec::new(),
        }
    }

    /// The characters of a normalised text that this vocabulary lacks, each once. Phonemes lack none.
    pub fn unknown_normalized(&self, plain: &str, language: &str) -> Vec<char> {
        let Some(characters) = self.letters(language) else { return Vec::new() };
        let letters: BTreeSet<char> = plain.chars().collect();
        letters.into_iter().filter(|letter| characters.binary_search(letter).is_err()).collect()
    }

    /// The characters that texts of a language are read by; none where it is read by phonemes.
    fn letters(&self, language: &str) -> Option<&[char]> {
        match &self.symbols {
            Symbols::Characters(characters) => Some(characters),
            Symbols::Phonemes { spelled, .. } => spelled.has(language).then_some(&spelled.characters),
        }
    }

    /// What texts of a language are read by.
    pub fn symbols_of(&self, language: &str) -> &'static str {
        if self.letters(language).is_some() { "characters" } else { "phonemes" }
    }

    /// Says which symbols are read, by language where they differ, and why where they were chosen.
    pub fn describe(&self) -> String {
        match (&self.symbols, &self.why) {
            (Symbols::Phonemes { espeak_ng, spelled }, _) if spelled.is_empty() => {
                format!("phonemes, by espeak-ng {espeak_ng}")
            }
            (Symbols::Phonemes { espeak_ng, spelled }, _) => format!(
                "phonemes, by espeak-ng {espeak_ng}, for {} languages; characters for {}, which it cannot read",
                self.languages.len() - spelled.languages.len(),
                spelled.languages.join(", ")
            ),
            (Symbols::Characters(_), Some(why)) => format!("characters ({why})"),
            (Symbols::Characters(_), None) => "characters".into(),
        }
    }

    /// Checks a tokenizer out of a checkpoint: an error where it cannot work here, a note where it may work
    /// differently.
    pub fn check(&self) -> Result<Option<String>, Error> {
        let Symbols::Phonemes { espeak_ng, spelled } = &self.symbols else { return Ok(None) };
        self.languages
            .iter()
            .filter(|language| !spelled.has(language))
            .try_for_each(|language| POOL.check(language))?;
        let installed = POOL.version()?;
        let note = format!("the voice learned phonemes of espeak-ng {espeak_ng}; {installed} is installed");
        Ok((installed != *espeak_ng).then_some(note))
    }

    /// A hash that is equal for two tokenizers exactly when they encode every text alike: phonemes are those of the
    /// installed program.
    pub fn fingerprint(&self) -> String {
        let installed = match &self.symbols {
            Symbols::Phonemes { espeak_ng, .. } => POOL.version().unwrap_or_else(|_| espeak_ng.clone()),
            Symbols::Characters(_) => String::new(),
        };
        let symbols = match &self.symbols {
            Symbols::Characters(characters) => Some(characters),
            Symbols::Phonemes { .. } => None,
        };
        let content =
            (normalize::VERSION, &self.languages, &self.usual, symbols, installed, *phonemes::COUNT, self.states());
        // Nothing where every language has a voice: what was cached before there were others stays what it is.
        let by_characters = match &self.symbols {
            Symbols::Phonemes { spelled, .. } if !spelled.is_empty() => format!("{spelled:?}"),
            _ => String::new(),
        };
        blake3::hash(format!("{content:?}{by_characters}").as_bytes()).to_hex()[..32].to_string()
    }

    fn has_blanks(&self) -> bool {
        matches!(self.symbols, Symbols::Phonemes { .. })
    }

    /// Tokens that a symbol of the text becomes.
    pub fn states(&self) -> usize {
        1 + usize::from(self.has_blanks())
    }

    fn first_tag(&self) -> usize {
        match &self.symbols {
            Symbols::Characters(_) => FIRST,
            Symbols::Phonemes { .. } => FIRST + *phonemes::COUNT,
        }
    }

    fn id(&self, letter: char) -> i32 {
        let (characters, first) = match &self.symbols {
            Symbols::Characters(characters) => (characters, FIRST + self.languages.len()),
            Symbols::Phonemes { spelled, .. } => (&spelled.characters, self.first_tag() + self.languages.len()),
        };
        characters.binary_search(&letter).map_or(UNKNOWN, |index| (first + index) as i32)
    }
}

/// Whether a text may be cut behind a character.
fn is_break(letter: char) -> bool {
    letter.is_whitespace() || BREAKS.contains(letter)
}

/// The languages that are named, and those detected often enough; and the most frequent of all.
fn languages<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> (Vec<String>, String) {
    let (mut named, mut detected) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, usize>::new());
    for (text, language) in texts {
        match language {
            AUTO => detect(text).into_iter().for_each(|code| *detected.entry(code).or_default() += 1),
            "" => *named.entry(DEFAULT_LANGUAGE).or_default() += 1,
            code => *named.entry(code).or_default() += 1,
        }
    }
    let all: usize = detected.values().sum();
    detected.retain(|_, count| *count as f64 >= LEAST_SHARE * all as f64);
    for (code, count) in detected {
        *named.entry(code).or_default() += count;
    }
    let usual = named.iter().max_by_key(|(_, count)| **count).map_or(DEFAULT_LANGUAGE, |(code, _)| code).to_owned();
    named.entry(DEFAULT_LANGUAGE).or_default();
    let known = named.iter().filter(|(code, count)| **count > 0 || **code == usual);
    (known.map(|(code, _)| (*code).to_owned()).collect(), usual)
}

/// A tokenizer as a file has it: it may be out of order, and then ids would silently mean other letters.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Stored {
    Characters {
        languages: Vec<String>,
        usual: String,
        characters: Vec<char>,
    },
    Phonemes {
        languages: Vec<String>,
        usual: String,
        espeak_ng: String,
        #[serde(default, skip_serializing_if = "Spelled::is_empty")]
        spelled: Spelled,
    },
}

impl TryFrom<Stored> for Tokenizer {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let (languages, usual, symbols) = match stored {
            Stored::Characters { languages, usual, characters } => (languages, usual, Symbols::Characters(characters)),
            Stored::Phonemes { languages, usual, espeak_ng, spelled } => {
                (languages, usual, Symbols::Phonemes { espeak_ng, spelled })
            }
        };
        let sorted = match &symbols {
            Symbols::Characters(characters) => characters.is_sorted_by(|a, b| a < b),
            Symbols::Phonemes { spelled, .. } => {
                spelled.characters.is_sorted_by(|a, b| a < b) && spelled.languages.is_sorted_by(|a, b| a < b)
            }
        };
        if !sorted || !languages.is_sorted_by(|a, b| a < b) {
            return Err("tokenizer: languages and characters must be sorted, each once");
        }
        Ok(Self::new(languages, usual, symbols))
    }
}

impl From<Tokenizer> for Stored {
    fn from(Tokenizer { languages, usual, symbols, .. }: Tokenizer) -> Self {
        match symbols {
            Symbols::Characters(characters) => Stored::Characters { languages, usual, characters },
            Symbols::Phonemes { espeak_ng, spelled } => Stored::Phonemes { languages, usual, espeak_ng, spelled },
        }
    }
}

#[cfg(test)]
mod tests;
