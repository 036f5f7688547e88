//! Every flag of every command changes something. A flag that is not in the table below fails the test, and so does one
//! whose witness shows no difference: a run with it and the same run without.

use super::{Bench, CONFIG, files, stderr};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How it is seen that a flag does something. Never true of the run without it.
enum Effect {
    /// The command ends with an error that says this: the flag was obeyed.
    Fails(&'static str),
    /// It says this.
    Says(&'static str),
    /// Its JSON has another value there.
    Json(&'static str),
    /// A file is there.
    Makes(&'static str),
    /// The speech is another.
    Sound,
    /// A test elsewhere is about it: its name.
    Test(&'static str),
}
use Effect::{Fails, Json, Makes, Says, Sound, Test};

/// A flag, what both runs are given besides the command's own arguments, what the second is given, and what shows.
///
/// A flag that is given again replaces the one before it; `--no-X` takes the flag `--X`, or the word X, away. `NEW` is
/// another name in every run.
type Row = (&'static str, &'static str, &'static str, Effect);

/// Flags of `PipelineFlags`, which all commands have that run the pipeline.
const PIPELINE: &[Row] = &[
    ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
    ("train-data", "", "--train-data nowhere", Fails("nowhere")),
    ("val-data", "", "--val-data nowhere", Fails("nowhere")),
    ("format", "", "--format vctk", Fails("layout VCTK")),
    ("speaker-pattern", "", "--speaker-pattern ^(no-such)$", Fails("speaker_pattern finds no speaker")),
    ("cache-dir", "", "--cache-dir nowhere://features", Fails("unknown scheme `nowhere`")),
    ("local-cache", "", "--local-cache near", Fails("local_cache is for features that lie in a bucket")),
    ("local-cache-size", "", "--local-cache-size much", Fails("much")),
    ("batch-size", "", "--batch-size 2", Json("/figures/setup/frames_per_batch")),
    ("frame-budget", "", "--frame-budget 3000", Json("/figures/setup/frames_per_batch")),
    ("num-workers", "", "--num-workers 1", Json("/figures/setup/workers")),
    ("max-text-length", "", "--max-text-length 1", Fails("no clip is left to train on")),
    ("max-mel-frames", "", "--max-mel-frames 16", Fails("no clip is left to train on")),
    ("long-clips", "--max-mel-frames 150", "--long-clips split", Json("/figures/corpus/clips")),
    ("model-size", "", "--model-size tiny", Json("/figures/setup/model_size")),
    ("grad-accum", "", "--grad-accum 2", Json("/figures/setup/accumulate")),
    ("mixed-precision", "", "", Test("the_tools_time_the_kernels_that_were_asked_for")),
    ("optimization-level", "", "", Test("the_tools_time_the_kernels_that_were_asked_for")),
    ("seed", "", "", Test("a_folder_with_a_run_is_never_overwritten_without_a_word")),
    ("device", "", "--device cuda:61", Fails("GPU 61")),
    ("data-gpu", "--device auto", "--data-gpu 61", Fails("without `model_gpu`")),
    ("model-gpu", "--device auto", "--model-gpu 61", Fails("asks for GPU 61")),
    ("enable-memory-isolation", "", "--enable-memory-isolation", Fails("caps GPU memory")),
    ("data-gpu-memory", "", "--data-gpu-memory 300", Fails("memory isolation is off")),
    ("model-gpu-memory", "", "--model-gpu-memory 300", Fails("memory isolation is off")),
    ("model-start-delay", "", "", Test("a_ring_that_is_not_waited_for_is_said_to_be_part_empty")),
    ("buffer-size", "", "--buffer-size 100", Json("/figures/setup/slots")),
    ("prefetch-buffer-size", "", "--prefetch-buffer-size 7", Json("/figures/setup/depth")),
    ("enable-static-shapes", "", "--enable-static-shapes", Json("/figures/setup/padded")),
    ("disable-static-shapes", "--config padded.yaml", "--disable-static-shapes", Json("/figures/setup/padded")),
    ("durations", "", "--durations frozen", Fails("durations")),
];

/// (command, what every run of it is given, its flags). A command without flags in the table has those of `PIPELINE` alone.
const COMMANDS: &[(&str, &str, &[Row])] = &[
    (
        "profile",
        "--config config.yaml --train-data corpus --num-steps 8 --json",
        &[
            ("num-steps", "", "--num-steps 9", Json("/figures/steps")),
            ("simulate", "", "--simulate load=1ms", Says("slowed down on purpose")),
            ("trace", "", "--trace trace.json", Makes("trace.json")),
            ("picture", "", "--picture steps.svg", Makes("steps.svg")),
            ("kernels", "", "--kernels kernels.tsv", Makes("kernels.tsv")),
            ("overhead", "", "--overhead", Json("/figures/overhead")),
            ("json", "--no-json", "--json", Says("\"figures\"")),
        ],
    ),
    (
        "diagnose",
        "--config config.yaml --train-data corpus --num-steps 8 --json",
        &[
            ("num-steps", "", "--num-steps 9", Json("/figures/run/steps")),
            ("simulate", "", "--simulate load=1ms", Says("slowed down on purpose")),
            ("json", "--no-json", "--json", Says("\"figures\"")),
        ],
    ),
    (
        "bench pipeline",
        "--config config.yaml --train-data corpus --num-steps 10 --json",
        &[
            ("num-steps", "", "--num-steps 11", Json("/steps")),
            ("headspace", "", "--headspace", Json("/steps")),
            ("json", "--no-json", "--json", Says("\"headspace_ms\"")),
        ],
    ),
    (
        "bench scale",
        "--config config.yaml --train-data corpus --num-steps 10 --json",
        &[
            ("num-steps", "", "--num-steps 9", Fails("--num-steps")),
            ("ranks", "", "--ranks 2", Json("/measured/ranks")),
            ("rank-timeout", "", "", Test("a_rank_that_is_stopped_ends_the_other_whichever_it_is")),
            ("json", "--no-json", "--json", Says("\"measured\"")),
        ],
    ),
    (
        "analyze",
        "--config config.yaml --train-data corpus --seconds 0.05 --clips 4 --step-ms 200 --json",
        &[
            ("step-ms", "", "--step-ms 300", Json("/figures/step/ms")),
            ("seconds", "", "", Test("analyze_names_the_stage_that_was_slowed_down")),
            ("clips", "", "--clips 9", Json("/figures/built/clips")),
            ("simulate", "", "--simulate load=1ms", Says("slowed down on purpose")),
            ("json", "--no-json", "--json", Says("\"figures\"")),
        ],
    ),
    (
        "configure",
        "",
        &[
            ("epochs", "", "", Test("tuned_settings_keep_what_was_given")),
            ("steps", "", "", Test("tuned_settings_keep_what_was_given")),
            ("lr", "", "", Test("tuned_settings_keep_what_was_given")),
            ("output", "", "", Test("configure_writes_what_train_loads_and_overwrites_nothing")),
            ("force", "", "", Test("tuned_settings_keep_what_was_given")),
            ("seconds", "", "", Test("configure_writes_what_train_loads_and_overwrites_nothing")),
            ("trials", "", "", Test("configure_writes_what_train_loads_and_overwrites_nothing")),
            ("verify", "", "", Test("configure_writes_what_train_loads_and_overwrites_nothing")),
            ("json", "", "", Test("configure_writes_what_train_loads_and_overwrites_nothing")),
        ],
    ),
    (
        "fix",
        "--config config.yaml --train-data nowhere",
        &[
            ("epochs", "", "", Test("tuned_settings_keep_what_was_given")),
            ("steps", "", "", Test("tuned_settings_keep_what_was_given")),
            ("lr", "", "", Test("tuned_settings_keep_what_was_given")),
            ("output", "", "--output no/such/file", Fails("no such folder")),
            ("force", "--output config.yaml", "--force", Fails("nowhere")),
            ("seconds", "", "", Test("fix_says_what_was_wrong_and_what_to_type")),
            ("trials", "", "", Test("fix_says_what_was_wrong_and_what_to_type")),
            ("num-steps", "", "", Test("fix_says_what_was_wrong_and_what_to_type")),
            ("json", "", "", Test("fix_says_what_was_wrong_and_what_to_type")),
        ],
    ),
    (
        "train",
        "--config config.yaml --train-data corpus --steps 2 --checkpoint-dir NEW --json",
        &[
            ("steps", "", "--steps 3", Json("/step")),
            ("epochs", "--steps 40", "--epochs 1", Json("/step")),
            ("lr", "", "--lr 0.1", Json("/last_loss")),
            ("checkpoint-dir", "", "--checkpoint-dir made-here", Makes("made-here/step-00000002")),
            ("resume", "", "--resume", Says("nothing to resume yet")),
            ("ranks", "", "", Test("ranks_end_with_the_weights_of_one_that_accumulates")),
            ("rank-timeout", "", "", Test("a_rank_that_is_stopped_ends_the_other_whichever_it_is")),
            ("reset-training", "", "", Test("a_folder_with_a_run_is_never_overwritten_without_a_word")),
            ("init-from", "", "--init-from nowhere", Fails("nowhere")),
            ("from-scratch", "", "", Test("a_training_of_its_size_begins_with_it")),
            ("tensorboard-log-dir", "", "--tensorboard-log-dir events", Makes("events/metrics.jsonl")),
            ("simulate", "", "--simulate load=1ms", Says("slowed down on purpose")),
            ("live", "", "--live", Says("live view: http://127.0.0.1:")),
            ("live-host", "--live", "--live-host 203.0.113.7", Fails("203.0.113.7")),
            ("live-port", "--live", "--live-port 99999", Fails("99999")),
            ("live-control", "--live --live-port 0", "--live-control", Says("/#token=")),
            ("live-token-file", "--live", "--live-token-file nowhere", Fails("nowhere")),
            ("asr-command", "", "--asr-command hear", Fails("add --live")),
            ("asr-timeout", "--live --asr-command hear", "--asr-timeout 0", Fails("--asr-timeout")),
            ("log-every", "", "", Test("a_run_without_a_terminal_says_how_it_goes")),
            ("log-file", "", "--log-file said/run.log", Makes("said/run.log")),
            ("json", "--no-json", "--json", Says("\"last_loss\"")),
        ],
    ),
    (
        "train-vocoder",
        "--config config.yaml --train-data corpus --init-from elsewhere",
        &[("voice", "", "--voice nowhere", Fails("nowhere"))],
    ),
    (
        "validate",
        "--config config.yaml --train-data corpus",
        &[
            ("steps", "", "--steps 77", Says("77 steps at most")),
            ("epochs", "", "--epochs 77", Says("77 epochs")),
            ("lr", "", "--lr 0.25", Says("learning rate up to 2.5e-1")),
            ("json", "", "--json", Says("\"figures\"")),
        ],
    ),
    (
        "align",
        "--checkpoint run",
        &[
            ("checkpoint", "", "--checkpoint nowhere", Fails("nowhere")),
            ("dir", "", "nowhere", Fails("nowhere")),
            ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
            ("train-data", "", "--train-data nowhere", Fails("nowhere")),
            ("val-data", "", "--val-data nowhere", Fails("nowhere")),
            ("format", "", "--format vctk", Fails("layout VCTK")),
            ("speaker-pattern", "", "--speaker-pattern ^(no-such)$", Fails("speaker_pattern finds no speaker")),
            ("cache-dir", "", "--cache-dir nowhere://features", Fails("unknown scheme `nowhere`")),
            ("local-cache", "", "--local-cache near", Fails("local_cache is for features that lie in a bucket")),
            ("local-cache-size", "", "--local-cache-size much", Fails("much")),
            ("batch-size", "", "", Test("a_training_goes_on_with_durations_that_it_found")),
            ("frame-budget", "", "--frame-budget 3000", Says("frame_budget 3000")),
            ("num-workers", "", "", Test("a_resumed_run_equals_one_that_was_never_stopped")),
            ("max-text-length", "", "--max-text-length 1", Fails("no clip is left to train on")),
            ("max-mel-frames", "", "--max-mel-frames 16", Fails("no clip is left to train on")),
            ("long-clips", "--max-mel-frames 150", "--long-clips split", Says("split into")),
            ("device", "", "--device cuda:61", Fails("GPU 61")),
            ("json", "", "--json", Says("\"clips\"")),
        ],
    ),
    (
        "prepare",
        "corpus",
        &[
            ("dir", "--no-corpus", "nowhere", Fails("nowhere")),
            ("train-data", "--no-corpus", "--train-data nowhere", Fails("nowhere")),
            ("format", "", "--format vctk", Fails("layout VCTK")),
            ("speaker-pattern", "", "--speaker-pattern ^(no-such)$", Fails("speaker_pattern finds no speaker")),
            ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
            ("cache-dir", "", "--cache-dir other", Makes("other")),
            ("local-cache", "", "--local-cache near", Fails("local_cache is for features that lie in a bucket")),
            ("local-cache-size", "", "--local-cache-size much", Fails("much")),
            ("shard", "", "--shard 2/3", Says("part      2 of 3")),
            ("cache-content", "--json", "--cache-content mel", Json("/cache/bytes")),
            ("max-failures", "", "--max-failures many", Fails("many")),
            ("num-workers", "", "--num-workers 0", Fails("--num-workers")),
            ("verify", "--json", "--verify", Json("/cache/reused")),
            ("json", "", "--json", Says("\"hit_rate\"")),
        ],
    ),
    (
        "check",
        "corpus",
        &[
            ("dir", "--no-corpus", "nowhere", Fails("nowhere")),
            ("train-data", "--no-corpus", "--train-data nowhere", Fails("nowhere")),
            ("format", "", "--format vctk", Fails("layout VCTK")),
            ("speaker-pattern", "", "--speaker-pattern ^(no-such)$", Fails("speaker_pattern finds no speaker")),
            ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
            ("num-workers", "", "--num-workers 0", Fails("--num-workers")),
            ("fix", "", "--fix", Makes("corpus/metadata.cleaned.csv")),
            ("json", "", "--json", Says("\"problem_counts\"")),
        ],
    ),
    (
        "synth",
        "--checkpoint run --text fox --steps 2 --output NEW.wav",
        &[
            ("checkpoint", "", "--checkpoint nowhere", Fails("nowhere")),
            ("vocoder", "", "--vocoder nowhere", Fails("nowhere")),
            ("device", "", "--device cuda:61", Fails("GPU 61")),
            ("full-precision", "", "", Test("products_are_as_precise_as_they_are_asked_for")),
            ("text", "", "--text wolf", Sound),
            ("text-file", "", "", Test("speech_of_any_length_goes_where_it_is_wanted")),
            ("batch", "", "", Test("many_texts_are_spoken_and_a_second_run_keeps_them")),
            ("stdin", "", "", Test("speech_of_any_length_goes_where_it_is_wanted")),
            ("output", "", "--output other.wav", Makes("other.wav")),
            ("format", "", "--format flac", Sound),
            ("stream", "", "", Test("speech_of_any_length_goes_where_it_is_wanted")),
            ("language", "", "--language xx", Fails("`xx`")),
            ("reference", "", "--reference nowhere.wav", Fails("nowhere.wav")),
            ("voice", "", "--voice nowhere", Fails("nowhere")),
            ("speed", "", "--speed 2", Sound),
            ("loudness", "", "--loudness -30", Sound),
            ("temperature", "", "--temperature 0", Sound),
            ("guidance", "", "--guidance 3", Sound),
            ("speaker-guidance", "", "--speaker-guidance 3", Sound),
            ("steps", "", "--steps 3", Sound),
            ("seed", "", "--seed 7", Sound),
            ("json", "", "--json", Says("\"real_time_factor\"")),
        ],
    ),
    (
        "export",
        "--checkpoint run --steps 2 --json --output NEW/voice.onnx",
        &[
            ("checkpoint", "", "--checkpoint nowhere", Fails("nowhere")),
            ("vocoder", "", "--vocoder nowhere", Fails("nowhere")),
            ("voices", "", "--voices nobody", Fails("nobody")),
            ("output", "", "--output other/voice.onnx", Makes("other/voice.onnx")),
            ("format", "", "--format safetensors", Json("/tensors")),
            ("language", "", "--language xx", Fails("`xx`")),
            ("temperature", "", "--temperature 9", Fails("accepted")),
            ("guidance", "", "--guidance 1", Json("/bytes")),
            ("speaker-guidance", "", "--speaker-guidance 3", Json("/bytes")),
            ("steps", "", "--steps 3", Json("/bytes")),
            ("fp16", "", "--fp16", Json("/bytes")),
            ("int8", "", "--int8", Json("/bytes")),
            ("reference-encoder", "", "--reference-encoder", Json("/bytes")),
            ("verify", "", "--verify --python nowhere", Fails("nowhere")),
            ("python", "", "", Test("what_cannot_be_exported_says_why")),
            ("json", "--no-json", "--json", Says("\"bytes\"")),
        ],
    ),
    (
        "eval",
        "--checkpoint run --limit 1 --steps 1 --output NEW",
        &[
            ("checkpoint", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("vocoder", "", "--vocoder nowhere", Fails("nowhere")),
            ("device", "", "--device cuda:61", Fails("GPU 61")),
            ("full-precision", "", "", Test("products_are_as_precise_as_they_are_asked_for")),
            ("data", "", "", Test("an_evaluation_that_cannot_go_on_says_why")),
            ("format", "", "--format vctk", Fails("layout VCTK")),
            ("speaker-pattern", "", "--speaker-pattern ^(no-such)$", Fails("speaker_pattern finds no speaker")),
            ("part", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("limit", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("clone", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("copy", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("parts", "", "", Test("an_evaluation_by_parts_tells_where_quality_goes")),
            ("asr-command", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("asr-timeout", "", "", Test("an_evaluation_that_cannot_go_on_says_why")),
            ("speaker-command", "", "", Test("an_evaluation_by_parts_tells_where_quality_goes")),
            ("output", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("pictures", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("temperature", "", "--temperature 9", Fails("accepted")),
            ("guidance", "", "--guidance 99", Fails("accepted")),
            ("speaker-guidance", "", "--speaker-guidance 99", Fails("accepted")),
            ("steps", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("seed", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
            ("json", "", "", Test("a_voice_is_held_against_recordings_that_it_never_heard")),
        ],
    ),
    (
        "bench synth",
        "--model-size tiny --rounds 1 --steps 1 --json",
        &[
            ("checkpoint", "--no-model-size", "--checkpoint nowhere", Fails("nowhere")),
            ("vocoder", "--no-model-size --checkpoint run", "--vocoder nowhere", Fails("nowhere")),
            ("model-size", "", "", Test("the_speed_of_speaking_is_measured_without_a_voice")),
            ("steps", "", "--steps 0", Fails("--steps")),
            ("rounds", "", "--rounds 0", Fails("--rounds")),
            ("device", "", "--device cuda:61", Fails("GPU 61")),
            ("full-precision", "", "", Test("products_are_as_precise_as_they_are_asked_for")),
            ("json", "", "", Test("the_speed_of_speaking_is_measured_without_a_voice")),
        ],
    ),
    (
        "serve",
        "--checkpoint run --host 203.0.113.7", // which is nobody's, so it ends
        &[
            ("checkpoint", "", "--checkpoint nowhere", Fails("nowhere")),
            ("vocoder", "", "--vocoder nowhere", Fails("nowhere")),
            ("device", "", "--device cuda:61", Fails("GPU 61")),
            ("full-precision", "", "", Test("products_are_as_precise_as_they_are_asked_for")),
            ("voices", "", "", Test("what_is_here_is_listed")),
            ("allow-uploads", "", "", Test("a_voice_is_taken_from_a_recording_where_that_is_allowed")),
            ("host", "", "", Test("an_address_that_is_taken_is_named")),
            ("port", "", "", Test("an_address_that_is_taken_is_named")),
            ("token-file", "", "", Test("only_who_has_the_token_is_served")),
            ("allow-origin", "", "", Test("pages_of_other_sites_are_let_in_by_name")),
            ("queue", "", "", Test("a_full_queue_turns_away_and_a_client_that_leaves_makes_room")),
            ("batch", "", "", Test("a_short_request_does_not_wait_for_a_long_one")),
            ("max-text", "", "", Test("bad_requests_are_told_what_is_wrong_with_them")),
            ("timeout", "", "", Test("what_takes_too_long_is_refused_or_broken_off")),
            ("drain", "", "", Test("nothing_that_was_accepted_is_lost_when_the_server_stops")),
        ],
    ),
    (
        "live",
        "corpus --host 203.0.113.7", // which is nobody's, so it ends
        &[
            ("runs", "", "nowhere", Fails("nowhere")),
            ("host", "", "--host 203.0.113.8", Fails("203.0.113.8")),
            ("port", "", "--port 7", Fails("203.0.113.7:7")),
            ("token-file", "", "--token-file nowhere", Fails("nowhere")),
            ("asr-command", "", "", Test("what_was_spoken_is_listened_to_once_and_its_wrong_words_are_shown")),
            ("asr-timeout", "", "", Test("a_recogniser_that_fails_or_hangs_is_told_of_once_and_harms_nothing")),
        ],
    ),
    (
        "voice make",
        "--checkpoint run corpus/wavs/CLIP --output NEW.voice",
        &[
            ("checkpoint", "", "--checkpoint nowhere", Fails("nowhere")),
            ("recordings", "", "nowhere.wav", Fails("nowhere.wav")),
            ("output", "", "--output anna.voice", Makes("anna.voice")),
            ("device", "", "--device cuda:61", Fails("GPU 61")),
            ("json", "", "--json", Says("\"seconds\"")),
        ],
    ),
    (
        "voice list",
        "voices",
        &[("folder", "", "--no-voices nowhere", Fails("nowhere")), ("json", "", "--json", Says("[\n"))],
    ),
    (
        "voice info",
        "one",
        &[("voice", "", "--no-one nowhere", Fails("nowhere")), ("json", "", "--json", Says("\"seconds\""))],
    ),
    (
        "voice mix",
        "one two --output NEW.voice",
        &[
            ("a", "", "--no-one nowhere", Fails("nowhere")),
            ("b", "", "--no-two nowhere", Fails("nowhere")),
            ("weight", "", "--weight 2", Fails("--weight")),
            ("output", "", "--output both.voice", Makes("both.voice")),
            ("json", "", "--json", Says("\"seconds\"")),
        ],
    ),
    (
        "cache list",
        "",
        &[
            ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
            ("cache-dir", "", "--cache-dir elsewhere", Says("elsewhere")),
            ("json", "", "--json", Says("[")),
        ],
    ),
    (
        "cache prune",
        "--dry-run --json",
        &[
            ("older-than", "", "--older-than many", Fails("--older-than")),
            ("max-size", "", "--max-size 0", Json("/pruned/bytes")),
            ("corpus", "", "--corpus elsewhere", Json("/pruned/bytes")),
            ("dry-run", "", "", Test("crates/host/src/cache/tests/clearing.rs")),
            ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
            ("cache-dir", "", "", Test("crates/host/src/cache/tests/clearing.rs")),
            ("json", "--no-json", "--json", Says("{")),
        ],
    ),
    ("devices", "", &[("json", "", "--json", Says("\"gpus\""))]),
    (
        "config",
        "",
        &[
            ("config", "", "--config nowhere.yaml", Fails("nowhere.yaml")),
            ("model-size", "", "--model-size tiny", Says("size: tiny")),
            ("optimization-level", "", "--optimization-level basic", Says("optimization_level: basic")),
            ("reference", "", "--reference", Says("# Configuration reference")),
            ("defaults", "", "--defaults", Says("# Every key with its default")),
            ("json", "", "--json", Says("\"batch_size\"")),
            ("check", "--json", "--check", Fails("cannot be used with")),
        ],
    ),
    (
        "sample-corpus",
        "NEW --clips 2 --voice formant",
        &[
            ("dir", "", "", Test("a_corpus_becomes_a_voice_that_speaks")),
            ("clips", "", "--clips 3", Says("3 clips")),
            ("seed", "", "--seed many", Fails("--seed")),
            ("sample-rate", "", "--sample-rate 16000", Says("at 16000 Hz")),
            ("voice", "", "--voice nobody", Fails("nobody")),
            ("force", "--no-NEW busy", "--force", Says("moved to")),
        ],
    ),
    ("completions", "bash", &[("shell", "", "--no-bash zsh", Says("#compdef"))]),
];

/// The test of `--threads`, which every command has that computes with tensors.
const THREADS: &str = "waiting_threads_sleep_whichever_program_is_started";

/// A folder with all that the rows name, and the runs in it.
struct Stage {
    bench: Bench,
    clip: String,
    runs: AtomicUsize,
    /// Runs without a flag, which many rows have in common.
    plain: Mutex<BTreeMap<String, Arc<(Output, String)>>>,
}

impl Stage {
    fn set() -> Self {
        let bench = Bench::with_corpus();
        bench.train_ok("run", &["--steps", "2"]);
        fs::write(bench.path("padded.yaml"), CONFIG.replace("data: {", "data: {pad_to_fixed_length: true, ")).unwrap();
        fs::create_dir(bench.path("busy")).unwrap();
        fs::write(bench.path("busy/file"), "of somebody").unwrap();
        let clip = files(&bench.path("corpus/wavs")).into_iter().min().unwrap();
        for voice in ["one", "two"] {
            bench.ok(&["voice", "make", "--checkpoint", "run", &format!("corpus/wavs/{clip}"), "--output", voice]);
        }
        Stage { bench, clip, runs: AtomicUsize::new(0), plain: Mutex::default() }
    }

    /// Runs a command: what it printed, whether it succeeded, and its name for `NEW`.
    fn run(&self, command: &str, parts: &[&str]) -> (Output, String) {
        let new = format!("new-{}", self.runs.fetch_add(1, Ordering::Relaxed));
        let mut words: Vec<String> = Vec::new();
        for word in parts.iter().flat_map(|part| part.split_whitespace()) {
            match word.strip_prefix("--no-") {
                Some(name) => remove(&mut words, name),
                None => {
                    remove(&mut words, word.strip_prefix("--").unwrap_or("-"));
                    words.push(word.replace("CLIP", &self.clip));
                }
            }
        }
        let words: Vec<String> = words.iter().map(|word| word.replace("NEW", &new)).collect();
        let args: Vec<&str> = command.split(' ').chain(words.iter().map(String::as_str)).collect();
        (self.bench.run(&args), new)
    }

    /// Why a row is not true, if so.
    fn refute(&self, command: &str, base: &str, (flag, both, with, effect): &Row) -> Option<String> {
        if let Test(name) = effect {
            return (!has_test(name)).then(|| format!("{command} --{flag}: there is no test {name}"));
        }
        let name = format!("{command} {base} {both}");
        let known = self.plain.lock().unwrap().get(&name).cloned();
        let plain = known.unwrap_or_else(|| Arc::new(self.run(command, &[base, both])));
        self.plain.lock().unwrap().insert(name, plain.clone());
        let (before, first) = &*plain;
        let (after, second) = self.run(command, &[base, both, with]);
        let shows = match effect {
            Fails(text) => {
                !said(before).contains(text) && said(&after).contains(text) && after.status.code() == Some(2)
            }
            Says(text) => !said(before).contains(text) && said(&after).contains(text),
            Json(at) => json(before, at).zip(json(&after, at)).is_some_and(|(before, after)| before != after),
            Makes(path) => self.bench.path(path).exists(),
            Sound => {
                let wav = |name: &str| fs::read(self.bench.path(&format!("{name}.wav"))).unwrap_or_default();
                let (before, after) = (wav(first), wav(&second));
                !before.is_empty() && !after.is_empty() && before != after
            }
            Test(_) => unreachable!("looked for above"),
        };
        let shown = |output: &Output| said(output).chars().take(1500).collect::<String>();
        (!shows).then(|| {
            format!("{command} {with}: no effect\n--- without:\n{}\n--- with:\n{}", shown(before), shown(&after))
        })
    }
}

/// Takes a flag with its values away, or a word.
fn remove(words: &mut Vec<String>, name: &str) {
    let is_it = |word: &String| word.strip_prefix("--") == Some(name) || word == name;
    if let Some(at) = words.iter().position(is_it) {
        let values = words[at + 1..].iter().take_while(|word| !word.starts_with('-')).count();
        let values = if words[at].starts_with("--") { values.min(1) } else { 0 };
        words.drain(at..=at + values);
    }
}

/// All that a command printed. A JSON report is on stdout, everything else on stderr.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(output)
}

/// A value of the JSON that a command printed; null where it has none there.
fn json(output: &Output, at: &str) -> Option<Value> {
    let all: Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(all.pointer(at).cloned().unwrap_or_default())
}

fn has_test(name: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if name.ends_with(".rs") {
        return root.join(name).is_file();
    }
    let tests = ["tests/cli", "tests/serve"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let texts = tests.into_iter().flatten().flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.into_iter().any(|text| text.contains(&format!("fn {name}()")))
}

/// Names of the flags and places of a command, with what they say of themselves.
fn flags(command: &clap::Command) -> BTreeMap<String, String> {
    let own = command.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"));
    let name = |arg: &clap::Arg| arg.get_long().map_or_else(|| arg.get_id().to_string(), str::to_owned);
    own.map(|arg| (name(arg), arg.get_help().map(ToString::to_string).unwrap_or_default())).collect()
}

/// Commands that are run, by the words that are typed.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeMap<String, BTreeMap<String, String>>) {
    let own: Vec<&clap::Command> = command.get_subcommands().filter(|own| own.get_name() != "help").collect();
    for sub in &own {
        leaves(sub, format!("{path} {}", sub.get_name()).trim(), found);
    }
    if own.is_empty() {
        found.insert(path.to_owned(), flags(command));
    }
}

fn rows_of(command: &str) -> &'static [Row] {
    COMMANDS.iter().find(|(name, ..)| *name == command).map_or(&[], |(_, _, rows)| rows)
}

fn all_commands() -> BTreeMap<String, BTreeMap<String, String>> {
    let (mut root, mut found) = (cli::command(), BTreeMap::new());
    root.build();
    leaves(&root, "", &mut found);
    found
}

#[test]
fn every_flag_of_every_command_has_a_witness() {
    let commands = all_commands();
    let listed: BTreeSet<&str> = COMMANDS.iter().map(|(name, ..)| *name).collect();
    let there: BTreeSet<&str> = commands.keys().map(String::as_str).collect();
    assert_eq!(listed, there, "commands in the table, and those that are there");
    for (name, _, rows) in COMMANDS {
        let flags = &commands[*name];
        let mut known: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
        // The same struct, so the same words and the same code: its effects are shown for one command.
        let shared = |flag: &&str, of: &str| flags.get(*flag).is_some_and(|help| *help == commands[of][*flag]);
        if flags.contains_key("grad-accum") {
            known.extend(PIPELINE.iter().map(|row| row.0).filter(|flag| shared(flag, "profile")));
        }
        if *name == "train-vocoder" {
            known.extend(rows_of("train").iter().map(|row| row.0).filter(|flag| shared(flag, "train")));
        }
        if flags.contains_key("threads") {
            assert!(has_test(THREADS), "there is no test {THREADS}");
            known.insert("threads");
        }
        let there: BTreeSet<&str> = flags.keys().map(String::as_str).collect();
        assert_eq!(known, there, "{name}: flags with a witness, and those that it accepts");
    }
}

#[test]
fn every_flag_of_every_command_has_an_effect() {
    let stage = Stage::set();
    let mut work: Vec<(&str, &str, &Row)> = PIPELINE.iter().map(|row| ("profile", COMMANDS[0].1, row)).collect();
    work.extend(COMMANDS.iter().flat_map(|(name, base, rows)| rows.iter().map(move |row| (*name, *base, row))));
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..host::machine::cores().min(8) {
            scope.spawn(|| {
                while let Some((command, base, row)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let refuted = stage.refute(command, base, row);
                    wrong.lock().unwrap().extend(refuted);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} flags\n{}", wrong.len(), wrong.join("\n\n"));
}
