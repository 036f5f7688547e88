//! Object storage through the `object_store` crate, made blocking and patient.
//!
//! Its own retries are off: they would repeat a request with the credentials it was made with. Here each attempt asks for
//! them, and after a refusal the store is made anew, so that a token that has expired is asked for again.

use super::location;
use super::{Error, Fault, Object, Options};
use crate::machine;
use crate::rng::Rng;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{
    ClientConfigKey, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    RetryConfig, WriteMultipart,
};
use regex::Regex;
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// One request: long enough to hide its latency, short enough to be asked for again.
const PIECE_BYTES: u64 = 4 << 20;
/// Pieces of one object that are under way or wait to be read.
pub(super) const AHEAD: usize = 4;
/// Size of a file from which it is written in parts.
const PARTS_FROM_BYTES: u64 = 16 << 20;
const PART_BYTES: usize = 8 << 20;
const PARTS_AT_ONCE: usize = 4;
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Most threads that connections are served by, which is a quarter of the cores; whoever waits for an answer waits on its own
/// thread.
const MOST_RUNTIME_THREADS: usize = 8;

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    // TLS by ring, which a C compiler builds in seconds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((machine::cores() / 4).clamp(2, MOST_RUNTIME_THREADS))
        .thread_name("storage")
        .enable_all()
        .build()
});

/// A part of a bucket, or of a web server.
pub(super) struct Remote(Arc<Inner>);

struct Inner {
    /// Scheme and bucket: what keys are appended to for people.
    root: String,
    /// What keys start from.
    prefix: Key,
    options: Options,
    store: RwLock<Arc<dyn ObjectStore>>,
}

impl Remote {
    pub fn open(location: &str, options: &Options) -> Result<Self, Error> {
        let (scheme, host, path) = location::parts(location)?;
        let root = format!("{scheme}://{host}");
        let parse =
            if scheme.starts_with("http") { Key::from_url_path(path) } else { Key::parse(path.trim_matches('/')) };
        let prefix = parse.map_err(|error| Error::new(location, Fault::Unsupported, error.to_string()))?;
        RUNTIME.as_ref().map_err(|cause| Error::new(&root, Fault::Io, format!("no threads: {cause}")))?;
        let store = build(&root, options).map_err(|cause| explain(&root, &cause))?;
        let options = options.clone();
        Ok(Remote(Arc::new(Inner { root, prefix, options, store: RwLock::new(store) })))
    }

    pub fn name(&self, key: &str) -> String {
        self.0.name(&self.0.whole_key(key))
    }

    pub fn list(&self, prefix: &str) -> Result<impl Iterator<Item = Result<Object, Error>> + Send + use<>, Error> {
        let inner = self.0.clone();
        let prefix = inner.key(prefix)?;
        Ok(Listing { inner, prefix, stream: None, last: None, ended: false })
    }

    pub fn head(&self, key: &str) -> Result<Object, Error> {
        let (inner, at) = (&self.0, self.0.key(key)?);
        let meta = wait(inner.attempt(&at, |store| {
            let at = at.clone();
            async move { store.head(&at).await }
        }))?;
        Ok(Object { key: key.into(), bytes: meta.size, etag: meta.e_tag })
    }

    pub fn get(&self, key: &str) -> Result<Bytes, Error> {
        let object = self.head(key)?;
        self.get_range(&object, 0..object.bytes)
    }

    pub fn get_range(&self, object: &Object, range: Range<u64>) -> Result<Bytes, Error> {
        wait(self.0.clone().fetch(object.clone(), range))
    }

    /// Reads an object in order, some pieces ahead.
    pub fn pieces(&self, object: &Object) -> Pieces {
        Pieces { inner: self.0.clone(), object: object.clone(), ahead: VecDeque::new(), next: 0 }
    }

    pub fn put(&self, key: &str, bytes: Bytes) -> Result<(), Error> {
        let at = self.0.key(key)?;
        wait(self.0.attempt(&at, |store| {
            let (at, bytes) = (at.clone(), bytes.clone());
            async move { store.put(&at, bytes.into()).await.map(drop) }
        }))
    }

