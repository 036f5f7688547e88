//! How many threads compute: a flag of every command that computes with tensors.

#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadFlags {
    /// Threads that compute on the CPU [default: the variable OMP_NUM_THREADS, or the cores that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}
