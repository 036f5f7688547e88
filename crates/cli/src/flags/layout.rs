//! How a corpus is to be read: flags of every command that reads one.

use host::config::{CorpusFormat, Overrides};

#[derive(clap::Args, Debug)]
pub struct Layout {
    /// Layout of the corpus [default: found by looking]
    #[arg(long)]
    format: Option<CorpusFormat>,
    /// Regular expression on the id; its first group is the speaker
    #[arg(long, value_name = "REGEX")]
    speaker_pattern: Option<String>,
}

impl Layout {
    pub fn set(&self, flags: &mut Overrides) {
        flags.set("data.format", self.format).set("data.speaker_pattern", self.speaker_pattern.as_ref());
    }
}
