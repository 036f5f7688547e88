//! Any recording to mono samples at its own rate, through Symphonia.
//!
//! Header lengths are never used to allocate: memory follows the samples that are really there, up to a limit.

use super::mono::Mono;
use super::{Error, Waveform};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as Fault;
use symphonia::core::formats::well_known::{FORMAT_ID_FLAC, FORMAT_ID_WAVE};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType, probe::Hint};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

/// One hostile file must not end a run over thousands: Symphonia can still panic on some headers (its WAV reader
/// multiplies channels and bits in 16 bits), and that becomes an error like any other damage.
pub fn decode(path: &Path) -> Result<Waveform, Error> {
    std::panic::catch_unwind(|| decode_file(path))
        .unwrap_or_else(|_| Err(Error::Damaged { path: path.into(), what: "its decoder failed on it".into() }))
}

fn decode_file(path: &Path) -> Result<Waveform, Error> {
    let file = regular_file(path).map_err(|cause| Error::Io { path: path.into(), cause })?;
    let mut recording = Recording::open(file, path).map_err(|fault| explain(path, fault))?;
    let mut mono = Mono::default();
    while let Some(packet) = recording.next_packet().map_err(|fault| explain(path, fault))? {
        let decoded = recording.decoder.decode(&packet).map_err(|fault| explain(path, fault))?;
        mono.append(decoded).map_err(|refusal| refusal.at(path))?;
    }
    mono.finish(recording.promised_samples).map_err(|refusal| refusal.at(path))
}

