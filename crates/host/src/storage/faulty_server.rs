//! A small S3 server on 127.0.0.1 that can be told to fail, for tests: objects in memory, path-style addresses, listings in
//! pages.

use super::Options;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PAGE: usize = 100;

/// What a request gets instead of its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// This status, with a body as S3 writes it that repeats what was signed.
    Status(u16),
    /// Nothing, for longer than anybody waits.
    Silence,
    /// The right headers and half of the body.
    Half,
    /// A byte now and then.
    Drip,
    /// A 206 with fewer bytes than asked for, and headers that agree with them.
    Short,
}

/// A request, as far as a fault may depend on it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Key of the object; empty for a listing.
    pub key: String,
    pub headers: BTreeMap<String, String>,
    query: BTreeMap<String, String>,
    /// Number of the request, counted from 0.
    pub number: usize,
}

type Plan = Box<dyn Fn(&Request) -> Option<Trouble> + Send + Sync>;

pub struct FaultyServer {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Objects that are listed after these and hold nothing.
    listed: AtomicUsize,
    plan: Mutex<Plan>,
    requests: Mutex<Vec<Request>>,
}

impl FaultyServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            listed: AtomicUsize::new(0),
            plan: Mutex::new(Box::new(|_| None)),
            requests: Mutex::default(),
        });
        let server = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                thread::spawn(move || while server.answer(&stream).is_some() {});
            }
        });
        FaultyServer { port, shared }
    }

    pub fn options(&self) -> Options {
        let setting = |name: &str, value: String| (name.to_owned(), value);
        Options {
            timeout: Duration::from_millis(600),
            attempts: 4,
            patience: Duration::from_secs(8),
            pause: Duration::from_millis(10),
            settings: vec![
                setting("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
                setting("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".into()),
                setting("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIsecret".into()),
                setting("AWS_REGION", "us-east-1".into()),
            ],
        }
    }

    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        self.shared.objects.lock().unwrap().insert(key.into(), bytes.into());
    }

    /// Makes listings go on with so many names.
    pub fn list_also(&self, count: usize) {
        self.shared.listed.store(count, Ordering::Relaxed);
    }

    pub fn trouble(&self, plan: impl Fn(&Request) -> Option<Trouble> + Send + Sync + 'static) {
        *self.shared.plan.lock().unwrap() = Box::new(plan);
        self.shared.requests.lock().unwrap().clear();
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Shared {
    /// Answers a request; none when the connection is over.
    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut input = BufReader::new(stream);
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            input.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let mut body = vec![0; headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0)];
        input.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (decoded(k), decoded(v)));
        let key = decoded(path.trim_start_matches("/bucket").trim_start_matches('/'));
        let query = pairs.collect();
        let mut requests = self.requests.lock().unwrap();
        let request = Request { method, key, headers, query, number: requests.len() };
        requests.push(request.clone());
        drop(requests);
        let trouble = (self.plan.lock().unwrap())(&request);
        self.reply(stream, &request, body, trouble)
    }

    fn reply(&self, mut out: &TcpStream, request: &Request, body: Vec<u8>, trouble: Option<Trouble>) -> Option<()> {
        if let Some(Trouble::Status(status)) = trouble {
            let body =
                "<Error><Code>ExpiredToken</Code><StringToSign>AKIDEXAMPLE wJalrXUtnFEMIsecret</StringToSign></Error>";
            return self.write(out, status, &[], body.as_bytes(), request);
        }
        if trouble == Some(Trouble::Silence) {
            thread::sleep(Duration::from_secs(5));
            return None;
        }
        let mut objects = self.objects.lock().unwrap();
        match &*request.method {
            "PUT" => {
                let taken = request.headers.contains_key("if-none-match") && objects.contains_key(&request.key);
                if taken {
                    return self.write(out, 412, &[], b"", request);
                }
                objects.insert(request.key.clone(), body.clone());
                self.write(out, 200, &[("ETag", etag(&body))], b"", request)
            }
            "DELETE" => {
                objects.remove(&request.key);
                self.write(out, 204, &[], b"", request)
            }
            _ if request.key.is_empty() => {
                let body = self.listing(&objects, request);
                self.write(out, 200, &[], body.as_bytes(), request)
            }
            _ => {
                let Some(whole) = objects.get(&request.key).cloned() else {
                    return self.write(out, 404, &[], b"", request);
                };
                drop(objects);
                if request.headers.get("if-match").is_some_and(|wanted| *wanted != etag(&whole)) {
                    return self.write(out, 412, &[], b"", request);
                }
                let mut headers =
                    vec![("ETag", etag(&whole)), ("Last-Modified", "Mon, 16 Nov 2026 06:00:00 GMT".into())];
                let Some(range) = request.headers.get("range") else {
                    return self.write(out, 200, &headers, &whole, request);
                };
                let (from, to) = range.trim_start_matches("bytes=").split_once('-')?;
                let (from, to): (usize, usize) = (from.parse().ok()?, to.parse::<usize>().ok()?.min(whole.len() - 1));
                let to = if trouble == Some(Trouble::Short) { from + (to - from) / 2 } else { to };
                headers.push(("Content-Range", format!("bytes {from}-{to}/{}", whole.len())));
                let body = &whole[from..=to];
                match trouble {
                    Some(Trouble::Half) => {
                        write!(out, "{}", head(206, &headers, body.len())).ok()?;
                        out.write_all(&body[..body.len() / 2]).ok()?;
                        None
                    }
                    Some(Trouble::Drip) => {
                        write!(out, "{}", head(206, &headers, body.len())).ok()?;
                        for byte in body.chunks(1) {
                            out.write_all(byte).ok()?;
                            thread::sleep(Duration::from_millis(20));
                        }
                        Some(())
                    }
                    _ => self.write(out, 206, &headers, body, request),
                }
            }
        }
    }

    fn listing(&self, objects: &BTreeMap<String, Vec<u8>>, request: &Request) -> String {
        let value = |name: &str| request.query.get(name).cloned().unwrap_or_default();
        let (prefix, from) = (value("prefix"), value("start-after").max(value("continuation-token")));
        let more = self.listed.load(Ordering::Relaxed);
        let more = (0..more).map(|n| (format!("{prefix}z{n:09}.bin"), 1));
        let all = objects.iter().map(|(key, bytes)| (key.clone(), bytes.len())).chain(more);
        let mut page =
            all.filter(|(key, _)| key.starts_with(&prefix) && *key > from).take(PAGE + 1).collect::<Vec<_>>();
        let is_cut = page.len() > PAGE;
        page.truncate(PAGE);
        let token = page.last().map(|(key, _)| key.clone()).unwrap_or_default();
        let contents: String = page.iter().map(|(key, bytes)| {
            let tag = objects.get(key).map(|bytes| etag(bytes)).unwrap_or_default();
            format!("<Contents><Key>{key}</Key><LastModified>2026-11-16T06:00:00.000Z</LastModified><ETag>{tag}</ETag><Size>{bytes}</Size></Contents>")
        }).collect();
        let next =
            if is_cut { format!("<NextContinuationToken>{token}</NextContinuationToken>") } else { String::new() };
        format!(
            "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><IsTruncated>{is_cut}</IsTruncated>{next}{contents}</ListBucketResult>"
        )
    }

    fn write(
        &self,
        mut out: &TcpStream,
        status: u16,
        headers: &[(&str, String)],
        body: &[u8],
        request: &Request,
    ) -> Option<()> {
        write!(out, "{}", head(status, headers, body.len())).ok()?;
        if request.method != "HEAD" {
            out.write_all(body).ok()?;
        }
        Some(())
    }
}

fn head(status: u16, headers: &[(&str, String)], length: usize) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n")
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", &blake3::hash(bytes).to_hex()[..32])
}

fn decoded(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let hex = String::from_utf8(rest.by_ref().take(2).collect()).unwrap();
                out.push(u8::from_str_radix(&hex, 16).unwrap());
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap()
}
