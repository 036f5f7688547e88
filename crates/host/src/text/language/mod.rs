//! What a language says for digits and signs: one file a language, all of them read by the one scanner in `expand`.

mod arabic;
mod chinese;
mod czech;
mod dutch;
mod english;
mod french;
mod german;
mod hungarian;
mod italian;
mod japanese;
mod korean;
mod numbers;
mod persian;
mod polish;
mod portuguese;
mod russian;
mod spanish;
mod turkish;
mod units;

pub(super) use units::{UNITS, Unit, Units};

/// The number below which cardinals are right; longer numbers are read digit by digit, as people do.
pub(super) const LIMIT: u64 = 1_000_000_000_000_000;

const ALL: [&Language; 18] = [
    &arabic::ARABIC,
    &chinese::CHINESE,
    &czech::CZECH,
    &dutch::DUTCH,
    &english::ENGLISH,
    &french::FRENCH,
    &german::GERMAN,
    &hungarian::HUNGARIAN,
    &italian::ITALIAN,
    &japanese::JAPANESE,
    &korean::KOREAN,
    &persian::PERSIAN,
    &polish::POLISH,
    &portuguese::PORTUGUESE,
    &portuguese::BRAZILIAN,
    &russian::RUSSIAN,
    &spanish::SPANISH,
    &turkish::TURKISH,
];

/// How a language reads numbers and signs. Words are in lower case, functions are given lower case.
pub(super) struct Language {
    pub code: &'static str,
    /// Reads a whole number below `LIMIT`, as it agrees with what it counts.
    pub cardinal: fn(u64, Gender) -> String,
    /// Reads a number with a mark behind it (`5th`, `5.`, `5º`, `1990s`), after the given word; none where it is no
    /// such mark.
    pub marked: fn(u64, &str, &str) -> Option<String>,
    /// Words behind which `5.` is an ordinal; none where a dot never marks one.
    pub dot_ordinals: Option<&'static [&'static str]>,
    /// Reads a number that the next word changes (`2024 года`, `3명`), after the given word. The next word itself stays.
    pub before: fn(u64, &str, &str) -> Option<String>,
    /// Reads four digits that stand alone.
    pub year: fn(u64) -> String,
    /// Index of the noun's form behind a number.
    pub plural: fn(u64) -> usize,
    /// Index of the noun's form behind `2.5`.
    pub plural_of_fractions: usize,
    /// Reads one and two of something, where the noun says more than its number: given are its gender and forms.
    pub count: fn(u64, Gender, &str, &str) -> Option<String>,
    pub decimal_mark: char,
    pub group_marks: &'static [char],
    /// What is said for the decimal mark, and how the digits behind it are read.
    pub point: &'static str,
    pub fraction: Fraction,
    /// What stands between the words of one reading: nothing in Chinese and Japanese.
    pub joiner: &'static str,
    /// Whether letters follow a number without a space, as in `3月`.
    pub attached: bool,
    /// What stands between a number and an ending that is spoken with it, as in `2024'te`.
    pub ending_mark: Option<char>,
    pub minus: &'static str,
    /// The word between the ends of a range: `3-5`.
    pub to: &'static str,
    /// The word for the bar of `3/8`; and the words for `1/2`, `1/4`, `3/4`.
    pub over: &'static str,
    pub fractions: [&'static str; 3],
    /// The word that joins `2` and `½`, and euros and cents.
    pub and: &'static str,
    /// Words for `& + = @`.
    pub symbols: [&'static str; 4],
    /// Currencies: sign or code, the noun, and the noun for a hundredth of it, empty where there is none.
    pub currencies: &'static [(&'static str, Noun, Noun)],
    /// Words such as `million` that may stand between a sum and its currency, and what links them to it: two forms
    /// where there is another before vowels.
    pub magnitudes: &'static [&'static str],
    pub magnitude_link: &'static str,
    pub units: Units,
    /// Spellings of each month, separated by bars; the first is spoken.
    pub months: [&'static str; 12],
    /// Words that may stand between a day and its month.
    pub month_links: &'static [&'static str],
    /// Whether days follow the month, as in `March 5`.
    pub month_first: bool,
    /// Reads the day beside the name of a month, after the given word.
    pub day: fn(u64, &str) -> String,
    pub date_order: DateOrder,
    pub date: fn(&Date) -> String,
    pub time: fn(&Time) -> String,
    /// What may stand for the colon in `14h30`; and words that the reading of a time already says.
    pub time_mark: Option<&'static str>,
    pub time_words: &'static [&'static str],
    /// Abbreviations as written, in lower case, and as spoken. A spelling that ends in `#` counts only before a number.
    pub abbreviations: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gender {
    /// Counting, with no noun.
    Bare,
    Masculine,
    Feminine,
    Neuter,
}

