//! Word and character error: what was heard against what was to be said.

use host::text::{detect, is_ideograph, normalize};
use serde::Serialize;
use std::iter::Sum;
use std::ops::Add;

/// How many insertions, deletions and replacements there are, and what they are counted against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    pub edits: usize,
    /// Words or characters that were to be said.
    pub of: usize,
}

impl ErrorCount {
    /// Edits as a share of what was to be said; above 1 where more was heard than was to be said.
    pub fn share(&self) -> f64 {
        self.edits as f64 / self.of.max(1) as f64
    }
}

impl Add for ErrorCount {
    type Output = ErrorCount;

    fn add(self, other: ErrorCount) -> ErrorCount {
        ErrorCount { edits: self.edits + other.edits, of: self.of + other.of }
    }
}

impl Sum for ErrorCount {
    fn sum<I: Iterator<Item = ErrorCount>>(errors: I) -> ErrorCount {
        errors.fold(ErrorCount::default(), Add::add)
    }
}

/// Errors in words and in characters, of texts that are made alike first. What was heard is in the language of what was
/// to be said, and too short or too wrong to tell by itself.
pub fn compare(wanted: &str, heard: &str, language: &str) -> (ErrorCount, ErrorCount) {
    let language = if language == "auto" { detect(wanted).unwrap_or_default() } else { language };
    let (wanted, heard) = (words(wanted, language), words(heard, language));
    let words = ErrorCount { edits: strsim::generic_levenshtein(&wanted, &heard), of: wanted.len() };
    let (wanted, heard) = (wanted.join(" "), heard.join(" "));
    (words, ErrorCount { edits: strsim::levenshtein(&wanted, &heard), of: wanted.chars().count() })
}

/// The words a speaker says, in lower case, numbers written out, without punctuation. Where a script has no spaces,
/// every character is a word.
pub fn words(text: &str, language: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in normalize(text, language).chars() {
        match letter {
            '\'' | '\u{200c}' | '\u{200d}' => {}
            _ if is_ideograph(letter) || is_kana(letter) => words.extend([letter.to_string(), String::new()]),
            _ if letter.is_alphanumeric() => words.last_mut().expect("never empty").push(letter),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_kana(letter: char) -> bool {
    matches!(letter, '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(wanted: &str, heard: &str) -> (usize, usize) {
        let (words, _) = compare(wanted, heard, "en");
        (words.edits, words.of)
    }

    /// Truth: counted by hand.
    #[test]
    fn words_are_inserted_deleted_and_replaced() {
        assert_eq!(counted("the cat sat", "the cat sat"), (0, 3));
        assert_eq!(counted("the cat sat", "the hat sat"), (1, 3));
        assert_eq!(counted("the cat sat", "cat sat"), (1, 3));
        assert_eq!(counted("the cat sat", "the black cat sat down"), (2, 3));
        assert_eq!(counted("the cat sat", ""), (3, 3));
        assert_eq!(counted("", "noise"), (1, 0));
        assert_eq!(counted("a b c d", "b c d a"), (2, 4));
        let letters = |wanted: &str, heard: &str| compare(wanted, heard, "en").1;
        assert_eq!(letters("kitten", "sitting"), ErrorCount { edits: 3, of: 6 });
        assert_eq!(letters("saturday", "sunday"), ErrorCount { edits: 3, of: 8 });
    }

    #[test]
    fn spelling_that_sounds_alike_is_no_error() {
        assert_eq!(counted("It's “Mr. Smith”, aged 42!", "its mister smith aged forty-two"), (0, 6));
        assert_eq!(counted("well-known", "Well known."), (0, 2));
        let german = compare("Das kostet 5 Euro, nicht mehr.", "das kostet 5 euro nicht mehr", "auto");
        assert_eq!(german.0, ErrorCount { edits: 0, of: 6 });
    }

    #[test]
    fn scripts_without_spaces_are_counted_by_character() {
        assert_eq!(words("今天天气好。", "zh"), ["今", "天", "天", "气", "好"]);
        assert_eq!(words("می\u{200c}خواهم بروم", "fa").len(), 2);
    }

    #[test]
    fn errors_of_many_clips_are_pooled() {
        let all: ErrorCount = [ErrorCount { edits: 1, of: 2 }, ErrorCount { edits: 0, of: 8 }].into_iter().sum();
        assert_eq!((all, all.share()), (ErrorCount { edits: 1, of: 10 }, 0.1));
    }
}
