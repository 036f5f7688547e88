//! The page in a real browser, driven as WebDriver says. Needs `chromedriver` and Chromium; `scripts/test-browser.sh` installs
//! them where it may.

use crate::http::{call, request};
use crate::{Server, a_recording, binary, home, long_wish, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// How WebDriver names an element in its answers.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
const CONTROL: &str = "\u{e009}";
const ENTER: &str = "\u{e007}";

pub struct Browser {
    driver: Child,
    /// Held open: writing into a closed pipe would end the driver.
    _output: Lines<BufReader<ChildStdout>>,
    address: String,
    session: String,
}

impl Browser {
    /// None where there is no browser.
    fn start(profile: &str) -> Option<Self> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = driver.ok()?;
        let mut output = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = output.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        })?;
        let mut browser =
            Browser { driver, _output: output, address: format!("127.0.0.1:{port}"), session: String::new() };
        let mut args = vec![format!("--user-data-dir={profile}"), "--autoplay-policy=user-gesture-required".to_owned()];
        args.extend(
            [
                "headless",
                "no-sandbox",
                "disable-gpu",
                "disable-dev-shm-usage",
                "disable-quic",
                "no-first-run",
                "disable-background-networking",
                "disable-component-update",
                "disable-sync",
                "window-size=900,1000",
            ]
            .map(|flag| format!("--{flag}")),
        );
        let options = json!({ "goog:chromeOptions": { "args": args }, "goog:loggingPrefs": { "browser": "WARNING" } });
        let made = browser.ask("POST", "", &json!({ "capabilities": { "alwaysMatch": options } }));
        browser.session = format!("/{}", made["sessionId"].as_str()?);
        Some(browser)
    }

    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let path = format!("/session{}{path}", self.session);
        let json = ["content-type: application/json"];
        call(&self.address, &request(method, &path, &json, body.as_bytes())).finish().json()["value"].take()
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let value = self.ask("POST", path, body);
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    fn element(&self, css: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": css }));
        format!("/element/{}", found[ELEMENT].as_str().unwrap())
    }

    pub fn click(&self, css: &str) {
        self.post(&format!("{}/click", self.element(css)), &json!({}));
    }

    pub fn type_into(&self, css: &str, text: &str) {
        self.post(&format!("{}/value", self.element(css)), &json!({ "text": text }));
    }

    pub fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    pub fn wait(&self, condition: &str) {
        wait_until(condition, || self.script(&format!("return Boolean({condition})")) == json!(true));
    }

    /// Messages of the console, policy violations among them.
    pub fn complaints(&self) -> Value {
        self.post("/se/log", &json!({ "type": "browser" }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.ask("DELETE", "", &Value::Null);
        }
        let _ = self.driver.kill(); // may have ended already
        let _ = self.driver.wait();
    }
}

/// How many colours a canvas shows.
pub fn colours(browser: &Browser, canvas: &str) -> u64 {
    let script = format!(
        "const canvas = document.getElementById('{canvas}');
         const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
         return new Set(new Uint32Array(data.buffer)).size"
    );
    browser.script(&script).as_u64().unwrap()
}

/// A browser with a profile of its own, or word that the test was skipped.
pub fn browser_or_skip(profile: &TempDir) -> Option<Browser> {
    let browser = Browser::start(profile.path().to_str().unwrap());
    if browser.is_none() {
        host::skipped("no chromedriver and Chromium (see scripts/test-browser.sh)");
    }
    browser
}

#[test]
fn the_page_speaks_shows_and_keeps() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    let server = Server::start(&["--allow-uploads"]);
    browser.post("/url", &json!({ "url": format!("http://{}/", server.address) }));
    browser.wait("document.querySelectorAll('#voice option').length === 1");

    // Text of either direction; speaking is one press, and sound plays while it comes.
    browser.type_into(
        "#text",
        "The old fox sings near the quiet river. It sings again, and again, all through the night.",
    );
    browser.click("#speak");
    browser.wait("document.body.dataset.state === 'done'");
    browser.wait("speech.heard > 0.2"); // the live sound really runs
    assert!(colours(&browser, "wave") >= 2 && colours(&browser, "mel") > 50);
    let seconds = browser.script("return speech.length").as_f64().unwrap();
    browser.wait("document.getElementById('player').readyState >= 1");
    let kept = browser.script("return document.getElementById('player').duration").as_f64().unwrap();
    assert!(seconds > 1.0 && (kept - seconds).abs() < 0.05, "{seconds} s spoken, {kept} s kept");
    let link = browser.script("const link = document.getElementById('download'); return [link.href, link.download]");
    assert!(link[0].as_str().unwrap().starts_with("blob:http://") && link[1] == "speech.wav", "{link}");
    browser.script("document.getElementById('player').play()");
    browser.wait("document.getElementById('player').currentTime > 0.1");

    // A recording becomes a voice, and the keyboard is enough.
    browser.type_into("#file", a_recording().to_str().unwrap());
    browser.wait("document.getElementById('voice').value.startsWith('upload-')");
    browser.script("document.body.dataset.state = 'waiting'");
    browser.type_into("#text", &format!("{CONTROL}{ENTER}"));
    browser.wait("document.body.dataset.state === 'done'");
    assert_eq!(browser.complaints(), json!([]), "the console is clean: nothing broke the policy");

    // Persian runs from right to left; what cannot be spoken is told.
    browser.script("document.getElementById('text').value = ''");
    browser.type_into("#text", "سلام");
    let direction = browser.script("return document.getElementById('text').matches(':dir(rtl)')");
    assert_eq!(direction, json!(true));
    browser.click("#speak");
    browser.wait("document.body.dataset.state === 'error'");
    let told = browser.script("return document.getElementById('error').innerText");
    assert!(told.as_str().unwrap().contains("nothing to speak"), "{told}");
}

