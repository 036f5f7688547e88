//! How `configure` and `fix` search, and what they write.

use std::path::PathBuf;

#[derive(clap::Args)]
pub struct TuneFlags {
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "tuned.yaml")]
    pub output: PathBuf,
    /// Overwrite it
    #[arg(long)]
    pub force: bool,
    /// Seconds for all trials together, about
    #[arg(long, value_name = "S", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Sizes of batches to try
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=40))]
    pub trials: u8,
}
