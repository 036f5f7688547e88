//! The real binary, from corpus to speech, and what it says to bad input.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

mod bundled;
mod corpora;
mod export;
mod flags;
mod length;
mod programs;
mod ranks;
mod runs;
mod tuning;

/// A network that trains in seconds. A constant learning rate, so that a run's length changes nothing in its middle.
const CONFIG: &str = "
model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, decoder_heads: 2}
training: {device: cpu, steps: 8, schedule: constant, warmup_steps: 2, learning_rate: 2e-3, log_step: 2, val_step: 4, save_step: 4}
data: {batch_size: 4, num_workers: 2, val_split: 0.1}
";

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        fs::write(bench.path("config.yaml"), CONFIG).unwrap();
        bench
    }

    /// With a corpus of 16 clips.
    fn with_corpus() -> Self {
        let bench = Bench::new();
        bench.ok(&["sample-corpus", "corpus", "--clips", "16", "--voice", "formant"]);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
        command.args(args).current_dir(self.dir.path()).env("XDG_CACHE_HOME", self.path("cache"));
        // Tests run side by side: one thread for each.
        command.env("OMP_NUM_THREADS", "1");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The message of a command that must fail with exit code 2, and not by a panic.
    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains("error: ") && !text.contains("panicked"), "{args:?}: {text}");
        text
    }

    fn train(&self, checkpoints: &str, more: &[&str]) -> Vec<String> {
        let fixed = ["train", "--config", "config.yaml", "--train-data", "corpus", "--checkpoint-dir", checkpoints];
        fixed.iter().chain(more).map(ToString::to_string).collect()
    }

    fn train_ok(&self, checkpoints: &str, more: &[&str]) -> String {
        let args = self.train(checkpoints, more);
        self.ok(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn train_error(&self, checkpoints: &str, more: &[&str]) -> String {
        let args = self.train(checkpoints, more);
        self.error(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn weights(&self, checkpoint: &str) -> Vec<u8> {
        fs::read(self.path(checkpoint).join("model.safetensors")).unwrap()
    }

    fn metrics(&self, checkpoints: &str) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path(checkpoints).join("logs/metrics.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_corpus_becomes_a_voice_that_speaks() {
    let bench = Bench::with_corpus();
    assert!(bench.ok(&["check", "corpus"]).contains("16 readable of 16"));
    assert!(bench.ok(&["prepare", "corpus"]).contains("16 built"));
    bench.train_ok("run", &["--steps", "24"]);

    let metrics = bench.metrics("run");
    let losses: Vec<f64> = metrics.iter().filter_map(|line| line["loss"].as_f64()).collect();
    assert!(losses.last().unwrap() < &(0.8 * losses[0]), "the loss does not fall: {losses:?}");
    assert!(metrics.iter().any(|line| line["validation/loss"].is_f64()));
    assert!(files(&bench.path("run/logs")).iter().any(|name| name.contains("tfevents")));

    bench.ok(&["synth", "--checkpoint", "run", "--text", "The old fox.", "-o", "a.wav"]);
    let wav = fs::read(bench.path("a.wav")).unwrap();
    let data_bytes = u32::from_le_bytes(wav[40..44].try_into().unwrap()) as usize;
    assert_eq!((&wav[..4], &wav[8..12], wav.len()), (&b"RIFF"[..], &b"WAVE"[..], data_bytes + 44));
    assert!(data_bytes > 2 * 22_050 / 10, "shorter than a tenth of a second");
    assert!(wav[44..].iter().any(|&byte| byte != 0), "silence");
}

#[test]
fn a_resumed_run_equals_one_that_was_never_stopped() {
    let bench = Bench::with_corpus();
    bench.train_ok("straight", &["--steps", "8"]);
    bench.train_ok("halves", &["--steps", "5"]);
    bench.train_ok("halves", &["--steps", "8", "--resume", "--num-workers", "3"]);
    assert!(bench.weights("straight/step-00000008") == bench.weights("halves/step-00000008"));
    let position = |run: &str| newest_state(&bench.path(run))["position"].clone();
    assert_eq!(position("straight"), position("halves"));
}

#[test]
fn buffers_and_loading_change_nothing_but_speed() {
    let bench = Bench::with_corpus();
    bench.train_ok("default", &[]);
    let wanted = bench.weights("default/step-00000008");
    bench.train_ok("small", &["--buffer-size", "1", "--prefetch-buffer-size", "1", "--num-workers", "1"]);
    assert!(bench.weights("small/step-00000008") == wanted);
    let inline = CONFIG.replace("data: {", "data: {use_native_loading: false, prefetch_to_gpu: false, ");
    fs::write(bench.path("config.yaml"), inline).unwrap();
    bench.train_ok("inline", &[]);
    assert!(bench.weights("inline/step-00000008") == wanted);
}

#[test]
fn padded_batches_and_accumulation_train_too() {
    let bench = Bench::with_corpus();
    bench.train_ok("padded", &["--enable-static-shapes", "--max-mel-frames", "400", "--max-text-length", "80"]);
    bench.train_ok("accumulated", &["--grad-accum", "2", "--batch-size", "2"]);
    for run in ["padded", "accumulated"] {
        let losses: Vec<f64> = bench.metrics(run).iter().filter_map(|line| line["loss"].as_f64()).collect();
        assert!(losses.last().unwrap() < &losses[0], "{run}: {losses:?}");
    }
}

#[test]
fn ctrl_c_saves_and_the_run_goes_on_later() {
    let bench = Bench::with_corpus();
    let args = bench.train("run", &["--steps", "100000"]);
    let mut child = bench
        .command(&args.iter().map(String::as_str).collect::<Vec<_>>())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !bench.path("run/step-00000004").exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "no checkpoint after two minutes");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let left = files(&bench.path("run"));
    assert!(!left.iter().any(|name| name.starts_with(".step")), "half-written files stay: {left:?}");
    let state = newest_state(&bench.path("run"));
    let step = state["step"].as_u64().unwrap();
    assert!(step >= 4, "stopped at step {step}");
    bench.train_ok("run", &["--resume", "--steps", &(step + 2).to_string()]);
}

fn newest_state(run: &Path) -> serde_json::Value {
    let newest = files(run).into_iter().filter(|name| name.starts_with("step-")).max().unwrap();
    serde_json::from_str(&fs::read_to_string(run.join(newest).join("state.json")).unwrap()).unwrap()
}

#[test]
fn a_folder_with_a_run_is_never_overwritten_without_a_word() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "4"]);
    let before = bench.weights("run/step-00000004");
    assert!(bench.train_error("run", &[]).contains("--resume"));
    bench.train_ok("run", &["--reset-training", "--steps", "4", "--seed", "5"]);
    assert!(bench.weights("run/earlier-1/step-00000004") == before);
    assert!(bench.weights("run/step-00000004") != before);
    fs::write(bench.path("config.yaml"), CONFIG.replace("text_layers: 1", "text_layers: 2")).unwrap();
    assert!(bench.train_error("run", &["--resume"]).contains("other model settings"));
}

