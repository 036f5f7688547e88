//! One spelling for what sounds the same, in any script: composed letters, lower case, plain quotes, dashes and spaces.

use unicode_normalization::UnicodeNormalization;

/// Part of the tokenizer's fingerprint: raise it when the same text would come out differently.
pub(super) const VERSION: u32 = 1;

pub fn normalize(text: &str) -> String {
    // Lower-casing can leave letters decomposed ("İ"), so compose again after it.
    let lower: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let mut plain = String::with_capacity(lower.len());
    let mut space_due = false;
    for letter in lower.nfkc().filter_map(unify) {
        if letter == ' ' {
            space_due = !plain.is_empty();
        } else {
            if std::mem::take(&mut space_due) {
                plain.push(' ');
            }
            plain.push(letter);
        }
    }
    plain
}

/// None for marks that say nothing about sound. The zero-width non-joiner stays: Persian spells with it.
fn unify(letter: char) -> Option<char> {
    Some(match letter {
        '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => None?,
        '\u{feff}' => None?,
        '‘' | '’' | '‚' | '‛' | '`' | '´' | '′' => '\'',
        '“' | '”' | '„' | '‟' | '«' | '»' | '″' => '"',
        '‐' | '‑' | '‒' | '–' | '—' | '―' | '−' => '-',
        space if space.is_whitespace() || space.is_control() => ' ',
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spelling_is_unified() {
        assert_eq!(normalize("  “It’s\tＦＩＮＥ” –\r\n she said…  "), "\"it's fine\" - she said...");
        assert_eq!(normalize("Cafe\u{301} \u{feff}ﬁne co\u{ad}op"), "café fine coop");
        assert_eq!(normalize("\u{7} \n "), "");
    }

    #[test]
    fn persian_and_arabic_pass_through() {
        assert_eq!(normalize("می‌خواهم به خانه بروم."), "می‌خواهم به خانه بروم.");
        assert_eq!(normalize("مرحبا بالعالم؟"), "مرحبا بالعالم؟");
    }

    proptest! {
        #[test]
        fn spaces_are_single_and_never_at_the_edges(text in any::<String>()) {
            let plain = normalize(&text);
            prop_assert!(!plain.contains("  ") && plain.trim_matches(' ') == plain);
        }
    }
}
