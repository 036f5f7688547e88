//! Where a training ends that nobody gave a length.

use super::{Bench, newest_state, stderr};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A network that steps in milliseconds; length, rate, warm-up and validations are left to the program.
const PLAIN: &str = "
model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, decoder_heads: 2}
training: {device: cpu}
data: {batch_size: 2, num_workers: 1, val_split: 0.2}
";

/// A corpus of some seconds and a voice to start from: then a run is short by itself.
fn bench(config: &str) -> Bench {
    let bench = Bench::new();
    bench.ok(&["sample-corpus", "corpus", "--clips", "24", "--voice", "formant"]);
    fs::write(bench.path("config.yaml"), PLAIN).unwrap();
    bench.train_ok("first", &["--steps", "1"]);
    fs::write(bench.path("config.yaml"), config).unwrap();
    bench
}

/// What a training says while it runs, and its outcome.
fn train(bench: &Bench, folder: &str, more: &[&str]) -> (String, Value) {
    let args = bench.train(folder, &[&["--json"], more].concat());
    let output = bench.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let said = stderr(&output);
    (said, serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_plain_training_ends_by_itself_and_lengths_that_are_given_rule() {
    let bench = bench(PLAIN);
    let (said, outcome) = train(&bench, "run", &["--init-from", "first"]);
    let plan =
        "steps for 0.6 minutes of one speaker, from another voice's weights; learning rate up to 2e-4, dropout 0.1";
    assert!(said.contains(plan) && said.contains("plan: it ends sooner if") && said.contains("time: "), "{said}");
    let step = outcome["step"].as_u64().unwrap();
    assert!((100..=200).contains(&step) && ["steps", "no-better"].contains(&outcome["ended"].as_str().unwrap()));
    assert_eq!(newest_state(&bench.path("run"))["start"], "weights");

    // What was chosen is in the checkpoint; the same command goes on by the same plan, which is over.
    let config = fs::read_to_string(bench.path("run/best/config.yaml")).unwrap();
    assert!(config.contains("learning_rate: 0.0002") && config.contains("warmup_steps: 8"), "{config}");
    let (_, again) = train(&bench, "run", &["--resume"]);
    assert_eq!(
        (&again["step"], &again["first_loss"], &again["ended"]),
        (&step.into(), &Value::Null, &outcome["ended"])
    );

    let longer = (step + 2).to_string();
    let (said, outcome) = train(&bench, "run", &["--resume", "--steps", &longer]);
    assert_eq!((&outcome["step"], &outcome["ended"]), (&(step + 2).into(), &"steps".into()), "{said}");
    assert!(said.contains(&format!("plan: {longer} steps, as given; ")), "{said}");
    let (_, outcome) = train(&bench, "epochs", &["--epochs", "2"]);
    assert_eq!(outcome["ended"], "epochs");
    assert_eq!(newest_state(&bench.path("epochs"))["position"]["epoch"], 2);
}

/// Weights that hardly move: the first validation is the best one.
#[test]
fn a_training_that_gets_no_better_ends_sooner_and_an_interrupt_does_not_count() {
    let still = PLAIN.replace("device: cpu", "device: cpu, learning_rate: 1e-12, ema_decay: 0");
    let bench = bench(&still);
    let (said, outcome) = train(&bench, "run", &["--init-from", "first"]);
    // Validated every 50 steps; a third of the run is two validations.
    assert_eq!((&outcome["step"], &outcome["ended"]), (&150.into(), &"no-better".into()), "{said}");
    assert_eq!(outcome["best"]["step"], 50);
    assert_eq!(outcome["best"]["compared"], "flow");

    let args = bench.train("stopped", &["--init-from", "first"]);
    let mut run = bench.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !bench.path("stopped/best").exists() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    run.wait().unwrap();
    let state = newest_state(&bench.path("stopped"));
    let step = state["step"].as_u64().unwrap();
    assert_eq!(state["stale_validations"], step / 50 - 1, "{state}");
    let (_, outcome) = train(&bench, "stopped", &["--resume"]);
    assert_eq!(
        (&outcome["step"], &outcome["ended"], &outcome["best"]["step"]),
        (&150.into(), &"no-better".into(), &50.into())
    );
}
