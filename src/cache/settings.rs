//! What a cached feature depends on, and the key made of it.

use crate::config::Data;
use crate::corpus::Utterance;
use crate::text::Tokenizer;
use blake3::{Hash, Hasher};

/// Raised whenever the same inputs would give other bytes: a new column, a better resampler.
const FORMAT: u32 = 1;

/// Every setting that changes a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub rate_hz: u32,
    pub trim_silence: bool,
    pub normalize: bool,
    /// Language of utterances that name none.
    pub language: String,
    /// The tokenizer's fingerprint.
    pub tokenizer: String,
}

impl Settings {
    pub fn new(data: &Data, tokenizer: &Tokenizer) -> Self {
        Settings {
            rate_hz: data.sample_rate,
            trim_silence: data.trim_silence,
            normalize: data.normalize_audio,
            language: data.language.clone(),
            tokenizer: tokenizer.fingerprint(),
        }
    }

    /// Name of the folder that holds features made with these settings.
    pub(super) fn folder(&self) -> String {
        self.hasher().finalize().to_hex()[..16].to_owned()
    }

    /// Names a clip's features: covers everything that its row is made of.
    pub(super) fn key(&self, utterance: &Utterance, audio: &Hash) -> Hash {
        let mut hasher = self.hasher();
        hasher.update(audio.as_bytes());
        for text in [&utterance.id, &utterance.text, &utterance.speaker, self.language_of(utterance)] {
            field(&mut hasher, text);
        }
        hasher.finalize()
    }

    pub(super) fn language_of<'a>(&'a self, utterance: &'a Utterance) -> &'a String {
        utterance.language.as_ref().unwrap_or(&self.language)
    }

    fn hasher(&self) -> Hasher {
        // Taken apart by name: a new field does not compile until it is hashed.
        let Settings { rate_hz, trim_silence, normalize, language, tokenizer } = self;
        let mut hasher = Hasher::new();
        hasher.update(&FORMAT.to_le_bytes()).update(&rate_hz.to_le_bytes());
        hasher.update(&[u8::from(*trim_silence), u8::from(*normalize)]);
        field(&mut hasher, language);
        field(&mut hasher, tokenizer);
        hasher
    }
}

/// Length first, so that no two lists of fields give the same bytes.
fn field(hasher: &mut Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let (language, tokenizer) = ("en".into(), "t".into());
        Settings { rate_hz: 22050, trim_silence: true, normalize: true, language, tokenizer }
    }

    fn utterance() -> Utterance {
        let (id, text, speaker) = ("a".into(), "hello".into(), "s".into());
        Utterance { id, audio: "a.wav".into(), text, speaker, language: None }
    }

    #[test]
    fn every_input_changes_the_key() {
        let audio = blake3::hash(b"audio");
        let key = |s: &Settings, u: &Utterance| s.key(u, &audio);
        let (s, u) = (settings(), utterance());
        let mut keys = vec![
            key(&s, &u),
            s.key(&u, &blake3::hash(b"other")),
            key(&Settings { rate_hz: 24000, ..s.clone() }, &u),
            key(&Settings { trim_silence: false, ..s.clone() }, &u),
            key(&Settings { normalize: false, ..s.clone() }, &u),
            key(&Settings { tokenizer: "u".into(), ..s.clone() }, &u),
            key(&s, &Utterance { text: "hallo".into(), ..u.clone() }),
            key(&s, &Utterance { speaker: "t".into(), ..u.clone() }),
            key(&s, &Utterance { language: Some("de".into()), ..u.clone() }),
            // Moving a letter over a field's border is another input.
            key(&s, &Utterance { id: "ah".into(), text: "ello".into(), ..u.clone() }),
        ];
        keys.sort_by_key(|key| *key.as_bytes());
        keys.dedup();
        assert_eq!(keys.len(), 10);
        assert_eq!(
            key(&s, &Utterance { audio: "elsewhere.wav".into(), ..u.clone() }),
            key(&s, &u),
            "content, not path"
        );
    }
}
