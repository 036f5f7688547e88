//! Where features are kept.

use host::config::{ByteSize, Overrides};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct CacheFlags {
    /// Where features are kept: a folder, or a bucket such as s3://… [default: myxtts/features in the user's cache
    /// directory]
    #[arg(long, value_name = "DIR|URL", help_heading = "Features")]
    cache_dir: Option<PathBuf>,
    /// Folder of this machine that features of a bucket are fetched into [default: in the user's cache directory]
    #[arg(long, value_name = "DIR", help_heading = "Features")]
    local_cache: Option<PathBuf>,
    /// The most that they take there, such as 200GB; the least recently used go [default: 100GB]
    #[arg(long, value_name = "SIZE", help_heading = "Features")]
    local_cache_size: Option<ByteSize>,
}

impl CacheFlags {
    pub fn set(&self, flags: &mut Overrides) {
        flags
            .set("data.cache_dir", self.cache_dir.as_ref())
            .set("data.local_cache", self.local_cache.as_ref())
            .set("data.local_cache_size", self.local_cache_size);
    }
}
