//! Word and character error: what was heard against what was to be said.

use crate::text::{detect, is_ideograph, normalize};
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
    let language = language_of(wanted, language);
    let (wanted, heard) = (words(wanted, language), words(heard, language));
    let edits = align(&wanted, &heard).iter().filter(|pair| !pair.is_right()).count();
    let words = ErrorCount { edits, of: wanted.len() };
    let (wanted, heard) = (wanted.join(" "), heard.join(" "));
    (words, ErrorCount { edits: strsim::levenshtein(&wanted, &heard), of: wanted.chars().count() })
}

/// A word that was to be said, and the one that was heard in its place; without the other where it was left out or put in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WordPair {
    pub wanted: Option<String>,
    pub heard: Option<String>,
}

impl WordPair {
    pub fn is_right(&self) -> bool {
        self.wanted == self.heard
    }
}

/// Words that were to be said beside those that were heard, with as few differences as there can be (Wagner and Fischer
/// 1974). Of several such ways, that which replaces before it leaves out and leaves out before it puts in.
pub fn align(wanted: &[String], heard: &[String]) -> Vec<WordPair> {
    // The least edits from each place to the ends.
    let mut least = vec![vec![0; heard.len() + 1]; wanted.len() + 1];
    for w in (0..=wanted.len()).rev() {
        for h in (0..=heard.len()).rev() {
            least[w][h] = match (wanted.get(w), heard.get(h)) {
                (Some(one), Some(other)) => {
                    let edits = usize::from(one != other) + least[w + 1][h + 1];
                    edits.min(1 + least[w + 1][h]).min(1 + least[w][h + 1])
                }
                _ => wanted.len() - w + heard.len() - h,
            };
        }
    }
    let (mut w, mut h, mut pairs) = (0, 0, Vec::new());
    while w < wanted.len() || h < heard.len() {
        let (one, other) = (wanted.get(w), heard.get(h));
        let both = one.zip(other).is_some_and(|(a, b)| least[w][h] == usize::from(a != b) + least[w + 1][h + 1]);
        let is_left_out = one.is_some() && (other.is_none() || least[w][h] == 1 + least[w + 1][h]);
        let (takes_wanted, takes_heard) = if both { (true, true) } else { (is_left_out, !is_left_out) };
        let taken = |word: Option<&String>, takes: bool| word.filter(|_| takes).cloned();
        pairs.push(WordPair { wanted: taken(one, takes_wanted), heard: taken(other, takes_heard) });
        (w, h) = (w + usize::from(takes_wanted), h + usize::from(takes_heard));
    }
    pairs
}

/// The words of two texts, beside each other.
pub fn align_texts(wanted: &str, heard: &str, language: &str) -> Vec<WordPair> {
    let language = language_of(wanted, language);
    align(&words(wanted, language), &words(heard, language))
}

fn language_of<'a>(wanted: &str, language: &'a str) -> &'a str {
    if language == "auto" { detect(wanted).unwrap_or_default() } else { language }
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
    fn wrong_words_stand_beside_those_they_were_heard_for() {
        let shown = |wanted: &str, heard: &str| -> String {
            let pairs = align_texts(wanted, heard, "en");
            let mark = |pair: &WordPair| match (&pair.wanted, &pair.heard) {
                (Some(_), Some(word)) if pair.is_right() => word.clone(),
                (Some(one), Some(other)) => format!("{one}→{other}"),
                (one, other) => {
                    one.iter().map(|it| format!("-{it}")).chain(other.iter().map(|it| format!("+{it}"))).collect()
                }
            };
            pairs.iter().map(mark).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("The cat sat.", "the hat sat"), "the cat→hat sat");
        assert_eq!(shown("the cat sat", "cat sat down"), "-the cat sat +down");
        assert_eq!(shown("one two three", ""), "-one -two -three");
        assert_eq!(shown("", "noise noise"), "+noise +noise");
    }

    proptest::proptest! {
        /// Truth: strsim's distance. Nothing is lost, and nothing changes its place.
        #[test]
        fn as_few_words_are_wrong_as_can_be(wanted in "[abc]{0,9}", heard in "[abc]{0,9}") {
            let letters = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
            let pairs = align(&letters(&wanted), &letters(&heard));
            let wrong = pairs.iter().filter(|pair| !pair.is_right()).count();
            proptest::prop_assert_eq!(wrong, strsim::levenshtein(&wanted, &heard));
            proptest::prop_assert_eq!(pairs.iter().filter_map(|it| it.wanted.clone()).collect::<String>(), wanted);
            proptest::prop_assert_eq!(pairs.iter().filter_map(|it| it.heard.clone()).collect::<String>(), heard);
        }
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
