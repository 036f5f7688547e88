//! What stands before a number or alone: abbreviations, months, currency signs, minus, `&`.

use super::super::language::{Gender, Noun, form};
use super::quantity::vulgar;
use super::written::Written;
use super::{Scanner, Spoken, leading_letters, past_space, starts_with};

impl Scanner<'_> {
    /// What is said for the word that starts here.
    pub(super) fn word(&self) -> Option<Spoken> {
        self.abbreviation().or_else(|| {
            // Most words have no number behind them, and need no closer look.
            let behind = self.rest()[leading_letters(self.rest()).len()..].trim_start_matches(['.', '$', ' ']);
            let numbered = behind.starts_with(|c: char| c.is_ascii_digit());
            numbered.then(|| self.money_before().or_else(|| self.month_and_day())).flatten()
        })
    }

    /// The longest abbreviation that fits; its dot stays where it also ends the text.
    fn abbreviation(&self) -> Option<Spoken> {
        let text = self.rest();
        let fitting = |written: &str| {
            let bare = written.trim_end_matches('#');
            let len = starts_with(text, bare)?;
            let rest = &text[len..];
            let numbered = past_space(rest).0.starts_with(|c: char| c.is_ascii_digit());
            (if bare.len() < written.len() { numbered } else { self.ends(rest) }).then_some(len)
        };
        let all = self.language.abbreviations.iter();
        let (len, words) =
            all.filter_map(|(written, words)| Some((fitting(written)?, *words))).max_by_key(|found| found.0)?;
        let last = text[..len].ends_with('.') && text[len..].trim_start_matches(['"', '\'', ')']).is_empty();
        Some(Spoken { words: words.to_owned(), len: if last { len - 1 } else { len } })
    }

    /// A sum whose currency stands before it: `$5`, `USD 5`, `$3.5 million`.
    fn money_before(&self) -> Option<Spoken> {
        let text = self.rest();
        let (major, minor, len) = self.currency(text)?;
        let (rest, space) = past_space(&text[len..]);
        let number = Written::read(rest, self.language)?;
        let after = &rest[number.len..];
        let sum = len + space + number.len;
        if let Some((magnitude, more)) = self.magnitude(after) {
            let number = number.words(self.language, Gender::Masculine);
            let words = self.join(&[&number, magnitude, &self.linked(major)]);
            return Some(Spoken { words, len: sum + more });
        }
        Some(Spoken { words: self.money(&number, major, minor), len: sum })
    }

    fn magnitude(&self, after: &str) -> Option<(&'static str, usize)> {
        let (rest, space) = past_space(after);
        let words = self.language.magnitudes.iter();
        let fits = words.filter_map(|word| Some((*word, starts_with(rest, word)?)));
        fits.filter(|(_, len)| self.ends(&rest[*len..]))
            .max_by_key(|(_, len)| *len)
            .map(|(word, len)| (word, space + len))
    }

    /// A month and its day (`March 5`), in languages that say so; short names only with a capital, for "may 5" may be a
    /// verb.
    fn month_and_day(&self) -> Option<Spoken> {
        let text = self.rest();
        if !self.language.month_first {
            return None;
        }
        let (month, len) = self.month(text)?;
        let rest = text[len..].strip_prefix(' ')?;
        let number = Written::read(rest, self.language)?;
        let day = number.whole().filter(|day| (1..=31).contains(day) && number.digits.len() <= 2)?;
        let after = &rest[number.len..];
        let named = leading_letters(text).len() > 3 || text.starts_with(char::is_uppercase);
        if !named
            || !self.ends(after)
            || after.starts_with([':', '-', '/', '%'])
            || after.starts_with('.') && self.language.dot_ordinals.is_some()
        {
            return None;
        }
        let words = self.join(&[month, &(self.language.day)(day, "")]);
        Some(Spoken { words, len: len + 1 + number.len })
    }

    /// What is said for a character that is neither letter nor digit.
    pub(super) fn sign(&self, sign: char) -> Option<Spoken> {
        let language = self.language;
        let next = self.rest()[sign.len_utf8()..].chars().next();
        let digit_next = next.is_some_and(|c| c.is_ascii_digit());
        let said = |words: &str, before: bool| {
            let words = if before { format!("{words}{}", language.joiner) } else { words.to_owned() };
            (!words.is_empty()).then_some(Spoken { words, len: sign.len_utf8() })
        };
        match sign {
            '-' if self.free() && (digit_next || self.currency(&self.rest()[1..]).is_some()) => {
                said(language.minus, true)
            }
            '%' | '٪' if digit_next => self.percent_before(),
            '&' => said(&around(language.symbols[0], language.joiner), false),
            '+' if digit_next => said(language.symbols[1], true),
            '+' | '=' if next == Some(' ') => said(language.symbols[usize::from(sign == '=') + 1], false),
            '@' => said(&around(language.symbols[3], language.joiner), false),
            '½' | '¼' | '¾' => said(vulgar(sign, language.fractions)?, false),
            '²' => said(&(language.cardinal)(2, Gender::Bare), false),
            '³' => said(&(language.cardinal)(3, Gender::Bare), false),
            '№' => self.abbreviation(),
            _ => self.money_before().or_else(|| self.currency_alone()),
        }
    }

    /// A currency's sign that no number stands beside, as behind a magnitude (`5 Millionen €`).
    fn currency_alone(&self) -> Option<Spoken> {
        let (major, _, len) = self.currency(self.rest())?;
        let counted = self.language.magnitudes.contains(&self.word_before().as_str());
        let words = if counted { self.linked(major) } else { self.many(major).to_owned() };
        Some(Spoken { words, len })
    }

    /// A currency behind a magnitude: "d'euros", "de dollars".
    fn linked(&self, currency: Noun) -> String {
        let many = self.many(currency);
        let vowel = many.starts_with(['a', 'e', 'i', 'o', 'u', 'y']);
        format!("{}{many}", form(self.language.magnitude_link, usize::from(vowel)))
    }

    fn many(&self, currency: Noun) -> &'static str {
        currency.form((self.language.plural)(5))
    }

    /// Whether nothing stands right before here that a dash could belong to.
    fn free(&self) -> bool {
        self.previous().is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '[' | '"' | '\''))
    }

    /// A percentage whose sign comes first (`%50`), as Turkish writes it.
    fn percent_before(&self) -> Option<Spoken> {
        let sign = self.rest().chars().next()?.len_utf8();
        let number = Written::read(&self.rest()[sign..], self.language)?;
        let noun = self.language.units.percent;
        let words = match number.whole() {
            Some(whole) => self.language.counted(whole, noun),
            None => {
                let words = number.words(self.language, Gender::Bare);
                self.language.with_noun(&words, noun.form(self.language.plural_of_fractions))
            }
        };
        Some(Spoken { words, len: sign + number.len })
    }
}

/// A word with room on both sides, where the language leaves any.
fn around(word: &str, joiner: &str) -> String {
    format!("{joiner}{word}{joiner}")
}
