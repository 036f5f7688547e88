//! Files of every format, whole and damaged, through `decode`.

use super::{Error, FileError, Waveform, decode, normalize, resample, trim_silence, wav_bytes};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const A_LAW: u16 = 6;
const MU_LAW: u16 = 7;
const EXTENSIBLE: u16 = 0xFFFE;

/// 0.25 s of 0.5 sin(2π (200 t + 3000 t²)): by libsndfile 1.2.2 (`chirp.*`, 16 kHz), and by libopus in its three modes
/// (48 kHz; `celt.opus` is stereo with the right channel at half, and its header asks for -6 dB).
const FIXTURES: [(&str, &[u8]); 6] = [
    ("chirp.flac", include_bytes!("../../../../tests/data/chirp.flac")),
    ("chirp.mp3", include_bytes!("../../../../tests/data/chirp.mp3")),
    ("chirp.ogg", include_bytes!("../../../../tests/data/chirp.ogg")),
    ("silk.opus", include_bytes!("../../../../tests/data/silk.opus")),
    ("hybrid.opus", include_bytes!("../../../../tests/data/hybrid.opus")),
    ("celt.opus", include_bytes!("../../../../tests/data/celt.opus")),
];

/// A WAV file from parts, so that each field can lie.
fn wav(tag: u16, channels: u16, rate_hz: u32, bits: u16, promised_bytes: u32, data: &[u8]) -> Vec<u8> {
    let frame_bytes = channels.wrapping_mul(bits / 8);
    let extension: &[u8] = match tag {
        A_LAW | MU_LAW => &[0, 0],
        // 22 bytes: all bits valid, no speaker positions, then the GUID of plain samples.
        EXTENSIBLE => b"\x16\0\x18\0\0\0\0\0\x01\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71",
        _ => &[],
    };
    let mut file = b"RIFF".to_vec();
    file.extend(promised_bytes.saturating_add(36 + extension.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend((16 + extension.len() as u32).to_le_bytes());
    file.extend(tag.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate_hz.to_le_bytes());
    file.extend(rate_hz.wrapping_mul(frame_bytes as u32).to_le_bytes());
    file.extend(frame_bytes.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(extension);
    file.extend(b"data");
    file.extend(promised_bytes.to_le_bytes());
    file.extend(data);
    file
}

/// (tag, bits, a sample of one half in it). A-law and µ-law have no half: by ITU-T G.711 these are 0.516 and 0.512.
const HALVES: [(u16, u16, &[u8]); 9] = [
    (PCM, 8, &[0xC0]),
    (PCM, 16, &[0, 0x40]),
    (PCM, 24, &[0, 0, 0x40]),
    (PCM, 32, &[0, 0, 0, 0x40]),
    (FLOAT, 32, &0.5f32.to_le_bytes()),
    (FLOAT, 64, &0.5f64.to_le_bytes()),
    (EXTENSIBLE, 24, &[0, 0, 0x40]),
    (A_LAW, 8, &[0xA5]),
    (MU_LAW, 8, &[0x8F]),
];

fn decode_named(name: &str, bytes: &[u8]) -> Result<Waveform, FileError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    decode(&path)
}

fn decode_bytes(bytes: &[u8]) -> Result<Waveform, FileError> {
    decode_named("clip.wav", bytes)
}

fn refusal(bytes: &[u8]) -> String {
    let message = decode_bytes(bytes).unwrap_err().to_string();
    assert!(message.contains("clip.wav: "), "no path in: {message}");
    message
}

#[test]
fn channels_are_averaged() {
    let of = |frames: &[i16]| frames.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>();
    let wave = decode_bytes(&wav(PCM, 2, 16_000, 16, 8, &of(&[8192, 16384, -8192, 0]))).unwrap();
    assert_eq!(wave, Waveform { samples: vec![0.375, -0.125], rate_hz: 16_000 });
    let wave = decode_bytes(&wav(PCM, 3, 16_000, 16, 6, &of(&[8192, 16384, 0]))).unwrap();
    assert_eq!(wave.samples, [0.25]);
}

#[test]
fn every_wav_format_gives_the_same_half() {
    for (tag, bits, half) in HALVES {
        let data = half.repeat(3);
        let wave = decode_bytes(&wav(tag, 1, 22_050, bits, data.len() as u32, &data)).unwrap();
        let error = wave.samples.iter().map(|sample| (sample - 0.5).abs()).fold(0.0, f32::max);
        let allowed = if [A_LAW, MU_LAW].contains(&tag) { 0.02 } else { 1e-6 };
        assert!(wave.samples.len() == 3 && error < allowed, "format {tag}, {bits} bits: {:?}", wave.samples);
    }
}

/// Truth: libsndfile 1.2.2, `soundfile.read`, channels averaged: length, RMS, and the samples at 1/5, 1/2 and 4/5.
#[test]
fn compressed_formats_are_as_libsndfile_reads_them() {
    let truth = [
        (16_000, 4_000, 0.353_550, [0.0, -0.353_546, 0.0]),
        (16_000, 4_000, 0.353_395, [0.000_562, -0.353_59, 0.000_083]),
        (16_000, 4_000, 0.352_606, [0.004_533, -0.378_721, -0.047_363]),
        (48_000, 12_000, 0.352_442, [-0.159_21, -0.193_939, 0.259_918]),
        (48_000, 12_000, 0.351_635, [-0.161_68, -0.190_556, 0.234_651]),
        (48_000, 12_000, 0.134_422, [0.000_078, -0.125_922, -0.020_075]),
    ];
    for ((name, bytes), (rate_hz, count, rms, values)) in FIXTURES.into_iter().zip(truth) {
        let wave = decode_named(name, bytes).unwrap();
        assert_eq!((wave.rate_hz, wave.samples.len()), (rate_hz, count), "{name}");
        let ours = (wave.samples.iter().map(|x| x * x).sum::<f32>() / count as f32).sqrt();
        assert!((ours - rms).abs() < 1e-5, "{name}: RMS {ours}, libsndfile {rms}");
        for (at, value) in [count / 5, count / 2, count * 4 / 5].into_iter().zip(values) {
            assert!((wave.samples[at] - value).abs() < 1e-5, "{name}, sample {at}: {}, not {value}", wave.samples[at]);
        }
    }
}

#[test]
fn truncated_wav_says_so() {
    for cut_bytes in [1, 2, 999, 5_000] {
        let whole = wav_bytes(&vec![0.1; 4_000], 22_050);
        let message = refusal(&whole[..whole.len() - cut_bytes]);
        assert!(message.contains("truncated: its header promises 4000 samples"), "{message}");
    }
    assert!(refusal(&wav(PCM, 1, 22_050, 16, 0xFFFF_FF00, &[0; 64])).contains("it has 32"), "4 GiB promised");
    assert!(refusal(&wav_bytes(&[0.0; 9], 22_050)[..30]).contains("ends before any sound"));
}

#[test]
fn lying_headers_are_refused() {
    let data = [0u8; 64];
    assert!(refusal(&wav(PCM, 1, 0, 16, 64, &data)).contains("0 Hz"));
    assert!(refusal(&wav(PCM, 1, u32::MAX, 16, 64, &data)).contains("4294967295 Hz"));
    assert!(refusal(&wav(PCM, 0, 22_050, 16, 64, &data)).contains("damaged"));
    assert!(refusal(&wav(PCM, 65_535, 22_050, 16, 64, &data)).contains("clip.wav: "));
    assert!(refusal(&wav(PCM, 1, 22_050, 16, 0, &[])).contains("no samples"));
    assert!(refusal(b"").contains("no suitable"));
    assert!(refusal(&wav(FLOAT, 1, 22_050, 32, 4, &f32::NAN.to_le_bytes())).contains("sample 0 is not a number"));
    assert!(refusal(&wav(FLOAT, 1, 22_050, 64, 8, &f64::INFINITY.to_le_bytes())).contains("sample 0 is not a number"));
    assert!(refusal(&wav(FLOAT, 1, 22_050, 32, 4, &20_000f32.to_le_bytes())).contains("within ±1"));
}

#[test]
fn a_streamed_wav_of_unknown_length_is_read_to_its_end() {
    let data: Vec<u8> = (0..3_000i16).flat_map(|sample| sample.to_le_bytes()).collect();
    let wave = decode_bytes(&wav(PCM, 1, 22_050, 16, u32::MAX, &data)).unwrap();
    assert_eq!(wave.samples.len(), 3_000);
}

#[test]
fn paths_that_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, ring, closed] = ["x.wav", "loop.wav", "closed.wav"].map(|name| dir.path().join(name));
    fs::create_dir(&folder).unwrap();
    symlink(&ring, &ring).unwrap();
    fs::write(&closed, wav_bytes(&[0.0; 9], 22_050)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let mut paths = vec![folder, ring, dir.path().join("absent.wav"), PathBuf::from("/dev/null")];
    // Root may read everything.
    paths.extend(fs::read(&closed).is_err().then_some(closed));
    for path in paths {
        let error = decode(&path).unwrap_err();
        assert!(matches!(error.error, Error::Io { .. }) && error.to_string().starts_with(path.to_str().unwrap()));
    }
}

#[test]
fn text_is_not_a_recording() {
    let text = "It is a truth universally acknowledged. ".repeat(100);
    let error = decode_bytes(text.as_bytes()).unwrap_err().error;
    assert!(matches!(error, Error::Unsupported { .. } | Error::Damaged(_)));
}

/// Makes the checksum of every Ogg page right again: readers drop a page with a wrong one, and no decoder would ever
/// see the damage.
fn mend_pages(file: &mut [u8]) {
    let mut rest = file;
    while rest.starts_with(b"OggS") && rest.len() > 27 {
        let body = 27 + rest[26] as usize;
        let end = (body + rest.iter().take(body).skip(27).map(|&size| size as usize).sum::<usize>()).min(rest.len());
        let (page, others) = rest.split_at_mut(end);
        page[22..26].fill(0);
        let sum = page.iter().fold(0u32, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| sum << 1 ^ if sum >> 31 == 1 { 0x04C1_1DB7 } else { 0 })
        });
        page[22..26].copy_from_slice(&sum.to_le_bytes());
        rest = others;
    }
}

