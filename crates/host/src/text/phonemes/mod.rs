//! Texts as IPA phonemes, read by `espeak-ng`. The vocabulary is fixed, so ids do not depend on the corpus.

mod espeak;
mod pool;

pub(super) use pool::Pool;

use super::error::Error;
use std::sync::LazyLock;

/// One pool for the whole program: its processes serve every tokenizer.
pub(super) static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new("espeak-ng"));

/// The symbols, a superset of what the voices of our languages were seen to write (1.51): Latin letters, the whole IPA
/// block, the marks for stress, length, tone and articulation. New symbols go to the end, for ids are positions.
const IPA: &str = " abcdefghijklmnopqrstuvwxyz\
    ɐɑɒɓɔɕɖɗɘəɚɛɜɝɞɟɠɡɢɣɤɥɦɧɨɩɪɫɬɭɮɯɰɱɲɳɴɵɶɷɸɹɺɻɼɽɾɿʀʁʂʃʄʅʆʇʈʉʊʋʌʍʎʏʐʑʒʓʔʕʖʗʘʙʚʛʜʝʞʟʠʡʢʣʤʥʦʧʨʩʪʫʬʭʮʯ\
    æçðøħŋœβθχäëïöüãõẽĩũᵻᵝᵊⁿʰʲʷˠˤˡˈˌːˑ0123456789.?\"^'*\
    \u{303}\u{306}\u{308}\u{30a}\u{30b}\u{30c}\u{311}\u{318}\u{319}\u{31a}\u{31c}\u{31d}\u{31e}\u{31f}\u{320}\u{324}\
    \u{325}\u{329}\u{32a}\u{32c}\u{32f}\u{330}\u{334}\u{339}\u{33a}\u{33b}\u{33d}\u{35c}\u{361}";

/// Marks that are kept from the text, so that pauses are learned. Ids of their own: some voices use a dot inside
/// phonemes.
const PUNCTUATION: &str = "!\"(),-.:;?";
/// Those of them that are there when `espeak-ng` reads a whole text.
const ENDS_CLAUSE: &str = "!,.:;?";

/// Number of symbols and punctuation marks.
pub(super) static COUNT: LazyLock<usize> = LazyLock::new(|| IPA.chars().count() + PUNCTUATION.chars().count());

/// Marks of punctuation that end a clause, then phonemes, with their positions in the vocabulary.
pub(super) fn spoken_symbols() -> impl Iterator<Item = (char, usize)> {
    let first = IPA.chars().count();
    let marks = PUNCTUATION.chars().zip(first..).filter(|(mark, _)| ENDS_CLAUSE.contains(*mark));
    marks.chain(IPA.chars().zip(0..))
}

/// Symbols and punctuation marks, by their positions in the vocabulary.
pub(super) fn symbols() -> impl Iterator<Item = char> {
    IPA.chars().chain(PUNCTUATION.chars())
}

/// Positions of the space and of punctuation in the vocabulary.
pub(super) fn breaks() -> impl Iterator<Item = usize> {
    position(' ').into_iter().chain(IPA.chars().count()..*COUNT)
}

/// Positions in the vocabulary of a normalised text's phonemes; none for a symbol that is not in it.
pub(super) fn read(text: &str, language: &str, pool: &Pool) -> Result<Vec<Option<usize>>, Error> {
    let parts = parts(text);
    let spoken: Vec<&str> = parts.iter().filter_map(|part| part.spoken()).collect();
    let mut answers = pool.read(&spoken, language)?.into_iter();
    let mut positions = Vec::with_capacity(text.len() * 2);
    for part in parts {
        match part {
            Part::Spoken(_) => {
                // Words behind punctuation are apart from it, as in the text.
                if !positions.is_empty() {
                    positions.push(position(' '));
                }
                positions.extend(plain(&answers.next().unwrap_or_default()).map(position));
            }
            Part::Mark(mark) => positions.push(Some(IPA.chars().count() + mark)),
        }
    }
    Ok(positions)
}

enum Part<'a> {
    Spoken(&'a str),
    /// A position in `PUNCTUATION`.
    Mark(usize),
}

impl<'a> Part<'a> {
    fn spoken(&self) -> Option<&'a str> {
        match self {
            Part::Spoken(words) => Some(words),
            Part::Mark(_) => None,
        }
    }
}

/// Words between punctuation: `espeak-ng` ends a clause at it, and answers a line for every clause.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map(|(_, next)| *next);
        let hyphen =
            letter == '-' && text[start..at].ends_with(char::is_alphabetic) && next.is_some_and(char::is_alphabetic);
        if hyphen || within(letter) {
            continue;
        }
        push_words(&mut parts, &text[start..at]);
        parts.extend(PUNCTUATION.chars().position(|known| known == western(letter)).map(Part::Mark));
        start = at + letter.len_utf8();
    }
    push_words(&mut parts, &text[start..]);
    parts
}

fn push_words<'a>(parts: &mut Vec<Part<'a>>, words: &'a str) {
    if words.contains(char::is_alphanumeric) {
        parts.push(Part::Spoken(words.trim()));
    }
}

/// Whether a letter is part of words: letters, digits and the marks on them, and what stands between them.
fn within(letter: char) -> bool {
    letter.is_alphanumeric()
        || matches!(letter, ' ' | '\'' | '\u{200c}' | '\u{200d}')
        || unicode_normalization::char::is_combining_mark(letter)
}

fn western(mark: char) -> char {
    match mark {
        '،' | '、' => ',',
        '؛' => ';',
        '؟' => '?',
        '。' => '.',
        '¡' => '!',
        '¿' => '?',
        other => other,
    }
}

fn position(symbol: char) -> Option<usize> {
    IPA.chars().position(|known| known == symbol)
}

/// An answer without the notes `(en)` and `(de)` around words read by another voice, and the hyphens of liaison.
fn plain(answer: &str) -> impl Iterator<Item = char> {
    let mut noted = false;
    let kept = move |letter: &char| match letter {
        '(' => {
            noted = true;
            false
        }
        ')' => {
            noted = false;
            false
        }
        '-' | '_' | '\u{200d}' => false,
        _ => !noted,
    };
    answer.trim().chars().filter(kept).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests;
