//! Flags of a program that listens.

use anyhow::Result;
use host::recogniser::{PATIENCE, Recogniser};
use std::time::Duration;

#[derive(clap::Args, Debug)]
pub struct RecogniserFlags {
    /// Recogniser: a program that is run for each file, `prog {wav}`, and prints what it hears; or, without `{wav}`, once,
    /// with a path a line on standard input, and prints lines `path|text`
    #[arg(long, value_name = "COMMAND")]
    pub asr_command: Option<String>,
    /// Seconds that it may take for a file before it is ended
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE.as_secs(), requires = "asr_command")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    asr_timeout: u64,
}

impl RecogniserFlags {
    pub fn recogniser(&self) -> Result<Option<Recogniser>> {
        let recogniser = self.asr_command.as_deref().map(Recogniser::new).transpose()?;
        Ok(recogniser.map(|recogniser| recogniser.with_patience(Duration::from_secs(self.asr_timeout))))
    }
}
