//! Flags of a training that shows itself in the browser.

use super::RecogniserFlags;
use host::error::hinted;
use std::net::IpAddr;
use std::path::PathBuf;
use web::live::LiveSettings;

#[derive(clap::Args, Debug)]
pub struct LiveFlags {
    /// Show this run in the browser while it trains, at http://127.0.0.1:6007
    #[arg(long, help_heading = "Live view")]
    pub live: bool,
    /// Address to show it at; beyond this machine a token is asked for
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", requires = "live", help_heading = "Live view")]
    pub live_host: IpAddr,
    /// Port to show it at; 0 picks a free one [default: the first free one from 6007 on]
    #[arg(long, value_name = "PORT", requires = "live", help_heading = "Live view")]
    pub live_port: Option<u16>,
    /// Let whoever has the token save, stop, and write notes
    #[arg(long, requires = "live", help_heading = "Live view")]
    pub live_control: bool,
    /// File with that token [default: the variable MYXTTS_TOKEN, or one that is made up and printed]
    #[arg(long, value_name = "FILE", requires = "live", help_heading = "Live view")]
    pub live_token_file: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Live view")]
    pub recogniser: RecogniserFlags,
}

impl LiveFlags {
    /// Where to show the run; nowhere unless it was asked for.
    pub fn settings(&self) -> anyhow::Result<Option<LiveSettings>> {
        let recogniser = self.recogniser.recogniser()?;
        if !self.live {
            let hint =
                "add --live, or `myxtts live DIR --asr-command …` beside the run or later, here or on another machine";
            let fact = "--asr-command listens for the live view, which this run does not show";
            return if recogniser.is_some() { Err(hinted(fact, hint)) } else { Ok(None) };
        }
        let token = web::token::read(self.live_token_file.as_deref())?;
        Ok(Some(LiveSettings { host: self.live_host, port: self.live_port, token, recogniser }))
    }
}
