//! Values that a file or flags give, by key name, each checked by itself and with its origin; and how a file is read.

use super::accept::show;
use super::error::{Error, Origin, Wrong};
use super::keys::{self, Key, SECTIONS};
use super::yaml::{self, Node, Pair};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Default)]
pub(super) struct Layer {
    given: BTreeMap<&'static str, Given>,
    /// Keys whose value was wrong: what else is said of them would be a guess.
    refused: BTreeSet<&'static str>,
}

struct Given {
    value: Value,
    /// The name as written, which may be an alias.
    written: String,
    origin: Origin,
}

impl Layer {
    /// What a file gives, and everything that is wrong with it; what is wrong is left out.
    pub fn read(path: &Path, wrong: &mut Vec<Error>) -> Self {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path, wrong),
            Err(cause) => {
                wrong.push(Error::Read { path: path.into(), cause });
                Self::default()
            }
        }
    }

    /// What a text gives; `path` is for messages only.
    pub fn parse(text: &str, path: &Path, wrong: &mut Vec<Error>) -> Self {
        let mut layer = Self::default();
        match yaml::parse(text) {
            Ok(root) => {
                for (section, pair) in pairs(root, path, wrong) {
                    wrong.extend(layer.add(section, pair, path).err());
                }
            }
            Err(problem) => {
                wrong.push(Error::invalid(Origin::line(path, problem.line), problem.wrong));
            }
        }
        layer
    }

    fn add(&mut self, section: &str, pair: Pair, path: &Path) -> Result<(), Error> {
        let origin = Origin::line(path, pair.line);
        if let Some(why) = keys::always_on(&pair.key) {
            return always_on(&pair.key, why, &pair.value.into_value()).map_err(|wrong| Error::invalid(origin, wrong));
        }
        let Some((_, key)) = keys::find(&pair.key) else {
            let fact = format!("unknown key `{}` in `{section}`", pair.key);
            return Err(Error::invalid(origin, Wrong::new(fact, keys::suggest_key(&pair.key))));
        };
        let given = Given::checked(key, pair.key, &pair.value.into_value(), origin).inspect_err(|_| {
            self.refused.insert(key.name);
        })?;
        if let Some(other) = self.given.get(key.name).filter(|other| other.value != given.value) {
            return Err(contradiction(given, other));
        }
        self.given.insert(key.name, given);
        Ok(())
    }

    /// A later flag wins over an earlier one.
    pub fn set(&mut self, key: &'static Key, value: &Value, origin: Origin) -> Result<(), Error> {
        self.given.insert(key.name, Given::checked(key, key.name.into(), value, origin)?);
        Ok(())
    }

    /// Values of `above` win.
    pub fn overlay(&mut self, above: Layer) {
        self.refused.retain(|name| !above.given.contains_key(name));
        self.given.extend(above.given);
    }

    /// The value of a key as its own type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.given.get(name).and_then(|given| serde_json::from_value(given.value.clone()).ok())
    }

    pub fn is_refused(&self, name: &str) -> bool {
        self.refused.contains(name)
    }

    /// Where to send the user when these keys do not go together: the origin of the strongest of them.
    pub fn blame(&self, names: &[&str]) -> Origin {
        let origins = names.iter().filter_map(|name| self.given.get(name)).map(|given| &given.origin);
        origins.max().cloned().unwrap_or(Origin::Preset)
    }
}

impl Given {
    fn checked(key: &Key, written: String, value: &Value, origin: Origin) -> Result<Self, Error> {
        let Some(value) = key.take(value) else {
            let fact = format!("`{written}` is {}", show(value));
            return Err(Error::invalid(origin, Wrong::accepted(fact, key.describe())));
        };
        Ok(Self { value, written, origin })
    }
}

/// The keys of all sections, each with the section it was written in. An empty file or section has none.
fn pairs(root: Node, path: &Path, wrong: &mut Vec<Error>) -> Vec<(&'static str, Pair)> {
    let sections = match root {
        Node::Map(sections) => sections,
        Node::Leaf(Value::Null) => return Vec::new(),
        Node::Leaf(value) => {
            let fact = format!("is {}, not a config", show(&value));
            let expected = "expected the sections model, training and data";
            wrong.push(Error::invalid(Origin::line(path, None), Wrong::new(fact, expected)));
            return Vec::new();
        }
    };
    let mut all = Vec::new();
    for section in sections {
        let origin = Origin::line(path, section.line);
        let Some(name) = section_name(&section.key) else {
            wrong.push(stray(&section.key, origin));
            continue;
        };
        match section.value {
            Node::Map(pairs) => all.extend(pairs.into_iter().map(|pair| (name, pair))),
            Node::Leaf(Value::Null) => {}
            Node::Leaf(value) => {
                let fact = format!("section `{name}` is {}", show(&value));
                wrong.push(Error::invalid(origin, Wrong::accepted(fact, "keys below it, indented")));
            }
        }
    }
    all
}

fn section_name(name: &str) -> Option<&'static str> {
    SECTIONS.iter().map(|(section, _)| *section).find(|section| *section == name)
}

fn stray(name: &str, origin: Origin) -> Error {
    let wrong = match keys::find(name) {
        Some((home, _)) => Wrong::new(format!("`{name}` is outside the sections"), format!("move it below `{home}:`")),
        None => Wrong::new(format!("unknown section `{name}`"), keys::suggest_section(name)),
    };
    Error::invalid(origin, wrong)
}

