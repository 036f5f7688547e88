//! `myxtts fix`

use super::bench_setup::BenchSetup;
use super::configure::{self, train_command};
use super::diagnose::examine;
use crate::tools::fix;
use anyhow::Result;
use cli::fix::Args;
use cli::{finish, say};
use host::config::Overrides;
use host::simulate::Delays;
use std::process::ExitCode;

pub fn run(args: &Args) -> Result<ExitCode> {
    configure::check(&args.tune)?;
    let config = args.run.resolve(Overrides::default())?;
    let named = config.data.dataset_path.is_some();
    say("1 of 3: diagnosing the run as it is");
    let before = examine(config.clone(), Delays::default(), args.num_steps)?;
    say("2 of 3: trying other settings");
    let stand = BenchSetup::with_config(config, Delays::default())?;
    let tuned = configure::search(&args.tune, &stand, true)?;
    configure::write(&args.tune, &stand, &tuned, named)?;
    drop(stand);
    say("3 of 3: diagnosing the run with them");
    // Features that the new settings lack are made now: the training is not to wait for them.
    drop(BenchSetup::with_config(tuned.config.clone(), Delays::default())?);
    let after = examine(tuned.config.clone(), Delays::default(), args.num_steps)?;
    let next = train_command(&args.tune.output, named, args.threads);
    finish(&fix::report(&before, &tuned, &after, &next), args.json)
}
