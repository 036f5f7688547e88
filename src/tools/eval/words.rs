//! Word and character error: what was heard against what was to be said.

use host::text::{detect, is_ideograph, normalize};
use serde::Serialize;
use std::iter::Sum;
use std::ops::Add;

/// Insertions, deletions and replacements, and what they are counted against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Errors {
    pub edits: usize,
    pub of: usize,
}

impl Errors {
    /// Above 1 where more was heard than was to be said.
    pub fn share(&self) -> f64 {
        self.edits as f64 / self.of.max(1) as f64
    }

    fn between<T: PartialEq>(wanted: &[T], heard: &[T]) -> Self {
        Errors { edits: edits(wanted, heard), of: wanted.len() }
    }
}

impl Add for Errors {
    type Output = Errors;

    fn add(self, other: Errors) -> Errors {
        Errors { edits: self.edits + other.edits, of: self.of + other.of }
    }
}

impl Sum for Errors {
    fn sum<I: Iterator<Item = Errors>>(errors: I) -> Errors {
        errors.fold(Errors::default(), Add::add)
    }
}

/// Errors in words and in characters, of texts that are made alike first. What was heard is in the language of what was to
/// be said, and too short or too wrong to tell by itself.
pub fn compare(wanted: &str, heard: &str, language: &str) -> (Errors, Errors) {
    let language = if language == "auto" { detect(wanted).unwrap_or_default() } else { language };
    let (wanted, heard) = (words(wanted, language), words(heard, language));
    let letters = |words: &[String]| words.join(" ").chars().collect::<Vec<char>>();
    (Errors::between(&wanted, &heard), Errors::between(&letters(&wanted), &letters(&heard)))
}

/// The words a speaker says, in lower case, numbers written out, without punctuation. Where a script has no spaces, every
/// character is a word.
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

/// Levenshtein's distance (1966), row by row.
fn edits<T: PartialEq>(wanted: &[T], heard: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (above, want) in wanted.iter().enumerate() {
        let mut corner = above;
        row[0] = above + 1;
        for (col, hear) in heard.iter().enumerate() {
            let replaced = corner + usize::from(want != hear);
            corner = row[col + 1];
            row[col + 1] = replaced.min(corner + 1).min(row[col] + 1);
        }
    }
    row[heard.len()]
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
        assert_eq!(letters("kitten", "sitting"), Errors { edits: 3, of: 6 });
        assert_eq!(letters("saturday", "sunday"), Errors { edits: 3, of: 8 });
    }

    #[test]
    fn spelling_that_sounds_alike_is_no_error() {
        assert_eq!(counted("It's “Mr. Smith”, aged 42!", "its mister smith aged forty-two"), (0, 6));
        assert_eq!(counted("well-known", "Well known."), (0, 2));
        let german = compare("Das kostet 5 Euro, nicht mehr.", "das kostet 5 euro nicht mehr", "auto");
        assert_eq!(german.0, Errors { edits: 0, of: 6 });
    }

    #[test]
    fn scripts_without_spaces_are_counted_by_character() {
        assert_eq!(words("今天天气好。", "zh"), ["今", "天", "天", "气", "好"]);
        assert_eq!(words("می\u{200c}خواهم بروم", "fa").len(), 2);
    }

    #[test]
    fn errors_of_many_clips_are_pooled() {
        let all: Errors = [Errors { edits: 1, of: 2 }, Errors { edits: 0, of: 8 }].into_iter().sum();
        assert_eq!((all, all.share()), (Errors { edits: 1, of: 10 }, 0.1));
    }
}
