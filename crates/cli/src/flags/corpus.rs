//! Which corpus: for commands that take it by its place as well as by the flag of `train`.

use host::config::Config;
use host::error::hinted;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct CorpusFlags {
    /// Corpus: a folder, a metadata file of one, or shards: a folder of them, a URL, or a pattern such as
    /// 's3://bucket/train-*.tar' [default: `dataset_path` of the config]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The same as DIR
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    train_data: Option<PathBuf>,
}

impl CorpusFlags {
    /// The corpus that was named, here or in the config.
    pub fn path(&self, config: &Config) -> anyhow::Result<PathBuf> {
        let named = self.dir.as_ref().or(self.train_data.as_ref()).or(config.data.dataset_path.as_ref());
        let ways = "name it: DIR, --train-data DIR, or `dataset_path`; `myxtts sample-corpus DIR` makes one to try";
        named.cloned().ok_or_else(|| hinted("no corpus was named", ways))
    }
}
