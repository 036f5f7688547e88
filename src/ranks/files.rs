//! A folder of rank 0 for all: on machines that do not share a disk, its files are sent.

use super::Ranks;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

impl Ranks {
    /// Every rank has the folder as rank 0 has it when this returns; `proof` is the file of it that tells two of a name
    /// apart.
    pub fn share_folder(&self, folder: &Path, proof: &str) -> Result<()> {
        let key = format!("proof of {}", folder.file_name().unwrap_or_default().display());
        let mine = fs::read(folder.join(proof)).ok();
        let has = self.of_first(&key, &mine)? == mine;
        self.show("has", &has)?;
        let mut is_sent = false;
        if self.is_first() {
            for rank in 0..self.me.size {
                is_sent |= !self.wait_for::<bool>("has", rank)?;
            }
        }
        if !self.of_first("is sent", &is_sent)? {
            return Ok(());
        }
        let mut names: Vec<String> = Vec::new();
        if self.is_first() {
            let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
            names = entries
                .flatten()
                .filter(|entry| entry.path().is_file())
                .map(|e| e.file_name().display().to_string())
                .collect();
        }
        let arriving = folder.with_extension("arriving");
        for name in self.of_first("files", &names)? {
            let path = folder.join(&name);
            let bytes = match self.is_first() {
                true => fs::read(&path).with_context(|| path.display().to_string())?,
                false => Vec::new(),
            };
            let bytes = self.broadcast_bytes(&bytes)?;
            if !has {
                fs::create_dir_all(&arriving).with_context(|| arriving.display().to_string())?;
                fs::write(arriving.join(&name), bytes).with_context(|| arriving.join(&name).display().to_string())?;
            }
        }
        if !has {
            fs::rename(&arriving, folder).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    }
}
