//! 16-bit mono WAV, the one format this program writes.

use super::Error;
use std::fs;
use std::io;
use std::path::Path;

/// Written under a temporary name and renamed, so that a file with this name is always whole. Links are followed, and
/// what is no regular file (a pipe, a device) is written into.
pub fn write_wav(path: &Path, samples: &[f32], rate_hz: u32) -> Result<(), Error> {
    let fail = |cause: io::Error| Error::Io { path: path.into(), cause };
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let path = target.as_path();
    if fs::metadata(path).is_ok_and(|existing| !existing.is_file() && !existing.is_dir()) {
        return fs::write(path, wav_bytes(samples, rate_hz)).map_err(fail);
    }
    let name = path.file_name().ok_or_else(|| fail(io::Error::new(io::ErrorKind::InvalidInput, "not a file name")))?;
    let partial = path.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
    fs::write(&partial, wav_bytes(samples, rate_hz)).and_then(|()| fs::rename(&partial, path)).map_err(|cause| {
        // Nothing more can be done when the half-written file cannot be removed either.
        let _ = fs::remove_file(&partial);
        fail(cause)
    })
}

/// Clipped to ±1 and rounded. Lengths past 4 GiB, which the format cannot say, become its mark for "unknown".
pub fn wav_bytes(samples: &[f32], rate_hz: u32) -> Vec<u8> {
    let data_bytes = samples.len() as u64 * 2;
    let length = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut file = Vec::with_capacity(44 + samples.len() * 2);
    file.extend(b"RIFF");
    file.extend(length(data_bytes + 36));
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend(1u16.to_le_bytes()); // PCM
    file.extend(1u16.to_le_bytes()); // mono
    file.extend(rate_hz.to_le_bytes());
    file.extend(rate_hz.saturating_mul(2).to_le_bytes()); // bytes a second
    file.extend(2u16.to_le_bytes()); // bytes a frame
    file.extend(16u16.to_le_bytes()); // bits a sample
    file.extend(b"data");
    file.extend(length(data_bytes));
    file.extend(samples.iter().flat_map(|sample| ((sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16).to_le_bytes()));
    file
}

#[cfg(test)]
mod tests {
    use super::super::{Waveform, decode};
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
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wav");
        write_wav(&path, &[0.0, 0.5, -1.0], 24_000).unwrap();
        let Waveform { samples, rate_hz } = decode(&path).unwrap();
        assert_eq!(rate_hz, 24_000);
        assert!(samples.iter().zip([0.0, 0.5, -1.0]).all(|(a, b)| (a - b).abs() < 1e-4));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there() {
        let error = write_wav(Path::new("/absent/folder/a.wav"), &[0.0], 22_050).unwrap_err();
        assert!(error.to_string().starts_with("/absent/folder/a.wav: "));
        assert!(write_wav(Path::new("/"), &[0.0], 22_050).is_err());
    }
}
