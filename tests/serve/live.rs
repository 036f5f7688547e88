//! The live view: a training that shows itself, and runs that others left on disk, in a real browser and over bare
//! connections.

use crate::browser::{Browser, browser_or_skip};
use crate::http::{Answer, call, connect, request};
use crate::{binary, home, wait_until};
use host::run_log::{Alignment, SampleClip, SampleFolder};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const JSON: &str = "content-type: application/json";

/// A program that says where it can be seen.
struct Shown {
    child: Child,
    /// The whole address, a token included.
    url: String,
    address: String,
    /// All that it has said so far.
    said: Arc<Mutex<String>>,
}

impl Shown {
    /// `mark`: what stands in front of the address, on stdout or stderr.
    fn start(mut command: Command, mark: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        let said: Arc<Mutex<String>> = Arc::default();
        let read = |source: Box<dyn std::io::Read + Send>| {
            let (sender, mark, said) = (sender.clone(), mark.to_owned(), said.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(source).lines().map_while(Result::ok) {
                    said.lock().unwrap().push_str(&format!("{line}\n"));
                    if let Some(url) = line.strip_prefix(&mark) {
                        let _ = sender.send(url.to_owned());
                    }
                }
            });
        };
        read(Box::new(out));
        read(Box::new(err));
        let url = receiver.recv_timeout(Duration::from_secs(60)).expect("it says where it is");
        let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        Shown { child, url, address, said }
    }

    /// `myxtts live` on a folder.
    fn live(folder: &Path, more: &[&str]) -> Self {
        let mut command = binary(home());
        command.args(["live", folder.to_str().unwrap(), "--port", "0"]).args(more);
        Self::start(command, "listening on ")
    }

    fn get(&self, path: &str) -> Answer {
        call(&self.address, &local("GET", path, &[], b"")).finish()
    }

    /// What the recogniser cannot do; null where all is well, or nobody listens.
    fn listener_error(&self) -> Value {
        self.get("/api/runs").json()["listener"]["error"].clone()
    }

    /// As Ctrl-C does, and how long it takes to end then.
    fn interrupt(&mut self) -> Duration {
        let start = Instant::now();
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        self.child.wait().unwrap();
        start.elapsed()
    }

    fn runs(&self) -> Vec<Value> {
        self.get("/api/runs").json()["runs"].as_array().unwrap().clone()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may have ended already
        let _ = self.child.wait();
    }
}

/// A request that names this machine, as a browser's does.
fn local(method: &str, path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let text = request(method, path, headers, body);
    String::from_utf8_lossy(&text).replacen("host: localhost", "host: 127.0.0.1", 1).into_bytes()
}

/// Opens the page and waits until it shows a run.
fn open(browser: &Browser, shown: &Shown) {
    browser.post("/url", &json!({ "url": shown.url }));
    browser.wait("document.body.dataset.state === 'shown'");
    browser.wait("chartList.length > 0 && chartList[0].lines.length > 0");
}

fn text(browser: &Browser, id: &str) -> String {
    browser.script(&format!("return document.getElementById('{id}').innerText")).as_str().unwrap().to_owned()
}

/// Figures of a run that another machine has left; `spike`: a step whose loss stands out.
fn leave_run(folder: &Path, steps: u64, every: u64, spike: u64) {
    fs::create_dir_all(folder.join("logs")).unwrap();
    let mut lines = String::new();
    for step in (every..=steps).step_by(every as usize) {
        let loss = if step == spike { 77.0 } else { 0.2 + 1.0 / (1.0 + step as f64 / steps as f64) };
        let (share, time) = (step as f64 / steps as f64, 1_700_000_000 + step);
        // As long as a line of a real run.
        write!(lines, "{{\"step\":{step},\"time\":{time},\"loss\":{loss},\"learning_rate\":{},", 1e-3 * (1.0 - share))
            .unwrap();
        write!(lines, "\"step_ms\":{},\"step_cv\":0.0213,\"data_readiness\":0.9991,\"epoch\":3", 8.0 + share).unwrap();
        for figure in 0..32 {
            write!(lines, ",\"stage/figure_{figure}_ms\":{}", 0.123_456_789_012 * share * f64::from(figure)).unwrap();
        }
        lines.push_str("}\n");
        if step % (steps / 4) == 0 {
            writeln!(lines, "{{\"step\":{step},\"time\":{time},\"validation/flow\":0.2,\"validation/loss\":{loss}}}")
                .unwrap();
        }
    }
    fs::write(folder.join("logs/metrics.jsonl"), lines).unwrap();
}