#[test]
fn epochs_end_with_a_checkpoint() {
    let bench = Bench::with_corpus();
    let config = CONFIG.replace("steps: 8", "epochs: 3").replace("save_step: 4", "save_step: 1000");
    fs::write(bench.path("config.yaml"), config).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(&bench.train_ok("run", &["--json"])).unwrap();
    let state = newest_state(&bench.path("run"));
    assert_eq!((&state["step"], &state["position"]["epoch"]), (&outcome["step"], &3.into()));
    assert!(bench.train_ok("run", &["--resume"]).contains("already at step"));
}

#[test]
fn two_trainings_do_not_share_a_folder() {
    let bench = Bench::with_corpus();
    let args = bench.train("run", &["--steps", "100000"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut first = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !bench.path("run/logs").exists() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = bench.train_error("run", &["--reset-training"]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.contains("another training is writing here"), "{second}");
}

#[test]
fn bad_corpora_are_named_with_path_and_next_step() {
    let bench = Bench::new();
    let train = |data: &str| bench.error(&["train", "--config", "config.yaml", "--train-data", data]);
    let text = train("nowhere");
    assert!(text.contains("nowhere") && text.contains("hint: "), "{text}");
    fs::create_dir_all(bench.path("empty/wavs")).unwrap();
    assert!(train("empty").contains("metadata.csv"));
    fs::write(bench.path("empty/metadata.csv"), "").unwrap();
    assert!(train("empty").contains("metadata.csv"));
    fs::write(bench.path("empty/metadata.csv"), "a|Text of a clip that is not there\n").unwrap();
    assert!(train("empty").contains("metadata.csv"));
}

#[test]
fn bad_rows_and_clips_are_reported_and_left_out() {
    let bench = Bench::with_corpus();
    let metadata = bench.path("corpus/metadata.csv");
    let rows = fs::read_to_string(&metadata).unwrap();
    fs::write(&metadata, format!("{rows}no-text\nmissing|A clip that is not there\n")).unwrap();
    let first = rows.lines().next().unwrap().split('|').next().unwrap();
    let wav = bench.path(&format!("corpus/wavs/{first}.wav"));
    let bytes = fs::read(&wav).unwrap();
    fs::write(&wav, &bytes[..bytes.len() / 2]).unwrap();

    let check = bench.run(&["check", "corpus"]);
    assert_eq!(check.status.code(), Some(1));
    let report = String::from_utf8_lossy(&check.stdout);
    for wanted in ["metadata.csv:17", "metadata.csv:18", first] {
        assert!(report.contains(wanted), "{wanted} is not in:\n{report}");
    }
    let args = bench.train("run", &["--steps", "2"]);
    let output = bench.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1), "done, with findings");
    assert!(stderr(&output).contains(&format!("{first}.wav")), "{}", stderr(&output));
}

#[test]
fn an_unwritable_checkpoint_folder_is_found_before_training() {
    let bench = Bench::with_corpus();
    fs::write(bench.path("file"), "in the way").unwrap();
    let text = bench.train_error("file/run", &[]);
    assert!(text.contains("file/run") && text.contains("--checkpoint-dir"), "{text}");
}

