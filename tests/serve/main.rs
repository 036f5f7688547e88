//! The real server over real connections: what it answers, whom it turns away, and how it stops.

mod browser;
mod http;
mod live;

use http::{Answer, Call, call, connect, request};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// A network that trains in a second, on letters: espeak-ng may be missing. Long enough for who speaks to be heard.
const CONFIG: &str = "
model: {text_dim: 32, text_layers: 1, text_heads: 2, decoder_dim: 32, decoder_layers: 3, decoder_heads: 2}
training: {device: cpu, steps: 60, learning_rate: 0.005, warmup_steps: 5, log_step: 20, val_step: 100, save_step: 100}
data: {tokenizer: characters, batch_size: 4, num_workers: 2, val_split: 0.1}
";
const SPEECH: &str = "/v1/audio/speech";
const JSON: &str = "content-type: application/json";

fn binary(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myxtts"));
    command.current_dir(folder).env("OMP_NUM_THREADS", "1").env("XDG_CACHE_HOME", folder.join("cache"));
    command.env_remove("MYXTTS_TOKEN");
    command
}

/// A folder with a corpus and a voice, made once for all tests.
fn home() -> &'static Path {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    HOME.get_or_init(|| {
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("serve");
        let _ = fs::remove_dir_all(&home); // of an earlier run
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("config.yaml"), CONFIG).unwrap();
        for args in [
            &["sample-corpus", "corpus", "--clips", "16", "--voice", "formant"][..],
            &["train", "--config", "config.yaml", "--train-data", "corpus", "--checkpoint-dir", "run"],
        ] {
            let output = binary(&home).args(args).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        home
    })
}

fn a_recording() -> PathBuf {
    let mut clips: Vec<PathBuf> =
        fs::read_dir(home().join("corpus/wavs")).unwrap().map(|clip| clip.unwrap().path()).collect();
    clips.sort();
    clips.remove(0)
}

pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start(more: &[&str]) -> Self {
        Self::with(&[&["--checkpoint", "run"], more].concat())
    }

    fn with(args: &[&str]) -> Self {
        let mut command = binary(home());
        command.args(["serve", "--port", "0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Server { child, address }
    }

    fn get(&self, path: &str) -> Answer {
        call(&self.address, &request("GET", path, &[], b"")).finish()
    }

    fn begin(&self, wish: &Value) -> Call {
        call(&self.address, &request("POST", SPEECH, &[JSON], wish.to_string().as_bytes()))
    }

    fn speak(&self, wish: &Value) -> Answer {
        self.begin(wish).finish()
    }

    fn figure(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("myxtts_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in:\n{text}")).parse().unwrap()
    }

    fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended already
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}: not after 30 s");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Many sentences, so that a request lasts.
fn long_text(sentences: usize) -> String {
    "The old fox sings near the quiet river. ".repeat(sentences)
}

/// Takes long: many clauses, and many steps for each.
fn long_wish() -> Value {
    json!({ "input": long_text(100), "stream": true, "steps": 60, "response_format": "pcm" })
}

fn samples(bytes: &[u8]) -> Vec<i16> {
    bytes.as_chunks().0.iter().map(|&pair| i16::from_le_bytes(pair)).collect()
}

