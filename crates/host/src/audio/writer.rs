//! Speech into files and streams, chunk by chunk: memory does not grow with its length.

use super::{AudioFormat, Encoder, FileError};
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of speech on its way. It gets its name when it is whole: `finish` renames it, dropping it removes it.
pub struct AudioFileWriter {
    target: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
    encoder: Encoder,
    /// Whether the target is a pipe or a device, into which the bytes are copied instead.
    copied: bool,
}

impl AudioFileWriter {
    /// Starts a file. Links are followed, and what is no regular file (a pipe, a device) is written into.
    pub fn create(path: &Path, format: AudioFormat, rate_hz: u32) -> Result<Self, FileError> {
        let fail = |cause: io::Error| FileError::at(path)(cause);
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let copied = fs::metadata(&target).is_ok_and(|existing| !existing.is_file() && !existing.is_dir());
        let partial = if copied {
            scratch()
        } else {
            let nameless = || io::Error::new(io::ErrorKind::InvalidInput, "not a file name");
            let name = target.file_name().ok_or_else(|| fail(nameless()))?;
            target.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()))
        };
        if target.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        let encoder = Encoder::new(format, rate_hz, rate_hz).map_err(FileError::at(path))?;
        Self::open(target, partial, copied, encoder).map_err(fail)
    }

    /// A file for standard output: kept on disk until its lengths are known, then `copy_to`.
    pub fn spool(format: AudioFormat, rate_hz: u32) -> Result<Self, FileError> {
        let partial = scratch();
        let encoder = Encoder::new(format, rate_hz, rate_hz).map_err(FileError::at(&partial))?;
        Self::open("-".into(), partial.clone(), true, encoder).map_err(FileError::at(&partial))
    }

    fn open(target: PathBuf, partial: PathBuf, copied: bool, encoder: Encoder) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&partial)?;
        let mut writer = AudioFileWriter { target, partial, file: BufWriter::new(file), encoder, copied };
        let header = writer.encoder.header();
        writer.file.write_all(&header)?;
        Ok(writer)
    }

    pub fn push(&mut self, samples: &[f32]) -> Result<(), FileError> {
        let bytes = self.encoder.push(samples);
        self.file.write_all(&bytes).map_err(|cause| self.fault(cause))
    }

    /// Writes the lengths and gives the file its name.
    pub fn finish(mut self) -> Result<(), FileError> {
        let done = self.complete().and_then(|()| match self.copied {
            true => {
                let mut into = File::options().write(true).open(&self.target)?;
                self.copy(&mut into)
            }
            false => fs::rename(&self.partial, &self.target),
        });
        done.map_err(|cause| self.fault(cause))
    }

    /// Ends the file and copies it to `out`.
    pub fn copy_to(mut self, out: &mut impl Write) -> Result<(), io::Error> {
        self.complete()?;
        self.copy(out)
    }

    fn complete(&mut self) -> io::Result<()> {
        let last = self.encoder.finish();
        self.file.write_all(&last)?;
        self.file.rewind()?;
        self.file.write_all(&self.encoder.header())?;
        self.file.flush()
    }

    fn copy(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.file.rewind()?;
        io::copy(&mut self.file.get_ref(), out)?;
        out.flush()
    }

    fn fault(&self, cause: io::Error) -> FileError {
        FileError::at(&self.target)(cause)
    }
}

impl Drop for AudioFileWriter {
    fn drop(&mut self) {
        // After a rename it is not there any more.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Writes a whole WAV file at once.
pub fn write_wav(path: &Path, samples: &[f32], rate_hz: u32) -> Result<(), FileError> {
    let mut writer = AudioFileWriter::create(path, AudioFormat::Wav, rate_hz)?;
    writer.push(samples)?;
    writer.finish()
}

/// A name in the folder for temporary files that nobody else has.
fn scratch() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("myxtts-{}-{count}.partial", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::super::{Waveform, decode, resample, wav_bytes};
    use super::*;
    use clap::ValueEnum;

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

    #[test]
    fn chunks_of_any_format_make_the_file_that_the_whole_makes() {
        let dir = tempfile::tempdir().unwrap();
        let samples: Vec<f32> = (0..30_000).map(|i| (i as f32 * 0.03).sin() * 0.5).collect();
        for &format in AudioFormat::value_variants() {
            let path = dir.path().join(format!("a.{}", format.extension()));
            assert_eq!(AudioFormat::of(&path), Some(format));
            let mut writer = AudioFileWriter::create(&path, format, 22_050).unwrap();
            samples.chunks(777).for_each(|some| writer.push(some).unwrap());
            writer.finish().unwrap();
            let bytes = fs::read(&path).unwrap();
            if format == AudioFormat::Raw {
                assert_eq!(bytes, wav_bytes(&samples, 22_050)[44..]);
            } else {
                let back = resample(decode(&path).unwrap(), 22_050).unwrap().samples;
                // At 48 kHz the end may fall between two samples.
                assert!(back.len().abs_diff(samples.len()) <= 1, "{format:?}: {} samples", back.len());
                let most = if matches!(format, AudioFormat::Mp3 | AudioFormat::Opus) { 0.03 } else { 1e-4 };
                let inner = 1_000..29_000;
                let pairs = back[inner.clone()].iter().zip(&samples[inner]);
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < most, "{format:?}: off by {worst}");
            }
            let mut spool = AudioFileWriter::spool(format, 22_050).unwrap();
            spool.push(&samples).unwrap();
            let mut piped = Vec::new();
            spool.copy_to(&mut piped).unwrap();
            assert!(piped == bytes, "{format:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), AudioFormat::value_variants().len());
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = AudioFileWriter::create(&dir.path().join("a.wav"), AudioFormat::Wav, 22_050).unwrap();
        writer.push(&[0.5; 100]).unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
