//! Hashes that name things by what they are made of: a corpus, and a text as tokens.

use super::digest::{Digest, Hasher};
use super::table::{self, TableKind};
use crate::corpus::{AudioSource, UtteranceRef};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Short pieces hash at a fraction of the speed of long ones, so they are gathered.
pub(super) const PIECE_BYTES: usize = 1 << 16;

/// A hash of utterances and tokenizer, in hexadecimal, and whether they are a corpus or a part of one.
pub(super) struct Identity(String, TableKind);

impl Identity {
    /// `language` is that of utterances that name none; `base` is what relative paths start from.
    pub(super) fn of<'a>(
        utterances: impl Iterator<Item = UtteranceRef<'a>>,
        language: &str,
        fingerprint: &str,
        base: &Path,
    ) -> Self {
        let (mut hasher, mut piece) = (Hasher::new(), Vec::with_capacity(2 * PIECE_BYTES));
        field(&mut piece, fingerprint.as_bytes());
        for utterance in utterances {
            source_field(&mut piece, base, &utterance.audio);
            for text in [utterance.id, utterance.text, utterance.speaker] {
                field(&mut piece, text.as_bytes());
            }
            field(&mut piece, language_of(&utterance, language).as_bytes());
            if piece.len() > PIECE_BYTES {
                hasher.update(&piece);
                piece.clear();
            }
        }
        Identity(hasher.update(&piece).finish().hex(), TableKind::Corpus)
    }

    /// One that is known by its hash.
    pub(super) fn known(hex: &str) -> Self {
        Identity(hex.to_owned(), TableKind::Corpus)
    }

    /// The same utterances as a part of a corpus.
    pub(super) fn of_part(self) -> Self {
        Identity(self.0, TableKind::Part)
    }

    pub(super) fn hex(&self) -> &str {
        &self.0
    }

    pub(super) fn is_claimed_by(&self, path: &Path) -> bool {
        table::claimed(path).is_some_and(|(kind, identity, _)| (kind, identity) == (self.1, &*self.0))
    }

    pub(super) fn file_name(&self, digest: Digest) -> String {
        format!("{}{}-{}.arrow", self.1.prefix(), self.0, digest.hex())
    }
}

pub(super) fn language_of<'a>(utterance: &UtteranceRef<'a>, default: &'a str) -> &'a str {
    utterance.language.unwrap_or(default)
}

/// Names the tokens of a text.
pub(super) fn text_key(fingerprint: &str, text: &str, language: &str) -> Digest {
    let mut piece = Vec::with_capacity(256);
    [fingerprint, text, language].iter().for_each(|part| field(&mut piece, part.as_bytes()));
    Digest::of(&piece)
}

/// The absolute path, without allocating one: where the program was started makes no difference. Of a part of a shard,
/// which version of the shard, and where in it.
fn source_field(piece: &mut Vec<u8>, base: &Path, source: &AudioSource) {
    let path = match source {
        AudioSource::File(path) => path,
        AudioSource::Member(member) => {
            field(piece, &member.shard_version());
            return piece.extend(member.at().to_le_bytes());
        }
    };
    let start: [&[u8]; 2] = if path.is_relative() { [base.as_os_str().as_bytes(), b"/"] } else { [b"", b""] };
    let parts = [start[0], start[1], path.as_os_str().as_bytes()];
    piece.extend((parts.iter().map(|part| part.len()).sum::<usize>() as u64).to_le_bytes());
    parts.iter().for_each(|part| piece.extend(*part));
}

/// Length first, so that no two lists of fields give the same bytes.
pub(super) fn field(piece: &mut Vec<u8>, bytes: &[u8]) {
    piece.extend((bytes.len() as u64).to_le_bytes());
    piece.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Utterance;

    fn utterance() -> Utterance {
        let (id, text, speaker) = ("a".into(), "hello".into(), "s".into());
        Utterance { id, audio: "wavs/a.wav".into(), text, speaker, language: None }
    }

    #[test]
    fn every_input_changes_the_identity() {
        let of = |u: Utterance, language, fingerprint, base: &str| {
            Identity::of([u.borrowed()].into_iter(), language, fingerprint, Path::new(base)).0
        };
        let u = utterance();
        let mut all = vec![
            of(u.clone(), "en", "t", "/corpus"),
            of(u.clone(), "de", "t", "/corpus"),
            of(u.clone(), "en", "u", "/corpus"),
            of(u.clone(), "en", "t", "/elsewhere"),
            of(Utterance { text: "hallo".into(), ..u.clone() }, "en", "t", "/corpus"),
            of(Utterance { speaker: "t".into(), ..u.clone() }, "en", "t", "/corpus"),
            of(Utterance { audio: "wavs/b.wav".into(), ..u.clone() }, "en", "t", "/corpus"),
            // Moving a letter over a field's border is another input.
            of(Utterance { id: "ah".into(), text: "ello".into(), ..u.clone() }, "en", "t", "/corpus"),
        ];
        let first = all[0].clone();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8);
        assert_eq!(of(Utterance { language: Some("en".into()), ..u.clone() }, "de", "t", "/corpus"), first);
        let absolute = Utterance { audio: "/corpus/wavs/a.wav".into(), ..u };
        assert_eq!(of(absolute, "en", "t", "/started/elsewhere"), first);
    }
}
