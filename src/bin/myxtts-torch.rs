//! What `myxtts` becomes for a command that computes with tensors.

use std::process::ExitCode;

fn main() -> ExitCode {
    myxtts::main()
}