#[test]
fn a_training_shows_itself_is_heard_and_does_what_it_is_asked() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    let folder = home().join("shown");
    let often = crate::CONFIG.replace("log_step: 20, val_step: 100", "log_step: 4, val_step: 10");
    fs::write(home().join("often.yaml"), often).unwrap();
    let mut command = binary(home());
    command.args(["train", "--config", "often.yaml", "--train-data", "corpus", "--checkpoint-dir", "shown"]);
    command.args(["--steps", "1000000", "--live", "--live-port", "0", "--live-control"]);
    let hears = ["--asr-command", "sh -c 'echo the north wind and the storm' {wav}"];
    command.args(hears);
    let mut shown = Shown::start(command, "live view: ");
    assert!(shown.url.starts_with("http://127.0.0.1:") && shown.url.contains("/#token="), "{}", shown.url);

    // A client that never reads: the run must not care.
    let mut stalled = connect(&shown.address);
    stalled.write_all(&local("GET", "/api/stream", &[], b"")).unwrap();

    open(&browser, &shown);
    browser.wait("!document.getElementById('timeline-box').hidden");
    assert_eq!(browser.script("return location.hash"), json!(""), "the token is not left in the address");
    assert_eq!(text(&browser, "state"), "running");
    assert!(
        text(&browser, "figures").contains("Speech a second") && text(&browser, "stages").contains("Training step")
    );
    let step = |browser: &Browser| browser.script("return pulse.step").as_u64().unwrap();
    let before = step(&browser);
    wait_until("steps go on", || step(&browser) > before + 3);
    let drawn = crate::browser::colours(&browser, "timeline");
    assert!(drawn > 4, "{drawn} colours in the timeline");
    browser.wait("['good', 'bad'].some(kind => document.getElementById('verdict').classList.contains(kind))");

    // What may be asked for, with the token; and nothing without it.
    let refused = call(&shown.address, &local("POST", "/api/control", &[JSON], b"{\"action\":\"stop\"}")).finish();
    assert_eq!((refused.status, refused.code().as_str()), (401, "invalid_api_key"));
    browser.click("#save");
    wait_until("it saves when asked", || {
        fs::read_dir(&folder).unwrap().flatten().any(|it| it.file_name().to_string_lossy().starts_with("step-"))
    });
    browser.type_into("#note", "یادداشت: lower the rate?");
    browser.click("#note-form button:not([type])");
    browser.wait("details.events.some(event => event.kind === 'note')");
    // Spoken at every validation.
    browser.wait("!document.getElementById('sound').hidden && document.querySelectorAll('.clip').length >= 1");
    // And listened to, where the run leaves time for it.
    let heard = folder.join("logs/samples/heard.jsonl");
    wait_until("something was heard", || fs::read_to_string(&heard).is_ok_and(|lines| !lines.is_empty()));
    assert_eq!(browser.complaints(), json!([]), "nothing broke the policy");
    browser.script("window.confirm = () => true");
    browser.click("#stop");
    assert_eq!(shown.child.wait().unwrap().code(), Some(130), "it saved and stopped");
    browser.wait("document.getElementById('link').classList.contains('off')");
    drop(stalled);
    browser.complaints(); // that the stream has broken off

    // Later, from its files alone.
    let later = Shown::live(&folder, &hears);
    open(&browser, &later);
    assert_eq!(text(&browser, "state"), "stopped");
    // What is left is listened to now, held-out clips as well: their texts are known.
    browser
        .wait("[...document.querySelectorAll('.clip')].every(clip => clip.querySelector('.heard mark, .heard del'))");
    browser.wait("chartList.some(chart => chart.title === 'Word error, %' && chart.lines.length > 0)");
    assert!(text(&browser, "event-list").contains("lower the rate?"));
    assert!(text(&browser, "corpus-sum").contains("clips"), "{}", text(&browser, "corpus-sum"));
    browser.wait("document.querySelector('.clip')?.shown");
    let painted = browser.script(
        "const canvas = document.querySelector('.player canvas');
         const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
         return new Set(new Uint32Array(data.buffer)).size",
    );
    assert!(painted.as_u64().unwrap() > 50, "a spectrogram of {painted} colours");
    browser.click(".player button");
    browser.wait("audioContext && audioContext.currentTime - playing?.began > 0.1");
    // That the run's own page went away with it is one the network has.
    let complaints = browser.complaints();
    let others: Vec<_> = complaints.as_array().unwrap().iter().filter(|it| it["source"] != "network").collect();
    assert!(others.is_empty(), "nothing broke the policy: {others:?}");
    let answer = later.get(&format!("/api/runs/{}/sound/0/recording", later.runs()[0]["id"].as_str().unwrap()));
    assert_eq!((&answer.body[..4], answer.header("content-type")), (&b"fLaC"[..], Some("audio/flac")));
}

