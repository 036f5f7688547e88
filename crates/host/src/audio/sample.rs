//! One sample, as it lies in a file or as a number.

/// A sample of sound in any form.
pub trait Sample: Copy {
    /// The sample in -1..1.
    fn to_f32(self) -> f32;
    /// The sample in 16 bits. Full scale is 32768, as it is when samples are read back.
    fn to_i16(self) -> i16;
}

/// A 16-bit sample as little-endian bytes.
impl Sample for [u8; 2] {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(i16::from_le_bytes(self)) * (1.0 / 32768.0)
    }

    #[inline(always)]
    fn to_i16(self) -> i16 {
        i16::from_le_bytes(self)
    }
}

impl Sample for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    /// The sample in 16 bits; beyond ±1 it is clipped: the conversion saturates.
    #[inline(always)]
    fn to_i16(self) -> i16 {
        (self * 32768.0).round_ties_even() as i16
    }
}
