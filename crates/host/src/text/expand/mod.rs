//! Numbers, money, dates, times, units, signs and abbreviations, written out as a language says them.
//!
//! One scanner for all languages. At every digit, sign and word start it asks, most specific first, what the text
//! there could be; whatever nothing claims is copied. Not modelled: Roman numerals, and number words in the oblique
//! cases of Slavic languages and Arabic, which come out in the nominative ("z pięć złotych"). `clock` knows dates,
//! times and phone numbers, `quantity` numbers and what they count, `word` abbreviations and signs, `written` how
//! digits are grouped.

mod clock;
mod quantity;
mod word;
mod written;

use super::language::Language;

/// A text with its numbers, signs and abbreviations written out.
pub(super) fn expand(text: &str, language: &Language) -> String {
    let mut scanner = Scanner { text, at: 0, out: String::with_capacity(text.len() + text.len() / 4), language };
    let mut spoken_before = false;
    while let Some(letter) = scanner.rest().chars().next() {
        match scanner.spoken(letter) {
            Some(Spoken { words, len }) => {
                scanner.say(&words);
                scanner.at += len;
                spoken_before = !scanner.skip_ending_mark();
            }
            None => {
                let len = scanner.copied(letter);
                if spoken_before && letter.is_alphanumeric() && !language.attached {
                    scanner.space();
                }
                scanner.out.push_str(&text[scanner.at..scanner.at + len]);
                scanner.at += len;
                spoken_before = false;
            }
        }
    }
    scanner.out
}

/// Reads a text from left to right.
struct Scanner<'a> {
    text: &'a str,
    /// How much of the text was read, in bytes.
    at: usize,
    out: String,
    language: &'a Language,
}

/// What is said for the next bytes of the text.
struct Spoken {
    words: String,
    len: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn spoken(&self, letter: char) -> Option<Spoken> {
        match letter {
            '0'..='9' => self.digit(),
            _ if letter.is_alphabetic() && self.inside_word() => None,
            _ if letter.is_alphabetic() => self.word(),
            _ => self.sign(letter),
        }
    }

    fn digit(&self) -> Option<Spoken> {
        self.date()
            .or_else(|| self.time())
            .or_else(|| self.phone())
            .or_else(|| self.dotted())
            .or_else(|| self.quantity())
    }

    /// Passes over the mark between a number and an ending that is spoken with it; whether there was one.
    fn skip_ending_mark(&mut self) -> bool {
        let mark = self.language.ending_mark.filter(|mark| self.rest().starts_with(*mark));
        let ending = mark.filter(|mark| self.rest()[mark.len_utf8()..].starts_with(char::is_alphabetic));
        self.at += ending.map_or(0, char::len_utf8);
        ending.is_some()
    }

    fn inside_word(&self) -> bool {
        self.previous().is_some_and(char::is_alphabetic)
    }

    fn previous(&self) -> Option<char> {
        self.text[..self.at].chars().next_back()
    }

    /// How much to copy when nothing is spoken: words whole, so that their inside is not looked at.
    fn copied(&self, letter: char) -> usize {
        let word: usize = self.rest().chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum();
        word.max(letter.len_utf8())
    }

    fn say(&mut self, words: &str) {
        let glued = self.out.chars().next_back().is_some_and(char::is_alphanumeric);
        if glued && !self.language.attached && words.starts_with(char::is_alphanumeric) {
            self.out.push(' ');
        }
        self.out.push_str(words);
    }

    fn space(&mut self) {
        if self.out.chars().next_back().is_some_and(char::is_alphanumeric) {
            self.out.push(' ');
        }
    }

    /// The word before here, in lower case; empty at the start and behind punctuation.
    fn word_before(&self) -> String {
        let before = self.text[..self.at].trim_end_matches(' ');
        let start = before
            .rfind(|c: char| !c.is_alphabetic())
            .map_or(0, |index| index + before[index..].chars().next().map_or(1, char::len_utf8));
        before[start..].to_lowercase()
    }

    /// Whether nothing follows that would make a longer word or number.
    fn ends(&self, text: &str) -> bool {
        !text.starts_with(|c: char| c.is_alphanumeric() && (c.is_ascii() || !self.language.attached))
    }

    fn join(&self, parts: &[&str]) -> String {
        let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        parts.join(self.language.joiner)
    }
}

/// The digits that a text starts with.
fn leading_digits(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_digit).count()]
}

/// The letters that a text starts with.
fn leading_letters(text: &str) -> &str {
    &text[..text.chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum()]
}

/// The text without the one space that may stand between a number and what belongs to it, and that space's length.
fn past_space(text: &str) -> (&str, usize) {
    text.strip_prefix(' ').map_or((text, 0), |rest| (rest, 1))
}

/// How many bytes of the text `known` takes at its start, whatever the case (`known` is in lower case); none where the
/// text starts otherwise.
fn starts_with(text: &str, known: &str) -> Option<usize> {
    let mut letters = text.chars();
    for wanted in known.chars() {
        let letter = letters.next()?;
        let same = match letter.is_ascii() {
            true => letter.to_ascii_lowercase() == wanted,
            false => letter == wanted || letter.to_lowercase().eq(std::iter::once(wanted)),
        };
        if !same {
            return None;
        }
    }
    Some(text.len() - letters.as_str().len())
}

#[cfg(test)]
mod tests;
