//! `myxtts sample-corpus`, spoken by the bundled voice.

use crate::checkpoint::voice::{Prompt, VoiceFile};
use crate::feed::Roles;
use crate::synth::{Precision, Request, Synthesizer};
use anyhow::Result;
use cli::sample_corpus::Args;
use host::audio::Waveform;
use host::bundled;
use host::tools::sample_corpus::Error;
use std::cell::OnceCell;
use std::process::ExitCode;

/// Whose mix speaks: nobody's voice, and the same for everybody.
const MIXED: [&str; 2] = ["anna", "henry"];

pub fn run(args: Args) -> Result<ExitCode> {
    // Opened for the first sentence: where the corpus is there already, nothing speaks.
    let speaker = OnceCell::new();
    let speak = |sentence: &str| {
        let (voice, prompt) = match speaker.get() {
            Some(speaker) => speaker,
            None => {
                let opened = open().map_err(Error::Speaker)?;
                speaker.get_or_init(|| opened)
            }
        };
        let request = Request { text: sentence.to_owned(), prompt: Some(prompt.clone()), ..Request::default() };
        let samples = voice.speak(&request).map_err(Error::Speaker)?.samples;
        Ok(Waveform { samples, rate_hz: voice.rate_hz() })
    };
    cli::sample_corpus::run(args, Some(&speak))
}

fn open() -> Result<(Synthesizer, Prompt)> {
    let bundled = bundled::require()?;
    let voice = Synthesizer::load(&bundled.voice(), Some(&bundled.vocoder()), Roles::named("auto")?, Precision::Light)?;
    let [one, other] = MIXED.map(|name| VoiceFile::read(&bundled.speaker(name)));
    let prompt = voice.prompt(&one?.mixed(&other?, 0.5)?);
    Ok((voice, prompt))
}
