//! Any recording to mono samples at its own rate: FLAC files in memory by a decoder of our own, all others and odd ones
//! through Symphonia.
//!
//! Header lengths are never used to allocate: memory follows the samples that are really there, up to a limit.

use super::codec::Codec;
use super::mono::Mono;
use super::{Error, FileError, Waveform, flac};
use crate::catch_panic::catch_panic;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use symphonia::core::errors::Error as Fault;
use symphonia::core::formats::well_known::{FORMAT_ID_FLAC, FORMAT_ID_WAVE};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType, probe::Hint};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

/// The longest FLAC file that is read before it is decoded; longer ones are decoded while they are read.
const MAX_FLAC_BYTES: u64 = 64 << 20;

/// Decodes a whole recording.
pub fn decode(path: &Path) -> Result<Waveform, FileError> {
    decode_start(path, f64::INFINITY).map(|(wave, _)| wave)
}

/// Decodes no more than the first seconds of a recording, and says whether there are more: memory is bounded however
/// long the recording is.
pub fn decode_start(path: &Path, seconds: f64) -> Result<(Waveform, bool), FileError> {
    let mut file = regular_file(path).map_err(FileError::at(path))?;
    if let Some(decoded) = decode_flac(&mut file, seconds).map_err(FileError::at(path))? {
        return Ok(decoded);
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    by_symphonia(Box::new(file), extension, seconds).map_err(FileError::at(path))
}

/// Decodes no more than the first seconds of a file that is in memory, and says whether there are more.
pub fn decode_bytes(bytes: Vec<u8>, seconds: f64) -> Result<(Waveform, bool), Error> {
    match flac::decode(&bytes, seconds) {
        Some(decoded) => Ok(decoded),
        None => by_symphonia(Box::new(io::Cursor::new(bytes)), None, seconds),
    }
}

/// Decodes a FLAC file that is short enough to be held and has nothing odd about it; leaves any other one at its start.
fn decode_flac(file: &mut File, seconds: f64) -> io::Result<Option<(Waveform, bool)>> {
    let mut bytes = Vec::new();
    file.take(4).read_to_end(&mut bytes)?;
    if bytes == b"fLaC" && file.metadata()?.len() <= MAX_FLAC_BYTES {
        file.read_to_end(&mut bytes)?;
        if let Some(decoded) = flac::decode(&bytes, seconds) {
            return Ok(Some(decoded));
        }
    }
    file.rewind()?;
    Ok(None)
}

/// One hostile file must not end a run over thousands: Symphonia can still panic on some headers (its WAV reader
/// multiplies channels and bits in 16 bits), and that becomes an error like any other damage.
pub(super) fn by_symphonia(
    source: Box<dyn MediaSource>,
    extension: Option<&str>,
    seconds: f64,
) -> Result<(Waveform, bool), Error> {
    catch_panic(|_| true, || decode_source(source, extension, seconds))
        .unwrap_or_else(|_| Err(Error::Damaged("its decoder failed on it".into())))
}

fn decode_source(
    source: Box<dyn MediaSource>,
    extension: Option<&str>,
    seconds: f64,
) -> Result<(Waveform, bool), Error> {
    let mut recording = Recording::open(source, extension)?;
    let (mut mono, mut interleaved) = (Mono::default(), Vec::new());
    while let Some(packet) = recording.next_packet()? {
        let layout = recording.codec.decode(&packet, &mut interleaved)?;
        mono.append(&interleaved, layout)?;
        if mono.seconds() >= seconds {
            return mono.finish(None).map(|wave| (wave, true));
        }
    }
    mono.finish(recording.promised_samples).map(|wave| (wave, false))
}

/// Opens a file, having looked at what it is: a named pipe would make `open` wait for ever.
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
    /// Samples that the header promises, where the format promises exactly.
    promised_samples: Option<u64>,
}

impl Recording {
    fn open(source: Box<dyn MediaSource>, extension: Option<&str>) -> Result<Self, Fault> {
        let mut hint = Hint::new();
        if let Some(extension) = extension {
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

    /// The next packet of the track. A file that stops inside a packet ends there; `Mono::finish` says whether that is
    /// too early.
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

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::IoError(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => {
                Error::Damaged("it ends before any sound: truncated, or not a recording".into())
            }
            Fault::IoError(cause) => Error::Io { cause },
            Fault::Unsupported(what) => Error::unsupported(what),
            Fault::DecodeError(what) | Fault::LimitError(what) => Error::Damaged(what.into()),
            other => Error::Damaged(other.to_string()),
        }
    }
}
