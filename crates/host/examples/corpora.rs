//! Clocks and memory of `make bench-corpora`: a corpus of many rows, opened as `myxtts train` opens it.
//!
//! ```text
//! corpora make DIR ROWS    a manifest of so many rows over a thousand short recordings
//! corpora open DIR         opens it, building what is missing, up to the first batch; prints one JSON object
//! corpora feed FILE N [MS] N batches of the corpus that a config file names, as fast as they are laid: what a bucket gives;
//!                          or one every so many milliseconds, as a training takes them: how many come late
//! ```

use anyhow::{Context, Result, bail};
use myxtts_host::audio;
use myxtts_host::config::{Config, Overrides, TokenizerKind};
use myxtts_host::dataset::{self, KnownTokenizer};
use myxtts_host::loader::{Loader, LoaderOptions, Position};
use myxtts_host::rng::Rng;
use myxtts_host::simulate::Hook;
use serde_json::json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const RECORDINGS: usize = 1000;
const RATE_HZ: u32 = 16_000;
/// A batch that is asked for and comes later than this was not ready.
const LATE: Duration = Duration::from_millis(1);
const WORDS: [&str; 8] = ["the", "old", "fox", "sings", "near", "quiet", "rivers", "tonight"];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", dir, rows] => make(Path::new(dir), rows.parse()?),
        ["open", dir] => open(Path::new(dir)),
        ["feed", config, batches] => feed(Path::new(config), batches.parse()?, Duration::ZERO),
        ["feed", config, batches, step_ms] => {
            feed(Path::new(config), batches.parse()?, Duration::from_secs_f64(step_ms.parse::<f64>()? / 1e3))
        }
        _ => bail!("usage: corpora make DIR ROWS | open DIR | feed FILE N [MS]"),
    }
}

/// Rows share recordings, so that ten million take a gigabyte of manifest and not a terabyte of sound.
fn make(dir: &Path, rows: usize) -> Result<()> {
    let (wavs, mut rng) = (dir.join("wavs"), Rng::new(&[1]));
    fs::create_dir_all(&wavs)?;
    for recording in 0..RECORDINGS.min(rows) {
        let samples = 16_000 + rng.below(48_000);
        let wave: Vec<f32> = (0..samples).map(|at| (at % (40 + recording % 300)) as f32 / 400.0 - 0.2).collect();
        audio::write_wav(&wavs.join(format!("{recording}.wav")), &wave, RATE_HZ)?;
    }
    for (name, rows) in [("first", RECORDINGS.min(rows)), ("all", rows)] {
        let folder = dir.join(name);
        fs::create_dir_all(&folder)?;
        let mut manifest = BufWriter::new(File::create(folder.join("manifest.jsonl"))?);
        for row in 0..rows {
            let text: Vec<&str> = (0..4).map(|place| WORDS[(row >> (3 * place)) % WORDS.len()]).collect();
            let audio = fs::canonicalize(&wavs)?.join(format!("{}.wav", row % RECORDINGS));
            let (text, speaker) = (text.join(" "), row % 997);
            writeln!(
                manifest,
                r#"{{"id":"row{row:08}","audio_filepath":"{}","text":"{text}","speaker":"s{speaker}","language":"en"}}"#,
                audio.display()
            )?;
        }
        manifest.flush()?;
    }
    Ok(())
}

fn open(dir: &Path) -> Result<()> {
    let mut config = Config::default();
    config.data.cache_dir = Some(dir.join("cache"));
    (config.data.sample_rate, config.data.language) = (RATE_HZ, "en".into());
    (config.data.trim_silence, config.data.normalize_audio) = (false, false);
    config.data.tokenizer = TokenizerKind::Characters;
    if !dir.join("cache").exists() {
        // The sound of each recording once; all other rows find it.
        prepare(&config, &dir.join("first"))?;
    }
    let (clock, most_anonymous) = (Instant::now(), MostAnonymous::watch());
    let data = prepare(&config, &dir.join("all"))?;
    let open_s = clock.elapsed().as_secs_f64();
    let most_anonymous = most_anonymous.mib();
    let (opened, rows) = (memory(), data.train.lengths().len());
    let seed = config.training.seed;
    let clock = Instant::now();
    let plan = data.train.plan(&data.budget, seed, 0, 0);
    let plan_s = clock.elapsed().as_secs_f64();
    let planned: usize = plan.iter().map(<[u32]>::len).sum();
    let used: usize = plan.iter().flatten().map(|&clip| data.train.lengths().get(clip as usize).frames).sum();
    let padding = 1.0 - used as f64 / (plan.len() * data.budget.frames) as f64;
    // A run that goes on in the last chunk of a late epoch.
    let from = Position { epoch: 7, chunk: data.train.chunks() - 1, batch: 3, ahead: vec![] };
    let clock = Instant::now();
    let options = LoaderOptions { seed, from, ..Default::default() };
    let loader = Loader::start(data.train.clone(), data.budget, options)?;
    loader.next().context("no batch came")??;
    let resume_s = clock.elapsed().as_secs_f64();
    let most = memory();
    println!(
        "{}",
        json!({
            "rows": rows, "built": data.building.built + data.building.encoded, "open_s": open_s, "chunks": data.train.chunks(),
            "plan_s": plan_s, "planned": planned, "padding": padding, "resume_s": resume_s,
            "open_peak_mib": opened["VmHWM"], "open_anonymous_peak_mib": most_anonymous, "open_anonymous_mib": opened["RssAnon"],
            "peak_mib": most["VmHWM"], "anonymous_mib": most["RssAnon"], "mapped_mib": most["RssFile"],
        })
    );
    Ok(())
}

