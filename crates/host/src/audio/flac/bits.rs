//! Bits in network order out of bytes in memory. Nothing is read past the end: what is not there is `None`.

pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, at: 0 }
    }

    /// The next bits as a number, at most 32.
    #[inline(always)]
    pub fn read(&mut self, count: u32) -> Option<u32> {
        let next = self.at + count as usize;
        if next > self.bytes.len() * 8 {
            return None;
        }
        let value = (self.window() >> 1) >> (63 - count);
        self.at = next;
        Some(value as u32)
    }

    /// The next bits as a number in two's complement, at most 32.
    #[inline(always)]
    pub fn read_signed(&mut self, count: u32) -> Option<i32> {
        let value = u64::from(self.read(count)?);
        Some((((value << (63 - count)) << 1) as i64 >> (63 - count) >> 1) as i32)
    }

    /// Zeros up to the next one, which is read as well.
    #[inline(always)]
    pub fn read_unary(&mut self) -> Option<u32> {
        let mut zeros = 0;
        loop {
            let window = self.window();
            if window != 0 {
                let some = window.leading_zeros();
                self.at += some as usize + 1;
                return (self.at <= self.bytes.len() * 8).then_some(zeros + some);
            }
            // As many as a window is sure to hold.
            zeros += 57;
            self.at += 57;
            if self.at > self.bytes.len() * 8 {
                return None;
            }
        }
    }

    /// Skips to the next whole byte, and says how many bytes were read.
    pub fn align(&mut self) -> usize {
        self.at = self.at.next_multiple_of(8);
        self.at / 8
    }

    /// Position in bits.
    #[inline(always)]
    pub fn position(&self) -> usize {
        self.at
    }

    #[inline(always)]
    pub fn set_position(&mut self, at: usize) {
        self.at = at;
    }

    /// Two words from the byte on; none at the end of the file.
    #[inline(always)]
    pub fn words(&self, byte: usize) -> Option<[u64; 2]> {
        let (first, rest) = self.bytes.get(byte..)?.split_first_chunk()?;
        Some([u64::from_be_bytes(*first), u64::from_be_bytes(*rest.first_chunk()?)])
    }

    /// The next bits, the first one highest: at least 57, with zeros behind the end of the file.
    #[inline(always)]
    fn window(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        });
        u64::from_be_bytes(word) << (self.at % 8)
    }
}