/// Plays `window.sound` for a moment, and gives its length, which is null where it is endless.
fn play(browser: &Browser, what: &str) -> Value {
    browser.wait("fault || sound.readyState >= 2");
    browser.click("#text"); // browsers play to those alone who have just touched the page
    browser.script("sound.play().catch(error => { window.fault = String(error); })");
    browser.wait("fault || sound.currentTime > 0.2");
    let told = browser.script("return [fault, sound.duration]");
    assert!(told[0].is_null(), "{what}: {told}");
    told[1].clone()
}

/// What a chat front end does: it fetches, and plays what came as what the answer calls it.
#[test]
fn a_browser_plays_what_front_ends_ask_for() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    let server = Server::start(&[]);
    browser.post("/url", &json!({ "url": format!("http://{}/", server.address) }));
    browser.script(
        "window.ask = wish => {
             window.sound = new Audio(); window.fault = null;
             return fetch('/v1/audio/speech', {
                 method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(wish) });
         }",
    );
    let mut lengths = Vec::new();
    for format in ["wav", "flac", "mp3", "opus"] {
        for stream in [false, true] {
            let wish =
                json!({ "input": "The old fox sings. It sings again.", "response_format": format, "stream": stream });
            browser.script(&format!(
                "ask({wish}).then(answer => answer.blob()).then(blob => {{ sound.src = URL.createObjectURL(blob); }})
                     .catch(error => {{ window.fault = String(error); }});"
            ));
            let length = play(&browser, &format!("{format}, stream: {stream}"));
            lengths.extend((!stream).then(|| length.as_f64().unwrap()));
        }
    }
    assert!(lengths.iter().all(|seconds| (seconds - lengths[0]).abs() < 0.01), "{lengths:?}");

    // MP3 plays while it is spoken.
    let mut wish = long_wish();
    wish["response_format"] = "mp3".into();
    browser.script(&format!(
        "window.whole = false;
         const answered = ask({wish}), source = new MediaSource();
         sound.src = URL.createObjectURL(source);
         source.onsourceopen = async () => {{
             try {{
                 const answer = await answered, buffer = source.addSourceBuffer(answer.headers.get('content-type'));
                 const reader = answer.body.getReader();
                 for (;;) {{
                     const {{ done, value }} = await reader.read();
                     if (done) break;
                     buffer.appendBuffer(value);
                     await new Promise(resolve => buffer.addEventListener('updateend', resolve, {{ once: true }}));
                 }}
                 whole = true;
             }} catch (error) {{ fault = String(error); }}
         }};"
    ));
    play(&browser, "mp3, as it comes");
    assert_eq!(browser.script("return whole"), json!(false), "heard before all is spoken");
}

/// The page that `eval` writes, from disk: every player loads and has a name, one plays by the keyboard alone, and nothing is
/// asked of anybody.
#[test]
fn the_listening_page_plays_and_asks_nobody() {
    let profile = tempfile::tempdir().unwrap();
    let Some(browser) = browser_or_skip(&profile) else { return };
    let eval =
        ["eval", "--checkpoint", "run", "--part", "all", "--limit", "3", "--steps", "1", "--parts", "-o", "heard"];
    let output = binary(home()).args(eval).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    browser.post("/url", &json!({ "url": format!("file://{}", home().join("heard/listen.html").display()) }));
    browser.wait("document.querySelectorAll('audio').length === 15");
    browser.wait(
        "[...document.querySelectorAll('audio')].every(player => player.readyState >= 1 && player.duration > 0.5)",
    );
    let named = browser.script("return new Set([...document.querySelectorAll('audio')].map(it => it.ariaLabel)).size");
    assert_eq!(named, json!(15), "a screen reader tells them apart");
    let asked = browser.script(
        "return performance.getEntriesByType('resource').map(it => it.name).filter(name => !name.startsWith('data:'))",
    );
    assert_eq!(asked, json!([]), "no request elsewhere");
    // Tab reaches the first player, and the space bar plays it.
    browser.type_into("body", "\u{e004}");
    assert_eq!(browser.script("return document.activeElement.tagName"), json!("AUDIO"));
    browser.type_into("audio", " ");
    browser.wait("document.querySelector('audio').currentTime > 0.1");
    let ground = browser.script("return getComputedStyle(document.body).backgroundColor");
    assert!(ground == json!("rgb(244, 245, 248)") || ground == json!("rgb(18, 20, 27)"), "styled: {ground}");
    assert_eq!(browser.complaints(), json!([]), "nothing broke the policy");
}
