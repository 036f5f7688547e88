//! Tokens while a corpus is built: nearly all are below 128, and a table of 100,000 texts should not take 40 MB.

use crate::spill;

/// Tokens as numbers of a record.
pub(super) struct Packed {
    bytes: Box<[u8]>,
    len: usize,
}

impl Packed {
    pub fn of(tokens: &[i32]) -> Self {
        let mut bytes = Vec::with_capacity(tokens.len() * 5 / 4);
        tokens.iter().for_each(|token| spill::put_number(&mut bytes, u64::from(*token as u32)));
        Packed { bytes: bytes.into(), len: tokens.len() }
    }

    /// Appends them to a record.
    pub fn put(&self, record: &mut Vec<u8>) {
        spill::put_number(record, self.len as u64);
        spill::put_bytes(record, &self.bytes);
    }

    /// Takes them from the front of a record.
    pub fn take(record: &mut &[u8]) -> Self {
        Packed { len: spill::take_number(record) as usize, bytes: spill::take_bytes(record).into() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn iter(&self) -> impl Iterator<Item = i32> {
        let mut rest = &*self.bytes;
        (0..self.len).map(move |_| spill::take_number(&mut rest) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_out_as_they_went_in() {
        let tokens = [0, 1, 127, 128, 300, 16_383, 16_384, 1 << 21, i32::MAX, -1, 5];
        let packed = Packed::of(&tokens);
        assert_eq!((packed.iter().collect::<Vec<_>>(), packed.len()), (tokens.to_vec(), tokens.len()));
        assert_eq!(Packed::of(&[]).iter().count(), 0);
    }
}