#[test]
fn a_full_disk_leaves_the_earlier_checkpoint_whole() {
    let bench = Bench::with_corpus();
    let small = bench.path("small");
    fs::create_dir(&small).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4000k", "tmpfs"]).arg(&small).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        return host::skipped("a small file system cannot be mounted here");
    }
    let run = std::panic::catch_unwind(|| {
        bench.train_ok("small/run", &["--steps", "4"]);
        let before = bench.weights("small/run/step-00000004");
        fs::write(small.join("filler"), vec![0u8; 4 << 20]).unwrap_err();
        // Room for logs, not for another checkpoint.
        let filler = fs::OpenOptions::new().write(true).open(small.join("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len() - (128 << 10)).unwrap();
        let text = bench.train_error("small/run", &["--resume", "--steps", "8"]);
        assert!(text.contains("step-00000008") && text.contains("No space left"), "{text}");
        assert!(bench.weights("small/run/step-00000004") == before);
        assert_eq!(files(&small.join("run")).iter().filter(|name| name.starts_with(".step")).count(), 0);
        fs::remove_file(small.join("filler")).unwrap();
    });
    assert!(Command::new("umount").arg(&small).status().unwrap().success());
    run.unwrap();
}

#[test]
fn settings_that_cannot_be_are_refused_with_place_and_range() {
    let bench = Bench::new();
    fs::write(bench.path("bad.yaml"), "data:\n  batchsize: 4\n").unwrap();
    let text = bench.error(&["config", "--config", "bad.yaml"]);
    assert!(text.contains("bad.yaml:2") && text.contains("batch_size"), "{text}");
    let text = bench.error(&["train", "--batch-size", "0", "--train-data", "x"]);
    assert!(text.contains("--batch-size"), "{text}");
    if bench.ok(&["devices", "--json"]).contains("\"gpus\": []") {
        let text = bench.error(&["train", "--train-data", "x", "--device", "cuda"]);
        assert!(text.contains("GPU 0"), "{text}");
    }
}

#[test]
fn damaged_checkpoints_are_named() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "4"]);
    let speak = ["synth", "--checkpoint", "run", "--text", "hello"];
    // The averaged weights are those that speak; without them, the trained ones do.
    for file in ["model.ema.safetensors", "model.safetensors"] {
        let weights = bench.path("run/step-00000004").join(file);
        let bytes = fs::read(&weights).unwrap();
        fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
        assert!(bench.error(&speak).contains(file));
        fs::remove_file(&weights).unwrap();
    }
    fs::write(bench.path("run/step-00000004/state.json"), "{").unwrap();
    assert!(bench.error(&speak).contains("state.json"));
    assert!(bench.error(&["synth", "--checkpoint", "corpus", "--text", "hello"]).contains("not a checkpoint"));
}

#[test]
fn text_that_cannot_be_spoken_is_refused() {
    let bench = Bench::with_corpus();
    // espeak-ng has a word for every character; a voice of characters knows those of its corpus.
    fs::write(bench.path("config.yaml"), CONFIG.replace("data: {", "data: {tokenizer: characters, ")).unwrap();
    bench.train_ok("run", &["--steps", "2"]);
    for text in ["", "  ", "...", "🙂", "日本語"] {
        assert!(bench.error(&["synth", "--checkpoint", "run", "--text", text]).contains("nothing to speak"));
    }
    let foreign = bench.error(&["synth", "--checkpoint", "run", "--text", "Der Fuchs", "--language", "de"]);
    assert!(foreign.contains("does not speak `de`"), "{foreign}");
}

#[test]
fn speech_goes_into_links_and_pipes_and_does_not_replace_them() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    std::os::unix::fs::symlink("target.wav", bench.path("link.wav")).unwrap();
    fs::write(bench.path("target.wav"), "old").unwrap();
    bench.ok(&["synth", "--checkpoint", "run", "--text", "a fox", "-o", "link.wav"]);
    assert!(fs::symlink_metadata(bench.path("link.wav")).unwrap().is_symlink());
    let file = fs::read(bench.path("target.wav")).unwrap();
    let piped = bench.run(&["synth", "--checkpoint", "run", "--text", "a fox", "-o", "-"]);
    assert!(file.len() > 44 && piped.stdout == file);
}

#[test]
fn speech_of_any_length_goes_where_it_is_wanted() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    let text = "A fox, an old one, sleeps. Then it wakes and runs over the hill to the river. ".repeat(3);
    fs::write(bench.path("long.txt"), &text).unwrap();
    fn synth<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["synth", "--checkpoint", "run", "--steps", "1"][..], more].concat()
    }
    let told = bench.ok(&synth(&["--text-file", "long.txt", "-o", "a.flac", "--json"]));
    let made: serde_json::Value = serde_json::from_str(&told).unwrap();
    for figure in ["seconds", "real_time_factor", "first_audio_s", "peak", "limited_db", "load_s"] {
        assert!(made[figure].as_f64().is_some_and(f64::is_finite), "{figure}: {made}");
    }
    assert!(fs::read(bench.path("a.flac")).unwrap().starts_with(b"fLaC"));
    let speak_to = |name: &str| bench.ok(&synth(&["--text-file", "long.txt", "-o", name]));
    speak_to("a.raw");
    speak_to("a.wav");
    let (raw, wav) = (fs::read(bench.path("a.raw")).unwrap(), fs::read(bench.path("a.wav")).unwrap());
    assert!(wav[44..] == raw && raw.len() as f64 == (made["seconds"].as_f64().unwrap() * 44_100.0).round());
    for name in ["a.mp3", "a.opus"] {
        speak_to(name);
        let wave = host::audio::decode(&bench.path(name)).unwrap();
        let (seconds, truth) = (wave.samples.len() as f64 / f64::from(wave.rate_hz), raw.len() as f64 / 44_100.0);
        assert!((seconds - truth).abs() < 1e-3, "{name}: {seconds} s of {truth} s");
    }
    let unknown = bench.error(&synth(&["--text", "a fox", "-o", "a.m4a"]));
    assert!(unknown.contains("a.m4a: its ending names no format") && unknown.contains("mp3, opus"), "{unknown}");
    let bare = bench.error(&["synth", "--checkpoint", "run", "Hello there."]);
    assert!(bare.contains("a text goes behind --text"), "{bare}");
    let from_stdin = |more: &[&str]| {
        let mut command = bench.command(&synth(more));
        command.stdin(fs::File::open(bench.path("long.txt")).unwrap()).output().unwrap()
    };
    assert!(from_stdin(&["-", "-o", "-"]).stdout == wav);
    let stream = from_stdin(&["-", "--stream"]);
    assert!(stderr(&stream).contains("22050 Hz") && stream.stdout.len() % 2 == 0);
    assert!(stream.stdout.len() > raw.len() / 2, "all of it, with a clause of its own at the start");
    assert_eq!(&from_stdin(&["-", "--stream", "--format", "wav"]).stdout[40..44], [0xff; 4], "length unknown");
    let piped = from_stdin(&["-", "--stream", "--format", "opus"]);
    assert!(piped.stdout.starts_with(b"OggS") && stderr(&piped).contains("opus: mono, 48000 Hz\n"));
}