/// `m:forint|forinty|forintów`: a gender, then the forms that `plural` chooses from; the last stands for those left
/// out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noun(pub &'static str);

impl Noun {
    pub fn gender(self) -> Gender {
        match self.0.split_once(':').map(|(gender, _)| gender) {
            Some("f") => Gender::Feminine,
            Some("n") => Gender::Neuter,
            _ => Gender::Masculine,
        }
    }

    pub fn form(self, index: usize) -> &'static str {
        form(self.0.split_once(':').map_or(self.0, |(_, forms)| forms), index)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// One of several forms separated by bars; the last stands for those left out.
pub(super) fn form(forms: &'static str, index: usize) -> &'static str {
    forms.split('|').take(index + 1).last().unwrap_or_default()
}

#[derive(Clone, Copy)]
pub(super) enum Fraction {
    /// `3.14` is "three point one four".
    Digits,
    /// `3,14` is "trois virgule quatorze".
    Number,
    /// `3,14` is "три целых четырнадцать сотых"; none where the language has no word for so small a part.
    Named(fn(u64, &str) -> Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateOrder {
    DayMonth,
    MonthDay,
    YearMonth,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Date<'a> {
    pub day: u64,
    pub month: usize,
    pub year: u64,
    /// The word before the date, in lower case.
    pub after: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Time<'a> {
    pub hour: u64,
    pub minute: u64,
    pub second: Option<u64>,
    /// The word before the time, in lower case.
    pub after: &'a str,
}

impl Language {
    /// The language of a code; a region that has no table of its own is ignored.
    pub fn of(code: &str) -> Option<&'static Language> {
        let known = |code: &str| ALL.into_iter().find(|language| language.code == code);
        known(code).or_else(|| known(code.split('-').next().unwrap_or_default()))
    }

    pub fn counted(&self, number: u64, noun: Noun) -> String {
        self.counted_as(number, noun.gender(), noun.form(0), noun.form((self.plural)(number)))
    }

    /// A number of something called `one`, or `many` when it is that many.
    pub fn counted_as(&self, number: u64, gender: Gender, one: &str, many: &str) -> String {
        (self.count)(number, gender, one, many)
            .unwrap_or_else(|| self.with_noun(&(self.cardinal)(number, gender), many))
    }

    /// A number before its noun, or inside it: "百分之{}".
    pub fn with_noun(&self, number: &str, noun: &str) -> String {
        if noun.contains("{}") { noun.replace("{}", number) } else { format!("{number}{}{noun}", self.joiner) }
    }

    pub fn month(&self, index: usize) -> &'static str {
        form(self.months[index - 1], 0)
    }
}

/// A language that says nothing for it.
fn never(_: u64, _: &str, _: &str) -> Option<String> {
    None
}

fn never_counted(_: u64, _: Gender, _: &str, _: &str) -> Option<String> {
    None
}

fn one_or_many(number: u64) -> usize {
    usize::from(number != 1)
}

fn unchanging(_: u64) -> usize {
    0
}

#[cfg(test)]
mod tests;