fn feed(config: &Path, batches: usize, step: Duration) -> Result<()> {
    let config = Config::resolve(Some(config), Overrides::default())?;
    let data = dataset::prepare(&config, KnownTokenizer::Nothing, &|_| (), &AtomicBool::new(false), &Hook::NONE)?;
    let (workers, seed) = (config.data.loader_workers(), config.training.seed);
    let options = LoaderOptions { seed, workers, depth: config.data.prefetch_depth(), ..Default::default() };
    let loader = Loader::start(data.train.clone(), data.budget, options)?;
    let (mut frames, mut waits, clock) = (0, Vec::with_capacity(batches), Instant::now());
    for _ in 0..batches {
        let asked = Instant::now();
        let batch = loader.next().context("no batch came")??;
        waits.push(asked.elapsed());
        frames += batch.frame_spans.iter().map(|span| span.len).sum::<usize>();
        loader.recycle(batch.block);
        thread::sleep(step.saturating_sub(asked.elapsed() - waits[waits.len() - 1]));
    }
    let (seconds, hop, rate_hz) = (clock.elapsed().as_secs_f64(), config.model.hop_length, config.data.sample_rate);
    let audio_seconds = frames as f64 * hop as f64 / f64::from(rate_hz);
    let mib = audio_seconds * f64::from(rate_hz) * 2.0 / f64::from(1 << 20);
    // The first has nothing ahead of it.
    let waits = waits.get(1..).unwrap_or_default();
    let waited: Duration = waits.iter().sum();
    let told = json!({
        "late": waits.iter().filter(|wait| **wait > LATE).count(), "waited": waited.as_secs_f64() / seconds,
        "longest_wait_ms": waits.iter().max().map(|wait| wait.as_secs_f64() * 1e3),
        "batches": batches, "chunks": data.train.chunks(), "workers": workers, "seconds": seconds,
        "audio_seconds_per_second": audio_seconds / seconds, "mib_per_second": mib / seconds,
    });
    println!("{told}");
    Ok(())
}

fn prepare(config: &Config, corpus: &Path) -> Result<dataset::TrainingData> {
    let mut config = config.clone();
    config.data.dataset_path = Some(corpus.to_owned());
    dataset::prepare(&config, KnownTokenizer::Nothing, &|_| (), &AtomicBool::new(false), &Hook::NONE)
}

/// The most memory of this process that no file lies behind, looked at a hundred times a second: what the system cannot
/// take away when another process needs it.
struct MostAnonymous(Arc<AtomicBool>, JoinHandle<f64>);

impl MostAnonymous {
    fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let watched = over.clone();
        let watch = move || {
            let mut most = 0f64;
            while !watched.load(Ordering::Relaxed) {
                most = most.max(memory()["RssAnon"].as_f64().unwrap_or_default());
                thread::sleep(Duration::from_millis(10));
            }
            most
        };
        MostAnonymous(over, thread::spawn(watch))
    }

    fn mib(self) -> f64 {
        self.0.store(true, Ordering::Relaxed);
        self.1.join().expect("a look at a file of /proc")
    }
}

/// What the system says of this process, in MiB.
fn memory() -> serde_json::Value {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1024.0
    };
    json!({ "VmHWM": line("VmHWM:"), "RssAnon": line("RssAnon:"), "RssFile": line("RssFile:") })
}