#[test]
fn many_texts_are_spoken_and_a_second_run_keeps_them() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    let lines = "a|A fox.\n\n{\"text\": \"Two foxes. They run.\", \"id\": \"b\", \"speed\": 1.5, \"seed\": 3}\n...\n{broken\n\
                 a|The same name again.\n../c|Up.\nThe last one of all.";
    fs::write(bench.path("list"), lines).unwrap();
    let speak = ["synth", "--checkpoint", "run", "--steps", "1", "--batch", "list", "--format", "flac", "--json"];
    let tally = || {
        let output = bench.run(&speak);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        for place in ["list:4: ", "list:5: ", "list:7: "] {
            assert!(stderr(&output).contains(place), "{}", stderr(&output));
        }
        let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        ["spoken", "kept", "failed"].map(|name| made[name].as_u64().unwrap())
    };
    assert_eq!(tally(), [3, 1, 3]);
    let mut names = files(&bench.path("spoken"));
    names.sort();
    assert_eq!(names, ["00008.flac", "a.flac", "b.flac"]);
    assert_eq!(tally(), [0, 4, 3]);
}

#[test]
fn a_run_that_got_worse_says_where_it_was_best() {
    let bench = Bench::with_corpus();
    assert!(!bench.train_ok("run", &["--steps", "4"]).contains("best: "));
    let told = bench.train_ok("run", &["--steps", "8", "--lr", "0.5", "--resume"]);
    assert!(
        told.contains("best:        run/step-00000004, flow held out ") && told.contains("4 steps since"),
        "{told}"
    );
    let json = bench.train_ok("run", &["--steps", "9", "--resume", "--json"]);
    let outcome: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&outcome["best"]["step"], &outcome["step"]), (&4.into(), &9.into()), "{json}");
}

/// Stands for espeak-ng, and dies of one word.
const FRAGILE_READER: &str = r#"#!/bin/sh
case "$*" in *--version*) echo "eSpeak NG text-to-speech: 1.51  Data at: /"; exit 0;; esac
while IFS= read -r line; do
    case "$line" in
        *poison*) exit 1;;
        *zyxwv*) echo zyxwv;;
        *) echo "tɛst əv wɜːdz";;
    esac
done
"#;

#[test]
fn a_text_that_cannot_be_read_to_its_end_takes_no_other_with_it() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::with_corpus();
    fs::create_dir(bench.path("bin")).unwrap();
    fs::write(bench.path("bin/espeak-ng"), FRAGILE_READER).unwrap();
    fs::set_permissions(bench.path("bin/espeak-ng"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bench.path("bin").display(), std::env::var("PATH").unwrap());
    let run = |args: &[&str]| bench.command(args).env("PATH", &path).output().unwrap();
    let train = bench.train("run", &["--steps", "2"]);
    let trained = run(&train.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(trained.status.success() && stderr(&trained).contains("phonemes"), "{}", stderr(&trained));

    let lines = "bad|This sentence is fine, and long enough to stand alone. This one has poison in it, and it ends here.\n\
                 good|This sentence is fine, and long enough to stand alone. So is this one, which comes behind it.";
    fs::write(bench.path("list"), lines).unwrap();
    let spoken = run(&["synth", "--checkpoint", "run", "--steps", "1", "--batch", "list", "-o", "out"]);
    assert_eq!(spoken.status.code(), Some(1), "{}", stderr(&spoken));
    assert!(stderr(&spoken).contains("list:1: ") && stderr(&spoken).contains("espeak-ng"), "{}", stderr(&spoken));
    assert_eq!(files(&bench.path("out")), ["good.wav"]);
}

#[test]
fn voices_are_made_mixed_and_spoken_with_by_any_model_of_their_frames() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    let clips = files(&bench.path("corpus/wavs"));
    let clip = |at: usize| format!("corpus/wavs/{}", clips[at]);
    bench.ok(&["voice", "make", "--checkpoint", "run", &clip(0), &clip(1), "-o", "ann"]);
    bench.ok(&["voice", "make", "--checkpoint", "run", &clip(2), "-o", "ben"]);
    bench.ok(&["voice", "mix", "ann", "ben", "--weight", "0.3", "-o", "both"]);
    assert_eq!(bench.ok(&["voice", "list", "voices"]).lines().count(), 3);
    let info: serde_json::Value = serde_json::from_str(&bench.ok(&["voice", "info", "ann", "--json"])).unwrap();
    assert!(info["seconds"].as_f64().unwrap() > 1.0 && info["bands"] == 80.0, "{info}");
    let speak = |run: &str, who: &[&str]| {
        let args = [&["synth", "--checkpoint", run, "--steps", "1", "--text", "A fox.", "-o", "-"][..], who].concat();
        bench.run(&args)
    };
    let [own, ann, both] = [&[][..], &["--voice", "ann"], &["--voice", "both"]].map(|who| speak("run", who).stdout);
    assert!(own != ann && ann != both && !ann.is_empty());
    assert!(speak("run", &["--reference", &clip(0), &clip(1)]).stdout == ann, "a file holds what recordings give");
    bench.train_ok("other", &["--steps", "4"]);
    let other = speak("other", &["--voice", "ann"]);
    assert!(other.status.success() && other.stdout != ann, "{}", stderr(&other));
}

