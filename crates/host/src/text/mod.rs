//! Transcripts as numbers: the words a speaker says, then ids of characters or phonemes, with a language tag.

mod detect;
mod error;
mod expand;
mod language;
mod letters;
mod normalize;
pub mod phoneme_map;
mod phonemes;
mod split;
mod tokenizer;

pub use detect::detect;
pub use error::Error;
pub(crate) use normalize::uncovered;
pub use normalize::{is_ideograph, normalize};
pub use split::{End, Piece, Splitter};
pub use tokenizer::Tokenizer;
