//! Most memory of a GPU that a role may take.

use super::accept::{Accepts, Setting};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const MIB: std::ops::RangeInclusive<f64> = 256.0..=1_048_576.0;

/// A cap, written as MiB (`4096`) or as a share of the card (`0.3`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "Value")]
pub enum MemoryCap {
    Mib(u64),
    Share(f64),
}

impl MemoryCap {
    /// What each of several gets that share a card.
    pub fn among(self, sharers: u64) -> MemoryCap {
        match self {
            MemoryCap::Mib(mib) => MemoryCap::Mib(mib / sharers),
            MemoryCap::Share(share) => MemoryCap::Share(share / sharers as f64),
        }
    }

    /// MiB, on a card that has this many.
    pub fn mib(self, card_mib: u64) -> u64 {
        match self {
            Self::Mib(mib) => mib,
            Self::Share(share) => (share * card_mib as f64) as u64,
        }
    }
}

impl Setting for MemoryCap {
    fn accepts() -> Accepts {
        Accepts::Any("whole MiB from 256 to 1048576, or a share of the card above 0 and at most 1")
    }
}

impl TryFrom<f64> for MemoryCap {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        match number {
            share if share > 0.0 && share <= 1.0 => Ok(Self::Share(share)),
            mib if MIB.contains(&mib) && mib.fract() == 0.0 => Ok(Self::Mib(mib as u64)),
            _ => Err("neither MiB nor a share"),
        }
    }
}

impl From<MemoryCap> for Value {
    fn from(cap: MemoryCap) -> Self {
        match cap {
            MemoryCap::Mib(mib) => mib.into(),
            MemoryCap::Share(share) => share.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_is_mib_or_a_share() {
        let read = |value: Value| serde_json::from_value::<MemoryCap>(value).ok();
        assert_eq!(read(json!(4096)), Some(MemoryCap::Mib(4096)));
        assert_eq!(read(json!(0.3)).map(|cap| cap.mib(24_000)), Some(7_200));
        assert_eq!(read(json!(1)).map(|cap| cap.mib(24_000)), Some(24_000));
        for refused in [json!(0), json!(-0.5), json!(1.5), json!(255), json!(300.5), json!(2e6), json!("0.3")] {
            assert_eq!(read(refused.clone()), None, "{refused}");
        }
        for cap in [MemoryCap::Mib(4096), MemoryCap::Share(0.25)] {
            assert_eq!(read(json!(cap)), Some(cap));
        }
    }
}
