//! One clip, decoded and measured.

use crate::audio::{self, Waveform};
use crate::config::Config;
use crate::corpus::UtteranceRef;
use crate::text::{self, Tokenizer};
use std::collections::BTreeSet;
use unicode_normalization::char::is_combining_mark;

/// Level of samples that are cut off, unless there are few of them.
const CLIPPED: f32 = 0.999;
/// Level of silence: 60 dB below full scale, over 10 ms.
const SILENT_RMS: f32 = 0.001;

/// What is kept of a clip once its samples are gone.
pub(super) struct Measure {
    pub rate_hz: u32,
    pub seconds: f64,
    /// Mel frames after trimming, as training counts them.
    pub frames: usize,
    /// Code of the language, as named or as detected.
    pub language: String,
    /// How many tokens the text has, or why there are none.
    pub tokens: Result<usize, String>,
    /// Characters of the text as the corpus has it.
    pub written: usize,
    /// The text, normalised.
    pub text: String,
    /// Digits and signs whose words are not known.
    pub uncovered: Vec<String>,
    /// Characters that have no sound.
    pub unknown: Vec<char>,
    pub clipped_share: f64,
    pub silent_share: f64,
    pub dc_offset: f64,
    /// A hash that is equal for clips with equal samples.
    pub sound: blake3::Hash,
}

impl Measure {
    pub(super) fn of(
        utterance: &UtteranceRef,
        wave: Waveform,
        tokenizer: &Tokenizer,
        config: &Config,
    ) -> Result<Self, String> {
        if wave.samples.is_empty() {
            return Err("no samples".into());
        }
        let (rate_hz, count) = (wave.rate_hz, wave.samples.len() as f64);
        let clipped = wave.samples.iter().filter(|sample| sample.abs() >= CLIPPED).count();
        let (silent_share, sound) = (silent_share(&wave), digest(&wave.samples));
        let sum: f64 = wave.samples.iter().map(|&sample| f64::from(sample)).sum();
        let raw = utterance.language.unwrap_or(&config.data.language);
        let language = tokenizer.language(utterance.text, raw).to_owned();
        let text = text::normalize(utterance.text, &language);
        let tokens = tokenizer.encode_normalized(&text, &language).map(|tokens| tokens.len());
        Ok(Measure {
            rate_hz,
            seconds: count / f64::from(rate_hz),
            frames: frames(wave, config),
            tokens: tokens.map_err(|error| error.to_string()),
            written: utterance.text.chars().count(),
            uncovered: text::uncovered(&text),
            unknown: text.chars().filter(|&letter| !has_sound(letter)).collect::<BTreeSet<_>>().into_iter().collect(),
            text,
            language,
            clipped_share: clipped as f64 / count,
            silent_share,
            dc_offset: sum / count,
            sound,
        })
    }

    /// Characters of the normalised text.
    pub(super) fn characters(&self) -> usize {
        self.text.chars().count()
    }
}

/// Mel frames as training counts them: of the trimmed sound, at the training rate.
fn frames(wave: Waveform, config: &Config) -> usize {
    let rates = f64::from(config.data.sample_rate) / f64::from(wave.rate_hz);
    let heard = if config.data.trim_silence { audio::trim_silence(wave) } else { wave };
    (heard.samples.len() as f64 * rates).round() as usize / config.model.hop_length.max(1) as usize + 1
}

fn digest(samples: &[f32]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for piece in samples.chunks(1 << 14) {
        let bytes: Vec<u8> = piece.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        hasher.update(&bytes);
    }
    hasher.finalize()
}

fn silent_share(wave: &Waveform) -> f64 {
    let window_samples = (wave.rate_hz as usize / 100).max(1);
    let windows = wave.samples.chunks(window_samples);
    let (count, limit) = (windows.len(), SILENT_RMS * SILENT_RMS);
    let silent = windows.filter(|w| w.iter().map(|x| x * x).sum::<f32>() < limit * w.len() as f32).count();
    silent as f64 / count as f64
}

/// Whether a character has a sound: letters and their marks, digits (which have a check of their own), and signs that
/// writers pause at. Pictures, control characters and signs of other trades have no sound in any language, whatever a
/// tokenizer makes of them.
fn has_sound(letter: char) -> bool {
    letter.is_alphanumeric()
        || is_combining_mark(letter)
        || matches!(
            letter,
            ' '..='~' | '¡' | '«' | '·' | '»' | '¿' | 'ʹ'..='ˁ' | '՚'..='՟' | '־' | '׀' | '׃' | '׳' | '״'
            | '،' | '؛' | '؟' | '٪'..='٭' | '۔' | '।' | '॥' | '\u{200c}' | '\u{200d}' | '‐'..='‧' | '‰'..='⁞'
            | '、'..='〟' | '・' | 'ー' | '！'..='･'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_pauses_of_any_script_have_a_sound() {
        for text in [
            "naïve, «ça» — “d’accord”…",
            "می‌خواهم؟ نه؛ بله،",
            "שָׁלוֹם",
            "नमस्ते।",
            "你好，「世界」！",
            "コーヒー・ミルク",
            "¿qué?",
        ] {
            assert_eq!(text.chars().find(|&letter| !has_sound(letter)), None, "{text}");
        }
        for letter in ['☠', '🙂', '\u{fffd}', '\u{1}', '→', '©', '│', '\u{e000}'] {
            assert!(!has_sound(letter), "{letter:?}");
        }
    }
}
