//! The part that turns a recording into a voice: samples to the mel frames that stand in front of what is spoken.

use super::ExportedVoice;
use anyhow::Result;

impl ExportedVoice {
    pub fn reference_graph(&self) -> Result<Vec<u8>> {
        anyhow::bail!("not written yet")
    }
}
