//! The sound of one clip, wherever it lies.

use crate::audio::{self, FileError, Waveform};
use crate::corpus::AudioSource;

/// Decodes a whole clip: a file, or a part of a shard, which is read for it alone.
pub fn decode(source: &AudioSource) -> Result<Waveform, FileError> {
    if let Some(path) = source.file() {
        return audio::decode(path);
    }
    let decode = |bytes| audio::decode_bytes(bytes, f64::INFINITY).map(|(wave, _)| wave);
    source
        .read()
        .map_err(audio::Error::from)
        .and_then(decode)
        .map_err(|error| FileError { path: source.to_string().into(), error })
}
