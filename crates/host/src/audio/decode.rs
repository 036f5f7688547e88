//! Any recording to mono samples at its own rate, through Symphonia.
//!
//! Header lengths are never used to allocate: memory follows the samples that are really there, up to a limit.

use super::codec::Codec;
use super::mono::Mono;
use super::{Error, Waveform};
use crate::catch_panic;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use symphonia::core::errors::Error as Fault;
use symphonia::core::formats::well_known::{FORMAT_ID_FLAC, FORMAT_ID_WAVE};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType, probe::Hint};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

/// One hostile file must not end a run over thousands: Symphonia can still panic on some headers (its WAV reader
/// multiplies channels and bits in 16 bits), and that becomes an error like any other damage.
pub fn decode(path: &Path) -> Result<Waveform, Error> {
    decode_start(path, f64::INFINITY).map(|(wave, _)| wave)
}

/// No more than its first seconds, and whether there are more: memory is bounded however long the recording is.
pub fn decode_start(path: &Path, seconds: f64) -> Result<(Waveform, bool), Error> {
    let file = regular_file(path).map_err(|cause| Error::Io { path: path.into(), cause })?;
    guarded(Box::new(file), path, seconds)
}

/// The same for a file that is in memory; errors call it `name`.
pub fn decode_bytes(bytes: Vec<u8>, name: &str, seconds: f64) -> Result<(Waveform, bool), Error> {
    guarded(Box::new(io::Cursor::new(bytes)), Path::new(name), seconds)
}

fn guarded(source: Box<dyn MediaSource>, path: &Path, seconds: f64) -> Result<(Waveform, bool), Error> {
    catch_panic(|_| true, || decode_source(source, path, seconds))
        .unwrap_or_else(|_| Err(Error::Damaged { path: path.into(), what: "its decoder failed on it".into() }))
}

fn decode_source(source: Box<dyn MediaSource>, path: &Path, seconds: f64) -> Result<(Waveform, bool), Error> {
    let mut recording = Recording::open(source, path).map_err(|fault| explain(path, fault))?;
    let (mut mono, mut interleaved) = (Mono::default(), Vec::new());
    while let Some(packet) = recording.next_packet().map_err(|fault| explain(path, fault))? {
        let layout = recording.codec.decode(&packet, &mut interleaved).map_err(|fault| explain(path, fault))?;
        mono.append(&interleaved, layout).map_err(|refusal| refusal.at(path))?;
        if mono.seconds() >= seconds {
            return mono.finish(None).map(|wave| (wave, true)).map_err(|refusal| refusal.at(path));
        }
    }
    mono.finish(recording.promised_samples).map(|wave| (wave, false)).map_err(|refusal| refusal.at(path))
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
    codec: Codec,
    /// What the header promises, where the format promises exactly.
    promised_samples: Option<u64>,
}

impl Recording {
    fn open(source: Box<dyn MediaSource>, path: &Path) -> Result<Self, Fault> {
        let mut hint = Hint::new();
        if let Some(extension) = path.extension().and_then(|extension| extension.to_str()) {
            hint.with_extension(extension);
        }
        let stream = MediaSourceStream::new(source, Default::default());
        let probe = symphonia::default::get_probe();
        let format = probe.probe(&hint, stream, FormatOptions::default(), MetadataOptions::default())?;
        let track = format.default_track(TrackType::Audio).ok_or(Fault::Unsupported("it has no sound in it"))?;
        let params = track.codec_params.as_ref().and_then(|params| params.audio());
        let params = params.ok_or(Fault::Unsupported("unknown codec"))?;
        let codec = Codec::new(params)?;
        // MP3 headers estimate; Ogg's length is read from its last page, so it is short exactly when the file is.
        let exact = [FORMAT_ID_WAVE, FORMAT_ID_FLAC].contains(&format.format_info().format);
        Ok(Self { track: track.id, codec, promised_samples: track.num_frames.filter(|_| exact), format })
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