#[test]
fn references_and_checkpoints_that_are_no_good_are_told() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    let wav = |name: &str, sample: &dyn Fn(usize) -> i16, len: usize| {
        let data: Vec<u8> = (0..len).flat_map(|i| sample(i).to_le_bytes()).collect();
        let header = [
            &b"RIFF"[..],
            &(36 + 2 * len as u32).to_le_bytes(),
            b"WAVEfmt \x10\0\0\0\x01\0\x01\0\"V\0\0D\xac\0\0\x02\0\x10\0data",
        ];
        fs::write(bench.path(name), [&header.concat(), &(2 * len as u32).to_le_bytes()[..], &data].concat()).unwrap();
    };
    let hum = |i: usize| ((i as f64 * 0.05).sin() * 8000.0) as i16;
    wav("silence.wav", &|_| 0, 44_100);
    wav("short.wav", &hum, 2205);
    wav("hour.wav", &hum, 22_050 * 3600);
    fs::write(bench.path("text.wav"), "not a recording").unwrap();
    let speak = ["synth", "--checkpoint", "run", "--steps", "1", "--text", "A fox.", "--reference"];
    let refused = |name: &str| bench.error(&[&speak[..], &[name]].concat());
    assert!(refused("silence.wav").contains("silence"));
    assert!(refused("short.wav").contains("too short"));
    assert!(refused("text.wav").contains("text.wav"));
    assert!(refused("absent.wav").contains("absent.wav"));
    let long = bench.run(&[&speak[..], &["hour.wav"]].concat());
    assert!(long.status.success() && stderr(&long).contains("first 3 minutes"), "{}", stderr(&long));

    let folder = bench.path("run/step-00000002");
    let speak = &speak[..speak.len() - 1];
    let tokenizer = fs::read_to_string(folder.join("tokenizer.json")).unwrap();
    if tokenizer.contains("phonemes") {
        let output = bench.command(speak).env("PATH", "").output().unwrap();
        assert!(stderr(&output).contains("espeak-ng: not found"), "{}", stderr(&output));
    }
    let state = fs::read_to_string(folder.join("state.json")).unwrap();
    fs::write(folder.join("state.json"), state.replace("\"format\": 4", "\"format\": 99")).unwrap();
    assert!(bench.error(speak).contains("checkpoint format 99"));
    fs::write(folder.join("state.json"), state).unwrap();
    let weights = folder.join("model.ema.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let end = bytes.len();
    bytes[end - 4..].fill(0xff);
    fs::write(&weights, bytes).unwrap();
    assert!(bench.error(speak).contains("not finite"));
}

#[test]
fn the_speed_of_speaking_is_measured_without_a_voice() {
    let args = ["bench", "synth", "--model-size", "tiny", "--device", "cpu", "--steps", "1", "--rounds", "1", "--json"];
    let report: serde_json::Value = serde_json::from_str(&Bench::new().ok(&args)).unwrap();
    assert!((report["seconds"].as_f64().unwrap() - 10.4).abs() < 0.2, "{report}");
    for figure in ["real_time_factor", "first_audio_ms", "batch_times_real_time"] {
        assert!(report[figure].as_f64().unwrap() > 0.0, "{report}");
    }
}

/// Truth: what the kernel says of the processor.
#[test]
fn products_are_as_precise_as_they_are_asked_for() {
    let bench = Bench::new();
    let has_int8 = fs::read_to_string("/proc/cpuinfo").unwrap().contains("avx512_vnni");
    let speak = |name: &str, more: &[&str]| {
        let args =
            ["synth", "--text", "Seven foxes sing near the river.", "--steps", "4", "--device", "cpu", "-o", name];
        bench.ok(&[&args[..], more].concat());
        let measure = ["bench", "synth", "--steps", "1", "--rounds", "1", "--device", "cpu", "--json"];
        let report: serde_json::Value = serde_json::from_str(&bench.ok(&[&measure[..], more].concat())).unwrap();
        (host::audio::decode(&bench.path(name)).unwrap().samples, report["products"].clone())
    };
    let (light, full) = (speak("light.wav", &[]), speak("full.wav", &["--full-precision"]));
    assert_eq!((light.1, full.1), (if has_int8 { "int8" } else { "f32" }.into(), "f32".into()));
    assert_eq!((light.0.len(), light.0 == full.0), (full.0.len(), !has_int8));
}

#[test]
fn answers_for_programs_are_json() {
    let bench = Bench::with_corpus();
    for args in [&["devices", "--json"][..], &["config", "--json"], &["check", "corpus", "--json"]] {
        let parsed: serde_json::Value = serde_json::from_str(&bench.ok(args)).unwrap();
        assert!(parsed.is_object(), "{args:?}");
    }
    for args in [&["check", "corpus", "--json"][..], &["prepare", "corpus", "--cache-dir", "features", "--json"]] {
        let parsed: serde_json::Value = serde_json::from_str(&bench.ok(args)).unwrap();
        assert_eq!(parsed["format"], "ljspeech", "{args:?}");
        assert!(parsed["why"].as_str().is_some_and(|why| !why.is_empty()), "{args:?}");
    }
    let outcome: serde_json::Value = serde_json::from_str(&bench.train_ok("run", &["--steps", "2", "--json"])).unwrap();
    assert_eq!(outcome["step"], 2);
}

#[test]
fn a_vocoder_learns_resumes_and_speaks() {
    let bench = Bench::with_corpus();
    let small = CONFIG.replace("text_dim: 32", "text_dim: 32, vocoder_dim: 32, vocoder_layers: 1");
    let small = small.replace("batch_size: 4", "batch_size: 1").replace("val_split: 0.1", "val_split: 0");
    fs::write(bench.path("config.yaml"), small).unwrap();
    let train = ["train-vocoder", "--config", "config.yaml", "--train-data", "corpus", "--checkpoint-dir", "vocoder"];
    bench.ok(&[&train[..], &["--steps", "2"]].concat());
    bench.ok(&[&train[..], &["--steps", "3", "--resume"]].concat());
    assert!(
        bench.metrics("vocoder").iter().any(|line| line["discriminator_generated"].is_f64() && line["mel"].is_f64())
    );
    bench.train_ok("run", &["--steps", "2"]);
    let error = bench.error(&["synth", "--checkpoint", "vocoder", "--text", "hello"]);
    assert!(error.contains("holds a vocoder, and a voice is needed"), "{error}");
    fs::write(bench.path("texts"), "a|A fox.\n{\"text\": \"Two foxes.\", \"id\": \"b\"}\n").unwrap();
    let speak = ["synth", "--checkpoint", "run", "--vocoder", "vocoder", "--batch", "texts", "-o", "spoken"];
    bench.ok(&speak);
    assert_eq!(files(&bench.path("spoken")).len(), 2);
    assert!(bench.ok(&speak).contains("0 spoken, 2 kept"), "what is there is kept");
}

