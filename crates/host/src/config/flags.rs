//! What the command line says, as a layer of values.

use super::error::{Error, Origin, Wrong};
use super::keys::{self, Key};
use super::layer::Layer;
use serde::Serialize;
use serde_json::Value;

/// Values that flags set, by dotted keys: `training.learning_rate`.
#[derive(Default)]
pub struct Overrides(Vec<(String, Result<Value, String>)>);

impl Overrides {
    /// `None`, a flag that was not given, does nothing. Problems come out of `Config::resolve`, with the flag's name.
    pub fn set<T: Serialize>(&mut self, key: &str, value: Option<T>) -> &mut Self {
        let Some(value) = value else { return self };
        let value = match serde_json::to_value(value) {
            // JSON has no NaN; that is what it makes of one.
            Ok(Value::Null) => Err("not a finite number".into()),
            other => other.map_err(|error| error.to_string()),
        };
        self.0.push((key.into(), value));
        self
    }

    pub(super) fn into_layer(self) -> Result<Layer, Error> {
        let mut layer = Layer::default();
        for (path, value) in self.0 {
            let key = dotted(&path).ok_or_else(|| {
                Error::invalid(Origin::Flag(path), Wrong::new("no such key", "a flag sets `section.key`"))
            })?;
            let origin = Origin::Flag(key.flag_name());
            let value = value.map_err(|what| Error::invalid(origin.clone(), what))?;
            layer.set(key, &value, origin)?;
        }
        Ok(layer)
    }
}

fn dotted(path: &str) -> Option<&'static Key> {
    let (section, name) = path.split_once('.')?;
    keys::find(name).filter(|(home, key)| *home == section && key.name == name).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: Serialize>(key: &str, value: T) -> String {
        let mut flags = Overrides::default();
        flags.set(key, Some(value));
        flags.into_layer().err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn flags_that_cannot_be_are_named() {
        let lr = "training.learning_rate";
        let range = "accepted: a number above 0 and at most 1, or null";
        assert_eq!(message(lr, 2.0), format!("--lr: `learning_rate` is 2.0; {range}"));
        assert_eq!(message(lr, f64::NAN), "--lr: not a finite number");
        assert_eq!(message(lr, 0.1), "");
        assert!(message("data.batch_size", 0).starts_with("--batch-size: `batch_size` is 0; accepted: "));
    }

    #[test]
    fn a_flag_without_a_key_is_an_error() {
        for path in ["learning_rate", "data.learning_rate", "training.lr", "training."] {
            assert!(message(path, 0.1).starts_with(&format!("{path}: no such key")), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_text_is_an_error() {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(b"\xff"));
        assert!(message("training.checkpoint_dir", path).starts_with("--checkpoint-dir: path contains invalid UTF-8"));
    }
}
