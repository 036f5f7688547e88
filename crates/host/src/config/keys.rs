//! The table of all keys. They are known by name across sections, because configs of older trainers keep
//! `mixed_precision` in `data` or `sample_rate` in `model`.

use super::accept::Accepts;
use super::{Data, Model, Training};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cmp::Reverse;
use std::sync::LazyLock;

pub(super) static SECTIONS: LazyLock<[(&str, Vec<Key>); 3]> =
    LazyLock::new(|| [("model", Model::keys()), ("training", Training::keys()), ("data", Data::keys())]);

pub(super) struct Key {
    pub name: &'static str,
    pub meaning: &'static str,
    pub aliases: &'static [&'static str],
    /// The flag, where it is not `--` and the name with dashes.
    pub flag: Option<&'static str>,
    pub accepts: Accepts,
    /// Null is a value of its own, mostly "chosen at run time".
    pub nullable: bool,
    /// A value as the key's type writes it, so that equal values compare equal; none where it has another type.
    pub typed: fn(Value) -> Option<Value>,
}

impl Key {
    /// A key of type `T`.
    pub fn new<T: Serialize + DeserializeOwned>(name: &'static str, meaning: &'static str, accepts: Accepts) -> Self {
        let typed = |value| serde_json::to_value(serde_json::from_value::<T>(value).ok()?).ok();
        let nullable = typed(Value::Null).is_some();
        Self { name, meaning: meaning.trim(), aliases: &[], flag: None, accepts, nullable, typed }
    }

    /// The value in its one form, if it is accepted.
    pub fn take(&self, value: &Value) -> Option<Value> {
        (self.typed)(whole(value)).filter(|value| value.is_null() || self.accepts.includes(value))
    }

    pub fn flag_name(&self) -> String {
        self.flag.map_or_else(|| format!("--{}", self.name.replace('_', "-")), String::from)
    }

    pub fn describe(&self) -> String {
        self.accepts.describe() + if self.nullable { ", or null" } else { "" }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// `1e3` is 1000. Above 2^53 a float no longer says which whole number was meant.
fn whole(value: &Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let is_whole = |x: &f64| x.fract() == 0.0 && (0.0..=EXACT).contains(x);
    let real = value.as_f64().filter(|x| value.is_f64() && is_whole(x));
    real.map_or_else(|| value.clone(), |x| Value::from(x as u64))
}

/// Switches of other trainers for what this one always does, and what that is. `true` is taken, and sets nothing.
pub(super) const ALWAYS_ON: [(&str, &str); 2] = [
    ("enable_parallel_batch", "batches are always assembled in parallel, by `num_workers` threads"),
    ("enable_map_fusion", "features are always made by one fused kernel"),
];

/// What is always done, where `name` is a switch for it.
pub(super) fn always_on(name: &str) -> Option<&'static str> {
    ALWAYS_ON.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

/// The key of this name or alias and the section it lives in.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static Key)> {
    let mut all = SECTIONS.iter().flat_map(|(section, keys)| keys.iter().map(|key| (*section, key)));
    all.find(|(_, key)| key.names().any(|known| known == name))
}

pub(super) fn suggest_key(name: &str) -> String {
    let names = SECTIONS.iter().flat_map(|(_, keys)| keys.iter().flat_map(Key::names));
    suggest(name, names, "key")
}

pub(super) fn suggest_section(name: &str) -> String {
    suggest(name, SECTIONS.iter().map(|(section, _)| *section), "section")
}

/// A question where the spelling is close, a plain fact where it is not.
fn suggest(name: &str, known: impl Iterator<Item = &'static str>, kind: &str) -> String {
    let folded = name.to_lowercase().replace('-', "_");
    let edits = |other: &&str| strsim::damerau_levenshtein(&folded, other);
    let likeness = |other: &str| (strsim::jaro_winkler(&folded, other) * 1e6) as u64;
    let Some(nearest) = known.min_by_key(|other| (edits(other), Reverse(likeness(other)))) else {
        return String::new();
    };
    if edits(&nearest) <= (name.len() / 3).max(2) {
        format!("did you mean `{nearest}`?")
    } else {
        format!("the nearest known {kind} is `{nearest}`")
    }
}

#[cfg(test)]
mod tests {
    use super::super::accept::above;
    use super::*;
    use serde_json::json;
    use std::collections::HashSet;
    use std::ops::RangeInclusive;

    fn taking(range: RangeInclusive<u64>) -> Key {
        Key::new::<u64>("number", "", range.into())
    }

    #[test]
    fn names_and_aliases_are_unique_across_sections() {
        let mut seen = HashSet::new();
        for (_, keys) in SECTIONS.iter() {
            for name in keys.iter().flat_map(Key::names) {
                assert!(seen.insert(name), "{name} twice");
            }
        }
    }

    #[test]
    fn near_names_are_suggested() {
        assert_eq!(suggest_key("batchsize"), "did you mean `batch_size`?");
        assert_eq!(suggest_key("Batch-Size"), "did you mean `batch_size`?");
        assert_eq!(suggest_key("leraning_rate"), "did you mean `learning_rate`?");
        assert_eq!(suggest_section("trainig"), "did you mean `training`?");
        assert!(suggest_key("quite_another_thing").starts_with("the nearest known key is `"));
    }

    #[test]
    fn flags_are_named_as_the_user_types_them() {
        let flag = |name| find(name).map(|(_, key)| key.flag_name());
        assert_eq!(flag("lr").as_deref(), Some("--lr"));
        assert_eq!(flag("max_mel_frames").as_deref(), Some("--max-mel-frames"));
        assert_eq!(flag("pipeline_buffer_size").as_deref(), Some("--buffer-size"));
    }

    #[test]
    fn ranges_include_exactly_what_they_say() {
        let whole = taking(1..=64);
        for (value, fits) in [(json!(1), true), (json!(64), true), (json!(0), false), (json!(65), false)] {
            assert_eq!(whole.take(&value).is_some(), fits, "{value}");
        }
        let share = Key::new::<f64>("share", "", above(0.0, 1.0));
        for (value, fits) in [(json!(0), false), (json!(1e-9), true), (json!(1), true), (json!(1.0001), false)] {
            assert_eq!(share.take(&value).is_some(), fits, "{value}");
        }
        assert_eq!(share.describe(), "a number above 0 and at most 1");
    }

    #[test]
    fn whole_numbers_may_be_written_as_powers_but_not_as_fractions_or_texts() {
        let any = taking(0..=u64::MAX);
        assert_eq!(any.take(&json!(1e3)), Some(json!(1000)));
        for wrong in [json!(1.5), json!(-1), json!("3"), json!(true), json!(null), json!(1e17), json!([])] {
            assert_eq!(any.take(&wrong), None, "{wrong}");
        }
    }
}