#[test]
fn a_voice_is_fine_tuned_on_another_corpus() {
    let bench = Bench::with_corpus();
    fs::write(bench.path("config.yaml"), CONFIG.replace("data: {", "data: {tokenizer: characters, ")).unwrap();
    bench.train_ok("run", &["--steps", "4"]);
    let metadata = bench.path("corpus/metadata.csv");
    let text = fs::read_to_string(&metadata).unwrap();
    fs::write(&metadata, text.replace("the", "thé")).unwrap();
    let args = bench.train("tuned", &["--steps", "2", "--init-from", "run"]);
    let output = bench.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let told = stderr(&output);
    assert!(output.status.success() && told.contains("tensors taken") && told.contains("rows of"), "{told}");
    let missing = bench.train_error("other", &["--init-from", "nowhere"]);
    assert!(missing.contains("nowhere"), "{missing}");
}

#[test]
fn the_pipeline_is_measured_on_a_cpu_too() {
    let bench = Bench::with_corpus();
    let args =
        ["bench", "pipeline", "--config", "config.yaml", "--train-data", "corpus", "--num-steps", "12", "--json"];
    let report: serde_json::Value = serde_json::from_str(&bench.ok(&args)).unwrap();
    let figure = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert!((0.0..=1.0).contains(&figure("data_readiness")));
    assert!(figure("step_ms") > 0.0 && figure("headspace_ms") > 0.0 && figure("producer_ceiling") > 0.0);
    assert!(report["kernel_busy"].is_null(), "there is no GPU to trace");
}

#[test]
fn a_run_that_no_longer_improves_stops_and_is_saved() {
    let bench = Bench::with_corpus();
    let config = CONFIG.replace("learning_rate: 2e-3", "learning_rate: 1e-12, patience: 1, ema_decay: 0");
    let config = config.replace("val_step: 4, save_step: 4", "val_step: 3, save_step: 100");
    fs::write(bench.path("config.yaml"), config).unwrap();
    let told = bench.train_ok("run", &["--steps", "60"]);
    let step = newest_state(&bench.path("run"))["step"].as_u64().unwrap();
    assert!(step < 60 && told.contains(&format!("done at step {step}")), "{told}");
}

/// The bottleneck that was asked for is the one that is named; trace and picture are written.
#[test]
fn a_profile_names_what_was_slowed_down() {
    let bench = Bench::with_corpus();
    let fixed = ["profile", "--config", "config.yaml", "--train-data", "corpus", "--num-steps", "8"];
    let slow = ["--simulate", "transfer=700ms", "--json", "--trace", "trace.json", "--picture", "steps.svg"];
    let output = bench.run(&[&fixed[..], &slow].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let codes: Vec<_> = report["findings"].as_array().unwrap().iter().map(|finding| finding["code"].clone()).collect();
    assert!(codes.contains(&"slow-transfer".into()), "{codes:?}");
    assert!(report["figures"]["stages"]["transfer_ms"]["mean"].as_f64().unwrap() >= 700.0);
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(bench.path("trace.json")).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "training step"));
    assert!(fs::read_to_string(bench.path("steps.svg")).unwrap().contains("training, CPU"));
    let text = bench.error(&["profile", "--simulate", "decoder=3ms"]);
    assert!(text.contains("did you mean `decode`"), "{text}");
}

