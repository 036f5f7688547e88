//! What a key accepts: the type and range of a single value. Rules between keys are in `check`.

use super::MaxFailures;
use serde_json::Value;
use std::ops::{Bound, RangeBounds};

#[derive(Clone, Copy)]
pub(super) enum Accepts {
    Switch,
    Whole(u64, u64),
    Real(Bound<f64>, Bound<f64>),
    OneOf(&'static [&'static str]),
    /// `20`, or `1%`.
    CountOrPercent,
    /// A text that passes the test, and what to call such a text.
    Text(fn(&str) -> bool, &'static str),
}

impl Accepts {
    /// The value in its one form (`1e3` for a whole number is `1000`), so that equal values compare equal.
    pub fn take(&self, value: &Value) -> Option<Value> {
        match *self {
            Self::Switch => value.as_bool().map(Value::from),
            Self::Whole(min, max) => whole(value).filter(|n| (min..=max).contains(n)).map(Value::from),
            Self::Real(low, high) => value.as_f64().filter(|x| (low, high).contains(x)).map(Value::from),
            Self::OneOf(names) => value.as_str().filter(|text| names.contains(text)).map(Value::from),
            Self::CountOrPercent => MaxFailures::try_from(value.clone()).ok().map(Value::from),
            Self::Text(fits, _) => value.as_str().filter(|text| fits(text)).map(Value::from),
        }
    }

    pub fn describe(&self) -> String {
        match *self {
            Self::Switch => "true or false".into(),
            Self::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Self::Real(low, high) => format!("a number {} and {}", lower(low), upper(high)),
            Self::OneOf(names) => names.join(", "),
            Self::CountOrPercent => "a whole number, or a share such as 1%".into(),
            Self::Text(_, what) => what.into(),
        }
    }
}

/// How an error message shows a value.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Null => "empty".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a mapping".into(),
        Value::String(text) => format!("the text {text:?}"),
        number_or_switch => number_or_switch.to_string(),
    }
}

/// Above 2^53 a float no longer says which whole number was meant.
fn whole(value: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let from_real = |x: f64| (x.fract() == 0.0 && (0.0..=EXACT).contains(&x)).then_some(x as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(from_real))
}

fn lower(bound: Bound<f64>) -> String {
    match bound {
        Bound::Included(x) => format!("of at least {x}"),
        Bound::Excluded(x) => format!("above {x}"),
        Bound::Unbounded => "of any size".into(),
    }
}

fn upper(bound: Bound<f64>) -> String {
    match bound {
        Bound::Included(x) => format!("at most {x}"),
        Bound::Excluded(x) => format!("below {x}"),
        Bound::Unbounded => "without limit".into(),
    }
}

pub(super) fn is_device(text: &str) -> bool {
    matches!(text, "auto" | "cpu" | "cuda") || device_index(text).is_some()
}

/// The `N` of `cuda:N`.
pub(super) fn device_index(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("cuda:")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// `en`, `pt-br`, `zh-hant-tw`.
pub(crate) fn is_language(text: &str) -> bool {
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let part_fits = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
    (2..=3).contains(&first.len()) && first.bytes().all(|b| b.is_ascii_lowercase()) && parts.all(part_fits)
}

pub(super) fn is_language_or_auto(text: &str) -> bool {
    text == "auto" || is_language(text)
}

pub(super) fn is_path(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains('\0')
}

/// A regular expression with a group.
pub(super) fn is_pattern(text: &str) -> bool {
    regex::Regex::new(text).is_ok_and(|pattern| pattern.captures_len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ranges_include_exactly_what_they_say() {
        let whole = Accepts::Whole(1, 64);
        for (value, fits) in [(json!(1), true), (json!(64), true), (json!(0), false), (json!(65), false)] {
            assert_eq!(whole.take(&value).is_some(), fits, "{value}");
        }
        let share = Accepts::Real(Bound::Excluded(0.0), Bound::Included(1.0));
        for (value, fits) in [(json!(0), false), (json!(1e-9), true), (json!(1), true), (json!(1.0001), false)] {
            assert_eq!(share.take(&value).is_some(), fits, "{value}");
        }
        assert_eq!(share.describe(), "a number above 0 and at most 1");
    }

    #[test]
    fn whole_numbers_may_be_written_as_powers_but_not_as_fractions_or_texts() {
        let any = Accepts::Whole(0, u64::MAX);
        assert_eq!(any.take(&json!(1e3)), Some(json!(1000)));
        for wrong in [json!(1.5), json!(-1), json!("3"), json!(true), json!(null), json!(1e17), json!([])] {
            assert_eq!(any.take(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn devices_and_languages() {
        for good in ["auto", "cpu", "cuda", "cuda:0", "cuda:12"] {
            assert!(is_device(good), "{good}");
        }
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "CPU", "cuda:99999999999999999999"] {
            assert!(!is_device(bad), "{bad}");
        }
        assert!(is_language("en") && is_language("pt-br") && is_language("zh-Hant-TW"));
        assert!(!is_language("") && !is_language("english") && !is_language("EN") && !is_language("en-"));
    }

    #[test]
    fn a_speaker_pattern_has_a_group() {
        assert!(is_pattern(r"^(p\d+)_") && is_pattern("(?i)^(?<speaker>[^_]+)_"));
        assert!(!is_pattern("p\\d+") && !is_pattern("(") && !is_pattern("(?:a)") && !is_pattern(""));
    }
}
