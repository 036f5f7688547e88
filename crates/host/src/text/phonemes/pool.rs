//! A process for each thread that asks, kept for the next sentence of its language.

use super::super::error::Error;
use super::espeak::{Espeak, version};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Running `espeak-ng` processes, by voice.
#[derive(Debug)]
pub(in crate::text) struct Pool {
    program: String,
    version: OnceLock<Result<String, Error>>,
    idle: Mutex<HashMap<String, Vec<Espeak>>>,
    voices: Mutex<HashMap<String, Result<String, Error>>>,
}

impl Pool {
    pub fn new(program: &str) -> Self {
        let (idle, voices) = Default::default();
        Pool { program: program.into(), version: OnceLock::new(), idle, voices }
    }

    /// Version of the installed program, asked once.
    pub fn version(&self) -> Result<String, Error> {
        self.version.get_or_init(|| version(&self.program)).clone()
    }

    /// The IPA of each part. A process that fails is replaced, once: one may have been ended from outside.
    pub fn read(&self, parts: &[&str], language: &str) -> Result<Vec<String>, Error> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let voice = self.voice(language)?;
        let idle = lock(&self.idle).get_mut(&voice).and_then(Vec::pop);
        if let Some(espeak) = idle
            && let Ok(answers) = self.read_with(espeak, &voice, parts)
        {
            return Ok(answers);
        }
        self.read_with(self.start(&voice, language)?, &voice, parts)
    }

    /// Whether texts of this language can be read.
    pub fn check(&self, language: &str) -> Result<(), Error> {
        self.version().and_then(|_| self.voice(language)).map(|_| ())
    }

    fn read_with(&self, mut espeak: Espeak, voice: &str, parts: &[&str]) -> Result<Vec<String>, Error> {
        let answers = espeak.read(parts)?;
        let mut idle = lock(&self.idle);
        let waiting = idle.entry(voice.to_owned()).or_default();
        // No more than can work at once; the others end here.
        if waiting.len() < crate::machine::cores() {
            waiting.push(espeak);
        }
        Ok(answers)
    }

    fn start(&self, voice: &str, language: &str) -> Result<Espeak, Error> {
        Espeak::start(&self.program, voice)?.ok_or_else(|| Error::NoVoice { language: language.into() })
    }

    /// The voice of a language, found once.
    pub fn voice(&self, language: &str) -> Result<String, Error> {
        if let Some(known) = lock(&self.voices).get(language) {
            return known.clone();
        }
        let found = self.find_voice(language);
        lock(&self.voices).insert(language.to_owned(), found.clone());
        found
    }

    /// The first voice that exists and reads the language's own script.
    fn find_voice(&self, language: &str) -> Result<String, Error> {
        let primary = language.split('-').next().unwrap_or_default();
        let candidates: &[&str] = match language {
            "en" => &["en-us"],
            // 1.51 spells most characters in English with the first, and reads them with the second.
            "zh" => &["cmn", "cmn-latn-pinyin"],
            _ => &[language, primary],
        };
        let mut reason = Error::NoVoice { language: language.into() };
        for voice in candidates {
            let Some(mut espeak) = Espeak::start(&self.program, voice)? else { continue };
            if reads(&mut espeak, primary)? {
                return Ok((*voice).to_owned());
            }
            reason = Error::Unreadable { language: language.into() };
        }
        Err(reason)
    }
}

/// Whether a voice reads the language's own script. Japanese kanji come back as "Chinese letter", said in English: then
/// the phonemes would be those of another text.
fn reads(espeak: &mut Espeak, language: &str) -> Result<bool, Error> {
    let word = match language {
        "zh" => "早上好",
        "ja" => "電車",
        _ => return Ok(true),
    };
    Ok(!espeak.read(&[word])?.iter().any(|answer| answer.contains("(en)")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
