//! Language codes as metadata write them: `en`, `EN`, `en_US`, and `English`.

use crate::config::is_language;

/// Lhotse's recipes name languages in English.
const NAMES: [(&str, &str); 21] = [
    ("arabic", "ar"),
    ("chinese", "zh"),
    ("czech", "cs"),
    ("dutch", "nl"),
    ("english", "en"),
    ("farsi", "fa"),
    ("french", "fr"),
    ("german", "de"),
    ("hindi", "hi"),
    ("hungarian", "hu"),
    ("italian", "it"),
    ("japanese", "ja"),
    ("korean", "ko"),
    ("mandarin", "zh"),
    ("persian", "fa"),
    ("polish", "pl"),
    ("portuguese", "pt"),
    ("russian", "ru"),
    ("spanish", "es"),
    ("turkish", "tr"),
    ("ukrainian", "uk"),
];

pub(super) fn code(text: &str) -> Result<String, String> {
    let code = text.trim().to_lowercase().replace('_', "-");
    match NAMES.iter().find(|(name, _)| *name == code) {
        Some((_, code)) => Ok((*code).into()),
        None if is_language(&code) => Ok(code),
        None => Err(format!("`{text}` is no language code, such as en or pt-br")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names() {
        for (given, expected) in [("en", "en"), (" EN_us", "en-us"), ("zh-CN", "zh-cn"), ("English", "en")] {
            assert_eq!(code(given).as_deref(), Ok(expected));
        }
        for none in ["", "klingon", "e", "1", "en-", "he said so", "été"] {
            assert!(code(none).is_err(), "{none}");
        }
    }
}