/// A machine without a GPU is a fact; a configuration that asks for one that is not there is a problem.
#[test]
fn a_diagnosis_looks_at_the_machine_whatever_the_corpus() {
    let bench = Bench::with_corpus();
    let run = ["--config", "config.yaml", "--train-data", "corpus", "--num-steps", "8"];
    let output = bench.run(&[&["diagnose", "--device", "cpu", "--json"], &run[..]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["sections"].as_array().unwrap().iter().any(|section| section["title"] == "Cores and memory"));
    let codes = |report: &serde_json::Value| report["findings"].to_string();
    assert!(!codes(&report).contains("no-gpu"), "{report}");
    if report["figures"]["machine"]["survey"]["reason"].is_string() {
        let output = bench.run(&["diagnose", "--device", "cuda", "--json"]);
        let report = serde_json::from_slice(&output.stdout).unwrap();
        assert!(codes(&report).contains("no-gpu") && output.status.code() == Some(2), "{report}");
    }
}

#[test]
fn a_training_goes_on_with_durations_that_it_found() {
    let bench = Bench::with_corpus();
    assert!(bench.train_error("run", &["--durations", "frozen"]).contains("myxtts align"));
    bench.train_ok("run", &[]);
    let align = ["align", "--checkpoint", "run", "--device", "cpu"];
    let summary: serde_json::Value = serde_json::from_str(&bench.ok(&[&align[..], &["--json"]].concat())).unwrap();
    assert_eq!((&summary["clips"], summary["failures"].as_array().map(Vec::len)), (&16.into(), Some(0)));
    assert!(summary["frames_per_token"].as_f64().unwrap() > 1.0, "{summary}");
    assert!(bench.ok(&align).contains("suspicious:"));

    // The run itself goes on, another begins, and both remember what they trained with.
    bench.train_ok("run", &["--resume", "--steps", "9", "--durations", "frozen"]);
    bench.train_ok("straight", &["--steps", "4", "--durations", "frozen"]);
    bench.train_ok("halves", &["--steps", "2", "--durations", "frozen"]);
    bench.train_ok("halves", &["--steps", "4", "--durations", "frozen", "--resume"]);
    assert!(bench.weights("halves/step-00000004") == bench.weights("straight/step-00000004"));
    bench.train_ok("tuned", &["--steps", "2", "--durations", "frozen", "--init-from", "run"]);
    assert!(newest_state(&bench.path("tuned"))["durations"].is_string());
    let config = fs::read_to_string(bench.path("tuned/step-00000002/config.yaml")).unwrap();
    assert!(config.contains("durations: frozen"), "{config}");
    bench.ok(&["synth", "--checkpoint", "run", "--text", "a fox", "-o", "fox.wav"]);

    // A clip that was not aligned.
    let metadata = bench.path("corpus/metadata.csv");
    let text = fs::read_to_string(&metadata).unwrap();
    let (id, first) = text.lines().next().unwrap().split_once('|').unwrap();
    fs::write(&metadata, text.replace(first, "the old fox")).unwrap();
    let error = bench.train_error("other", &["--durations", "frozen"]);
    assert!(error.contains(&format!("1 of 16 clips have no durations: {id}")), "{error}");
}

/// A fixed seed, characters and a spoken corpus of its own: the same figures wherever it runs. It takes four
/// seconds of a core, in which the held-out loss falls from 4.60 to 1.54.
#[test]
fn sixty_steps_divide_the_held_out_loss_by_two_and_a_half() {
    let bench = Bench::with_corpus();
    let config = CONFIG.replace("data: {", "data: {tokenizer: characters, language: en, ");
    fs::write(bench.path("config.yaml"), config.replace("val_step: 4, save_step: 4", "val_step: 1000")).unwrap();
    let held_out = |more: &[&str]| {
        let told = bench.train_ok("run", &[&["--json", "--seed", "7"], more].concat());
        serde_json::from_str::<serde_json::Value>(&told).unwrap()["validation_loss"].as_f64().unwrap()
    };
    let (before, after) = (held_out(&["--steps", "1"]), held_out(&["--steps", "60", "--resume"]));
    assert!(after < before / 2.5, "{before:.3} → {after:.3}");
}

/// Hears in every file the text of its clip, but says nothing of the last word that the voice spoke.
const RECOGNISER: &str = r#"
while read -r path; do
    text=$(grep "^$(basename "$path" .wav)|" corpus/metadata.csv | cut -d'|' -f2)
    case $path in */spoken/*) text=${text% *} ;; esac
    echo "$path|$text"
done
"#;

#[test]
fn a_voice_is_held_against_recordings_that_it_never_heard() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "4"]);
    fs::write(bench.path("hear.sh"), RECOGNISER).unwrap();
    let eval = ["eval", "--checkpoint", "run", "--data", "corpus", "--asr-command", "sh hear.sh", "--steps", "2"];
    let more = |more: &[&'static str]| [&eval[..], more].concat();
    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };

    let all = json(&bench.ok(&more(&["--part", "all", "--limit", "3", "-o", "all", "--json"])));
    let clips = all["clips"].as_array().unwrap();
    assert_eq!((clips.len(), files(&bench.path("all/spoken")).len()), (3, 3));
    for clip in clips {
        let figure = |name: &str| clip[name].as_f64().unwrap_or_else(|| panic!("{name}: {clip}"));
        assert!(figure("mel_cepstral_distortion_db") > 1.0 && figure("real_time_factor") > 0.0);
        assert!((0.0..=1.0).contains(&figure("voicing_error")) && figure("duration_ratio") > 0.1);
        assert_eq!(clip["heard"]["spoken"]["words"]["edits"], 1);
        assert_eq!(clip["heard"]["recorded"]["words"]["edits"], 0);
    }
    assert_eq!(json(&fs::read_to_string(bench.path("all/report.json")).unwrap()), all);

    // Held-out clips alone, each in the voice of another recording; what is there is kept.
    let held_out = bench.run(&more(&["--clone", "-o", "held", "--pictures", "1"]));
    let told = String::from_utf8_lossy(&held_out.stdout);
    assert!(held_out.status.success() && stderr(&held_out).contains("of 16 clips were held out"), "{held_out:?}");
    assert!(told.contains("mel-cepstral distortion") && told.contains("word error, spoken"), "{told}");
    let png = files(&bench.path("held/worst")).remove(0);
    assert!(fs::read(bench.path("held/worst").join(png)).unwrap().starts_with(b"\x89PNG"));
    let journal = || fs::read_to_string(bench.path("held/spoken.jsonl")).unwrap();
    let before = journal();
    bench.ok(&more(&["--clone", "-o", "held"]));
    assert_eq!(journal(), before);
    let other = bench.error(&more(&["--seed", "1", "-o", "held"]));
    assert!(other.contains("another voice, or with other settings"), "{other}");

    // The recordings through the vocoder (here Griffin-Lim) stay as long as they are, and much closer than speech.
    let copy = ["eval", "--checkpoint", "run", "--data", "corpus", "--part", "all", "--limit", "3", "--copy", "--json"];
    let copied = json(&bench.ok(&[&copy[..], &["-o", "copied"]].concat()));
    let figure = |report: &serde_json::Value, name: &str| report["figures"][name]["mean"].as_f64().unwrap();
    let distortion = |report| figure(report, "mel_cepstral_distortion_db");
    assert!((figure(&copied, "duration_ratio") - 1.0).abs() < 0.02, "{copied}");
    assert!(distortion(&copied) < 0.7 * distortion(&all), "{} {}", distortion(&copied), distortion(&all));
    assert!(bench.error(&[&copy[..], &["-o", "all"]].concat()).contains("another voice, or with other settings"));
}

/// Prints two numbers for every file, which tell speakers of the sample corpus apart no better than their names' letters do.
const SPEAKER_RECOGNISER: &str = "while read -r path; do echo \"$path|[0.5, ${#path}]\"; done";

#[test]
fn an_evaluation_by_parts_tells_where_quality_goes() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "4"]);
    fs::write(bench.path("hear.sh"), RECOGNISER).unwrap();
    fs::write(bench.path("tell.sh"), SPEAKER_RECOGNISER).unwrap();
    let eval = ["eval", "--checkpoint", "run", "--part", "all", "--limit", "3", "--steps", "2", "--pictures", "1"];
    let more = |more: &[&'static str]| [&eval[..], &["--speaker-command", "sh tell.sh"], more].concat();
    let parts = bench.run(&more(&["--parts", "-o", "parts", "--json", "--asr-command", "sh hear.sh"]));
    assert!(parts.status.success() && stderr(&parts).contains("no part with recorded pitch"), "{parts:?}");
    let parts: serde_json::Value = serde_json::from_slice(&parts.stdout).unwrap();
    let figure = |part: usize, name: &str| parts[part]["figures"][name]["mean"].as_f64().unwrap();
    let names: Vec<&str> = parts.as_array().unwrap().iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert_eq!(names, ["copy", "durations", "spoken", "clone"]);
    // Copies are nearest to their recordings, and what keeps the recording's durations is as long as it.
    assert!(figure(0, "mel_cepstral_distortion_db") < 0.7 * figure(2, "mel_cepstral_distortion_db"), "{parts}");
    assert!([0, 1].iter().all(|part| (figure(*part, "duration_ratio") - 1.0).abs() < 0.1), "{parts}");
    assert!([0, 1, 2, 3].iter().all(|part| figure(*part, "own_by_recogniser") > 0.9), "{parts}");
    assert!(figure(3, "word_error") > 0.0 && figure(3, "recorded_word_error") == 0.0, "{parts}");
    assert!(bench.path("parts/clone/report.json").exists());

    let page = fs::read_to_string(bench.path("parts/listen.html")).unwrap();
    assert_eq!(page.matches("<audio controls").count(), 3 * 5, "a recording and four parts of each sentence");
    assert!(!page.contains("<script") && !page.contains("src=\"http"));

    let told = bench.error(&["eval", "--checkpoint", "run", "--limit", "1", "--speaker-command", "echo hello {wav}"]);
    assert!(told.contains("printed no numbers") && told.contains("numbers of an embedding"), "{told}");
}

#[test]
fn a_reference_that_will_not_do_is_told_and_nothing_breaks() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    let write = |name: &str, samples: Vec<f32>| host::audio::write_wav(&bench.path(name), &samples, 22_050).unwrap();
    let tone = |n: u32| (n as f32 * 0.0627).sin() * 0.2;
    write("silent.wav", vec![0.0; 44_100]);
    write("moment.wav", (0..3_000).map(tone).collect());
    write("second.wav", (0..22_050).map(tone).collect());
    write("tune.wav", (0..88_200).map(tone).collect());
    let speak = ["synth", "--checkpoint", "run", "--steps", "1", "--text", "A fox.", "-o", "out.wav", "--reference"];
    let synth = |name: &'static str| [&speak[..], &[name]].concat();
    assert!(bench.error(&synth("silent.wav")).contains("hint: check that the microphone was on"));
    assert!(bench.error(&synth("moment.wav")).contains("too short to hear a voice"));
    let short = stderr(&bench.run(&synth("second.wav")));
    assert!(short.contains("1.0 s of speech say little") && short.contains("record five seconds"), "{short}");
    let tune = bench.run(&["voice", "make", "--checkpoint", "run", "tune.wav", "-o", "tune.safetensors"]);
    assert!(tune.status.success() && stderr(&tune).contains("tune.wav: it sounds like music"), "{tune:?}");
}

#[test]
fn an_evaluation_that_cannot_go_on_says_why() {
    let bench = Bench::with_corpus();
    bench.train_ok("run", &["--steps", "2"]);
    let eval = ["eval", "--checkpoint", "run", "--limit", "1", "--steps", "1", "-o", "out"];
    let error = |more: &[&str]| bench.error(&[&eval[..], more].concat());
    assert!(error(&["--asr-command", "no-such-program {wav}"]).contains("`no-such-program` cannot be started"));
    assert!(error(&["--asr-command", "sh -c 'echo no model >&2; exit 1'"]).contains("no model"));
    assert!(error(&["--asr-command", "cat"]).contains("printed no line for 2 of 2 recordings"));
    let late = error(&["--asr-command", "sleep 60", "--asr-timeout", "1"]);
    assert!(late.contains("took longer than 1 s") && late.contains("hint: --asr-timeout"), "{late}");
    assert!(error(&["--data", "nowhere"]).contains("nowhere"));
    let mut waiting = bench.command(&[&eval[..], &["--asr-command", "sh -c 'touch listening; sleep 60'"]].concat());
    let mut child = waiting.stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !bench.path("listening").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the recogniser was not started");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(55));

    for damaged in &files(&bench.path("corpus/wavs"))[1..] {
        fs::write(bench.path("corpus/wavs").join(damaged), "noise").unwrap();
    }
    let broken = bench.run(&["eval", "--checkpoint", "run", "--part", "all", "--steps", "1", "-o", "broken"]);
    assert_eq!(broken.status.code(), Some(1), "{}", stderr(&broken));
    let told = String::from_utf8_lossy(&broken.stdout);
    assert!(told.contains("1 sentences") && told.matches("\nfailed ").count() == 15, "{told}");
}