/// Everything that a clip goes through. What comes out of a damaged file must still be sound.
fn survives(name: &str, file: &[u8]) -> Result<(), TestCaseError> {
    let Ok(wave) = decode_named(name, file) else { return Ok(()) };
    prop_assert!(!wave.samples.is_empty() && wave.samples.iter().all(|sample| (-1.0..=1.0).contains(sample)));
    // Hours of noise out of a few bytes only cost time here.
    if wave.samples.len() < 100_000 {
        let wave = normalize(trim_silence(resample(wave, 22_050).unwrap()), -20.0);
        prop_assert!(wave.samples.iter().all(|sample| sample.is_finite()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn damaged_wav_files(
        (tag, bits, half) in prop::sample::select(&HALVES[..]),
        channels in 1u16..4,
        at in 0usize..120,
        bytes in prop::collection::vec(any::<u8>(), 1..6),
        cut in 40usize..700,
    ) {
        let data = half.repeat(channels as usize * 50);
        let mut file = wav(tag, channels, 22_050, bits, data.len() as u32, &data);
        let end = (at + bytes.len()).min(file.len());
        file.splice(at.min(end)..end, bytes);
        file.truncate(cut);
        survives("clip.wav", &file)?;
    }

    #[test]
    fn damaged_compressed_files(
        (name, file) in prop::sample::select(&FIXTURES[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        repeat in 1usize..3,
        mend in any::<bool>(),
    ) {
        let mut file = file.repeat(repeat);
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut file) = *byte);
        file.truncate(cut.index(file.len()) + 1);
        if mend {
            mend_pages(&mut file);
        }
        survives(name, &file)?;
    }

    #[test]
    fn random_bytes(magic in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let wav: &[u8] = b"RIFF\xff\0\0\0WAVEfmt ";
        let magics = [b"", wav, b"fLaC\0\0\0\x22", b"OggS\0\x02", b"\xff\xfb\x90\0", b"ID3\x04\0"];
        survives("clip.wav", &[magics[magic], &bytes].concat())?;
    }
}
