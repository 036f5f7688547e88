//! The WAV file that nearly every corpus is made of, 16-bit mono PCM, read where it lies in memory. Anything else, and
//! anything odd about it, is for `decode`, which knows what to say.

use super::{RATES_HZ, Waveform};

/// Bytes of a frame of a mono 16-bit file.
const SAMPLE_BYTES: u16 = 2;
/// Samples of the longest clip: of a longer one `decode` says that it is.
const MAX_SAMPLES: usize = super::mono::MAX_SAMPLES;

/// A 16-bit mono WAV file, read where it lies in memory.
#[derive(Clone, Copy)]
pub struct WavView<'a> {
    pub rate_hz: u32,
    /// Little-endian samples.
    pub samples: &'a [[u8; 2]],
}

impl<'a> WavView<'a> {
    /// The samples of a file; none for a file of any other kind.
    pub fn of(file: &'a [u8]) -> Option<Self> {
        let (riff, length, body) = chunk_head(file)?;
        // What lies behind the length that the file states is no part of it.
        let mut rest = body.get(..length)?.strip_prefix(b"WAVE").filter(|_| riff == b"RIFF")?;
        let mut rate_hz = None;
        loop {
            let (name, length, after) = chunk_head(rest)?;
            // A chunk that reaches past the end is a truncated file.
            let body = after.get(..length)?;
            match name {
                b"fmt " => rate_hz = Some(rate_of_mono(body)?),
                b"data" => {
                    let (samples, []) = body.as_chunks() else { return None };
                    let usable = (1..=MAX_SAMPLES).contains(&samples.len());
                    return rate_hz.filter(|_| usable).map(|rate_hz| WavView { rate_hz, samples });
                }
                _ => {}
            }
            rest = after.get(length + length % 2..)?;
        }
    }

    pub fn to_waveform(self) -> Waveform {
        let samples = self.samples.iter().map(|&sample| f32::from(i16::from_le_bytes(sample)) / 32768.0);
        Waveform { samples: samples.collect(), rate_hz: self.rate_hz }
    }
}

/// Name and length of a chunk, and what follows its head.
fn chunk_head(bytes: &[u8]) -> Option<(&[u8; 4], usize, &[u8])> {
    let (name, rest) = bytes.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    Some((name, usize::try_from(u32::from_le_bytes(*length)).ok()?, rest))
}

/// The rate that a format chunk states, if it is that of 16-bit mono PCM and agrees with itself.
fn rate_of_mono(format: &[u8]) -> Option<u32> {
    let short = |at: usize| Some(u16::from_le_bytes(*format.get(at..)?.first_chunk()?));
    let (kind, channels, frame_bytes, bits) = (short(0)?, short(2)?, short(12)?, short(14)?);
    ((kind, channels, frame_bytes, bits) == (1, 1, SAMPLE_BYTES, 8 * SAMPLE_BYTES)).then_some(())?;
    let rate_hz = u32::from_le_bytes(*format.get(4..)?.first_chunk()?);
    RATES_HZ.contains(&rate_hz).then_some(rate_hz)
}

#[cfg(test)]
mod tests {
    use super::super::{decode, wav_bytes};
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn both(file: &[u8]) -> (Option<Waveform>, Option<Waveform>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wav");
        fs::write(&path, file).unwrap();
        (WavView::of(file).map(WavView::to_waveform), decode(&path).ok())
    }

    #[test]
    fn samples_are_those_that_decode_gives() {
        let file = wav_bytes(&[0.0, 0.5, -1.0, 1.0], 22_050);
        let (view, decoded) = both(&file);
        assert!(view.is_some() && view == decoded);
        let length = (file.len() as u32 - 8 + 12).to_le_bytes();
        let listed = [b"RIFF", &length[..], &file[8..36], b"note\x04\0\0\0abcd", &file[36..], b"junk"].concat();
        let (view, decoded) = both(&listed);
        assert!(view.is_some() && view == decoded, "other chunks are passed over");
    }

    #[test]
    fn what_is_odd_is_left_to_others() {
        let file = wav_bytes(&[0.5; 100], 22_050);
        let with = |at: usize, byte: u8| [&file[..at], &[byte], &file[at + 1..]].concat();
        for (what, bytes) in [
            ("cut", file[..200].to_vec()),
            ("float", with(20, 3)),
            ("stereo", with(22, 2)),
            ("rate", with(26, 0xff)),
            ("8 bits", with(34, 8)),
            ("half a sample", with(40, 199)),
            ("nothing", wav_bytes(&[], 22_050)),
            ("empty", vec![]),
        ] {
            assert!(WavView::of(&bytes).is_none(), "{what}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

        /// Whatever is done to a header: where this reader takes a file, it finds what the other one finds.
        #[test]
        fn damaged_headers_are_read_alike(changes in prop::collection::vec((0usize..44, any::<u8>()), 1..4)) {
            let mut file = wav_bytes(&[0.25; 60], 22_050);
            changes.iter().for_each(|&(at, byte)| file[at] = byte);
            if let (Some(view), decoded) = both(&file) {
                prop_assert_eq!(Some(view), decoded);
            }
        }
    }
}
