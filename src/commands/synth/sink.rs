//! Where speech goes.

use anyhow::Result;
use host::audio::{AudioFileWriter, AudioFormat, Encoder};
use std::io::{self, Write};
use std::path::Path;

pub enum Sink {
    File(AudioFileWriter, String),
    /// Standard output, when it is whole: then its header is right.
    Spool(AudioFileWriter),
    /// Standard output, as it comes.
    Stream(Encoder),
}

impl Sink {
    pub fn open(output: &Path, format: Option<AudioFormat>, stream: bool, rate_hz: u32) -> Result<Self> {
        if stream {
            let format = format.unwrap_or(AudioFormat::Raw);
            cli::say(format!("{}: mono, {rate_hz} Hz, signed 16-bit little-endian", format.extension()));
            let encoder = Encoder::new(format, rate_hz);
            write(&encoder.start())?;
            return Ok(Sink::Stream(encoder));
        }
        let format = format.or(AudioFormat::of(output)).unwrap_or(AudioFormat::Wav);
        Ok(match output.as_os_str() == "-" {
            true => Sink::Spool(AudioFileWriter::spool(format, rate_hz)?),
            false => Sink::File(AudioFileWriter::create(output, format, rate_hz)?, output.display().to_string()),
        })
    }

    pub fn push(&mut self, samples: &[f32]) -> Result<()> {
        match self {
            Sink::File(writer, _) | Sink::Spool(writer) => Ok(writer.push(samples)?),
            Sink::Stream(encoder) => Ok(write(&encoder.push(samples))?),
        }
    }

    pub fn finish(self) -> Result<()> {
        match self {
            Sink::File(writer, _) => Ok(writer.finish()?),
            Sink::Spool(writer) => Ok(writer.copy_to(&mut io::stdout().lock())?),
            Sink::Stream(mut encoder) => Ok(write(&encoder.finish())?),
        }
    }

    /// Its name for people.
    pub fn place(&self) -> String {
        match self {
            Sink::File(_, name) => name.clone(),
            Sink::Spool(_) | Sink::Stream(_) => "-".into(),
        }
    }
}

/// A reader that has seen enough closes the pipe: an error that ends the command quietly.
fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
