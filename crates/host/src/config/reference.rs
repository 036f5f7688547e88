//! Every key on one page, from the table that configs are checked with and the comments of `configs/default.yaml`.

use super::Config;
use super::keys::{Key, SECTIONS};
use serde_json::Value;

const DEFAULTS: &str = include_str!("../../../../configs/default.yaml");

const HEAD: &str = "\
<!-- Made by `myxtts config --reference > docs/configuration.md` (`make docs`); a test fails where the two differ. -->

# Configuration reference

A config is YAML with the sections `model`, `training` and `data`, and needs only the keys that differ from the defaults
below. A key may stand in any section; an unknown one is an error that names the nearest. Flags win over the file, the file
over the presets that `size` and `optimization_level` choose. `myxtts config --config FILE` prints what a file resolves to,
`myxtts validate --config FILE` what it means on your machine, and `myxtts configure` writes one by trying.

The defaults are those of `size: normal` and `optimization_level: enhanced`.
";

/// Markdown: one table for each section.
pub fn reference() -> String {
    let defaults = serde_json::to_value(Config::default()).expect("a config is plain data");
    let mut page = HEAD.to_owned();
    for (section, keys) in SECTIONS {
        page += &format!("\n## {section}\n\n| key | default | accepted | meaning |\n|---|---|---|---|\n");
        for key in keys {
            page += &row(key, &defaults[section][key.name]);
        }
    }
    page
}

fn row(key: &Key, default: &Value) -> String {
    let aliases: Vec<String> = key.aliases.iter().map(|alias| format!("`{alias}`")).collect();
    let aliases = if aliases.is_empty() { String::new() } else { format!("<br>also {}", aliases.join(", ")) };
    let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
    let cell = |text: &str| text.replace('|', "\\|");
    format!(
        "| `{}`{aliases} | `{}` | {} | {} |\n",
        key.name,
        cell(&default),
        cell(&key.describe()),
        cell(meaning(key.name))
    )
}

/// The comment beside the key.
fn meaning(name: &str) -> &'static str {
    let line = DEFAULTS.lines().find(|line| line.trim_start().starts_with(&format!("{name}:")));
    line.and_then(|line| line.split_once(" # ")).map_or("", |(_, comment)| comment.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_what_the_code_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == reference(), "docs/configuration.md is stale: `make docs` writes it anew");
    }

    #[test]
    fn every_key_has_a_row_with_a_meaning() {
        let page = reference();
        for key in SECTIONS.iter().flat_map(|(_, keys)| keys.iter()) {
            assert!(page.contains(&format!("| `{}`", key.name)) && !meaning(key.name).is_empty(), "{}", key.name);
        }
        let row =
            "| `learning_rate`<br>also `lr` | `0.0005` | a number above 0 and at most 1 | at the end of the warm-up";
        assert!(page.contains(row), "{page}");
    }
}
