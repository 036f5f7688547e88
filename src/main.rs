//! The installed command. It links no LibTorch, so nothing of this package's library is used here.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
