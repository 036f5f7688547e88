//! Reads a corpus in shards to decoded samples, as `myxtts prepare` does before it makes features of them, and says how
//! long it took: for `make bench-corpora`.
//!
//! `shards CORPUS WORKERS`

use anyhow::{Context, Result};
use myxtts_host::audio;
use myxtts_host::corpus::{self, AudioFeed, ReadOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().context("shards CORPUS WORKERS")?;
    let workers: usize = words.next().map_or(Ok(1), |text| text.parse())?;
    let start = Instant::now();
    let corpus = corpus::read(Path::new(&path), &ReadOptions::default())?;
    let listed_s = start.elapsed().as_secs_f64();
    let rows = &corpus.utterances;
    let feed = AudioFeed::new(rows.iter().enumerate().map(|(index, row)| (index, row.audio)));
    let (next, microseconds, bytes) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= rows.len() {
                return Ok(());
            }
            let file =
                feed.take(index).map_err(|unread| anyhow::anyhow!("{}: {}", rows.get(index).audio, unread.reason))?;
            bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
            let (wave, _) = audio::decode_bytes(file, f64::INFINITY)?;
            let seconds = wave.samples.len() as f64 / f64::from(wave.rate_hz);
            microseconds.fetch_add((seconds * 1e6) as u64, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let told = serde_json::json!({
        "clips": rows.len(),
        "audio_seconds": microseconds.into_inner() as f64 / 1e6,
        "bytes": bytes.into_inner(),
        "listed_s": listed_s,
        "seconds": start.elapsed().as_secs_f64(),
    });
    println!("{told}");
    Ok(())
}