    pub fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<bool, Error> {
        let at = self.0.key(key)?;
        wait(self.0.attempt(&at, |store| {
            let (at, bytes) = (at.clone(), bytes.clone());
            async move {
                match store.put_opts(&at, bytes.into(), PutMode::Create.into()).await {
                    Ok(_) => Ok(true),
                    Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                        Ok(false)
                    }
                    Err(error) => Err(error),
                }
            }
        }))
    }

    pub fn put_file(&self, key: &str, path: &Path) -> Result<(), Error> {
        let io = |cause| Error::io(path.display(), cause);
        let bytes = std::fs::metadata(path).map_err(io)?.len();
        if bytes < PARTS_FROM_BYTES {
            return self.put(key, std::fs::read(path).map_err(io)?.into());
        }
        let at = self.0.key(key)?;
        wait(self.0.attempt(&at, |store| {
            let at = at.clone();
            async move {
                let failed = |source: io::Error| object_store::Error::Generic { store: "file", source: source.into() };
                let mut file = File::open(path).map_err(failed)?;
                let mut parts = WriteMultipart::new_with_chunk_size(store.put_multipart(&at).await?, PART_BYTES);
                loop {
                    let mut part = Vec::with_capacity(PART_BYTES);
                    if file.by_ref().take(PART_BYTES as u64).read_to_end(&mut part).map_err(failed)? == 0 {
                        return parts.finish().await.map(drop);
                    }
                    parts.wait_for_capacity(PARTS_AT_ONCE).await?;
                    parts.put(part.into());
                }
            }
        }))
    }

    pub fn delete(&self, key: &str) -> Result<(), Error> {
        let at = self.0.key(key)?;
        let deleted = wait(self.0.attempt(&at, |store| {
            let at = at.clone();
            async move { store.delete(&at).await }
        }));
        deleted.or_else(|error| if error.fault == Fault::Absent { Ok(()) } else { Err(error) })
    }
}

impl Inner {
    fn key(&self, key: &str) -> Result<Key, Error> {
        let whole = self.whole_key(key);
        Key::parse(&whole).map_err(|error| Error::new(&self.name(&whole), Fault::Unsupported, error.to_string()))
    }

    fn whole_key(&self, key: &str) -> String {
        [self.prefix.as_ref(), key].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("/")
    }

    fn name(&self, whole_key: &str) -> String {
        format!("{}/{whole_key}", self.root)
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        self.store.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Makes the store anew, and with it its credentials.
    fn renew(&self) {
        if let Ok(store) = build(&self.root, &self.options) {
            *self.store.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = store;
        }
    }

    /// Asks until there is an answer that will not change.
    async fn attempt<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        at: &Key,
        ask: impl Fn(Arc<dyn ObjectStore>) -> F,
    ) -> Result<T, Error> {
        let name = self.name(at.as_ref());
        let (start, mut pause, mut was_refused) = (Instant::now(), self.options.pause, false);
        let mut attempt = 1;
        loop {
            let limit = self.options.timeout.max(self.options.patience);
            let error = match tokio::time::timeout(limit, ask(self.store())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(cause)) => explain(&name, &cause),
                Err(_) => Error::new(&name, Fault::Unreachable, "no answer in time"),
            };
            match error.fault {
                Fault::Refused if !was_refused => {
                    was_refused = true;
                    self.renew();
                    continue;
                }
                Fault::Unreachable
                    if attempt < self.options.attempts && start.elapsed() + pause < self.options.patience => {}
                Fault::Unreachable => return Err(given_up(error, attempt, start.elapsed())),
                _ => return Err(error),
            }
            tokio::time::sleep(jittered(pause, attempt)).await;
            pause = (2 * pause).min(MAX_PAUSE);
            attempt += 1;
        }
    }

    /// Exactly these bytes.
    async fn fetch(self: Arc<Self>, object: Object, range: Range<u64>) -> Result<Bytes, Error> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let at = self.key(&object.key)?;
        self.attempt(&at, |store| {
            let (at, range, etag) = (at.clone(), range.clone(), object.etag.clone());
            async move {
                let options =
                    GetOptions { range: Some(GetRange::Bounded(range.clone())), if_match: etag, ..Default::default() };
                let bytes = store.get_opts(&at, options).await?.bytes().await?;
                if bytes.len() as u64 == range.end - range.start {
                    return Ok(bytes);
                }
                let what = format!("{} of {} bytes came", bytes.len(), range.end - range.start);
                Err(object_store::Error::Generic { store: "", source: what.into() })
            }
        })
        .await
    }
}