/// Three runs and two that went wrong: side by side, on a wide screen and on a phone, from left to right and from right
/// to left, by mouse and by keyboard.
#[test]
fn runs_side_by_side_whatever_became_of_them() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    let runs = tempfile::tempdir().unwrap();
    for name in ["anna", "ben", "deep/clara", "killed", "broken"] {
        leave_run(&runs.path().join(name), 400, 10, 0);
    }
    let process = host::run_log::ProcessFacts { start_ticks: 1, ..host::run_log::ProcessFacts::own(None) };
    let facts = host::run_log::RunFile { process, steps: Some(1000), ..Default::default() };
    facts.write(&runs.path().join("killed/logs")).unwrap();
    let broken = runs.path().join("broken/logs/metrics.jsonl");
    let mut bytes = fs::read(&broken).unwrap();
    let third = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(2).unwrap().0 + 1;
    bytes.splice(third..third, *b"\xff\x00 not JSON\n{\"step\":7,\"lo\n");
    bytes.truncate(bytes.len() - 40); // and the last line is still being written
    fs::write(&broken, bytes).unwrap();
    for entry in ["<img src=x onerror=alert(1)>", "anna"] {
        fs::create_dir_all(runs.path().join(entry).join("logs")).unwrap();
        fs::copy(runs.path().join("ben/logs/metrics.jsonl"), runs.path().join(entry).join("logs/metrics.jsonl"))
            .unwrap();
    }
    let shown = Shown::live(runs.path(), &[]);
    open(&browser, &shown);
    let rows = browser.script("return [...document.querySelectorAll('#run-table tbody tr')].map(row => row.innerText)");
    assert_eq!(rows.as_array().unwrap().len(), 6, "{rows}");
    let choose = |name: &str| {
        browser.script(&format!(
            "[...document.querySelectorAll('#run-table button')].find(it => it.textContent === {}).click()",
            json!(name)
        ));
        browser.wait(&format!(
            "details?.name === {} && chartList.length > 0 && chartList[0].lines.length > 0",
            json!(name)
        ));
    };
    choose("killed");
    assert_eq!(text(&browser, "state"), "killed");
    assert!(text(&browser, "verdict").contains("after step 400"), "{}", text(&browser, "verdict"));
    choose("broken");
    browser.wait("document.getElementById('reading').textContent.includes('2 lines')");
    assert_eq!(browser.script("return chartList[0].lines[0].data.step.length"), json!(40), "the others are shown");

    // Three over each other.
    choose("anna");
    for other in ["ben", "deep/clara"] {
        browser.script(&format!("document.querySelector('#run-table input[aria-label$=\"{other}\"]').click()"));
    }
    browser.wait("chartList[0].lines.length === 6");
    let colours = browser.script("return new Set(chartList[0].lines.map(line => line.colour)).size");
    assert_eq!(colours, json!(3), "a colour for each run");

    // By keyboard: a value is read, and one looks closer.
    browser.type_into(".chart canvas", "\u{e011}\u{e014}"); // Home, right
    assert!(browser.script("return chartList[0].legend.textContent").as_str().unwrap().starts_with("step "));
    browser.type_into(".chart canvas", "+");
    browser.wait("view.range !== null");
    browser.type_into(".chart canvas", "0");
    browser.wait("view.range === null");
    let named = browser.script("return document.querySelector('.chart canvas').getAttribute('aria-label')");
    assert!(named.as_str().unwrap().starts_with("Loss: "), "{named}");
    let unnamed = browser.script(
        "return [...document.querySelectorAll('button, input, select')].filter(it => it.offsetParent && !it.textContent.trim() && !it.ariaLabel && !it.labels?.length).length",
    );
    assert_eq!(unnamed, json!(0), "every control has a name");

    // A phone; and Persian.
    let narrow = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": { "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true } });
    browser.post("/goog/cdp/execute", &narrow);
    browser.script(
        "const menu = document.getElementById('language'); menu.value = 'fa'; menu.dispatchEvent(new Event('change'))",
    );
    browser.wait("document.documentElement.dir === 'rtl' && chartList.length > 0 && chartList[0].lines.length > 0");
    assert_eq!(text(&browser, "now-title"), "اکنون");
    let wide = browser.script("return document.documentElement.scrollWidth - innerWidth");
    assert!(wide.as_i64().unwrap() <= 0, "{wide} pixels stand over");
    assert_eq!(browser.complaints(), json!([]), "nothing broke the policy, a name that looks like a page included");
    let asked = browser.script(
        "return performance.getEntriesByType('resource').filter(it => !it.name.startsWith(location.origin)).length",
    );
    assert_eq!(asked, json!(0), "nothing is asked of anybody else");
}

