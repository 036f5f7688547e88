//! The tuned settings as a file: what was chosen with the reason beside it, and whatever else differs from the presets.

use anyhow::{Context, Result};
use host::config::{Config, Overrides};
use serde::Serialize;
use serde_json::Value;

/// A value and the measurement behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenSetting {
    /// `data.frame_budget`.
    pub key: &'static str,
    pub value: Value,
    pub reason: String,
}

impl ChosenSetting {
    pub fn new(key: &'static str, value: impl Into<Value>, reason: impl Into<String>) -> Self {
        ChosenSetting { key, value: value.into(), reason: reason.into() }
    }
}

/// YAML that loads to `config`. `head`: comment lines above it.
pub fn yaml(config: &Config, choices: &[ChosenSetting], head: &[String]) -> Result<String> {
    let mut flags = Overrides::default();
    flags.set("model.size", Some(config.model.size));
    flags.set("training.optimization_level", Some(config.training.optimization_level));
    let (preset, tuned) = (serde_json::to_value(Config::resolve(None, flags)?)?, serde_json::to_value(config)?);
    let mut text: String = head.iter().map(|line| format!("# {line}\n")).collect();
    for section in ["model", "training", "data"] {
        let keys = tuned[section].as_object().context("a section is a mapping")?;
        let lines: Vec<String> = keys
            .iter()
            .filter_map(|(key, value)| {
                let choice = choices.iter().find(|choice| choice.key.split_once('.') == Some((section, key)));
                let always = matches!(key.as_str(), "size" | "optimization_level");
                let given = always || *value != preset[section][key];
                let reason =
                    choice.map(|choice| choice.reason.replace('\n', " ")).or(given.then(|| "as given".into()))?;
                Some(format!("  {key}: {value}  # {reason}\n"))
            })
            .collect();
        if !lines.is_empty() {
            text += &format!("\n{section}:\n{}", lines.concat());
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_file_loads_to_the_same_settings_and_says_why() {
        let text = "model: {size: small, dropout: 0.2}\ntraining: {optimization_level: basic, checkpoint_dir: 'a: b # c'}\n\
                    data: {val_split: 0.2, language: no, max_failures: 1%}";
        let mut config = Config::parse(text, Path::new("a.yaml")).unwrap();
        (config.data.frame_budget, config.data.num_workers) = (Some(8_192), Some(2));
        let choices = [
            ChosenSetting::new("data.frame_budget", 8_192, "fast\nenough"),
            ChosenSetting::new("data.num_workers", 2, "so"),
        ];
        let written = yaml(&config, &choices, &["by hand".into()]).unwrap();
        assert_eq!(Config::parse(&written, Path::new("b.yaml")).unwrap(), config, "{written}");
        assert!(
            written.starts_with("# by hand\n\nmodel:\n") && written.contains("  frame_budget: 8192  # fast enough\n"),
            "{written}"
        );
        assert!(written.contains("  dropout: 0.2  # as given\n") && !written.contains("text_dim"), "{written}");
    }
}
