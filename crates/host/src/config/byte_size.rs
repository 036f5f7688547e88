//! A size of storage as people write it: `200GB`, `64MiB`, or a number of bytes.

use super::accept::{Accepts, Setting};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Units by name, the largest first; in each size those of ten before those of two.
const UNITS: [(&str, u64); 9] = [
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("B", 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "String")]
pub struct ByteSize(pub u64);

impl Setting for ByteSize {
    fn accepts() -> Accepts {
        Accepts::Any("a size such as 200GB, 64MiB, or a number of bytes")
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (digits, unit) = (text[..end].trim(), text[end..].trim());
        let unit = if unit.is_empty() { "B" } else { unit };
        let size = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).and_then(|(_, bytes)| {
            let bytes = digits.parse::<f64>().ok()? * *bytes as f64;
            (bytes >= 1.0 && bytes < u64::MAX as f64).then_some(ByteSize(bytes as u64))
        });
        size.ok_or_else(|| format!("`{text}` is no size such as 200GB or 64MiB"))
    }
}

impl fmt::Display for ByteSize {
    /// Exactly, in the largest unit that allows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().filter(|(_, bytes)| self.0.is_multiple_of(*bytes));
        let (name, bytes) = whole.min_by_key(|(_, bytes)| self.0 / bytes).unwrap_or(&UNITS[8]);
        write!(f, "{}{name}", self.0 / bytes)
    }
}

impl TryFrom<serde_json::Value> for ByteSize {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        value.as_str().map_or_else(|| value.to_string(), String::from).parse()
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_exactly() {
        for (text, bytes) in
            [("200GB", 200_000_000_000), ("64MiB", 64 << 20), ("1.5gib", 3 << 29), ("7", 7), ("2 KB", 2000)]
        {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size, ByteSize(bytes), "{text}");
            assert_eq!(size.to_string().parse(), Ok(size), "{size}");
        }
        assert_eq!(
            (ByteSize(200_000_000_000).to_string(), ByteSize(64 << 20).to_string()),
            ("200GB".into(), "64MiB".into())
        );
        for wrong in ["", "GB", "-1GB", "0", "1.2.3MB", "5 apples", "1e400GB"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }
}
