//! Every key on one page: as Markdown for docs/, and as the config that says what a run without one uses.

use super::Config;
use super::keys::{ALWAYS_ON, Key, SECTIONS};
use serde_json::Value;

const MARKDOWN_HEAD: &str = "\
<!-- Made by `myxtts config --reference > docs/configuration.md` (`make docs`); a test fails where the two differ. -->

# Configuration reference

A config is YAML with the sections `model`, `training` and `data`, and needs only the keys that differ from the defaults
below. A key may stand in any section; an unknown one is an error that names the nearest. Flags win over the file, the file
over the presets that `size` and `optimization_level` choose. `myxtts config --config FILE` prints what a file resolves to,
`myxtts validate --config FILE` what it means on your machine, and `myxtts configure` writes one by trying.

The defaults are those of `size: normal` and `optimization_level: enhanced`.
";

const YAML_HEAD: &str = "\
# Every key with its default. A config needs only the keys that differ; flags win over the file.
# `myxtts config --config FILE` prints what a file resolves to, `myxtts config --defaults` this page (`make docs`).
";

/// The reference of all keys in Markdown: one table for each section.
pub fn reference() -> String {
    let section = |name: &str| format!("\n## {name}\n\n| key | default | accepted | meaning |\n|---|---|---|---|\n");
    page(MARKDOWN_HEAD, section, row)
        + "\n## Always on\n\nSwitches of other trainers that may be `true` and change nothing:\n\n"
        + &always_on()
}

fn always_on() -> String {
    ALWAYS_ON.iter().map(|(name, why)| format!("- `{name}`: {why}\n")).collect()
}

/// Every key with its default and its meaning, as a config: `configs/default.yaml`.
pub fn defaults() -> String {
    page(YAML_HEAD, |name| format!("\n{name}:\n"), line)
}

fn page(head: &str, title: impl Fn(&str) -> String, entry: fn(&Key, &str) -> String) -> String {
    let values = serde_json::to_value(Config::default()).expect("a config is plain data");
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut page = head.to_owned();
    for (section, keys) in SECTIONS.iter() {
        page += &title(section);
        page.extend(keys.iter().map(|key| entry(key, &shown(&values[section][key.name]))));
    }
    page
}

fn row(key: &Key, default: &str) -> String {
    let aliases: Vec<String> = key.aliases.iter().map(|alias| format!("`{alias}`")).collect();
    let aliases = if aliases.is_empty() { String::new() } else { format!("<br>also {}", aliases.join(", ")) };
    let cells = [default.to_owned(), key.describe(), key.meaning.to_owned()].map(|cell| cell.replace('|', "\\|"));
    let [default, accepted, meaning] = cells;
    format!("| `{}`{aliases} | `{default}` | {accepted} | {meaning} |\n", key.name)
}

fn line(key: &Key, default: &str) -> String {
    let aliases: String = key.aliases.iter().map(|alias| format!("; the same as {alias}")).collect();
    format!("  {}: {default}  # {}{aliases}\n", key.name, key.meaning)
}

#[cfg(test)]
mod tests {
    use super::super::accept::Accepts;
    use super::*;

    fn written(path: &str) -> String {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).unwrap_or_default()
    }

    #[test]
    fn the_pages_in_the_repository_are_what_the_code_says() {
        for (path, said) in [("docs/configuration.md", reference()), ("configs/default.yaml", defaults())] {
            assert!(written(path) == said, "{path} is stale: `make docs` writes it anew");
        }
    }

    #[test]
    fn every_key_has_a_row_with_a_meaning() {
        let page = reference();
        for key in SECTIONS.iter().flat_map(|(_, keys)| keys.iter()) {
            assert!(page.contains(&format!("| `{}`", key.name)) && !key.meaning.is_empty(), "{}", key.name);
            let Accepts::OneOf(choices) = &key.accepts else { continue };
            assert!(choices.iter().all(|choice| key.meaning.contains(choice)), "{}: {}", key.name, key.meaning);
        }
        let row = "| `learning_rate`<br>also `lr` | `null` | a number above 0 and at most 1, or null | at the end of the warm-up";
        assert!(page.contains(row), "{page}");
    }
}