#[test]
fn every_format_holds_the_same_speech() {
    let server = Server::start(&[]);
    let text = long_text(3);
    let wish = |more: Value| {
        let mut wish = json!({ "model": "tts-1", "voice": "alloy", "input": text });
        wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wish
    };
    let wav = server.speak(&wish(json!({ "response_format": "wav" })));
    assert_eq!((wav.status, wav.header("content-type")), (200, Some("audio/wav")));
    let length = |at: usize| u32::from_le_bytes(wav.body[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!((&wav.body[..4], length(4) + 8, length(40) + 44), (&b"RIFF"[..], wav.body.len(), wav.body.len()));
    let spoken = samples(&wav.body[44..]);
    assert!(spoken.len() > 22_050 / 2 && spoken.iter().any(|&sample| sample != 0));

    let pcm = server.speak(&wish(json!({ "response_format": "pcm", "stream": false, "sample_rate": 22_050 })));
    assert!(pcm.body == wav.body[44..], "{} and {} bytes", pcm.body.len(), wav.body.len());
    assert_eq!(pcm.header("x-sample-rate"), Some("22050"));
    let usual = server.speak(&wish(json!({ "response_format": "pcm", "stream": false })));
    assert_eq!(usual.header("x-sample-rate"), Some("24000"), "as OpenAI's clients play it");
    assert_eq!(usual.body.len() / 2, (spoken.len() * 24_000).div_ceil(22_050));

    let flac = server.speak(&wish(json!({ "response_format": "flac" })));
    assert_eq!((&flac.body[..4], flac.header("content-type")), (&b"fLaC"[..], Some("audio/flac")));
    let path = home().join("a.flac");
    fs::write(&path, &flac.body).unwrap();
    let decoded = host::audio::decode(&path).unwrap();
    let near = |(&decoded, &sample): (&f32, &i16)| (decoded - f32::from(sample) / 32_768.0).abs() < 1e-6;
    assert_eq!(decoded.samples.len(), spoken.len());
    assert!(decoded.samples.iter().zip(&spoken).all(near));

    let seconds = spoken.len() as f64 / 22_050.0;
    let heard_s = |answer: &Answer| {
        let wave = host::audio::decode_bytes(answer.body.clone(), f64::INFINITY).unwrap().0;
        assert!(wave.samples.iter().any(|sample| sample.abs() > 0.01), "silence");
        wave.samples.len() as f64 / f64::from(wave.rate_hz)
    };
    for (format, mime, rate_hz) in [("mp3", "audio/mpeg", "22050"), ("opus", "audio/ogg; codecs=opus", "48000")] {
        let whole = server.speak(&wish(json!({ "response_format": format, "stream": false })));
        assert_eq!((whole.header("content-type"), whole.header("x-sample-rate")), (Some(mime), Some(rate_hz)));
        assert!(whole.header("content-length").is_some() && whole.body.len() < wav.body.len() / 3, "{format}");
        assert!((heard_s(&whole) - seconds).abs() < 1e-3, "{format}: {} s of {seconds} s", heard_s(&whole));
        let streamed = server.speak(&wish(json!({ "response_format": format })));
        assert!(streamed.whole && streamed.header("content-length").is_none(), "{format} streams unless told not to");
        assert!(heard_s(&streamed) > seconds / 2.0, "{format}");
    }
    let asked_for_nothing = server.speak(&wish(json!({})));
    assert_eq!(asked_for_nothing.header("content-type"), Some("audio/mpeg"), "OpenAI's default");

    // A stream begins with a shorter clause, so its sound is its own.
    let streamed = server.speak(&wish(json!({ "stream_format": "audio", "response_format": "wav" })));
    assert!(streamed.whole && streamed.body.len() > 22_050);
    assert_eq!(streamed.body[40..44], u32::MAX.to_le_bytes(), "a length that is not known yet");
    let events = server.speak(&wish(json!({ "stream_format": "sse", "response_format": "pcm" })));
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    let text = events.text();
    let last: Value = serde_json::from_str(text.trim_end().rsplit("data: ").next().unwrap()).unwrap();
    assert_eq!(last["type"], "speech.audio.done");
    assert!(text.matches("speech.audio.delta").count() >= 2, "{text}");
}

#[test]
fn without_a_checkpoint_the_bundled_voice_and_its_speakers_are_served() {
    let server = Server::with(&["--device", "cpu"]);
    let list = server.get("/v1/voices").json();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|voice| voice["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["default", "anna", "ben", "clara", "henry", "linda", "oscar"]);
    let said = server.speak(&json!({ "input": "A fox.", "voice": "oscar", "response_format": "wav" }));
    assert!(said.body.len() > 10_000, "{} bytes", said.body.len());
}

#[test]
fn what_is_here_is_listed() {
    let voices = home().join("voices");
    fs::create_dir_all(&voices).unwrap();
    fs::copy(a_recording(), voices.join("anna.wav")).unwrap();
    fs::write(voices.join("notes.txt"), "not a voice").unwrap();
    let server = Server::start(&["--voices", "voices"]);
    assert_eq!(server.get("/healthz").text(), "ok\n");
    let list = server.get("/v1/voices").json();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|voice| voice["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &list["uploads"], &list["sample_rate"]), (vec!["default", "anna"], &false.into(), &22_050.into()));
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], "myxtts");
    assert_eq!(server.get("/v1/models/myxtts").json()["object"], "model");
    assert_eq!(server.get("/v1/models/other").code(), "model_not_found");
    assert_eq!(server.get("/elsewhere").code(), "not_found");
    let forbidden = call(&server.address, &request("DELETE", "/v1/voices/someone", &[], b"")).finish();
    assert_eq!(forbidden.code(), "uploads_off");
    assert_eq!(server.get(SPEECH).code(), "method_not_allowed");
    let speak = |voice: Value| server.speak(&json!({ "input": "A fox.", "voice": voice }));
    assert!(speak("anna".into()).body != speak("default".into()).body);
    assert!(speak(json!({ "id": "anna" })).body == speak("anna".into()).body);

    let page = server.get("/");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert!(!page.text().contains("{nonce}") && !page.text().contains("http"), "nothing comes from elsewhere");
    assert!(page.header("access-control-allow-origin").is_none());

    wait_until("rest", || server.figure("queue_depth") + server.figure("in_flight") == 0.0);
    let metrics = server.get("/metrics").text();
    for wanted in [
        "myxtts_requests_total{route=\"/v1/audio/speech\",code=\"200\"} 4",
        "myxtts_requests_total{route=\"/v1/models/{id}\",code=\"200\"} 1",
        "myxtts_requests_total{route=\"/v1/models/{id}\",code=\"404\"} 1",
        "myxtts_requests_total{route=\"/v1/voices/{id}\",code=\"403\"} 1",
        "myxtts_requests_total{route=\"other\",code=\"404\"} 1",
        "myxtts_first_audio_seconds_count 4",
        "myxtts_real_time_factor_count 4",
        "myxtts_queue_depth 0",
        "myxtts_in_flight 0",
        "myxtts_rejected_total 0",
    ] {
        assert!(metrics.contains(wanted), "{wanted} is not in:\n{metrics}");
    }
    assert!(server.figure("audio_seconds_total") > 0.1);
}

#[test]
fn sound_comes_before_all_is_spoken() {
    let server = Server::start(&[]);
    let start = Instant::now();
    let mut call = server.begin(&json!({ "input": long_text(20), "stream": true, "steps": 30 }));
    let first = call.chunk().unwrap();
    let first_after = start.elapsed();
    assert!(first.len() > 1000, "{} bytes", first.len());
    let mut chunks = 1;
    while !call.chunk().unwrap().is_empty() {
        chunks += 1;
    }
    let all_after = start.elapsed();
    assert!(chunks >= 10 && first_after < all_after / 4, "{chunks} chunks, {first_after:?} of {all_after:?}");
}

#[test]
fn a_short_request_does_not_wait_for_a_long_one() {
    let server = Server::start(&["--batch", "1"]);
    let mut long = server.begin(&long_wish());
    long.chunk().unwrap();
    let short = server.speak(&json!({ "input": "A fox.", "steps": 4 }));
    assert_eq!(short.status, 200);
    assert!(server.figure("in_flight") >= 1.0, "the long one is still under way");
}

#[test]
fn a_full_queue_turns_away_and_a_client_that_leaves_makes_room() {
    let server = Server::start(&["--queue", "2", "--batch", "1"]);
    let mut held: Vec<Call> = (0..2).map(|_| server.begin(&long_wish())).collect();
    assert!(held.iter().all(|call| call.status == 200));
    let refused = server.speak(&json!({ "input": "A fox." }));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.code(), "rate_limit_exceeded");
    assert_eq!(server.figure("rejected_total"), 1.0);

    drop(held.pop()); // in the middle of its stream
    wait_until("a place", || server.speak(&json!({ "input": "A fox." })).status == 200);
    assert!(server.get("/metrics").text().contains("myxtts_cut_total{reason=\"disconnected\"} 1"));
}

#[test]
fn a_client_that_does_not_wait_for_a_whole_answer_makes_room_too() {
    let server = Server::start(&["--queue", "1"]);
    let mut wish = long_wish();
    wish["stream"] = false.into();
    let mut stream = connect(&server.address);
    stream.write_all(&request("POST", SPEECH, &[JSON], wish.to_string().as_bytes())).unwrap();
    wait_until("accepted", || server.figure("queue_depth") + server.figure("in_flight") == 1.0);
    drop(stream);
    wait_until("a place", || server.speak(&json!({ "input": "A fox." })).status == 200);
}

#[test]
fn what_takes_too_long_is_refused_or_broken_off() {
    let server = Server::start(&["--timeout", "1"]);
    let mut wish = long_wish();
    wish["stream"] = false.into();
    let refused = server.speak(&wish);
    assert_eq!(refused.status, 504, "{}", refused.text());
    assert!(server.get("/metrics").text().contains("myxtts_cut_total{reason=\"timeout\"} 1"));
    wait_until("others are served", || server.speak(&json!({ "input": "A fox." })).status == 200);
}

#[test]
fn clients_that_do_not_read_hold_up_nobody() {
    let server = Server::start(&["--queue", "8"]);
    let mut lazy: Vec<TcpStream> = (0..4).map(|_| connect(&server.address)).collect();
    // Too many bytes for what lies between: an MP3 might fit there.
    let wish = json!({ "input": long_text(100), "stream": true, "steps": 1, "response_format": "wav" }).to_string();
    for stream in &mut lazy {
        stream.write_all(&request("POST", SPEECH, &[JSON], wish.as_bytes())).unwrap();
    }
    // They are given what fits between, and then pass their turns.
    let mut before = -1.0;
    wait_until("standstill", || {
        thread::sleep(Duration::from_secs(1));
        let passes = server.figure("passes_total");
        std::mem::replace(&mut before, passes) == passes && server.figure("in_flight") == 4.0
    });
    assert_eq!(server.speak(&json!({ "input": "A fox." })).status, 200);
    // One that reads again gets the rest.
    assert!(Call::read_head(lazy.remove(0)).finish().whole);
    // The others are gone after half a minute, and their places are free.
    let standstill = Instant::now();
    while server.figure("in_flight") > 0.0 {
        assert!(standstill.elapsed() < Duration::from_secs(60), "they are still waited for");
        thread::sleep(Duration::from_millis(500));
    }
    // Broken off by whoever noticed first, the worker or the connection; those that are only slow would have been finished.
    let figures = server.get("/metrics").text();
    let cut = figures.lines().filter(|line| line.starts_with("myxtts_cut_total{"));
    let cut: f64 = cut.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert_eq!(cut, 3.0, "{figures}");
}

#[test]
fn bad_requests_are_told_what_is_wrong_with_them() {
    let server = Server::start(&["--max-text", "500"]);
    let input = |input: &str| json!({ "input": input });
    let with = |field: &str, value: Value| json!({ "input": "A fox.", field: value });
    for (wish, status, code) in [
        (input(""), 400, "invalid_value"),
        (input("...!?"), 400, "invalid_value"),
        (input("🙂🙂"), 400, "invalid_value"),
        (input("\u{0}\u{1b}\u{7}"), 400, "invalid_value"),
        (input(&"a".repeat(501)), 400, "string_above_max_length"),
        (json!({ "voice": "alloy" }), 400, "invalid_json"),
        (json!({ "input": 3 }), 400, "invalid_json"),
        (with("voise", "alloy".into()), 400, "invalid_json"),
        (with("model", "gpt-5".into()), 404, "model_not_found"),
        (with("voice", "../../etc/passwd".into()), 400, "voice_not_found"),
        (with("voice", "/etc/passwd".into()), 400, "voice_not_found"),
        (with("voice", "run/best/voice.safetensors".into()), 400, "voice_not_found"),
        (with("voice", "voices\0/anna".into()), 400, "voice_not_found"),
        (with("voice", "".into()), 400, "voice_not_found"),
        (with("response_format", "aac".into()), 400, "unsupported_format"),
        (with("stream_format", "smoke".into()), 400, "invalid_value"),
        (with("language", "../xx".into()), 400, "invalid_value"),
        (with("sample_rate", 12_345.into()), 400, "invalid_value"),
        (with("speed", 0.1.into()), 400, "invalid_value"),
        (with("speed", Value::Null), 200, ""),
        (with("steps", 100_000.into()), 400, "invalid_value"),
        (with("temperature", (-1).into()), 400, "invalid_value"),
        (with("guidance", 1e300.into()), 400, "invalid_value"),
        (with("seed", (-1).into()), 400, "invalid_json"),
        (input(&"7".repeat(200)), 200, ""),
        (input("mixed العربية 日本語 fox \u{202e}\u{200b} end"), 200, ""),
        (input(&"a".repeat(500)), 200, ""),
    ] {
        let answer = server.speak(&wish);
        let told = if status == 200 { String::new() } else { answer.code() };
        assert_eq!((answer.status, told.as_str()), (status, code), "{wish}: {}", answer.text().escape_debug());
    }
    let post = |headers: &[&str], body: &[u8]| call(&server.address, &request("POST", SPEECH, headers, body)).finish();
    assert_eq!(post(&[JSON], b"{\"input\": \"a").code(), "invalid_json");
    assert_eq!(post(&[JSON], b"{\"input\": \"\xff\xfe\"}").code(), "invalid_json");
    assert_eq!(post(&[JSON], &b"[".repeat(10_000)).code(), "invalid_json");
    assert_eq!(post(&[JSON], b"").code(), "invalid_json");
    assert_eq!(post(&["content-type: text/plain"], b"{\"input\": \"a\"}").status, 415, "as another site's form would");
    assert_eq!(post(&[JSON], &b" ".repeat(3 << 20)).status, 413);
    let endless = format!("POST {SPEECH} HTTP/1.1\r\nhost: test\r\n{JSON}\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = [&b"10000\r\n"[..], &b" ".repeat(1 << 16), b"\r\n"].concat();
    let chunked = [endless.as_bytes(), &chunk.repeat(4), b"0\r\n\r\n"].concat();
    assert_eq!(call(&server.address, &chunked).finish().status, 413);
    assert_eq!(call(&server.address, b"no HTTP at all\r\n\r\n").status, 400);
    assert_eq!(server.speak(&input("Still here.")).status, 200);
}

#[test]
fn only_who_has_the_token_is_served() {
    fs::write(home().join("token"), "open sesame\n").unwrap();
    let server = Server::start(&["--token-file", "token"]);
    let get = |path: &str, headers: &[&str]| call(&server.address, &request("GET", path, headers, b"")).finish();
    for path in ["/v1/voices", "/v1/models", "/metrics"] {
        for headers in
            [&[][..], &["authorization: Bearer open"], &["authorization: open sesame"], &["authorization: B"]]
        {
            let refused = get(path, headers);
            assert_eq!((refused.status, refused.code().as_str()), (401, "invalid_api_key"), "{path} {headers:?}");
        }
    }
    assert_eq!(get("/v1/voices", &["authorization: Bearer open sesame"]).status, 200);
    assert_eq!(server.speak(&json!({ "input": "A fox." })).code(), "invalid_api_key");
    assert_eq!((get("/healthz", &[]).status, get("/", &[]).status), (200, 200));
    fs::write(home().join("empty"), "\n").unwrap();
    let output = binary(home()).args(["serve", "--checkpoint", "run", "--token-file", "empty"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn pages_of_other_sites_are_let_in_by_name() {
    let server = Server::start(&["--allow-origin", "https://good.example"]);
    let ask = |origin: &str| {
        let headers = [format!("origin: {origin}"), "access-control-request-method: POST".into()];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        call(&server.address, &request("OPTIONS", SPEECH, &headers, b"")).finish()
    };
    let allowed = |answer: &Answer| answer.header("access-control-allow-origin").map(str::to_owned);
    assert_eq!(allowed(&ask("https://good.example")).as_deref(), Some("https://good.example"));
    assert_eq!(allowed(&ask("https://evil.example")), None);
}

#[test]
fn a_voice_is_taken_from_a_recording_where_that_is_allowed() {
    let recording = fs::read(a_recording()).unwrap();
    let send = |server: &Server, body: &[u8]| {
        call(&server.address, &request("POST", "/v1/voices", &["content-type: audio/wav"], body)).finish()
    };
    assert_eq!(send(&Server::start(&[]), &recording).code(), "uploads_off");

    let server = Server::start(&["--allow-uploads"]);
    let id = send(&server, &recording).json()["id"].as_str().unwrap().to_owned();
    let tune: Vec<f32> = (0..66_150).map(|n| (n as f32 * 0.0627).sin() * 0.2).collect();
    let warned = send(&server, &host::audio::wav_bytes(&tune, 22_050)).json();
    assert!(warned["warnings"][0].as_str().unwrap().contains("music"), "{warned}");
    let speak = |voice: &str| server.speak(&json!({ "input": "A fox.", "voice": voice }));
    assert_eq!(speak(&id).status, 200);
    assert!(speak(&id).body != speak("default").body);
    assert!(!server.get("/v1/voices").text().contains(&id), "others do not see it");
    for (bad, status) in [
        (vec![0; 100], 400),
        (b"not audio at all".repeat(100), 400),
        (recording[..recording.len() / 2].to_vec(), 400),
        (silence(22_050), 400),
        (silence(200), 400),
        (vec![1; 11 << 20], 413),
    ] {
        let refused = send(&server, &bad);
        assert_eq!(refused.status, status, "{}", refused.text());
    }
    let forget = |id: &str| call(&server.address, &request("DELETE", &format!("/v1/voices/{id}"), &[], b"")).status;
    assert_eq!((forget(&id), forget(&id), forget("..%2f..%2fetc")), (204, 404, 404));
    assert_eq!(speak(&id).status, 400);
}

fn silence(count: usize) -> Vec<u8> {
    host::audio::wav_bytes(&vec![0.0; count], 22_050)
}

#[test]
fn nothing_that_was_accepted_is_lost_when_the_server_stops() {
    let mut server = Server::start(&[]);
    let address = server.address.clone();
    let client = |number: usize| {
        let address = address.clone();
        move || {
            let (mut done, mut busy) = (0, 0);
            let stream = number.is_multiple_of(2);
            let wish = json!({ "input": long_text(4), "steps": 4, "stream": stream }).to_string();
            let request = request("POST", SPEECH, &[JSON], wish.as_bytes());
            loop {
                let Ok(mut connection) = TcpStream::connect(&address) else { return (done, busy) };
                connection.write_all(&request).unwrap();
                let answer = Call::read_head(connection).finish();
                assert!(answer.whole, "cut after {} bytes", answer.body.len());
                match answer.status {
                    200 => done += 1,
                    429 | 503 => busy += 1,
                    other => panic!("{other}: {}", answer.text()),
                }
            }
        }
    };
    let clients: Vec<_> = (0..12).map(|number| thread::spawn(client(number))).collect();
    wait_until("load", || server.figure("audio_seconds_total") > 20.0);
    server.terminate();
    let counts: Vec<(u32, u32)> =
        clients.into_iter().map(|client| client.join().expect("no request is lost")).collect();
    assert!(counts.iter().map(|(done, _)| done).sum::<u32>() >= 12, "{counts:?}");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn who_sends_slowly_is_dropped_and_holds_up_nobody() {
    let server = Server::start(&[]);
    let slow_heads: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = connect(&server.address);
            stream.write_all(b"POST /v1/audio/speech HTTP/1.1\r\nhost: t").unwrap();
            stream
        })
        .collect();
    let mut slow_body = connect(&server.address);
    let head = request("POST", SPEECH, &[JSON, "x-slow: yes"], b"");
    let head = String::from_utf8(head).unwrap().replace("content-length: 0", "content-length: 1000");
    slow_body.write_all(head.as_bytes()).unwrap();
    assert_eq!(server.speak(&json!({ "input": "A fox." })).status, 200);
    // A byte now and then does not help.
    let start = Instant::now();
    let (mut one, rest) = slow_heads.split_first().unwrap();
    while start.elapsed() < Duration::from_secs(9) {
        let _ = one.write_all(b"a");
        slow_body.write_all(b" ").unwrap();
        thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(Call::read_head(slow_body).finish().status, 408);
    for mut stream in rest.iter().chain([one]) {
        let mut left = Vec::new();
        match stream.read_to_end(&mut left) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let output = binary(home()).args(["serve", "--checkpoint", "run", "--port", port]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains(&server.address), "{told}");
}