/// A named pipe would make `open` wait for ever, so look before opening.
fn regular_file(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

/// The first audio track of a file.
struct Recording {
    format: Box<dyn FormatReader>,
    track: u32,
    decoder: Box<dyn AudioDecoder>,
    /// What the header promises, where the format promises exactly.
    promised_samples: Option<u64>,
}

impl Recording {
    fn open(file: File, path: &Path) -> Result<Self, Fault> {
        let mut hint = Hint::new();
        if let Some(extension) = path.extension().and_then(|extension| extension.to_str()) {
            hint.with_extension(extension);
        }
        let stream = MediaSourceStream::new(Box::new(file), Default::default());
        let probe = symphonia::default::get_probe();
        let format = probe.probe(&hint, stream, FormatOptions::default(), MetadataOptions::default())?;
        let track = format.default_track(TrackType::Audio).ok_or(Fault::Unsupported("it has no sound in it"))?;
        let params = track.codec_params.as_ref().and_then(|params| params.audio());
        let params = params.ok_or(Fault::Unsupported("unknown codec"))?;
        let decoder = symphonia::default::get_codecs().make_audio_decoder(params, &AudioDecoderOptions::default())?;
        // MP3 headers estimate; Ogg's length is read from its last page, so it is short exactly when the file is.
        let exact = [FORMAT_ID_WAVE, FORMAT_ID_FLAC].contains(&format.format_info().format);
        Ok(Self { track: track.id, decoder, promised_samples: track.num_frames.filter(|_| exact), format })
    }

    /// A file that stops inside a packet ends there; `Mono::finish` says whether that is too early.
    fn next_packet(&mut self) -> Result<Option<Packet>, Fault> {
        loop {
            match self.format.next_packet() {
                Ok(Some(packet)) if packet.track_id != self.track => {}
                Err(Fault::IoError(fault)) if fault.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                other => return other,
            }
        }
    }
}

fn explain(path: &Path, fault: Fault) -> Error {
    let path = path.to_path_buf();
    match fault {
        Fault::IoError(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => {
            Error::Damaged { path, what: "it ends before any sound: truncated, or not a recording".into() }
        }
        Fault::IoError(cause) => Error::Io { path, cause },
        Fault::Unsupported(what) => Error::Unsupported { path, what: what.into() },
        Fault::DecodeError(what) | Fault::LimitError(what) => Error::Damaged { path, what: what.into() },
        other => Error::Damaged { path, what: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::wav_bytes;
    use super::*;
    use proptest::prelude::*;
    use std::path::PathBuf;

    /// A WAV file from parts, so that each field can lie.
    fn wav(tag: u16, channels: u16, rate_hz: u32, bits: u16, promised_bytes: u32, data: &[u8]) -> Vec<u8> {
        let frame_bytes = channels.wrapping_mul(bits / 8);
        let mut file = b"RIFF".to_vec();
        file.extend(promised_bytes.saturating_add(36).to_le_bytes());
        file.extend(b"WAVEfmt \x10\0\0\0");
        file.extend(tag.to_le_bytes());
        file.extend(channels.to_le_bytes());
        file.extend(rate_hz.to_le_bytes());
        file.extend(rate_hz.wrapping_mul(frame_bytes as u32).to_le_bytes());
        file.extend(frame_bytes.to_le_bytes());
        file.extend(bits.to_le_bytes());
        file.extend(b"data");
        file.extend(promised_bytes.to_le_bytes());
        file.extend(data);
        file
    }

    fn decode_bytes(bytes: &[u8]) -> Result<Waveform, Error> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clip.wav");
        fs::write(&path, bytes).unwrap();
        decode(&path)
    }

    fn refusal(bytes: &[u8]) -> String {
        let message = decode_bytes(bytes).unwrap_err().to_string();
        assert!(message.contains("clip.wav: "), "no path in: {message}");
        message
    }

    #[test]
    fn channels_are_averaged() {
        let frames: Vec<u8> = [[8192i16, 16384], [-8192, 0]].iter().flatten().flat_map(|s| s.to_le_bytes()).collect();
        let wave = decode_bytes(&wav(1, 2, 16_000, 16, 8, &frames)).unwrap();
        assert_eq!(wave, Waveform { samples: vec![0.375, -0.125], rate_hz: 16_000 });
    }

    #[test]
    fn every_pcm_width_gives_the_same_half() {
        let halves: [(u16, u16, &[u8]); 5] = [
            (1, 8, &[0xC0]),
            (1, 16, &[0, 0x40]),
            (1, 24, &[0, 0, 0x40]),
            (1, 32, &[0, 0, 0, 0x40]),
            (3, 32, &0.5f32.to_le_bytes()),
        ];
        for (tag, bits, half) in halves {
            let wave = decode_bytes(&wav(tag, 1, 22_050, bits, half.len() as u32, half)).unwrap();
            assert!((wave.samples[0] - 0.5).abs() < 1e-6, "{bits} bits: {:?}", wave.samples);
        }
    }

    #[test]
    fn truncated_wav_says_so() {
        for cut_bytes in [1, 2, 999, 5_000] {
            let whole = wav_bytes(&vec![0.1; 4_000], 22_050);
            let message = refusal(&whole[..whole.len() - cut_bytes]);
            assert!(message.contains("truncated: its header promises 4000 samples"), "{message}");
        }
        assert!(refusal(&wav(1, 1, 22_050, 16, 0xFFFF_FF00, &[0; 64])).contains("it has 32"));
        assert!(refusal(&wav_bytes(&[0.0; 9], 22_050)[..30]).contains("ends before any sound"));
    }

    #[test]
    fn lying_headers_are_refused() {
        let data = [0u8; 64];
        assert!(refusal(&wav(1, 1, 0, 16, 64, &data)).contains("0 Hz"));
        assert!(refusal(&wav(1, 1, u32::MAX, 16, 64, &data)).contains("4294967295 Hz"));
        assert!(refusal(&wav(1, 0, 22_050, 16, 64, &data)).contains("damaged"));
        assert!(refusal(&wav(1, 1, 22_050, 16, 0, &[])).contains("no samples"));
        assert!(refusal(b"").contains("no suitable"));
        assert!(refusal(&wav(3, 1, 22_050, 32, 4, &f32::NAN.to_le_bytes())).contains("sample 0 is not a number"));
        assert!(refusal(&wav(3, 1, 22_050, 32, 4, &20_000f32.to_le_bytes())).contains("within ±1"));
    }

    #[test]
    fn a_streamed_wav_of_unknown_length_is_read_to_its_end() {
        let data: Vec<u8> = (0..3_000i16).flat_map(|sample| sample.to_le_bytes()).collect();
        let wave = decode_bytes(&wav(1, 1, 22_050, 16, u32::MAX, &data)).unwrap();
        assert_eq!(wave.samples.len(), 3_000);
    }

    #[test]
    fn paths_that_are_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("x.wav");
        fs::create_dir(&folder).unwrap();
        for path in [folder, dir.path().join("absent.wav"), PathBuf::from("/dev/null")] {
            let error = decode(&path).unwrap_err();
            assert!(matches!(error, Error::Io { .. }) && error.to_string().starts_with(path.to_str().unwrap()));
        }
    }

    #[test]
    fn text_is_not_a_recording() {
        let text = "It is a truth universally acknowledged. ".repeat(100);
        assert!(matches!(decode_bytes(text.as_bytes()), Err(Error::Unsupported { .. } | Error::Damaged { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn mutated_files_never_panic(
            at in 0usize..120,
            bytes in prop::collection::vec(any::<u8>(), 1..6),
            cut in 40usize..220,
        ) {
            let mut file = wav_bytes(&[0.25; 100], 22_050);
            file.splice(at..(at + bytes.len()), bytes);
            file.truncate(cut);
            let _ = decode_bytes(&file);
        }

        #[test]
        fn random_bytes_never_panic(magic in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let wav: &[u8] = b"RIFF\xff\0\0\0WAVEfmt ";
            let magics = [b"", wav, b"fLaC\0\0\0\x22", b"OggS\0\x02", b"\xff\xfb\x90\0", b"ID3\x04\0"];
            let _ = decode_bytes(&[magics[magic], &bytes].concat());
        }
    }
}
