//! Where speech goes.

use anyhow::Result;
use clap::ValueEnum;
use host::audio::{AudioFileWriter, AudioFormat, Encoder};
use host::error::hinted;
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
            let encoder = Encoder::new(format, rate_hz, rate_hz)?;
            let kind = if format == AudioFormat::Raw { ", signed 16-bit little-endian" } else { "" };
            cli::say(format!("{}: mono, {} Hz{kind}", format.extension(), encoder.rate_hz()));
            write(&encoder.start())?;
            return Ok(Sink::Stream(encoder));
        }
        let format = format.map_or_else(|| named(output), Ok)?;
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

/// The format that a file's name asks for; WAV where it asks for none.
fn named(output: &Path) -> Result<AudioFormat> {
    match (AudioFormat::of(output), output.extension()) {
        (Some(format), _) => Ok(format),
        (None, None) => Ok(AudioFormat::Wav),
        (None, Some(_)) => {
            let names: Vec<_> = AudioFormat::value_variants().iter().map(|format| format.extension()).collect();
            let fact = format!("{}: its ending names no format that can be written", output.display());
            Err(hinted(fact, format!("endings are {}; --format says it for any name", names.join(", "))))
        }
    }
}

/// A reader that has seen enough closes the pipe: an error that ends the command quietly.
fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
