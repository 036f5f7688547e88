//! Trains a voice on a folder of recordings and speaks with it:
//! `cargo run --release --example train_and_speak -- recordings/ "Hello there."`

use myxtts::{Config, Corpus, Voice, train};
use std::ops::ControlFlow;
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(recordings), Some(text)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: train_and_speak RECORDINGS TEXT");
    };
    let config = Config::parse("model: {size: tiny}\ntraining: {steps: 1000}", Path::new("example"))?;
    let corpus = Corpus::open(recordings, config)?;
    println!("{} clips, {:.1} minutes of speech", corpus.clips(), corpus.seconds() / 60.0);

    let outcome = train(&corpus, "voice", |progress| {
        let host_mib = progress.memory.host.unwrap_or(0) >> 20;
        println!(
            "step {} of {}: loss {:.3}, {:.1} ms a step, data ready {:.1} % of the time, {host_mib} MiB of host memory",
            progress.step,
            progress.steps,
            progress.loss,
            progress.step_ms,
            progress.data_readiness * 100.0,
        );
        ControlFlow::Continue(())
    })?;

    let speech = Voice::load(outcome.checkpoint, None)?.speak(&text)?;
    speech.write_wav("spoken.wav")?;
    println!("spoken.wav: {:.1} s", speech.samples.len() as f64 / f64::from(speech.rate_hz));
    Ok(())
}