/// Samples of a run that another machine has left: two clips with a text, and one without.
fn leave_samples(folder: &Path) {
    leave_run(folder, 400, 10, 0);
    let clip = |id: Option<&str>, text: &str| SampleClip {
        id: id.map(str::to_owned),
        text: text.into(),
        language: "en".into(),
        symbols: vec!["a".into()],
    };
    let clips = [clip(Some("c1"), "The cat sat on the mat."), clip(Some("c2"), ""), clip(None, "One, two, three.")];
    let samples = SampleFolder::of(&folder.join("logs"));
    samples.begin(clips.to_vec(), None).unwrap();
    let sound: Vec<f32> = (0..22_050).map(|n| (n as f32 * 0.05).sin() * 0.3).collect();
    for (step, clip) in [100, 200].into_iter().flat_map(|step| (0..3).map(move |clip| (step, clip))) {
        samples.write(clip, step, &sound, 22_050, &Alignment::default()).unwrap();
    }
    samples.write_recording(0, &sound, 22_050).unwrap();
}

/// Hears what a table says, by the name of the file.
const TABLE: &str = r#"
echo loading a model
while read -r path; do
    case $(basename "$path" .wav) in
        0-recording) text="the cat sat on the mat" ;;
        0-100) text="a hat on the mat" ;;
        2-100) text="" ;;
        0-200) text="the cat sat on the the mat" ;;
        2-200) text="one 2 tree" ;;
    esac
    echo "$path|$text"
done
"#;

