//! The bundled voice: what speaks, and what a training begins with, where nothing was named.

use super::{Bench, stderr};
use std::fs;
use std::path::Path;

fn samples(bench: &Bench, file: &str) -> Vec<u8> {
    fs::read(bench.path(file)).unwrap()
}

#[test]
fn it_speaks_in_several_voices_and_clones_before_anything_was_trained() {
    let bench = Bench::with_corpus();
    let speak = |file: &str, more: &[&str]| {
        let text = ["synth", "--text", "Hello there.", "--device", "cpu", "--steps", "2", "-o", file];
        bench.ok(&[&text[..], more].concat());
        samples(&bench, file)
    };
    let own = speak("own.wav", &[]);
    // Half a second at the least, three at the most.
    assert!((22_050..132_300).contains(&own.len()), "{} bytes", own.len());
    let listed = bench.ok(&["voice", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let stem = |voice: &serde_json::Value| Path::new(voice["voice"].as_str().unwrap()).file_stem().unwrap().to_owned();
    let names: Vec<String> =
        listed["voices"].as_array().unwrap().iter().map(|voice| stem(voice).into_string().unwrap()).collect();
    assert!(names.len() >= 4, "{names:?}");
    assert!(speak("named.wav", &["--voice", &names[1]]) != speak("other.wav", &["--voice", &names[2]]));
    assert!(speak("cloned.wav", &["--reference", "corpus/wavs/sample-00001.wav"]) != own);
    assert!(speak("hollow.wav", &["--vocoder", "griffin-lim"]) != own, "the bundled vocoder is the usual one");
    let absent = bench.command(&["synth", "--text", "fox"]).env("MYXTTS_VOICES", "nowhere").output().unwrap();
    let said = stderr(&absent);
    assert!(
        absent.status.code() == Some(2) && said.contains("--checkpoint DIR") && said.contains("MYXTTS_VOICES"),
        "{said}"
    );
}

/// A training is listened to through the bundled vocoder, and learns without it.
#[test]
fn a_damaged_vocoder_keeps_no_training_from_its_end() {
    let bench = Bench::with_corpus();
    let (voices, own) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("voices/english"), bench.path("voices/english"));
    fs::create_dir_all(own.join("vocoder")).unwrap();
    std::os::unix::fs::symlink(voices.join("voice"), own.join("voice")).unwrap();
    for file in ["config.yaml", "state.json", "tokenizer.json"] {
        fs::copy(voices.join("vocoder").join(file), own.join("vocoder").join(file)).unwrap();
    }
    fs::write(own.join("vocoder/model.safetensors"), "cut off").unwrap();
    let short = ["train", "--train-data", "corpus", "--device", "cpu", "--batch-size", "2", "--steps", "1"];
    let tiny = ["--model-size", "tiny", "--from-scratch", "--checkpoint-dir", "tiny"];
    let run = bench.command(&[&short[..], &tiny].concat()).env("MYXTTS_VOICES", bench.path("voices")).output().unwrap();
    let said = stderr(&run);
    assert!(run.status.success() && said.contains("samples are spoken by Griffin-Lim"), "{said}");
}

#[test]
fn a_training_of_its_size_begins_with_it() {
    let bench = Bench::with_corpus();
    let begin = |more: &[&str]| {
        let short = ["train", "--train-data", "corpus", "--device", "cpu", "--batch-size", "2", "--steps", "1"];
        let output = bench.run(&[&short[..], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let tuned = begin(&["--checkpoint-dir", "tuned"]);
    assert!(tuned.contains("begins with the bundled voice") && tuned.contains("125 of 125 tensors taken"), "{tuned}");
    let smaller = begin(&["--model-size", "tiny", "--checkpoint-dir", "tiny"]);
    assert!(
        smaller.contains("begins with random weights: the bundled voice is another network (small, 22050 hz)"),
        "{smaller}"
    );
    let fresh = begin(&["--from-scratch", "--checkpoint-dir", "fresh"]);
    assert!(!fresh.contains("bundled"), "{fresh}");
    assert!(bench.weights("tuned/step-00000001") != bench.weights("fresh/step-00000001"));
    // "Go on with the same command and --resume": what said how to begin is no obstacle.
    for begun in [&["--from-scratch"][..], &["--init-from", "tuned"]] {
        let again = ["--steps", "2", "--checkpoint-dir", "fresh", "--resume"];
        let train = ["train", "--train-data", "corpus", "--device", "cpu", "--batch-size", "2"];
        let output = bench.run(&[&train[..], begun, &again].concat());
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert!(bench.path("fresh/step-00000002").exists());
}

#[test]
fn it_speaks_a_sample_corpus() {
    let bench = Bench::new();
    let said = bench.ok(&["sample-corpus", "spoken", "--clips", "2"]);
    assert!(said.contains("2 clips at 22050 Hz, bundled voice"), "{said}");
    assert!(bench.ok(&["check", "spoken"]).contains("2 readable of 2"));
    assert!(bench.ok(&["sample-corpus", "spoken", "--clips", "2"]).contains("already there"));
}
