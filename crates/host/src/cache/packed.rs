//! Tokens while a corpus is built: nearly all are below 128, and a table of 100,000 texts should not take 40 MB.

/// Seven bits a byte, the lowest first; all but the last byte of a token have their highest bit set (LEB128).
pub(super) struct Packed {
    bytes: Box<[u8]>,
    len: usize,
}

impl Packed {
    pub fn of(tokens: &[i32]) -> Self {
        let mut bytes = Vec::with_capacity(tokens.len() * 5 / 4);
        for token in tokens {
            let mut left = *token as u32;
            while left >= 0x80 {
                bytes.push(left as u8 | 0x80);
                left >>= 7;
            }
            bytes.push(left as u8);
        }
        Packed { bytes: bytes.into(), len: tokens.len() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn iter(&self) -> impl Iterator<Item = i32> {
        self.bytes.split_inclusive(|byte| *byte < 0x80).map(|token| {
            let bits = |(place, byte): (usize, &u8)| u32::from(byte & 0x7f) << (7 * place);
            token.iter().enumerate().map(bits).sum::<u32>() as i32
        })
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
