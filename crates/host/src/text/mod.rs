//! Transcripts as numbers: the words a speaker says, then ids of characters or phonemes, with a language tag.

mod detect;
mod error;
mod expand;
mod language;
mod letters;
mod normalize;
mod phonemes;
mod split;
mod tokenizer;

pub use crate::config::TokenizerKind as Kind;
pub use detect::detect;
pub use error::Error;
pub use normalize::{is_ideograph, normalize, uncovered};
pub use split::{End, Piece, Splitter};
pub use tokenizer::Tokenizer;
