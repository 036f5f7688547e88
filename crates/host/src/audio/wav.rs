//! 16-bit mono WAV.

/// The length that stands for "unknown", and the longest that the format can say: 4 GiB, 27 hours at 22.05 kHz.
const UNKNOWN: u32 = u32::MAX;

/// Samples as a whole WAV file in memory.
pub fn wav_bytes(samples: &[f32], rate_hz: u32) -> Vec<u8> {
    let mut file = wav_header(Some(samples.len() as u64 * 2), rate_hz);
    file.extend(pcm16(samples).flat_map(i16::to_le_bytes));
    file
}

/// Samples in 16 bits, clipped to ±1 and rounded.
pub fn pcm16(samples: &[f32]) -> impl Iterator<Item = i16> + '_ {
    samples.iter().map(|sample| (sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16)
}

/// The header of a file, 44 bytes. Lengths that nobody knows yet, or past 4 GiB, become the format's mark for
/// "unknown": readers then go on to the end.
pub fn wav_header(data_bytes: Option<u64>, rate_hz: u32) -> Vec<u8> {
    let length = |more: u64| {
        let bytes = data_bytes.and_then(|bytes| u32::try_from(bytes + more).ok());
        bytes.unwrap_or(UNKNOWN).to_le_bytes()
    };
    let mut header = Vec::with_capacity(44);
    header.extend(b"RIFF");
    header.extend(length(36));
    header.extend(b"WAVEfmt ");
    header.extend(16u32.to_le_bytes());
    header.extend(1u16.to_le_bytes()); // PCM
    header.extend(1u16.to_le_bytes()); // mono
    header.extend(rate_hz.to_le_bytes());
    header.extend(rate_hz.saturating_mul(2).to_le_bytes()); // bytes a second
    header.extend(2u16.to_le_bytes()); // bytes a frame
    header.extend(16u16.to_le_bytes()); // bits a sample
    header.extend(b"data");
    header.extend(length(0));
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truth: Python's `wave` module, `setparams((1, 2, 22050, 0, "NONE", ""))` and three frames 0, 32767, -16384.
    #[test]
    fn bytes_are_those_of_another_writer() {
        let header = b"RIFF\x2a\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\"V\0\0D\xac\0\0\x02\0\x10\0data\x06\0\0\0";
        let truth = [&header[..], b"\0\0\xff\x7f\0\xc0"].concat();
        assert_eq!(wav_bytes(&[0.0, 7.0, -0.50001], 22_050), truth);
        assert_eq!(&wav_bytes(&[f32::NAN, -2.0], 22_050)[44..], [0, 0, 0x01, 0x80]);
    }

    #[test]
    fn lengths_that_do_not_fit_are_unknown() {
        let lengths = |bytes| {
            let header = wav_header(bytes, 22_050);
            [4, 40].map(|at| u32::from_le_bytes(header[at..at + 4].try_into().unwrap()))
        };
        assert_eq!(lengths(None), [UNKNOWN, UNKNOWN]);
        assert_eq!(lengths(Some(1 << 33)), [UNKNOWN, UNKNOWN]);
        assert_eq!(lengths(Some(100)), [136, 100]);
    }
}