#[test]
fn what_was_spoken_is_listened_to_once_and_its_wrong_words_are_shown() {
    let runs = tempfile::tempdir().unwrap();
    let run = runs.path().join("anna");
    leave_samples(&run);
    let heard = || fs::read_to_string(run.join("logs/samples/heard.jsonl")).unwrap_or_default();
    // What an earlier try has heard, and a line that was cut when its machine went down.
    let earlier = "{\"clip\":0,\"step\":100,\"text\":\"a hat on the mat\",\"edits\":3,\"of\":6}\n{\"clip\":2,\"st";
    fs::write(run.join("logs/samples/heard.jsonl"), earlier).unwrap();
    let script = runs.path().join("hear.sh");
    let stat = runs.path().join("stat");
    fs::write(&script, format!("cat /proc/$$/stat > {}\n{TABLE}", stat.display())).unwrap();
    let command = format!("sh {}", script.display());

    let shown = Shown::live(runs.path(), &[]);
    assert_eq!(shown.get("/api/runs").json()["listener"], Value::Null);
    drop(shown);
    assert_eq!(heard(), earlier, "nobody listens unasked");

    let mut shown = Shown::live(runs.path(), &["--asr-command", &command]);
    let left = |shown: &Shown| shown.get("/api/runs").json()["listener"]["behind"].as_u64();
    wait_until("all was heard", || heard().lines().count() == 6 && left(&shown) == Some(0));
    assert!(heard().starts_with(earlier) && !heard().contains("\"clip\":1"), "{}", heard());
    let priority = fs::read_to_string(&stat).unwrap();
    assert_eq!(priority.rsplit(')').next().unwrap().split(' ').nth(17), Some("19"), "the lowest priority: {priority}");
    let id = shown.runs()[0]["id"].as_str().unwrap().to_owned();
    let curves = shown.get(&format!("/api/runs/{id}/curves?names=loss,word_error_percent")).json();
    // Counted by hand: 3 of 6 and 3 of 3 are wrong; then 1 of 6 and 1 of 3, for 2 is two.
    let wanted = json!({ "step": [100, 200], "mean": [66.6667, 22.2222] });
    assert_eq!(curves["series"]["word_error_percent"], wanted);
    assert_eq!(curves["series"]["loss"]["step"].as_array().unwrap().len(), 40);
    let words = shown.get(&format!("/api/runs/{id}/heard/2/200")).json();
    let pair = |wanted: &str, heard: &str| json!({ "wanted": wanted, "heard": heard });
    assert_eq!(words["words"], json!([pair("one", "one"), pair("two", "two"), pair("three", "tree")]));
    for nowhere in ["1/100", "0/300", "7/100", "0/x", "0/..%2f..%2fheard"] {
        assert_eq!(shown.get(&format!("/api/runs/{id}/heard/{nowhere}")).status, 404, "{nowhere}");
    }
    assert!(shown.interrupt() < Duration::from_secs(5));

    // Again: it is not listened to what was heard, and the page shows it without a recogniser as well.
    fs::remove_file(&stat).unwrap();
    let before = heard();
    let again = Shown::live(runs.path(), &["--asr-command", &command]);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((left(&again), heard(), stat.exists()), (Some(0), before, false));
    drop(again);
    let shown = Shown::live(runs.path(), &[]);
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    open(&browser, &shown);
    browser.wait("document.querySelectorAll('.clip')[2]?.querySelector('.heard mark')");
    let told = browser.script("return document.querySelectorAll('.clip')[2].querySelector('.heard').textContent");
    assert_eq!(told, json!("Heard: one two tree (instead of three)  · Word error 33 %"));
    let told = browser.script("return document.querySelector('.clip .heard ins').firstChild.textContent");
    assert_eq!(told, json!("the"));
    assert_eq!(text(&browser, "when-error"), "Word error 22 %");
    assert!(text(&browser, "figures").contains("Word error\n22 %"), "{}", text(&browser, "figures"));
    browser.wait("chartList.some(chart => chart.title === 'Word error, %' && chart.lines.length === 1)");
    browser
        .script("const when = document.getElementById('when'); when.value = 0; when.dispatchEvent(new Event('input'))");
    browser
        .wait("document.querySelectorAll('.clip')[2].querySelector('.heard').textContent.startsWith('Heard: nothing')");
    assert_eq!(text(&browser, "when-error"), "Word error 67 %");
    assert_eq!(browser.complaints(), json!([]), "nothing broke the policy");
}

