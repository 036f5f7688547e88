//! `myxtts completions`: a script for the shell, to standard output.

use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell to write for
    shell: Shell,
}

/// `command`: the whole program, since this module does not know its siblings.
pub fn run(args: Args, command: clap::Command) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(&script(args.shell, command))?;
    Ok(ExitCode::SUCCESS)
}

/// Through memory, for `clap_complete` panics when a pipe closes early.
fn script(shell: Shell, mut command: clap::Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command, ValueEnum};

    #[test]
    fn every_shell_learns_the_subcommands() {
        let train = Command::new("train").arg(Arg::new("batch-size").long("batch-size"));
        let command = Command::new("myxtts").subcommand(train);
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell, command.clone())).unwrap();
            assert!(["myxtts", "train", "batch-size"].iter().all(|word| script.contains(word)), "{shell}: {script}");
        }
    }
}
