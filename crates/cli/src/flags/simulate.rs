//! Delays that stand for a slower machine: flags of every command that measures.

use host::simulate::{Delay, Delays};

#[derive(clap::Args)]
pub struct SimulateFlags {
    #[arg(long, value_name = "STAGE=DELAY", help = Delays::help())]
    pub simulate: Vec<Delay>,
}

impl SimulateFlags {
    pub fn delays(&self) -> anyhow::Result<Delays> {
        Delays::of(&self.simulate).map_err(anyhow::Error::msg)
    }
}
