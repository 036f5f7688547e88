//! The live view: runs in the browser, while they run and later. Everything is read from what a run writes; a run that
//! shows itself adds through its [`Hub`] what is too fast for files. Nobody who looks is ever waited for.

mod hub;
mod listener;
mod query;
mod routes;
mod runs;
mod stream;

pub use hub::{Hub, Requests};
pub use runs::RunTable;

use crate::{listen, token};
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use host::error::WithHint;
use host::recogniser::Recogniser;
use host::run_log::unheard;
use listener::Listener;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The first port that is tried, and how many behind it where none was asked for.
pub const PORT: u16 = 6007;
const PORTS: u16 = 20;
/// Time that answers under way have when the server ends.
const DRAIN: Duration = Duration::from_millis(300);

/// Where the live view is served, and to whom.
pub struct LiveSettings {
    pub host: IpAddr,
    /// 0 is any that is free; none, the first free one from [`PORT`] on.
    pub port: Option<u16>,
    /// Asked for by every request beyond this machine, and by every wish to change something.
    pub token: Option<String>,
    /// Listens to what runs have spoken.
    pub recogniser: Option<Recogniser>,
}

/// A server on a thread of its own, and a listener on another, until it is dropped.
pub struct LiveServer {
    pub address: SocketAddr,
    /// What to open in a browser, the token included where one is needed.
    pub url: String,
    app: Arc<AppState>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct AppState {
    runs: RunTable,
    hub: Option<Arc<Hub>>,
    token: Option<blake3::Hash>,
    /// Reading needs the token too.
    is_guarded: bool,
    /// Where there is a recogniser.
    listener: Option<Listener>,
    /// Files are read, and pitch is followed, by this many at a time.
    readers: Semaphore,
}

impl LiveServer {
    /// `hub`: of the run that shows itself here.
    pub fn start(settings: LiveSettings, runs: RunTable, hub: Option<Arc<Hub>>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
        let listener = runtime.block_on(async { bind(&settings) })?;
        let address = listener.local_addr()?;
        let is_guarded = !settings.host.is_loopback();
        let controls = hub.as_ref().is_some_and(|hub| hub.controls());
        let token = settings.token.or_else(|| (is_guarded || controls).then(token::random));
        let url = match &token {
            // Behind the hash, so that it is never sent in a request's first line, which proxies write down.
            Some(token) if is_guarded || controls => format!("http://{address}/#token={token}"),
            _ => format!("http://{address}/"),
        };
        let token = token.map(|token| blake3::hash(token.as_bytes()));
        let hears = settings.recogniser.is_some().then(Listener::default);
        let app = Arc::new(AppState { runs, hub, token, is_guarded, listener: hears, readers: Semaphore::new(2) });
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, routes) = (stop.clone(), router(app.clone()));
        let serve = move || {
            let stop = || stopping.load(Ordering::Relaxed);
            runtime.block_on(listen::serve(listener, routes, stop, || (), DRAIN));
            runtime.shutdown_timeout(DRAIN);
        };
        let mut server = LiveServer { address, url, app, stop, threads: Vec::new() };
        server.threads.push(thread::Builder::new().name("live".into()).spawn(serve)?);
        if let Some(recogniser) = settings.recogniser {
            let (app, stop) = (server.app.clone(), server.stop.clone());
            let hear = move || {
                let is_stopped =
                    || stop.load(Ordering::Relaxed) || app.hub.as_ref().is_some_and(|hub| hub.is_stopping());
                let listener = app.listener.as_ref().expect("made with a recogniser");
                listener.run(recogniser, &app.runs, &is_stopped);
            };
            server.threads.push(thread::Builder::new().name("listener".into()).spawn(hear)?);
        }
        Ok(server)
    }

    /// Sounds that the recogniser has not come to yet; none where there is no recogniser.
    pub fn unheard(&self) -> usize {
        let runs = self.app.listener.as_ref().map(|_| self.app.runs.all()).unwrap_or_default();
        runs.iter().map(|run| unheard(&run.folder.log_dir).len()).sum()
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn bind(settings: &LiveSettings) -> Result<TcpListener> {
    let ports = settings.port.map_or(PORT..=PORT + PORTS, |port| port..=port);
    let mut last = None;
    for port in ports {
        match listen::bind(SocketAddr::new(settings.host, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some((port, error)),
        }
    }
    let (port, error) = last.expect("at least one port was tried");
    let address = SocketAddr::new(settings.host, port);
    Err(error)
        .hint("another host or port; port 0 picks a free one")
        .with_context(|| format!("{address}: cannot be listened on"))
}

fn router(app: Arc<AppState>) -> Router {
    let guarded = Router::new()
        .route("/api/runs", get(routes::list))
        .route("/api/runs/{id}", get(routes::show))
        .route("/api/runs/{id}/curves", get(routes::curves))
        .route("/api/runs/{id}/sound/{clip}/{step}", get(routes::sound))
        .route("/api/runs/{id}/clip/{clip}/{step}", get(routes::clip))
        .route("/api/runs/{id}/heard/{clip}/{step}", get(routes::heard))
        .route("/api/stream", get(routes::stream))
        .route("/api/control", post(routes::control))
        .layer(from_fn_with_state(app.clone(), guard));
    Router::new().route("/", get(routes::page)).merge(guarded).fallback(routes::unknown).with_state(app)
}

/// Lets in who carries the token; without one, who asks this machine by its own name. A page of another site whose name was
/// made to point here asks by that name.
async fn guard(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let has_token = app.token.as_ref().is_some_and(|token| token::carries(request.headers(), token));
    let mut response = match has_token || (!app.is_guarded && is_local(request.headers())) {
        true => next.run(request).await,
        false => routes::refused().into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_local(headers: &HeaderMap) -> bool {
    let name = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match name.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => name.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An answer that the run or the clip is not there.
fn not_found(what: &str) -> crate::error::ApiError {
    crate::error::ApiError::new(StatusCode::NOT_FOUND, "not_found", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        let named = |name: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(name).unwrap());
            is_local(&headers)
        };
        for own in ["127.0.0.1:6007", "localhost:6007", "LOCALHOST", "[::1]:6007", "127.8.8.8"] {
            assert!(named(own), "{own}");
        }
        for other in ["evil.example:6007", "192.168.1.2", "localhost.evil.example", "", "127.0.0.1.evil.example"] {
            assert!(!named(other), "{other}");
        }
        assert!(!is_local(&HeaderMap::new()));
    }
}
