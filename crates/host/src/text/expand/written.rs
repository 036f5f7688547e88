//! A number as it is written: groups of thousands, decimals, and how it is read aloud.

use super::super::language::{Fraction, Gender, LIMIT, Language};
use super::leading_digits;

/// A number as a text writes it.
pub(super) struct Written<'a> {
    /// Digits before the decimal mark, without the marks between groups.
    pub digits: String,
    /// Digits behind the decimal mark.
    pub fraction: &'a str,
    pub grouped: bool,
    /// Bytes of the text that the number takes.
    pub len: usize,
}

impl<'a> Written<'a> {
    /// The number that the text starts with.
    pub fn read(text: &'a str, language: &Language) -> Option<Self> {
        let first = leading_digits(text);
        if first.is_empty() {
            return None;
        }
        let grouped_len = language.group_marks.iter().map(|mark| grouped(text, first, *mark)).max().unwrap_or(0);
        let whole = &text[..grouped_len.max(first.len())];
        let fraction = fraction(&text[whole.len()..], language);
        let digits = whole.bytes().filter(u8::is_ascii_digit).map(char::from).collect();
        let len = whole.len() + if fraction.is_empty() { 0 } else { 1 + fraction.len() };
        Some(Written { digits, fraction, grouped: grouped_len > 0, len })
    }

    /// The whole part; none for what is read digit by digit: leading zeros, and more digits than people say as a
    /// number.
    pub fn value(&self) -> Option<u64> {
        let plain = self.digits.len() == 1 || !self.digits.starts_with('0');
        self.digits.parse().ok().filter(|value| plain && *value < LIMIT)
    }

    /// The value of a number without decimals.
    pub fn whole(&self) -> Option<u64> {
        self.value().filter(|_| self.fraction.is_empty())
    }

    pub fn words(&self, language: &Language, gender: Gender) -> String {
        let Some(value) = self.value() else {
            return with_point(by_digits(&self.digits, language), self.fraction, language);
        };
        match language.fraction {
            _ if self.fraction.is_empty() => (language.cardinal)(value, gender),
            Fraction::Named(read) => read(value, self.fraction)
                .unwrap_or_else(|| with_point((language.cardinal)(value, Gender::Bare), self.fraction, language)),
            _ => with_point((language.cardinal)(value, Gender::Bare), self.fraction, language),
        }
    }
}

fn with_point(whole: String, fraction: &str, language: &Language) -> String {
    if fraction.is_empty() {
        return whole;
    }
    let zeros = fraction.len() - fraction.trim_start_matches('0').len();
    let (zeros, rest) = fraction.split_at(zeros);
    let as_number = matches!(language.fraction, Fraction::Number) && (1..=3).contains(&rest.len());
    let read = if as_number {
        let rest = rest.parse().map_or_else(|_| String::new(), |rest| (language.cardinal)(rest, Gender::Bare));
        let zeros = by_digits(zeros, language);
        if zeros.is_empty() { rest } else { zeros + language.joiner + &rest }
    } else {
        by_digits(fraction, language)
    };
    [&whole, language.point, &read].join(language.joiner)
}

pub(super) fn by_digits(digits: &str, language: &Language) -> String {
    let words: Vec<String> =
        digits.bytes().map(|digit| (language.cardinal)(u64::from(digit - b'0'), Gender::Bare)).collect();
    words.join(language.joiner)
}

/// Length in bytes of digits in groups of three behind this mark; zero where they are not grouped so.
fn grouped(text: &str, first: &str, mark: char) -> usize {
    if first.len() > 3 || first.starts_with('0') {
        return 0;
    }
    let mut len = first.len();
    while let Some(group) = text[len..].strip_prefix(mark) {
        if leading_digits(group).len() != 3 {
            // `1.234.5` is no number of this language at all.
            return if leading_digits(group).is_empty() || mark == ' ' { grouped_or_none(len, first) } else { 0 };
        }
        len += mark.len_utf8() + 3;
    }
    grouped_or_none(len, first)
}

fn grouped_or_none(len: usize, first: &str) -> usize {
    if len > first.len() { len } else { 0 }
}

/// Digits behind the decimal mark. A point also serves where the language writes commas: `3.5` in German is no group.
fn fraction<'a>(text: &'a str, language: &Language) -> &'a str {
    let behind = |mark: char| text.strip_prefix(mark).map_or("", leading_digits);
    let digits = match behind(language.decimal_mark) {
        "" => behind('.'),
        digits => digits,
    };
    let follows = digits.len() + 1;
    // `1.2.3` is a list or a version.
    let listed = text.get(follows..).is_some_and(|rest| {
        rest.strip_prefix(['.', ',']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    if listed { "" } else { digits }
}