#[test]
fn a_recogniser_that_fails_or_hangs_is_told_of_once_and_harms_nothing() {
    let runs = tempfile::tempdir().unwrap();
    leave_samples(&runs.path().join("anna"));
    let heard = runs.path().join("anna/logs/samples/heard.jsonl");
    let said = |shown: &Shown, what: &str| shown.said.lock().unwrap().matches(what).count();

    let shown = Shown::live(runs.path(), &["--asr-command", "sh -c 'echo out of memory >&2; exit 3' {wav}"]);
    wait_until("it is given up", || said(&shown, "not asked again") == 1);
    let error = shown.listener_error();
    assert!(error.as_str().unwrap().contains("out of memory") && said(&shown, "out of memory") == 1, "{error}");
    assert!(!heard.exists() && shown.runs().len() == 1);
    let profile = tempfile::tempdir().unwrap();
    if let Some(browser) = browser_or_skip(&profile) {
        open(&browser, &shown);
        browser.wait("document.getElementById('listening').textContent.includes('out of memory')");
    }
    drop(shown);

    let shown = Shown::live(runs.path(), &["--asr-timeout", "1", "--asr-command", "sleep 60"]);
    wait_until("it is ended", || shown.listener_error().as_str().is_some_and(|it| it.contains("longer than 1 s")));
    wait_until("it is said", || said(&shown, "--asr-timeout") == 1);
    drop(shown);

    // Ctrl-C ends it, too, while it listens.
    let number = runs.path().join("number");
    let command = format!("sh -c 'echo $$ > {0}.new; mv {0}.new {0}; sleep 600' {{wav}}", number.display());
    let mut shown = Shown::live(runs.path(), &["--asr-command", &command]);
    wait_until("it listens", || number.exists());
    assert!(shown.interrupt() < Duration::from_secs(5));
    let process = format!("/proc/{}", fs::read_to_string(&number).unwrap().trim());
    assert!(!Path::new(&process).exists(), "the recogniser is gone as well");

    // One that fails now and then: what it could hear is written, and the others are tried once.
    let some = "sh -c 'case $0 in *2-200*) exit 1 ;; esac; echo the cat' {wav}";
    let shown = Shown::live(runs.path(), &["--asr-command", some]);
    wait_until("all others were heard", || fs::read_to_string(&heard).is_ok_and(|it| it.lines().count() == 4));
    wait_until("all is well again", || shown.listener_error().is_null());
}

#[test]
fn a_million_steps_open_at_once_with_every_spike() {
    let runs = tempfile::tempdir().unwrap();
    leave_run(&runs.path().join("long"), 1_000_000, 10, 567_890);
    let size = fs::metadata(runs.path().join("long/logs/metrics.jsonl")).unwrap().len();
    assert!(size > 100 << 20, "{size} bytes, as a real run has");
    let shown = Shown::live(runs.path(), &[]);
    let id = shown.runs()[0]["id"].as_str().unwrap().to_owned();
    let start = Instant::now();
    let mut answers = 0;
    let curve = loop {
        let curves = shown.get(&format!("/api/runs/{id}/curves?names=loss,step_ms")).json();
        answers += 1;
        if curves["read_bytes"] == curves["size_bytes"] {
            break curves["series"]["loss"].clone();
        }
    };
    println!("{} MB in {:.2} s, {answers} answers", size >> 20, start.elapsed().as_secs_f64());
    // Under a second on cores of its own; a busy machine gets more.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let list =
        |name: &str| -> Vec<f64> { curve[name].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect() };
    let (steps, max) = (list("step"), list("max"));
    assert!((500..=2048).contains(&steps.len()));
    let spike = max.iter().position(|value| *value == 77.0).expect("the spike is there");
    assert!((steps[spike] - 567_890.0).abs() < 2_000.0, "{}", steps[spike]);
    // Closer: every figure of some steps.
    let close = shown.get(&format!("/api/runs/{id}/curves?names=loss&from=567800&to=568000")).json();
    let loss = &close["series"]["loss"];
    assert_eq!((loss["step"].as_array().unwrap().len(), &loss["mean"][9]), (21, &json!(77.0)));
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    open(&browser, &shown);
    let took = browser.script("return performance.now()").as_f64().unwrap();
    println!("the page shows it {took:.0} ms after it was opened");
    assert!(took < 5000.0, "{took} ms");
}

