//! Transcripts as numbers: one spelling for what sounds the same, then a character vocabulary with language tags.

mod normalize;
mod tokenizer;

pub use normalize::normalize;
pub use tokenizer::Tokenizer;
