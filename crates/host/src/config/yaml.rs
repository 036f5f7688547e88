//! YAML text to a tree that remembers lines. Values are typed by their own look, not by a target:
//! `1e-4` is a number, only `true` and `false` are switches, so `language: no` stays Norwegian.

use super::error::Wrong;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Error as YamlError, MessageFormatter, Spanned, UserMessageFormatter};
use std::fmt;

pub(super) enum Node {
    /// A null, switch, number or text; a list is an empty array, because no key takes one.
    Leaf(Value),
    Map(Vec<Pair>),
}

pub(super) struct Pair {
    pub key: String,
    pub line: u64,
    pub value: Node,
}

#[derive(Debug)]
pub(super) struct Problem {
    pub line: Option<u64>,
    pub wrong: Wrong,
}

/// An empty text is a null leaf.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| problem(&error))
}

/// The parser's own words, except where they speak to a programmer.
fn problem(error: &YamlError) -> Problem {
    let wrong = match error.without_snippet() {
        YamlError::DuplicateMappingKey { key: Some(key), .. } => {
            Wrong::new(format!("`{key}` is given twice"), "keep one")
        }
        YamlError::MultipleDocuments { .. } => Wrong::new("a second document starts here", "a config is one document"),
        YamlError::NullIntoString { .. } => "this key has no name".to_owned().into(),
        YamlError::NonFiniteFloat { .. } => "not a finite number".to_owned().into(),
        other => format!("not YAML: {}", UserMessageFormatter.format_message(other)).into(),
    };
    Problem { line: error.location().map(|location| location.line()), wrong }
}

impl Node {
    /// A mapping becomes an empty object, because no key takes one.
    pub fn into_value(self) -> Value {
        match self {
            Self::Leaf(value) => value,
            Self::Map(_) => Value::Object(serde_json::Map::new()),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Leaf(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element::<Node>()? {
            values.push(value.into_value());
        }
        Ok(Node::Leaf(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Node>()? {
            pairs.push(Pair { key: key.value, line: key.referenced.line(), value });
        }
        Ok(Node::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(text: &str) -> Value {
        parse(text).map(Node::into_value).unwrap_or_else(|problem| panic!("{text:?}: {}", problem.wrong))
    }

    fn problem_of(text: &str) -> (Option<u64>, String) {
        parse(text)
            .err()
            .map(|problem| (problem.line, problem.wrong.to_string()))
            .unwrap_or_else(|| panic!("{text:?} parsed"))
    }

    #[test]
    fn scalars_have_the_type_they_look_like() {
        for (text, number) in [("1e-4", 1e-4), ("2e-4", 2e-4), ("1.0e-08", 1e-8), (".5", 0.5), ("1E+3", 1000.0)] {
            assert_eq!(leaf(text).as_f64(), Some(number), "{text}");
        }
        assert_eq!(leaf("-3"), Value::from(-3));
        assert_eq!(leaf("True"), Value::from(true));
        assert_eq!(leaf("no"), Value::from("no"));
        assert_eq!(leaf("\"1e-4\""), Value::from("1e-4"));
        for empty in ["", "# nothing\n", "~", "null", "---\n"] {
            assert_eq!(leaf(empty), Value::Null, "{empty:?}");
        }
    }

    #[test]
    fn keys_know_their_lines() {
        let Ok(Node::Map(sections)) = parse("\u{feff}a: 1\r\n\r\nb:\r\n  c:\r\n  d: {e: 1}\r\n") else {
            panic!("not a map");
        };
        assert_eq!((sections[0].line, sections[1].line), (1, 3));
        let Node::Map(inner) = &sections[1].value else { panic!("not a map") };
        assert_eq!((inner[0].line, inner[1].line), (4, 5));
    }

    #[test]
    fn broken_yaml_names_the_line_and_the_reason() {
        assert_eq!(problem_of("a:\n  b: 1\n  b: 2\n"), (Some(3), "`b` is given twice; keep one".into()));
        assert_eq!(problem_of("a: .nan"), (Some(1), "not a finite number".into()));
        let cases = [("a:\n\tb: 1\n", 2, "tab"), ("a: [1\n", 1, "unclosed"), ("a: 1\n---\nb: 2\n", 3, "one document")];
        for (text, line, word) in cases {
            let (at, what) = problem_of(text);
            assert_eq!(at, Some(line), "{text:?}");
            assert!(what.contains(word), "{text:?}: {what}");
            assert!(!what.contains("line"), "the line is said once: {what}");
        }
    }

    #[test]
    fn deep_nesting_and_alias_bombs_are_errors() {
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"{a: ".repeat(100_000)).is_err());
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let item = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![item; 10].join(", "));
        }
        assert!(parse(&bomb).is_err());
    }
}
