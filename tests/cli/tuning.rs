//! Commands that look at settings and change them: validate, analyze, configure, fix.

use super::{Bench, stderr};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Output and exit code of a command that may find something.
fn report(bench: &Bench, args: &[&str]) -> (String, i32) {
    let output = bench.run(args);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!text.is_empty(), "{args:?}: {}", stderr(&output));
    (text, output.status.code().unwrap())
}

fn json(bench: &Bench, args: &[&str]) -> (Value, i32) {
    let (text, code) = report(bench, &[args, &["--json"]].concat());
    (serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")), code)
}

#[test]
fn validate_lists_all_that_is_wrong_at_once() {
    let bench = Bench::new();
    let text = "data:\n  batchsize: 3\n  num_workers: 0\nmodel: {n_fft: 1000}\ntraining: {device: gpu}\n";
    fs::write(bench.path("bad.yaml"), text).unwrap();
    let (said, code) = report(&bench, &["validate", "--config", "bad.yaml"]);
    assert_eq!(code, 2);
    for part in [
        "bad.yaml:2: unknown key `batchsize`",
        "did you mean `batch_size`?",
        "`num_workers` is 0",
        "`n_fft` is 1000",
        "`device` is the text \"gpu\"",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn validate_knows_the_corpus_the_cache_and_the_devices() {
    let bench = Bench::with_corpus();
    let run = ["validate", "--config", "config.yaml", "--train-data", "corpus"];
    let (before, code) = json(&bench, &run);
    assert_eq!((code, &before["figures"]["speech_seconds_is_estimate"]), (0, &Value::from(true)), "{before}");
    // The cache does not rely on recordings that are seconds old.
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for clip in fs::read_dir(bench.path("corpus/wavs")).unwrap() {
        fs::File::options().append(true).open(clip.unwrap().path()).unwrap().set_modified(an_hour_ago).unwrap();
    }
    bench.ok(&["prepare", "corpus", "--config", "config.yaml"]);
    let (after, _) = json(&bench, &run);
    assert_eq!(after["figures"]["speech_seconds_is_estimate"], Value::from(false));
    assert!(after["figures"]["steps_per_epoch"].as_u64().unwrap() >= 3, "{after}");
    // The guess is made before silence is cut.
    let seconds = |report: &Value| report["figures"]["speech_seconds"].as_f64().unwrap();
    assert!((0.8..1.6).contains(&(seconds(&before) / seconds(&after))), "{} {}", seconds(&before), seconds(&after));

    let (padded, code) = report(&bench, &[&run[..], &["--enable-static-shapes", "--num-workers", "200"]].concat());
    assert_eq!(code, 1, "{padded}");
    assert!(padded.contains("% of the frames are padding (planned") && padded.contains("200 workers on"), "{padded}");
    let (absent, code) =
        report(&bench, &["validate", "--train-data", "nowhere", "--data-gpu", "61", "--model-gpu", "62"]);
    assert_eq!(code, 2);
    assert!(absent.contains("data_gpu asks for GPU 61") && absent.contains("nowhere"), "{absent}");
}

#[test]
fn analyze_names_the_stage_that_was_slowed_down() {
    let bench = Bench::with_corpus();
    let run = ["analyze", "--config", "config.yaml", "--train-data", "corpus", "--seconds", "0.1", "--clips", "8"];
    let (clean, code) = json(&bench, &[&run[..], &["--step-ms", "200"]].concat());
    assert_eq!(code, 0, "{clean:#}");
    assert!(clean["figures"]["whole"]["batches_per_second"].as_f64().unwrap() > 5.0);
    let slowed = |simulate: &str| {
        let (report, code) = json(
            &bench,
            &[&run[..], &["--step-ms", "10", "--prefetch-buffer-size", "2", "--simulate", simulate]].concat(),
        );
        (report["findings"][0]["code"].as_str().unwrap_or("none").to_owned(), code)
    };
    assert_eq!(slowed("features=60ms"), ("slow-features".into(), 2));
    assert_eq!(slowed("load=100ms"), ("slow-load".into(), 2));
}

#[test]
fn configure_writes_what_train_loads_and_overwrites_nothing() {
    let bench = Bench::with_corpus();
    let run = ["configure", "--config", "config.yaml", "--train-data", "corpus", "--seconds", "5", "--trials", "3"];
    let began = Instant::now();
    let (found, code) = json(&bench, &[&run[..], &["-o", "tuned.yaml", "--verify"]].concat());
    // A busy machine may take longer than the bound, which is about the trials alone.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(code <= 1, "{found:#}");
    let figures = &found["figures"];
    assert!(!figures["trials"].as_array().unwrap().is_empty() && figures["after"]["step_ms"].as_f64().unwrap() > 0.0);
    let text = fs::read_to_string(bench.path("tuned.yaml")).unwrap();
    let line = text.lines().find(|line| line.contains("frame_budget:")).unwrap();
    assert!(line.contains("# ") && line.contains("ms a step"), "{text}");
    let again = bench.error(&[&run[..], &["-o", "tuned.yaml"]].concat());
    assert!(again.contains("exists already") && again.contains("--force"), "{again}");
    bench.ok(&["train", "--config", "tuned.yaml", "--steps", "2", "--checkpoint-dir", "run"]);
    let lost = bench.error(&[&run[..], &["-o", "no/such/tuned.yaml"]].concat());
    assert!(lost.contains("no such folder"), "{lost}");
}

#[test]
fn tuned_settings_keep_what_was_given() {
    let bench = Bench::with_corpus();
    let run = ["configure", "--config", "config.yaml", "--train-data", "corpus", "--seconds", "2", "--trials", "1"];
    let given = ["--epochs", "7", "--steps", "9", "--lr", "0.003", "--output", "config.yaml"];
    assert!(bench.error(&[&run[..], &given].concat()).contains("--force"));
    bench.run(&[&run[..], &given, &["--force"]].concat());
    let text = fs::read_to_string(bench.path("config.yaml")).unwrap();
    for line in ["epochs: 7  # as given", "steps: 9  # as given", "learning_rate: 0.003  # as given"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// One Ctrl-C is enough, long before a hundred thousand steps are measured.
#[test]
fn a_measurement_ends_when_asked_to() {
    let bench = Bench::with_corpus();
    let steps = ["profile", "--train-data", "corpus", "--device", "cpu", "--num-steps", "100000", "--picture", "p.svg"];
    let mut child = bench.command(&steps).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.by_ref().map_while(Result::ok).any(|line| line.contains("note: ")), "nothing was said");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("interrupted; nothing was written")), "{rest:?}");
    assert!(!bench.path("p.svg").exists());
}

/// On a GPU: what a tool measures is what the run would be.
#[test]
#[ignore = "needs a GPU"]
fn the_tools_time_the_kernels_that_were_asked_for() {
    let bench = Bench::with_corpus();
    let setup = |more: &[&str]| {
        let run = ["profile", "--train-data", "corpus", "--model-size", "tiny", "--device", "cuda", "--num-steps", "8"];
        let (report, _) = json(&bench, &[&run[..], more].concat());
        (report["figures"]["setup"]["activations"].clone(), report["figures"]["setup"]["graphs"].clone())
    };
    assert_eq!(setup(&[]), ("bf16".into(), true.into()));
    assert_eq!(setup(&["--mixed-precision", "false"]), ("f32".into(), true.into()));
    assert_eq!(setup(&["--optimization-level", "basic"]), ("f32".into(), false.into()));
}

#[test]
fn fix_says_what_was_wrong_and_what_to_type() {
    let bench = Bench::with_corpus();
    let run = ["fix", "--config", "config.yaml", "--train-data", "corpus", "--enable-static-shapes"];
    let (fixed, code) = json(&bench, &[&run[..], &["--seconds", "3", "--trials", "2", "--num-steps", "8"]].concat());
    // What is left decides on the exit code; a busy machine may leave something.
    let grades = fixed["findings"].as_array().unwrap().iter().map(|finding| finding["grade"].as_str().unwrap());
    let worst = grades.map(|grade| if grade == "problem" { 2 } else { 1 }).max().unwrap_or(0);
    assert_eq!(code, worst, "{fixed:#}");
    assert_eq!(fixed["figures"]["command"], "myxtts train --config tuned.yaml");
    let found = fixed["sections"][0]["rows"]["padding-waste"].as_str().unwrap_or_default().to_owned();
    assert!(found.ends_with("(gone)"), "{:#}", fixed["sections"][0]);
    bench.ok(&["validate", "--config", "tuned.yaml"]);
}

/// The allocator really says no, in the middle of a step or of its capture.
#[test]
#[ignore = "needs a GPU"]
fn configure_steps_back_from_a_full_gpu() {
    let bench = Bench::with_corpus();
    let caps = ["--enable-memory-isolation", "--data-gpu-memory", "256", "--model-gpu-memory", "256"];
    let run =
        ["configure", "--train-data", "corpus", "--model-size", "normal", "--batch-size", "16", "--seconds", "60"];
    let (found, code) = json(&bench, &[&run[..], &caps, &["--device", "cuda", "-o", "tuned.yaml"]].concat());
    assert!(code <= 1, "{found:#}");
    assert!(found["figures"]["too_large"][1].as_str().is_some(), "{found:#}");
    bench.ok(&["train", "--config", "tuned.yaml", "--steps", "12", "--checkpoint-dir", "run"]);
}

/// Rows and advice are about what ran: no worker lays batches here, and those that are advised were tried.
#[test]
fn analyze_without_workers_speaks_of_none_and_advises_what_it_tried() {
    let bench = Bench::with_corpus();
    fs::write(bench.path("alone.yaml"), super::CONFIG.replace("num_workers: 2", "use_native_loading: false")).unwrap();
    let run = ["analyze", "--config", "alone.yaml", "--train-data", "corpus", "--seconds", "0.1", "--clips", "8"];
    let slow = ["--step-ms", "1", "--simulate", "load=40ms"];
    let (report, _) = json(&bench, &[&run[..], &slow].concat());
    let figures = &report["figures"];
    assert_eq!(figures["workers"], 0, "{report:#}");
    let tried: Vec<u64> =
        figures["tried"]["workers"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).collect();
    assert!(tried[0] == 1 && tried.is_sorted() && !tried.contains(&0), "counted by the loader itself: {tried:?}");
    let text = report.to_string();
    assert!(text.contains("load, the thread that asks"), "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!(finding["code"], "slow-load", "{report:#}");
    let advice = finding["advice"].as_str().unwrap();
    assert!(advice.contains("`use_native_loading: true` and") || advice.contains("did not help"), "{advice}");
}

/// What is timed is what a training would run.
#[test]
fn profiles_time_the_kernels_that_the_settings_ask_for() {
    let bench = Bench::with_corpus();
    fs::write(
        bench.path("same.yaml"),
        super::CONFIG.replace("device: cpu", "device: cpu, deterministic_kernels: true"),
    )
    .unwrap();
    for (config, deterministic) in [("config.yaml", false), ("same.yaml", true)] {
        let run = ["profile", "--config", config, "--train-data", "corpus", "--num-steps", "8"];
        let (report, _) = json(&bench, &run);
        assert_eq!(report["figures"]["setup"]["deterministic_kernels"], deterministic, "{report:#}");
    }
}