/// An object as the pieces that it is fetched in.
pub(super) struct Pieces {
    inner: Arc<Inner>,
    object: Object,
    ahead: VecDeque<Piece>,
    /// Start of the piece that is asked for next.
    next: u64,
}

struct Piece {
    range: Range<u64>,
    bytes: Fetching,
}

enum Fetching {
    UnderWay(JoinHandle<Result<Bytes, Error>>),
    Here(Bytes),
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Fetching::UnderWay(task) = &self.bytes {
            task.abort();
        }
    }
}

impl Pieces {
    /// Forgets what is before a place.
    pub fn seek(&mut self, at: u64) {
        self.ahead.retain(|piece| piece.range.end > at);
        if self.ahead.is_empty() {
            self.next = self.next.max(at);
        }
    }

    pub fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.seek(at);
        let runtime = runtime();
        while self.ahead.len() < AHEAD && self.next < self.object.bytes {
            let range = self.next..(self.next + PIECE_BYTES).min(self.object.bytes);
            self.next = range.end;
            let task = runtime.spawn(self.inner.clone().fetch(self.object.clone(), range.clone()));
            self.ahead.push_back(Piece { range, bytes: Fetching::UnderWay(task) });
        }
        let Some(piece) = self.ahead.front_mut() else { return Ok(0) };
        if let Fetching::UnderWay(task) = &mut piece.bytes {
            let fetched = runtime.block_on(task).map_err(io::Error::other)?;
            piece.bytes = Fetching::Here(fetched?);
        }
        let Fetching::Here(bytes) = &piece.bytes else { return Ok(0) };
        let rest = &bytes[(at - piece.range.start) as usize..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

/// Objects of a bucket, a page at a time. After a failure it goes on behind the last one.
struct Listing {
    inner: Arc<Inner>,
    prefix: Key,
    stream: Option<BoxStream<'static, object_store::Result<ObjectMeta>>>,
    last: Option<Key>,
    ended: bool,
}

impl Listing {
    fn stream(&self, store: &dyn ObjectStore) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        match &self.last {
            None => store.list(prefix),
            Some(last) => store.list_with_offset(prefix, last),
        }
    }

    fn advance(&mut self) -> Result<Option<ObjectMeta>, Error> {
        let stream = std::sync::Mutex::new(self.stream.take());
        let take = || stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let inner = self.inner.clone();
        let (meta, stream) = wait(inner.attempt(&self.prefix, |store| {
            // A stream that failed is over: the next attempt starts another.
            let mut stream = take().unwrap_or_else(|| self.stream(&*store));
            async move { stream.next().await.transpose().map(|meta| (meta, stream)) }
        }))?;
        self.stream = Some(stream);
        Ok(meta)
    }
}

impl Iterator for Listing {
    type Item = Result<Object, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.advance() {
            Ok(None) => {
                self.ended = true;
                None
            }
            Ok(Some(meta)) => {
                let whole = meta.location.as_ref();
                let key =
                    whole.strip_prefix(self.inner.prefix.as_ref()).unwrap_or(whole).trim_start_matches('/').into();
                self.last = Some(meta.location);
                Some(Ok(Object { key, bytes: meta.size, etag: meta.e_tag }))
            }
            Err(mut error) => {
                self.ended = true;
                if error.fault == Fault::Unsupported {
                    error = error
                        .hint("a web server has no listing: name the files, as in https://host/shard-{000..127}.tar");
                }
                Some(Err(error))
            }
        }
    }
}

fn runtime() -> &'static Runtime {
    // `Remote::open` looked.
    RUNTIME.as_ref().unwrap_or_else(|error| panic!("no storage without its threads: {error}"))
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// Between half of a pause and all of it, so that machines that failed together do not come back together.
fn jittered(pause: Duration, attempt: u32) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
    let seed = [now, u64::from(std::process::id()), u64::from(attempt)];
    pause.mul_f64(0.5 + 0.5 * Rng::new(&seed).unit())
}

