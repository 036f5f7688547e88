//! A run that nobody watches: what it says, to stderr and to a file.

use super::{Bench, CONFIG, stderr};
use std::fs;

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn a_run_without_a_terminal_says_how_it_goes() {
    let bench = Bench::with_corpus();
    let args = bench.train("run", &["--steps", "12", "--log-every", "4", "--log-file", "said/run.log"]);
    let output = bench.run(&words(&args));
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("step ") && line.contains(" · ")).collect();
    assert!((2..=4).contains(&lines.len()), "every four steps of those that are timed: {said}");
    for part in ["/12 · epoch ", " · loss ", " ms ±", " · ready ", " audio-s/s · ", " · memory host ", " MiB · ETA "]
    {
        assert!(lines.iter().all(|line| line.contains(part)), "{part}: {said}");
    }
    for part in [
        "features: 16 built in ",
        "step 4: held-out loss ",
        "step 4: saved run/step-00000004",
        "step 12: saved run/step-00000012",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The file has the same and the outcome, each line with its time.
    let log = fs::read_to_string(bench.path("said/run.log")).unwrap();
    let is_timed = |line: &str| line.len() > 21 && line.as_bytes()[10] == b'T' && &line[19..21] == "Z ";
    assert!(log.lines().all(is_timed), "{log}");
    for line in said.lines().filter(|line| !line.is_empty()) {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(log.contains("Z done at step 12"), "{log}");

    // Opened this time; and by time, a short run has its first line and its last.
    let args = bench.train("again", &["--steps", "12", "--log-every", "1h"]);
    let said = stderr(&bench.run(&words(&args)));
    assert!(said.contains("features: 16 opened in "), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains(" · epoch ")).count(), 2, "{said}");
}

#[test]
fn a_ring_that_is_not_waited_for_is_said_to_be_part_empty() {
    let bench = Bench::with_corpus();
    let said = |more: &[&str]| {
        let args =
            bench.train(&format!("run{}", more.len()), &[&["--steps", "1", "--buffer-size", "60"], more].concat());
        stderr(&bench.run(&words(&args)))
    };
    assert!(said(&["--model-start-delay", "0"]).contains(" of 60 batches are ready: model_start_delay is over"));
    assert!(said(&[]).contains("60 of 60 batches are ready: the ring is full"));
}

#[test]
fn limits_say_how_many_clips_they_leave_out_and_which_value_keeps_most() {
    let bench = Bench::with_corpus();
    let args = bench.train("run", &["--steps", "1", "--max-text-length", "20"]);
    let said = stderr(&bench.run(&words(&args)));
    let line = said.lines().find(|line| line.starts_with("note: training: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(" clips left out: ") && line.contains(" above max_text_length 20 ("), "{line}");
    let most: usize = line.split("20 (").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let metadata = fs::read_to_string(bench.path("corpus/metadata.csv")).unwrap();
    let longest = metadata.lines().map(|row| row.split('|').next_back().unwrap().chars().count()).max().unwrap();
    assert!(most > 20 && most <= longest, "{most} of {longest}");
    let args = bench.train("all", &["--steps", "1", "--max-text-length", &longest.to_string()]);
    let said = stderr(&bench.run(&words(&args)));
    assert!(!said.contains("left out"), "the longest text has {longest} characters, whatever its tokens are: {said}");
}

/// What the guides of other trainers tell to paste.
#[test]
fn pasted_settings_work() {
    let bench = Bench::with_corpus();
    let pasted = CONFIG
        .replace("data: {", "data: {enable_parallel_batch: true, enable_map_fusion: true, pipeline_buffer_size: 100, ");
    fs::write(bench.path("config.yaml"), pasted.replace("model: {", "model: {max_text_length: 200, ")).unwrap();
    let args = bench.train("run", &["--steps", "1", "--model-size", "base"]);
    assert!(stderr(&bench.run(&words(&args))).contains("100 of 100 batches are ready"));
    fs::write(bench.path("config.yaml"), "data: {enable_map_fusion: false}").unwrap();
    let said = bench.train_error("other", &[]);
    assert!(said.contains("`enable_map_fusion` cannot be switched off: features are always"), "{said}");
    for command in ["check", "prepare"] {
        bench.ok(&[command, "--train-data", "corpus"]);
    }
}

#[test]
fn tools_without_a_corpus_make_a_small_one() {
    let bench = Bench::new();
    for command in [&["profile"][..], &["diagnose"], &["bench", "pipeline"]] {
        let output = bench.run(&[command, &["--config", "config.yaml", "--num-steps", "10"]].concat());
        let said = stderr(&output);
        assert!(said.contains("note: no corpus was named: ") && said.contains("sample-corpus"), "{said}");
        assert!(!output.stdout.is_empty(), "{said}");
    }
}
