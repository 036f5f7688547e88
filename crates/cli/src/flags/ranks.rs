//! Flags of commands that several processes run together.

use host::config::Overrides;

#[derive(clap::Args)]
pub struct RankFlags {
    /// Processes that train side by side on this machine [default: one for each GPU of --model-gpu]
    #[arg(long, value_name = "N", help_heading = "Devices")]
    ranks: Option<usize>,
    /// Seconds until a rank that does not answer ends the run
    #[arg(long, value_name = "SECONDS", help_heading = "Devices")]
    rank_timeout: Option<f64>,
}

impl RankFlags {
    pub fn set(&self, flags: &mut Overrides) {
        flags.set("training.ranks", self.ranks).set("training.rank_timeout", self.rank_timeout);
    }
}