#[test]
fn nothing_outside_the_runs_can_be_reached_and_only_this_machine_reads_without_a_token() {
    let runs = tempfile::tempdir().unwrap();
    leave_run(&runs.path().join("a"), 100, 10, 0);
    fs::write(runs.path().join("secret.flac"), "fLaC secret").unwrap();
    let shown = Shown::live(runs.path(), &[]);
    assert!(shown.address.starts_with("127.0.0.1:"));
    let id = shown.runs()[0]["id"].as_str().unwrap().to_owned();
    for path in [
        "/api/runs/../../../../etc/passwd",
        "/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/etc/passwd",
        "/secret.flac",
        &format!("/api/runs/{id}/sound/0/..%2f..%2f..%2fsecret"),
        &format!("/api/runs/{id}/sound/0/recording"),
        &format!("/api/runs/{id}/sound/-1/1"),
        &format!("/api/runs/{id}/clip/0/x"),
        "/api/stream",
    ] {
        let answer = shown.get(path);
        assert!([400, 404].contains(&answer.status), "{path}: {}", answer.status);
    }
    // A page of another site whose name points here.
    let foreign =
        String::from_utf8(request("GET", "/api/runs", &[], b"")).unwrap().replace("localhost", "evil.example");
    assert_eq!(call(&shown.address, foreign.as_bytes()).finish().status, 401);
    let control = call(&shown.address, &local("POST", "/api/control", &[JSON], b"{\"action\":\"stop\"}")).finish();
    assert_eq!(control.code(), "control_off");
    let page = shown.get("/");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert!(!page.text().contains("{nonce}") && !page.text().contains("http://") && !page.text().contains("https://"));

    // Beyond this machine, nothing without the token.
    let token = runs.path().join("token");
    fs::write(&token, "a secret of ours\n").unwrap();
    let open = Shown::live(runs.path(), &["--host", "0.0.0.0", "--token-file", token.to_str().unwrap()]);
    let port = open.address.rsplit(':').next().unwrap();
    let ask =
        |headers: &[&str]| call(&format!("127.0.0.1:{port}"), &local("GET", "/api/runs", headers, b"")).finish().status;
    assert_eq!(ask(&[]), 401);
    assert_eq!(ask(&["authorization: Bearer another"]), 401);
    assert_eq!(ask(&["authorization: Bearer a secret of ours"]), 200);
}

/// What is spoken for ears changes nothing that is trained.
#[test]
fn a_run_that_is_heard_trains_the_same_weights_bit_for_bit() {
    let weights = |name: &str, clips: &str| {
        let dir = TempDir::new_in(home()).unwrap();
        let config = dir.path().join("config.yaml");
        let text = crate::CONFIG
            .replace("val_step: 100", &format!("val_step: 5, sample_clips: {clips}"))
            .replace("steps: 60", "steps: 12");
        fs::write(&config, text).unwrap();
        let run = dir.path().join(name);
        let args = [
            "train",
            "--config",
            config.to_str().unwrap(),
            "--train-data",
            "corpus",
            "--from-scratch",
            "--checkpoint-dir",
        ];
        let output = binary(home()).args(args).arg(&run).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let spoken = fs::read_dir(run.join("logs/samples/0")).map_or(0, |files| files.count());
        (fs::read(run.join("step-00000012/model.safetensors")).unwrap(), spoken)
    };
    let ((silent, none), (heard, some)) = (weights("silent", "0"), weights("heard", "2"));
    assert!(silent == heard, "other weights");
    assert_eq!((none, some), (0, 7), "three validations, sound and alignment each, and the recording");
}
