//! Exported voices, spoken by the programs that they are for: Piper and sherpa-onnx, beside `myxtts synth`.

use super::{Bench, files, stderr};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("export.py");
/// A text that espeak-ng reads alike since 1.51.
const ENGLISH: &str = "Seven foxes sing near the river.";

fn python() -> Option<OsString> {
    ["piper", "sherpa_onnx", "onnx"].iter().map(|package| host::test_python(package)).collect::<Option<Vec<_>>>()?.pop()
}

/// What the programs say of texts: (text, sid, file of `synth` or none).
fn spoken(bench: &Bench, python: &OsString, model: &str, texts: &[(&str, usize, Option<&str>)]) -> Vec<Value> {
    let texts: Vec<Value> = texts
        .iter()
        .map(|(text, sid, wave)| json!({ "text": text, "sid": sid, "wave": wave.map(|wave| bench.path(wave)) }))
        .collect();
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let job = json!({ "model": bench.path(model), "texts": texts }).to_string();
    child.stdin.take().unwrap().write_all(job.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    // sherpa-onnx talks, too.
    lines.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// As far as `--verify` allows.
#[track_caller]
fn alike(found: &Value, with: &str) {
    nearer(found, with, -50.0);
}

#[track_caller]
fn nearer(found: &Value, with: &str, than_db: f64) {
    let apart = found[with].as_f64();
    assert!(apart.is_some_and(|apart| apart < than_db), "{with}: {found}");
}

#[test]
fn piper_and_sherpa_speak_as_synth_does() {
    let Some(python) = python() else { return };
    let bench = Bench::new();
    // Few steps are soon done; without guidance they are not so loud that Piper would clip them.
    let how = ["--steps", "4", "--guidance", "1"];
    let said =
        bench.ok(&[&["export", "--voices", "anna", "ben", "-o", "both/voice.onnx", "--json"][..], &how].concat());
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["voices"], json!(["anna", "ben"]));
    for (voice, file) in [("anna", "anna.wav"), ("ben", "ben.wav")] {
        let more = ["--voice", voice, "--temperature", "0", "--device", "cpu", "--full-precision", "-o", file];
        bench.ok(&[&["synth", "--text", ENGLISH][..], &how, &more].concat());
    }
    let long = "the foxes sing and the rivers flow and nobody knows why, ".repeat(9);
    assert!(long.len() > 500);
    let texts = [(ENGLISH, 0, Some("anna.wav")), (ENGLISH, 1, Some("ben.wav")), (&long, 0, None)];
    let found = spoken(&bench, &python, "both/voice.onnx", &texts);
    found[..2].iter().for_each(|found| alike(found, "sherpa"));
    found[..2].iter().for_each(|found| alike(found, "synth"));
    found.iter().for_each(|found| nearer(found, "half", -60.0));
    nearer(&found[2], "sherpa", -40.0);
    assert!(found[0]["samples"] == found[1]["samples"], "durations know no speaker");
    assert!(found[2]["samples"].as_u64().unwrap() > 20 * 22_050, "{}", found[2]);
    assert_ne!(fs::read(bench.path("anna.wav")).unwrap(), fs::read(bench.path("ben.wav")).unwrap());
}

/// Its `ç` comes in two pieces out of Piper.
#[test]
fn a_german_voice_is_exported_and_made_part_of_another_training() {
    let bench = Bench::with_corpus();
    fs::write(bench.path("config.yaml"), super::CONFIG.replace("data: {", "data: {language: de, ")).unwrap();
    bench.train_ok("run", &["--steps", "2"]);
    if let Some(python) = python() {
        bench.ok(&["export", "--checkpoint", "run", "--steps", "3", "-o", "de/voice.onnx"]);
        let settings: Value = serde_json::from_slice(&fs::read(bench.path("de/voice.onnx.json")).unwrap()).unwrap();
        assert_eq!((&settings["espeak"]["voice"], &settings["num_speakers"]), (&json!("de"), &json!(1)));
        let text = "Ich höre nichts.";
        let how = ["--steps", "3", "--temperature", "0", "--device", "cpu", "--full-precision", "-o", "de.wav"];
        bench.ok(&[&["synth", "--checkpoint", "run", "--text", text][..], &how].concat());
        let found = spoken(&bench, &python, "de/voice.onnx", &[(text, 0, Some("de.wav"))]);
        alike(&found[0], "sherpa");
        alike(&found[0], "synth");
    }
    bench.ok(&["export", "--checkpoint", "run", "--format", "safetensors", "-o", "all.safetensors"]);
    let output = bench.run(
        &bench
            .train("tuned", &["--init-from", "all.safetensors", "--steps", "1"])
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    let said = stderr(&output);
    let of = said.lines().find(|line| line.contains("all.safetensors")).unwrap_or_else(|| panic!("{said}"));
    let numbers: Vec<usize> = of.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() >= 2 && numbers[0] == numbers[1], "{of}");
}

#[test]
fn what_cannot_be_exported_says_why() {
    let bench = Bench::new();
    let error = |more: &[&str]| bench.error(&[&["export", "-o", "out/voice.onnx"][..], more].concat());
    assert!(error(&["--checkpoint", "nowhere"]).contains("nowhere: no such folder"));
    assert!(error(&["--language", "fa"]).contains("it speaks en"));
    assert!(error(&["--voices", "nobody"]).contains("nobody: no such file"));
    assert!(error(&["--voices", "anna", "anna"]).contains("two voices are called `anna`"));
    fs::write(bench.path("half.safetensors"), b"half a voice").unwrap();
    assert!(error(&["--voices", "half.safetensors"]).contains("not a voice file, or damaged"));
    let vocoder = concat!(env!("CARGO_MANIFEST_DIR"), "/voices/english/vocoder");
    assert!(error(&["--checkpoint", vocoder]).contains("holds a vocoder, and a voice is needed"));
    let voice = concat!(env!("CARGO_MANIFEST_DIR"), "/voices/english/voice");
    assert!(error(&["--vocoder", voice]).contains("holds a voice, and a vocoder is needed"));
    assert!(error(&["--int8", "--fp16"]).contains("cannot be used with"));
    assert!(error(&["--format", "safetensors", "--int8"]).contains("--format onnx"));
    assert!(!bench.path("out").exists(), "nothing was left behind");
    fs::create_dir(bench.path("out")).unwrap();
    fs::write(bench.path("out/tokens.txt"), "a 1\n").unwrap();
    let said = error(&[]);
    assert!(said.contains("of another voice") && said.contains("hint: one folder for each voice"), "{said}");
    fs::remove_file(bench.path("out/tokens.txt")).unwrap();
    let said = error(&["--steps", "1", "--verify", "--python", "no-such-python"]);
    assert!(said.contains("`no-such-python` cannot be started") && said.contains("--python names one"), "{said}");
    let mut left = files(&bench.path("out"));
    left.sort();
    assert_eq!(left, ["tokens.txt", "voice.onnx", "voice.onnx.json"]);
}

/// A file that was cut off on its way is refused by those who open it, and `--verify` says that a whole one is right.
#[test]
fn half_a_file_is_refused_and_a_whole_one_verified() {
    let Some(python) = python() else { return };
    let bench = Bench::new();
    let how =
        ["--steps", "1", "--guidance", "1", "--reference-encoder", "--verify", "--python", python.to_str().unwrap()];
    let said = bench.ok(&[&["export", "-o", "voice.onnx", "--json"][..], &how].concat());
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["verified"]["same"], json!(true), "{said}");
    assert!(bench.path("voice.reference.onnx").exists());
    let whole = fs::read(bench.path("voice.onnx")).unwrap();
    fs::write(bench.path("half.onnx"), &whole[..whole.len() / 2]).unwrap();
    let open = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1])";
    let opened = |file: &str| Command::new(&python).args(["-c", open]).arg(bench.path(file)).output().unwrap();
    assert!(opened("voice.onnx").status.success() && !opened("half.onnx").status.success());
}