/// A switch that is always on may be switched on.
fn always_on(name: &str, why: &str, value: &Value) -> Result<(), Wrong> {
    match value {
        Value::Bool(true) => Ok(()),
        Value::Bool(false) => Err(Wrong::new(format!("`{name}` cannot be switched off: {why}"), "leave it out")),
        other => Err(Wrong::accepted(format!("`{name}` is {}", show(other)), "true")),
    }
}

fn contradiction(given: Given, other: &Given) -> Error {
    let (new, old) = (show(&given.value), show(&other.value));
    let fact = format!("`{}` is {new}, but `{}` at {} is {old}", given.written, other.written, other.origin);
    Error::invalid(given.origin, Wrong::new(fact, "keep one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explained;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Layer, Error> {
        let mut wrong = Vec::new();
        let layer = Layer::parse(text, Path::new("a.yaml"), &mut wrong);
        wrong.into_iter().next().map_or(Ok(layer), Err)
    }

    fn message(text: &str) -> String {
        parse(text).err().unwrap_or_else(|| panic!("{text:?} was accepted")).to_string()
    }

    #[test]
    fn unknown_names_come_with_line_and_neighbour() {
        let unknown = message("data:\n  language: en\n  batchsize: 3\n");
        assert_eq!(unknown, "a.yaml:3: unknown key `batchsize` in `data`; did you mean `batch_size`?");
        assert_eq!(message("\ndat:\n"), "a.yaml:2: unknown section `dat`; did you mean `data`?");
        assert_eq!(message("lr: 1"), "a.yaml:1: `lr` is outside the sections; move it below `training:`");
    }

    #[test]
    fn keys_find_their_home_from_any_section_and_alias() {
        let layer = parse("data:\n  enable_graphs: true\n  lr: 1e-4\nmodel:\n  learning_rate: 0.0001\n").unwrap();
        assert_eq!(layer.get("enable_xla"), Some(true));
        assert_eq!(layer.get("learning_rate"), Some(1e-4));
    }

    #[test]
    fn what_is_always_on_may_be_switched_on_and_not_off() {
        let layer = parse("data:\n  enable_parallel_batch: true\ntraining:\n  enable_map_fusion: true\n").unwrap();
        assert!(layer.given.is_empty());
        let off = message("data:\n  enable_map_fusion: false\n");
        let why = "features are always made by one fused kernel; leave it out";
        assert_eq!(off, format!("a.yaml:2: `enable_map_fusion` cannot be switched off: {why}"));
        assert!(message("data: {enable_parallel_batch: 3}").ends_with("`enable_parallel_batch` is 3; accepted: true"));
    }

    #[test]
    fn one_key_with_two_values_names_both_lines() {
        let twice = message("data:\n  lr: 1e-4\ntraining:\n  learning_rate: 2e-4\n");
        assert_eq!(twice, "a.yaml:4: `learning_rate` is 0.0002, but `lr` at a.yaml:2 is 0.0001; keep one");
        assert_eq!(message("data:\n  lr: 1\n  lr: 1\n"), "a.yaml:3: `lr` is given twice; keep one");
    }

    #[test]
    fn wrong_types_and_ranges_say_what_is_accepted() {
        let batch = "accepted: a whole number from 1 to 8192";
        for (value, shown) in
            [("0", "0"), ("-4", "-4"), ("1.5", "1.5"), ("many", "the text \"many\""), ("", "empty"), ("[1]", "a list")]
        {
            let text = format!("data:\n  batch_size: {value}\n");
            assert_eq!(message(&text), format!("a.yaml:2: `batch_size` is {shown}; {batch}"));
        }
        assert_eq!(
            message("training:\n  lr: 0"),
            "a.yaml:2: `lr` is 0; accepted: a number above 0 and at most 1, or null"
        );
        assert!(message("data:\n  num_workers: 0").ends_with("from 1 to 256, or null"));
        assert!(message("training:\n  device: gpu").ends_with("accepted: auto, cpu, cuda or cuda:N"));
        assert!(message("training:\n  mixed_precision: yes").ends_with("accepted: true or false"));
        assert!(message("data:\n  sample_rate: 7999").ends_with("from 8000 to 192000"));
        assert!(message("training:\n  data_gpu_memory: 255").ends_with("above 0 and at most 1, or null"));
    }

    #[test]
    fn a_file_that_is_no_config_says_so() {
        assert!(message("- 1").starts_with("a.yaml: is a list, not a config"));
        assert!(message("hello").starts_with("a.yaml: is the text \"hello\", not a config"));
        assert!(message("data: 3").starts_with("a.yaml:1: section `data` is 3;"));
        assert!(message("data:\n\tbatch_size: 3").starts_with("a.yaml:2: not YAML: tabs"));
        assert!(parse("").is_ok() && parse("# later\n").is_ok() && parse("data:\n").is_ok());
        let mut wrong = Vec::new();
        Layer::read(Path::new("no/such.yaml"), &mut wrong);
        assert!(Explained::of(&wrong[0]).to_string().starts_with("no/such.yaml: cannot read the config: "));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>()) {
            let _ = parse(&text);
        }

        #[test]
        fn text_that_resembles_a_config_is_read_without_panic(
            lines in prop::collection::vec(("[ \t]{0,3}", "(data|model|lr|batch_size|<<|\\*a|[-?\\[{&!|>\"'#%])",
                "(: ?|)", "(1e-4|-1|null|true|\\*a|&a|!!int|[|>]|[\\[\\]{},\"'] ?|[a-z]{0,3})"), 0..12)
        ) {
            let text: String = lines.iter().map(|(a, b, c, d)| format!("{a}{b}{c}{d}\n")).collect();
            let _ = parse(&text);
        }
    }
}
