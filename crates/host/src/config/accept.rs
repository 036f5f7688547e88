//! What a key accepts: the range of a single value. Rules between keys are in `check`.

use clap::ValueEnum;
use serde_json::Value;
use std::ops::{Bound, Range, RangeBounds, RangeInclusive};
use std::path::PathBuf;

pub(super) enum Accepts {
    /// Whatever the key's type takes, in words.
    Any(&'static str),
    /// The names of an enum, which is the key's type.
    OneOf(Vec<String>),
    Whole(RangeInclusive<u64>),
    PowerOfTwo(RangeInclusive<u64>),
    Real(Bound<f64>, Bound<f64>),
    /// A text that passes the test, and what to call such a text.
    Text(fn(&str) -> bool, &'static str),
}

impl Accepts {
    /// Whether a value that has the key's type is in range.
    pub fn includes(&self, value: &Value) -> bool {
        match self {
            Self::Any(_) | Self::OneOf(_) => true,
            Self::Whole(range) => value.as_u64().is_some_and(|n| range.contains(&n)),
            Self::PowerOfTwo(range) => value.as_u64().is_some_and(|n| n.is_power_of_two() && range.contains(&n)),
            Self::Real(low, high) => value.as_f64().is_some_and(|x| (*low, *high).contains(&x)),
            Self::Text(fits, _) => value.as_str().is_some_and(fits),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Any(what) | Self::Text(_, what) => (*what).into(),
            Self::OneOf(names) => names.join(", "),
            Self::Whole(range) => format!("a whole number from {} to {}", range.start(), range.end()),
            Self::PowerOfTwo(range) => format!("a power of two from {} to {}", range.start(), range.end()),
            Self::Real(low, high) => format!("a number {} and {}", lower(*low), upper(*high)),
        }
    }
}

impl From<RangeInclusive<u64>> for Accepts {
    fn from(range: RangeInclusive<u64>) -> Self {
        Self::Whole(range)
    }
}

impl From<RangeInclusive<f64>> for Accepts {
    fn from(range: RangeInclusive<f64>) -> Self {
        Self::Real(range.start_bound().cloned(), range.end_bound().cloned())
    }
}

impl From<Range<f64>> for Accepts {
    fn from(range: Range<f64>) -> Self {
        Self::Real(Bound::Included(range.start), Bound::Excluded(range.end))
    }
}

/// Numbers above `low`, up to and with `high`.
pub(super) fn above(low: f64, high: f64) -> Accepts {
    Accepts::Real(Bound::Excluded(low), Bound::Included(high))
}

pub(super) fn one_of<E: ValueEnum>() -> Accepts {
    let names = E::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    Accepts::OneOf(names.map(|name| name.get_name().to_owned()).collect())
}

/// A type that says by itself what its keys accept.
pub(super) trait Setting {
    fn accepts() -> Accepts;
}

impl Setting for bool {
    fn accepts() -> Accepts {
        Accepts::Any("true or false")
    }
}

impl Setting for PathBuf {
    fn accepts() -> Accepts {
        let is_path = |text: &str| !text.trim().is_empty() && !text.contains('\0');
        Accepts::Text(is_path, "a path (in quotes, if it looks like a number)")
    }
}

impl<T: Setting> Setting for Option<T> {
    fn accepts() -> Accepts {
        T::accepts()
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
