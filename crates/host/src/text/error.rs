//! What can go wrong between a text and its ids.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "espeak-ng: not found, and the tokenizer needs it for phonemes\n\
         hint: install it (`apt install espeak-ng`), or train with `data.tokenizer: characters`"
    )]
    Absent,
    #[error(
        "espeak-ng: no voice for the language `{language}`\nhint: `espeak-ng --voices` lists them; or take characters"
    )]
    NoVoice { language: String },
    #[error(
        "espeak-ng: its voice for `{language}` does not read that language's characters, it names them in English\n\
         hint: `data.tokenizer: characters`"
    )]
    Unreadable { language: String },
    #[error("espeak-ng: {0}")]
    Failed(String),
}
