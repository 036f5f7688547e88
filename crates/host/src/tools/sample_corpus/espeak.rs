//! The espeak-ng voice: one process a sentence, about 10 ms each.

use super::Error;
use crate::audio::Waveform;
use std::process::{Command, Stdio};

/// Arguments of the voice, a little slower than its default: tiny models learn clear speech sooner.
const VOICE: [&str; 8] = ["--stdout", "-v", "en-us", "-s", "140", "-p", "50", "-z"];
const HEADER_BYTES: usize = 44;

/// Whether espeak-ng is installed.
pub fn check() -> Result<(), Error> {
    run(&["--version"]).map(|_| ())
}

pub fn speak(sentence: &str) -> Result<Waveform, Error> {
    parse(&run(&[&VOICE[..], &["--", sentence]].concat())?)
}

fn run(args: &[&str]) -> Result<Vec<u8>, Error> {
    let output = Command::new("espeak-ng").args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::espeak(error.to_string()))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(Error::espeak(format!("{}: {}", output.status, complaint.trim())));
    }
    Ok(output.stdout)
}

/// The sound of espeak-ng's answer: 16-bit mono after a plain header, whose lengths mean nothing: it was written before
/// the speech.
fn parse(wav: &[u8]) -> Result<Waveform, Error> {
    let Some((header, data)) = wav.split_at_checked(HEADER_BYTES).filter(|(header, _)| header.starts_with(b"RIFF"))
    else {
        return Err(Error::espeak(format!("gave no sound, but {} bytes", wav.len())));
    };
    let rate_hz = u32::from_le_bytes([header[24], header[25], header[26], header[27]]);
    let sample = |pair: &[u8]| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0;
    Ok(Waveform { samples: data.chunks_exact(2).map(sample).collect(), rate_hz })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::wav_bytes;

    #[test]
    fn lengths_in_the_header_are_not_believed() {
        let mut wav = wav_bytes(&[0.0, 0.5], 22_050);
        wav[40..44].copy_from_slice(&0x7fff_f000u32.to_le_bytes());
        let wave = parse(&wav).unwrap();
        assert!(wave.samples.len() == 2 && wave.rate_hz == 22_050 && (wave.samples[1] - 0.5).abs() < 1e-4);
        assert!(parse(b"RIFF").is_err() && parse(&[0; 60]).is_err());
    }
}
