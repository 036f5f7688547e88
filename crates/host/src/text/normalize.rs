//! From a transcript to the words a speaker says: one spelling, numbers and signs written out, lower case.

use super::detect::detect;
use super::language::Language;
use super::{expand, letters};

/// Version of these rules, part of the tokenizer's fingerprint: raise it when the same text would come out differently.
pub(super) const VERSION: u32 = 2;

/// A text as its speaker says it. `language` is a code, or `auto`. Of a language without a table only the spelling is
/// unified: its digits stay digits, and `uncovered` lists them.
pub fn normalize(text: &str, language: &str) -> String {
    let language = if language == "auto" { detect(text).unwrap_or_default() } else { language };
    let plain = letters::compose(text, language);
    match Language::of(language) {
        Some(table) => letters::finish(&expand::expand(&plain, table), language),
        None => letters::finish(&plain, language),
    }
}

/// Digits and currency signs that are left in a normalised text, because the language's words for them are not known.
pub fn uncovered(normalized: &str) -> Vec<String> {
    normalized.split(|letter| !silent(letter)).filter(|run| !run.is_empty()).map(String::from).collect()
}

/// Whether a letter would not be spoken.
fn silent(letter: char) -> bool {
    letter.is_numeric() && !is_ideograph(letter)
        || matches!(letter, '$' | '\u{a2}'..='\u{a5}' | '\u{20a0}'..='\u{20cf}' | '﷼')
}

/// Whether a letter is an ideograph. Chinese number words are numeric to Unicode, and words all the same.
pub fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{3007}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_without_numbers_passes_through() {
        assert_eq!(normalize("می‌خواهم به خانه بروم.", "fa"), "می‌خواهم به خانه بروم.");
        assert_eq!(normalize("مرحبا بالعالم؟", "ar"), "مرحبا بالعالم؟");
        assert_eq!(normalize("Hello, World!", "en"), "hello, world!");
    }

    #[test]
    fn an_abbreviation_is_read_alike_whatever_else_the_text_has() {
        assert_eq!(normalize("Mr Smith left", "en") + ".", normalize("Mr Smith left.", "en"));
    }

    #[test]
    fn a_language_without_a_table_keeps_its_digits_and_says_so() {
        assert_eq!(normalize("Jag är 25 år", "sv"), "jag är 25 år");
        let uncovered = |text: &str, language: &str| uncovered(&normalize(text, language));
        assert_eq!(uncovered("Jag är 25 år, 3 000 kr", "sv"), ["25", "3", "000"]);
        assert_eq!(uncovered("I am 25 and have $3", "en"), [""; 0]);
        assert_eq!(uncovered("₦500", "en"), ["₦"]);
        assert_eq!(uncovered("三百五", "zh"), [""; 0]);
    }

    #[test]
    fn the_language_may_be_detected() {
        assert_eq!(normalize("Das kostet 5 Euro, nicht mehr.", "auto"), "das kostet fünf euro, nicht mehr.");
    }

    fn code() -> impl Strategy<Value = &'static str> {
        let codes = "en de fr es it pt pt-br nl pl ru tr cs ar fa hu zh ja ko sv auto";
        prop::sample::select(codes.split(' ').collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn any_text_comes_out_plain_and_of_bounded_length(text in any::<String>(), code in code()) {
            let plain = normalize(&text, code);
            prop_assert!(!plain.contains("  ") && plain.trim_matches(' ') == plain);
            prop_assert!(plain.chars().count() <= 40 * text.chars().count());
        }

        /// What the scanner looks at, packed more densely than any text has it.
        #[test]
        fn numbers_and_signs_in_any_order_are_safe(
            text in r"([0-9]{1,4}|[.,:;/ '°%$€£¥&+=@½²º-]|km/h|Mr\.|March|5 mai|zł|年|г\.|h|th|\u{200c}|٣){0,40}",
            code in code(),
        ) {
            let plain = normalize(&text, code);
            prop_assert!(plain.chars().count() <= 40 * text.chars().count());
            if code != "sv" && code != "auto" {
                prop_assert!(!plain.contains(|c: char| c.is_ascii_digit()), "{plain}");
            }
        }

        #[test]
        fn long_digit_strings_are_read_digit_by_digit(digits in "[1-9][0-9]{16,220}", code in code()) {
            let plain = normalize(&digits, code);
            prop_assert!(!plain.is_empty() && plain.chars().count() <= 40 * digits.len());
        }
    }
}
