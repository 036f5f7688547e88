//! A number and what it counts: money, units, ordinals, days of a month, years, ranges, fractions.

use super::super::language::{Gender, Noun, UNITS, Unit};
use super::written::Written;
use super::{Scanner, Spoken, leading_digits, leading_letters, past_space, starts_with};

/// Codes of currencies, for the signs that the languages name them by.
const CODES: [(&str, &str); 7] =
    [("us$", "$"), ("usd", "$"), ("eur", "€"), ("gbp", "£"), ("jpy", "¥"), ("cny", "¥"), ("rub", "₽")];

impl Scanner<'_> {
    pub(super) fn quantity(&self) -> Option<Spoken> {
        let text = self.rest();
        let number = Written::read(text, self.language)?;
        let after = &text[number.len..];
        let said = self
            .fraction(&number, after)
            .or_else(|| self.range(&number, after))
            .or_else(|| self.before(&number, after, true))
            .or_else(|| self.day_of_month(&number, after))
            .or_else(|| self.marked(&number, after))
            .or_else(|| self.money_behind(&number, after))
            .or_else(|| self.counted_unit(&number, after))
            .or_else(|| self.before(&number, after, false));
        let (words, len) = said.unwrap_or_else(|| (self.plain(&number), 0));
        Some(Spoken { words, len: number.len + len })
    }

    /// A number that stands alone, four digits as a year.
    fn plain(&self, number: &Written) -> String {
        match number.whole() {
            Some(year) if number.digits.len() == 4 && !number.grouped => (self.language.year)(year),
            _ => number.words(self.language, Gender::Bare),
        }
    }

    /// A fraction: `3/4`, `2½`.
    fn fraction(&self, number: &Written, after: &str) -> Option<(String, usize)> {
        let whole = number.whole()?;
        let language = self.language;
        if let Some(words) = vulgar(past_space(after).0.chars().next()?, language.fractions) {
            let words = self.join(&[&(language.cardinal)(whole, Gender::Bare), language.and, words]);
            let len = past_space(after).1 + "½".len();
            return Some(match self.unit(&after[len..]) {
                Some((unit, more)) => {
                    (language.with_noun(&words, &unit.words(language, language.plural_of_fractions)), len + more)
                }
                None => (words, len),
            });
        }
        let below = leading_digits(after.strip_prefix(['/', '⁄'])?);
        let rest = &after[after.chars().next()?.len_utf8() + below.len()..];
        let divisor = below
            .parse()
            .ok()
            .filter(|_| !below.is_empty() && below.len() <= 6 && self.ends(rest) && !rest.starts_with('/'))?;
        let words = match (whole, divisor) {
            (1, 2) => language.fractions[0].to_owned(),
            (1, 4) => language.fractions[1].to_owned(),
            (3, 4) => language.fractions[2].to_owned(),
            _ => {
                let cardinal = |number| (language.cardinal)(number, Gender::Bare);
                self.join(&[&cardinal(whole), language.over, &cardinal(divisor)])
            }
        };
        Some((words, after.len() - rest.len()))
    }

    /// A range (`1914-1918`): the first number and the word between; the second is read in its turn, with its unit.
    fn range(&self, number: &Written, after: &str) -> Option<(String, usize)> {
        number.value()?;
        let second = Written::read(after.strip_prefix('-')?, self.language)?;
        let rest = &after[1 + second.len..];
        let chained = rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let read = self.join(&[&self.plain(number), self.language.to]);
        (!chained).then(|| (read + self.language.joiner, 1))
    }

    /// A number that the next word changes; `abbreviated` looks at words with a dot only, which units may not claim.
    fn before(&self, number: &Written, after: &str, abbreviated: bool) -> Option<(String, usize)> {
        let (rest, space) = past_space(after);
        let word = if self.language.attached { rest.split(' ').next()? } else { leading_letters(rest) };
        let dot = rest[word.len()..].starts_with('.');
        if word.is_empty() || self.language.attached && space > 0 || abbreviated && !dot {
            return None;
        }
        let word = word.to_lowercase() + if abbreviated { "." } else { "" };
        (self.language.before)(number.whole()?, &word, &self.word_before()).map(|words| (words, 0))
    }

    /// A sum whose currency stands behind it: `5 €`, `3,50 zł`.
    fn money_behind(&self, number: &Written, after: &str) -> Option<(String, usize)> {
        let (rest, space) = past_space(after);
        let (major, minor, len) = self.currency(rest).filter(|(.., len)| self.ends(&rest[*len..]))?;
        Some((self.money(number, major, minor), space + len))
    }

    /// A currency's sign or code at the start of the text: its nouns and the length of the sign.
    pub(super) fn currency(&self, text: &str) -> Option<(Noun, Noun, usize)> {
        let known = |sign: &str| self.language.currencies.iter().find(|(known, ..)| *known == sign);
        let signs = self.language.currencies.iter().map(|(sign, ..)| (*sign, *sign));
        let (len, sign) = signs
            .chain(CODES)
            .filter_map(|(written, sign)| Some((starts_with(text, written)?, sign)))
            .max_by_key(|found| found.0)?;
        known(sign).map(|(_, major, minor)| (*major, *minor, len))
    }

    pub(super) fn money(&self, number: &Written, major: Noun, minor: Noun) -> String {
        let language = self.language;
        match (number.value(), number.fraction.parse::<u64>()) {
            (Some(whole), Ok(0)) if number.fraction.len() <= 2 => language.counted(whole, major),
            (Some(0), Ok(cents)) if number.fraction.len() == 2 && !minor.is_empty() => language.counted(cents, minor),
            (Some(whole), Ok(cents)) if number.fraction.len() == 2 && !minor.is_empty() => {
                self.join(&[&language.counted(whole, major), language.and, &language.counted(cents, minor)])
            }
            (Some(whole), Err(_)) => language.counted(whole, major),
            _ => language.with_noun(&number.words(language, Gender::Bare), major.form(language.plural_of_fractions)),
        }
    }

    /// A number of units: `5 km/h`, `20 %`.
    fn counted_unit(&self, number: &Written, after: &str) -> Option<(String, usize)> {
        let language = self.language;
        let (unit, len) = self.unit(after)?;
        let many = |plural| unit.words(language, plural);
        let words = match number.whole() {
            Some(whole) => {
                let gender = unit.noun(language).gender();
                language.counted_as(whole, gender, &many(0), &many((language.plural)(whole)))
            }
            None => language.with_noun(&number.words(language, Gender::Bare), &many(language.plural_of_fractions)),
        };
        Some((words, len))
    }

    /// The unit that follows a number, and how much of the text it takes, with the space before it.
    fn unit(&self, after: &str) -> Option<(&'static Unit, usize)> {
        let (rest, space) = past_space(after);
        let aliases = self.language.units.aliases.iter();
        let alias = aliases.filter_map(|(own, symbol)| Some((starts_with(rest, own)?, *symbol)));
        let alias = alias.filter(|(len, _)| self.ends(&rest[*len..])).max_by_key(|(len, _)| *len);
        let fits = |unit: &&Unit| {
            let behind = rest.strip_prefix(unit.symbol);
            behind
                .is_some_and(|rest| self.ends(rest) && (self.language.ending_mark.is_some() || !rest.starts_with('\'')))
        };
        match alias {
            Some((len, symbol)) => UNITS.iter().find(|unit| unit.symbol == symbol).map(|unit| (unit, space + len)),
            None => UNITS.iter().find(fits).map(|unit| (unit, space + unit.symbol.len())),
        }
    }

    /// A day of a month (`5 March`, `5. März`, `5 de mayo`), through the name of the month.
    fn day_of_month(&self, number: &Written, after: &str) -> Option<(String, usize)> {
        let day = number.whole().filter(|day| (1..=31).contains(day) && number.digits.len() <= 2)?;
        let mark = self.mark(day, after).map_or(0, |(_, len)| len).max(usize::from(after.starts_with(". ")));
        let (mut rest, mut space) = past_space(&after[mark..]);
        let mut link = "";
        for word in self.language.month_links {
            if let Some(len) = starts_with(rest, word).filter(|len| rest[*len..].starts_with(' ')) {
                (link, rest, space) = (word, &rest[len + 1..], space + len + 1);
            }
        }
        let (month, len) = self.month(rest).filter(|_| space > 0)?;
        let words = self.join(&[&(self.language.day)(day, &self.word_before()), link, month]);
        Some((words, mark + space + len))
    }

    /// The month that the text starts with, spelled out, and how long its name is there.
    pub(super) fn month(&self, text: &str) -> Option<(&'static str, usize)> {
        let word = leading_letters(text);
        let written = word.to_lowercase();
        let forms = self.language.months.iter().find(|forms| forms.split('|').any(|form| form == written))?;
        let spoken = forms.split('|').next()?;
        let dot = usize::from(spoken != written && text[word.len()..].starts_with('.'));
        Some((spoken, word.len() + dot))
    }

    /// A number with a mark behind it: `5th`, `5.`, `1990s`.
    fn marked(&self, number: &Written, after: &str) -> Option<(String, usize)> {
        let value = number.whole()?;
        self.mark(value, after).or_else(|| self.dot_ordinal(value, after))
    }

    fn mark(&self, value: u64, after: &str) -> Option<(String, usize)> {
        let lead =
            after.chars().next().filter(|c| matches!(c, '-' | '\'' | '.' | '\u{200c}')).map_or(0, char::len_utf8);
        let rest = &after[lead..];
        let letters = if rest.starts_with(['º', 'ª', '°']) { 2 } else { leading_letters(rest).len() };
        let len = lead + letters;
        if letters == 0 || !self.ends(&after[len..]) {
            return None;
        }
        (self.language.marked)(value, &after[..len].to_lowercase(), &self.word_before()).map(|words| (words, len))
    }

    /// An ordinal with a dot, where the sentence goes on behind it.
    fn dot_ordinal(&self, value: u64, after: &str) -> Option<(String, usize)> {
        let articles = self.language.dot_ordinals?;
        let rest = after.strip_prefix('.')?;
        let before = self.word_before();
        let next = rest.strip_prefix(' ').map(str::trim_start).unwrap_or_default();
        let goes_on = next.starts_with(char::is_lowercase)
            || self.month(next).is_some()
            || articles.contains(&before.as_str()) && next.starts_with(char::is_alphabetic)
            || self.language.month_first && self.month(&before).is_some();
        goes_on.then(|| (self.language.marked)(value, ".", &before)).flatten().map(|words| (words, 1))
    }
}

/// The words for one of `½ ¼ ¾`.
pub(super) fn vulgar(letter: char, words: [&'static str; 3]) -> Option<&'static str> {
    "½¼¾".chars().position(|known| known == letter).map(|index| words[index])
}
