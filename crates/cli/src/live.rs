//! `myxtts live`

use crate::flags::RecogniserFlags;
use crate::{print_line, progress, say};
use anyhow::Result;
use host::error::hinted;
use host::run_log::find_runs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use web::live::{LiveServer, LiveSettings, RunTable};

/// Show runs in the browser, while they run and later: how they stand, curves, sound, corpus.
#[derive(clap::Args)]
pub struct Args {
    /// Runs, or folders of them
    #[arg(value_name = "DIR", default_value = ".")]
    runs: Vec<PathBuf>,
    /// Address to listen on; beyond this machine a token is asked for
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// 0 picks a free one [default: the first free one from 6007 on]
    #[arg(long)]
    port: Option<u16>,
    /// File with the token that is asked for [default: the variable MYXTTS_TOKEN, or one that is made up and printed]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    recogniser: RecogniserFlags,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(missing) = args.runs.iter().find(|folder| !folder.is_dir()) {
        return Err(hinted(format!("{}: no such folder", missing.display()), "name a run, or a folder of runs"));
    }
    if args.runs.iter().all(|folder| find_runs(folder).is_empty()) {
        say("note: there is no run yet; one is shown as soon as it has logged something");
    }
    let recogniser = args.recogniser.recogniser()?;
    let stop = progress::stop_flag(progress::exit)?;
    let token = web::token::read(args.token_file.as_deref())?;
    let settings = LiveSettings { host: args.host, port: args.port, token, recogniser };
    let server = LiveServer::start(settings, RunTable::below(args.runs), None)?;
    // A program that starts it reads here which port it got.
    print_line(format!("listening on {}", server.url))?;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}
