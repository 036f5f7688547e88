//! The tokenizer of a corpus, remembered: fitting reads every text, which takes longer than all else at a warm start
//! (0.2 s for 13,100 texts whose languages are detected).

use super::digest::Hasher;
use super::identity::{PIECE_BYTES, field, language_of};
use super::{kept_dir, remembered};
use crate::config::Config;
use crate::corpus::Utterances;
use crate::text::{self, Tokenizer};

pub(super) const FOLDER: &str = "tokenizers";

/// The tokenizer that `config` asks for, fitted to the whole corpus; and what to tell about it.
pub fn tokenizer(utterances: &Utterances, config: &Config) -> Result<(Tokenizer, String), text::Error> {
    let (language, kind) = (&config.data.language, config.data.tokenizer);
    // Fitted to nothing, it still tells which symbols this machine offers, and the version of what reads texts.
    let bare = Tokenizer::of_corpus(&Utterances::default(), language, kind)?;
    let path = kept_dir(&config.data).join(FOLDER).join(name(utterances, language, &bare.fingerprint()));
    if let Some(known) = config.data.enable_caching.then(|| remembered::read(&path)).flatten() {
        return Ok((known, bare.describe()));
    }
    let fitted = Tokenizer::of_corpus(utterances, language, kind)?;
    let told = fitted.describe();
    // Other symbols than the machine offers were chosen because a voice is missing, and that may change.
    if config.data.enable_caching && told == bare.describe() {
        // Not to be able to remember it costs time and nothing else.
        let _ = remembered::write(&path, &fitted);
    }
    Ok((fitted, told))
}

fn name(utterances: &Utterances, language: &str, fingerprint: &str) -> String {
    let (mut hasher, mut piece) = (Hasher::new(), Vec::with_capacity(2 * PIECE_BYTES));
    [fingerprint, language].iter().for_each(|part| field(&mut piece, part.as_bytes()));
    for utterance in utterances.iter() {
        field(&mut piece, utterance.text.as_bytes());
        field(&mut piece, language_of(&utterance, language).as_bytes());
        if piece.len() > PIECE_BYTES {
            hasher.update(&piece);
            piece.clear();
        }
    }
    format!("{}.json", hasher.update(&piece).finish().hex())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;
    use crate::config::TokenizerKind;
    use std::fs;
    use std::path::PathBuf;

    fn files(dir: &std::path::Path) -> Vec<PathBuf> {
        remembered::files(&dir.join(FOLDER))
    }

    #[test]
    fn what_is_remembered_is_what_was_fitted() {
        let mut case = Case::new(3);
        case.config.data.tokenizer = TokenizerKind::Characters;
        let run = |case: &Case| tokenizer(&case.rows(), &case.config).unwrap();
        let (fitted, told) = run(&case);
        assert_eq!((told.as_str(), files(&kept_dir(&case.config.data)).len()), ("characters", 1));
        assert_eq!(run(&case).0.fingerprint(), fitted.fingerprint());
        case.utterances[1].text = "größer".into();
        assert_ne!(run(&case).0.fingerprint(), fitted.fingerprint());
        assert!(run(&case).0.unknown("größer", "en").is_empty());
    }

    #[test]
    fn a_damaged_memory_is_none() {
        let mut case = Case::new(3);
        case.config.data.tokenizer = TokenizerKind::Characters;
        let run = || tokenizer(&case.rows(), &case.config).unwrap().0.fingerprint();
        let fitted = run();
        let [path] = &files(&kept_dir(&case.config.data))[..] else { panic!("one file") };
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, text.replacen('a', "b", 1)).unwrap();
        assert_eq!(run(), fitted);
    }
}