fn build(root: &str, options: &Options) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig { max_retries: 0, ..Default::default() };
    let seconds = format!("{} seconds", options.timeout.as_secs_f64());
    let client = [(ClientConfigKey::Timeout, seconds), (ClientConfigKey::ConnectTimeout, "10 seconds".into())];
    // Of our own settings each store takes those that are its own.
    let ours = |prefix: &'static str| {
        options
            .settings
            .iter()
            .filter(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.to_lowercase(), value))
    };
    let scheme = location::scheme(root).unwrap_or_default();
    Ok(match scheme {
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::from_env().with_url(root).with_retry(retry);
            for (name, value) in ours("AWS_") {
                builder = builder.with_config(name.parse()?, value);
            }
            for (key, value) in client {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
            }
            // Who names an address without TLS wants none.
            if builder.get_config_value(&AmazonS3ConfigKey::Endpoint).is_some_and(|url| url.starts_with("http://")) {
                builder = builder.with_allow_http(true);
            }
            Arc::new(builder.build()?)
        }
        "gs" => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_url(root).with_retry(retry);
            for (name, value) in ours("GOOGLE_") {
                builder = builder.with_config(name.parse()?, value);
            }
            for (key, value) in client {
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
            }
            Arc::new(builder.build()?)
        }
        "http" | "https" => {
            let mut options = ClientOptions::new().with_allow_http(scheme == "http");
            for (key, value) in client {
                options = options.with_config(key, value);
            }
            Arc::new(HttpBuilder::new().with_url(root).with_client_options(options).with_retry(retry).build()?)
        }
        _ => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(root).with_retry(retry);
            for (name, value) in ours("AZURE_") {
                builder = builder.with_config(name.parse()?, value);
            }
            for (key, value) in client {
                builder = builder.with_config(AzureConfigKey::Client(key), value);
            }
            if builder.get_config_value(&AzureConfigKey::Endpoint).is_some_and(|url| url.starts_with("http://")) {
                builder = builder.with_allow_http(true);
            }
            Arc::new(builder.build()?)
        }
    })
}

/// What a failure means, in words that hold nothing of the request.
fn explain(name: &str, cause: &object_store::Error) -> Error {
    use object_store::Error as E;
    let what = facts(cause);
    match cause {
        E::NotFound { .. } => Error::new(name, Fault::Absent, format!("not found ({what})")),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Error::new(name, Fault::Refused, format!("refused ({what})"))
            .hint("credentials come from AWS_…, GOOGLE_… or AZURE_… variables; AWS_SKIP_SIGNATURE=true asks a public bucket without any"),
        E::Precondition { .. } | E::NotModified { .. } => Error::new(name, Fault::Changed, "changed since it was looked at"),
        E::NotSupported { .. } | E::NotImplemented { .. } | E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => {
            Error::new(name, Fault::Unsupported, what)
        }
        // 4xx other than a time-out and "too many requests": asking again would bring the same.
        _ => match what.get(..3).and_then(|status| status.parse().ok()) {
            Some(405 | 501) => Error::new(name, Fault::Unsupported, what),
            Some(400..=499) if !what.starts_with("408") && !what.starts_with("429") => Error::new(name, Fault::Refused, what),
            _ => Error::new(name, Fault::Unreachable, what),
        },
    }
}

fn given_up(error: Error, attempts: u32, elapsed: Duration) -> Error {
    let times = if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
    let what = format!("{}; asked {times} in {:.1} s", error.what(), elapsed.as_secs_f64());
    Error::new(&error.name, Fault::Unreachable, what).hint("is the network there, and the endpoint right?")
}

/// Status and code of an answer, or the innermost cause where there was none. Answers may repeat what was signed, and
/// causes the address with its query: neither is told.
fn facts(cause: &object_store::Error) -> String {
    static STATUS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"status(?: code)?:? (\d{3}[A-Za-z ]*)").expect("a pattern"));
    static CODE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"<Code>([A-Za-z0-9.]{1,60})</Code>").expect("a pattern"));
    static URL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[a-z0-9+]+://[^\s()]*").expect("a pattern"));
    let text = cause.to_string();
    if let Some(status) = STATUS.captures(&text).map(|found| found[1].trim().to_owned()) {
        let code = CODE.captures(&text).map(|found| format!(" {}", &found[1])).unwrap_or_default();
        return format!("{status}{code}");
    }
    let mut inner: &dyn std::error::Error = cause;
    while let Some(next) = inner.source() {
        inner = next;
    }
    let text = URL.replace_all(&inner.to_string(), "…").replace(" for url (…)", "");
    match text {
        text if text.contains("timed out") || text.contains("deadline") => "no answer in time".into(),
        text if text.contains("end of file before message length")
            || text.contains("closed before message completed") =>
        {
            "half an answer".into()
        }
        text => text.chars().take(200).collect(),
    }
}
