//! Names of things by their bytes: 128 bits of XXH3, which reads some 10 GB/s. They tell any two recordings apart and
//! find every accident; they need not resist an attacker, who could write a whole cache.

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

pub(super) const BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Digest(u128);

impl Digest {
    pub const NONE: Digest = Digest(0);

    pub fn of(bytes: &[u8]) -> Self {
        Digest(xxh3_128(bytes))
    }

    pub fn bytes(self) -> [u8; BYTES] {
        self.0.to_be_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Digest(u128::from_be_bytes(bytes)))
    }

    /// Half of it, for what lies beside others that have one each.
    pub fn short(self) -> u64 {
        self.0 as u64
    }

    pub fn hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// What `hex` wrote, and nothing else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digest = Digest(u128::from_str_radix(text, 16).ok()?);
        (digest.hex() == text).then_some(digest)
    }
}

/// Checksum of a clip, which lies beside others that have one each.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// A digest of what comes in pieces.
pub(super) struct Hasher(Box<Xxh3>);

impl Hasher {
    pub fn new() -> Self {
        Hasher(Box::new(Xxh3::new()))
    }

    pub fn update(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(bytes);
        self
    }

    pub fn finish(&self) -> Digest {
        Digest(self.0.digest128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truth: `xxhsum -H2` and `xxhsum -H3` 0.8 on the same bytes.
    #[test]
    fn digests_are_those_of_the_reference_program() {
        assert_eq!(Digest::of(b"").hex(), "99aa06d3014798d86001c324468d497f");
        assert_eq!(checksum(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn pieces_make_no_difference_and_names_are_read_back() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut hasher = Hasher::new();
        for piece in bytes.chunks(977) {
            hasher.update(piece);
        }
        let digest = Digest::of(&bytes);
        assert_eq!(hasher.finish(), digest);
        assert_eq!(
            (Digest::from_hex(&digest.hex()), Digest::from_bytes(&digest.bytes())),
            (Some(digest), Some(digest))
        );
        for wrong in ["", "+9aa06d3014798d86001c324468d497f", "99AA06D3014798D86001C324468D497F", "1"] {
            assert_eq!(Digest::from_hex(wrong), None, "{wrong}");
        }
    }
}
