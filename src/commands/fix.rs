//! `myxtts fix`

use super::bench_setup::BenchSetup;
use super::configure::{self, train_command};
use super::diagnose::examine;
use crate::tools::fix;
use anyhow::Result;
use cli::fix::Args;
use cli::{finish, say};
use host::config::Overrides;
use host::error::hinted;
use host::simulate::Delays;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    configure::check(&args.tune)?;
    let config = args.run.resolve(Overrides::default())?;
    if config.data.dataset_path.is_none() {
        return Err(hinted("no corpus was named", "--train-data DIR, or `dataset_path`"));
    }
    say("1 of 3: diagnosing the run as it is");
    let before = examine(config.clone(), Delays::default(), args.num_steps)?;
    say("2 of 3: trying other settings");
    let stand = BenchSetup::with_config(config, Delays::default())?;
    let tuned = configure::search(&args.tune, &stand, true)?;
    configure::write(&args.tune, &stand, &tuned)?;
    drop(stand);
    say("3 of 3: diagnosing the run with them");
    // Features that the new settings lack are made now: the training is not to wait for them.
    drop(BenchSetup::with_config(tuned.config.clone(), Delays::default())?);
    let after = examine(tuned.config.clone(), Delays::default(), args.num_steps)?;
    finish(&fix::report(&before, &tuned, &after, &train_command(&args.tune.output, args.threads)), args.json)
}
