//! Dates and times in digits, phone numbers, versions: digits whose separators say what they are.

use super::super::language::{Date, DateOrder, Gender, Time};
use super::written::by_digits;
use super::{Scanner, Spoken, leading_digits, past_space, starts_with};

/// Digits that a phone number has at least.
const PHONE_DIGITS: usize = 7;

impl Scanner<'_> {
    /// A date: `2024-03-05`, `5.3.2024`, `3/5/2024`.
    pub(super) fn date(&self) -> Option<Spoken> {
        let ([first, second, third], len) = self.three_parts()?;
        let number = |digits: &str| digits.parse::<u64>().ok();
        let (year, first, second, order) = match (first.len(), third.len()) {
            (4, 1 | 2) => (number(first)?, number(second)?, number(third)?, DateOrder::MonthDay),
            (1 | 2, 4) => (number(third)?, number(first)?, number(second)?, self.language.date_order),
            _ => return None,
        };
        let valid = |month, day| ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some((month, day));
        let (month, day) = match order {
            DateOrder::MonthDay => valid(first, second).or_else(|| valid(second, first)),
            DateOrder::DayMonth | DateOrder::YearMonth => valid(second, first).or_else(|| valid(first, second)),
        }?;
        let after = self.word_before();
        let words = (self.language.date)(&Date { day, month: month as usize, year, after: &after });
        Some(Spoken { words, len })
    }

    /// Three runs of digits with the same separator between them.
    fn three_parts(&self) -> Option<([&str; 3], usize)> {
        let text = self.rest();
        let first = leading_digits(text);
        let mark = text[first.len()..].chars().next().filter(|c| matches!(c, '.' | '/' | '-'))?;
        let second = leading_digits(&text[first.len() + 1..]);
        let rest = text[first.len() + 1 + second.len()..].strip_prefix(mark)?;
        let third = leading_digits(rest);
        let after = &rest[third.len()..];
        let longer = after.strip_prefix(mark).is_some_and(|rest| !self.ends(rest));
        let fits = (1..=2).contains(&second.len()) && !third.is_empty() && !longer && self.ends(after);
        fits.then_some(([first, second, third], text.len() - after.len()))
    }

    /// A time: `14:30`, `14:30:05`; `14h30` and `14.30 Uhr` where the language writes so.
    pub(super) fn time(&self) -> Option<Spoken> {
        let text = self.rest();
        let hours = leading_digits(text);
        let rest = &text[hours.len()..];
        let (rest, own_mark) = match rest.strip_prefix(':') {
            Some(rest) => (rest, false),
            None => (rest.strip_prefix(self.language.time_mark?)?, true),
        };
        let (minute, rest) = two_digits(rest)?;
        let seconds = rest.strip_prefix(':').and_then(two_digits);
        let (second, rest) = seconds.map_or((None, rest), |(second, rest)| (Some(second), rest));
        let hour = hours.parse().ok().filter(|hour| *hour <= 24 && hours.len() <= 2)?;
        let word = self.time_word(rest);
        let dotted = own_mark && self.language.time_mark == Some(".");
        if minute > 59 || second > Some(59) || !self.ends(rest) && word == 0 || dotted && word == 0 {
            return None;
        }
        let words = (self.language.time)(&Time { hour, minute, second, after: &self.word_before() });
        Some(Spoken { words, len: text.len() - rest.len() + word })
    }

    /// Length of a word such as `Uhr` that the reading of a time says already.
    fn time_word(&self, rest: &str) -> usize {
        let (behind, space) = past_space(rest);
        let words = self.language.time_words.iter();
        words
            .filter_map(|word| starts_with(behind, word).filter(|len| self.ends(&behind[*len..])))
            .max()
            .map_or(0, |len| len + space)
    }

    /// A phone number (`555-123-4567`, `0171 2345678`, `+49 30 1234567`), digit by digit.
    pub(super) fn phone(&self) -> Option<Spoken> {
        let text = self.rest();
        let international = self.previous() == Some('+');
        let (groups, len) = phone_groups(text);
        let digits: usize = groups.iter().map(|group| group.len()).sum();
        let dashes = text[..len].matches('-').count();
        let looks_like_one = match groups.len() {
            _ if international => true,
            2 => dashes == 1 && groups[0].len() == 3 && groups[1].len() == 4,
            2.. if text.starts_with('0') => true,
            3.. => dashes == groups.len() - 1,
            _ => false,
        };
        (looks_like_one && digits >= PHONE_DIGITS)
            .then(|| Spoken { words: by_digits(&groups.concat(), self.language), len })
    }

    /// A version (`1.2.3`): its parts, with the decimal mark's word between them.
    pub(super) fn dotted(&self) -> Option<Spoken> {
        let text = self.rest();
        let mut parts = vec![leading_digits(text)];
        let mut len = parts[0].len();
        while let Some(part) = text[len..].strip_prefix('.').map(leading_digits).filter(|part| !part.is_empty()) {
            parts.push(part);
            len += 1 + part.len();
        }
        let thousands = self.language.group_marks.contains(&'.') && parts[1..].iter().all(|part| part.len() == 3);
        if parts.len() < 3 || thousands {
            return None;
        }
        let read = |part: &&str| match part.parse() {
            Ok(number) if part.len() <= 4 && !(part.len() > 1 && part.starts_with('0')) => {
                (self.language.cardinal)(number, Gender::Bare)
            }
            _ => by_digits(part, self.language),
        };
        let words: Vec<String> = parts.iter().map(read).collect();
        let between = self.join(&[" ", self.language.point, " "]).replace("  ", " ");
        let between = if self.language.joiner.is_empty() { self.language.point } else { &between };
        Some(Spoken { words: words.join(between), len })
    }
}

fn two_digits(text: &str) -> Option<(u64, &str)> {
    let digits = leading_digits(text);
    (digits.len() == 2).then(|| digits.parse().ok().map(|number| (number, &text[2..]))).flatten()
}

/// Runs of digits with single spaces or dashes between them, and the length of it all.
fn phone_groups(text: &str) -> (Vec<&str>, usize) {
    let mut groups = vec![leading_digits(text)];
    let mut len = groups[0].len();
    while let Some(group) = text[len..].strip_prefix([' ', '-']).map(leading_digits).filter(|group| !group.is_empty()) {
        groups.push(group);
        len += 1 + group.len();
    }
    (groups, len)
}
