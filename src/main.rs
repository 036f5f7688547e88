use std::process::ExitCode;

fn main() -> ExitCode {
    myxtts::cli::main()
}
