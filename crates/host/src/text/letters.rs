//! One spelling for what looks and sounds the same: composed letters, plain quotes and dashes, one set of digits, and
//! the letters of Arabic and Persian in the form that each language writes.

use unicode_normalization::UnicodeNormalization;

/// Compatibility forms that are kept, because they say something about reading, which NFKC would hide: `m²` would
/// become `m2`, `2½` `21⁄2`.
const KEPT: [char; 8] = ['²', '³', '½', '¼', '¾', 'º', 'ª', '№'];

/// Composes a text (NFKC) and unifies its spelling, in the text's own case.
pub(super) fn compose(text: &str, language: &str) -> String {
    if text.is_ascii() {
        return text.chars().filter_map(|letter| unify(letter, language)).collect();
    }
    let mut plain = String::with_capacity(text.len());
    for part in text.split_inclusive(KEPT) {
        let body = part.trim_end_matches(KEPT);
        plain.extend(body.nfkc().filter_map(|letter| unify(letter, language)));
        plain.push_str(&part[body.len()..]);
    }
    plain
}

/// Makes a text lower case, its spaces single, and drops joiners that join nothing.
pub(super) fn finish(text: &str, language: &str) -> String {
    if text.is_ascii() && !dotless(language) {
        return squeeze(text.chars().map(|letter| letter.to_ascii_lowercase()), text.len());
    }
    // Lower-casing can leave letters decomposed, so compose again after it.
    let lower: String = text.chars().flat_map(|letter| lower(letter, language)).collect();
    squeeze(lower.nfkc().filter_map(|letter| unify(letter, language)), lower.len())
}

fn squeeze(letters: impl Iterator<Item = char>, len: usize) -> String {
    let mut plain = String::with_capacity(len);
    let mut space_due = false;
    let mut joiner_due = None;
    for letter in letters {
        match letter {
            ' ' => space_due = !plain.is_empty(),
            '\u{200c}' | '\u{200d}' => joiner_due = Some(letter),
            _ => {
                let joins = !space_due && letter.is_alphabetic() && plain.ends_with(char::is_alphabetic);
                plain.extend(joiner_due.filter(|_| joins));
                if std::mem::take(&mut space_due) {
                    plain.push(' ');
                }
                joiner_due = None;
                plain.push(letter);
            }
        }
    }
    plain
}

/// Whether a language has two letters i, as Turkish and Azerbaijani have.
fn dotless(language: &str) -> bool {
    matches!(primary(language), "tr" | "az")
}

fn lower(letter: char, language: &str) -> impl Iterator<Item = char> {
    let letter = match letter {
        'İ' => 'i',
        'I' if dotless(language) => 'ı',
        other => other,
    };
    letter.to_lowercase()
}

fn primary(language: &str) -> &str {
    language.split('-').next().unwrap_or_default()
}

/// The one spelling of a letter; none for marks that say nothing about sound.
fn unify(letter: char, language: &str) -> Option<char> {
    if letter.is_ascii() {
        return Some(match letter {
            '`' => '\'',
            control if control.is_ascii_control() => ' ',
            other => other,
        });
    }
    Some(match letter {
        '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => None?,
        // The tatweel only stretches a line of Arabic script.
        '\u{feff}' | '\u{640}' => None?,
        '\u{600}'..='\u{6ff}' => arabic_script(letter, primary(language))?,
        '‘' | '’' | '‚' | '‛' | '´' | '′' | 'ʼ' => '\'',
        '“' | '”' | '„' | '‟' | '«' | '»' | '″' | '「' | '」' | '『' | '』' | '《' | '》' => '"',
        '‐' | '‑' | '‒' | '–' | '—' | '―' | '−' => '-',
        space if space.is_whitespace() || space.is_control() => ' ',
        other => other,
    })
}

/// A letter of Arabic script as the language writes it. Keyboards mix the two alphabets: Persian has its own yeh and
/// kaf, and no teh marbuta.
fn arabic_script(letter: char, language: &str) -> Option<char> {
    Some(match (letter, language) {
        ('٠'..='٩', _) => ascii_digit(letter, '٠'),
        ('۰'..='۹', _) => ascii_digit(letter, '۰'),
        ('٫', _) => '.',
        ('٬', _) => ',',
        ('ي' | 'ى', "fa") => 'ی',
        ('ك', "fa") => 'ک',
        ('ة' | 'ۀ' | 'ہ' | 'ە', "fa") => 'ه',
        ('ی', "ar") => 'ي',
        ('ک', "ar") => 'ك',
        ('ہ' | 'ە' | 'ۀ', "ar") => 'ه',
        _ => letter,
    })
}

fn ascii_digit(letter: char, zero: char) -> char {
    char::from(b'0' + (letter as u32 - zero as u32) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, language: &str) -> String {
        finish(&compose(text, language), language)
    }

    #[test]
    fn spelling_is_unified() {
        assert_eq!(plain("  “It’s\tＦＩＮＥ” –\r\n she said…  ", "en"), "\"it's fine\" - she said...");
        assert_eq!(plain("Cafe\u{301} \u{feff}ﬁne co\u{ad}op", "en"), "café fine coop");
        assert_eq!(plain("\u{7} \n ", "en"), "");
    }

    #[test]
    fn two_letters_i() {
        assert_eq!(plain("ISPARTA İzmir", "tr"), "ısparta izmir");
        assert_eq!(plain("ISPARTA İzmir", "en"), "isparta izmir");
    }

    /// Truth: the names of the code points. Persian has FARSI YEH U+06CC and KEHEH U+06A9, Arabic YEH U+064A, KAF
    /// U+0643.
    #[test]
    fn letters_of_arabic_and_persian_follow_the_language() {
        assert_eq!(plain("كتابي يك", "fa"), "کتابی یک");
        assert_eq!(plain("کتابی", "ar"), "كتابي");
        assert_eq!(plain("مـــرحبا ١٢٫٥", "ar"), "مرحبا 12.5");
        assert_eq!(plain("۱۲۳", "fa"), "123");
    }

    #[test]
    fn a_joiner_stays_between_letters_only() {
        assert_eq!(plain("می\u{200c}خواهم", "fa"), "می\u{200c}خواهم");
        assert_eq!(plain("می\u{200c}\u{200c} خواهم\u{200c}.", "fa"), "می خواهم.");
    }
}
